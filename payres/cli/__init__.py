"""The `payres` command. Its subcommands are in modules by noun, which are loaded when they are needed."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import cleandoc
from typing import Any, Final, NamedTuple

import click

from payres import __version__


class Noun(NamedTuple):
    """A command or a group: its module here, the first line of its help, the modules with the operations that become
    commands of the group, and the rest of its help if it has no module here."""

    module: str
    line: str
    operations: str = ""
    about: str = ""


NEVER_SUGGESTED: Final = frozenset(
    {"approve", "deactivate", "deny", "refund", "remove", "resolve", "restore", "revoke", "withdraw"}
)
# The lines are here so that `payres --help` loads none of the modules.
SECTIONS: Mapping[str, Mapping[str, Noun]] = {
    "Set up and run": {
        "init": Noun("server", "Write an annotated payres.toml and create the database."),
        "serve": Noun("server", "Run the server."),
        "status": Noun("status", "Show the state of the server and its money."),
        "doctor": Noun("status", "Find problems, and say how to fix them."),
        "backup": Noun("backup", "Copy the database while the server runs."),
        "restore": Noun("backup", "Replace the database by a backup."),
    },
    "Wallets and payments": {
        "wallet": Noun("wallet", "Open wallets and move money in and out of them.", "operator.wallets"),
        "payment": Noun("payment", "List payments, and send money back.", "operator.payments operator.payment_history"),
        "grant": Noun(
            "",
            "List grants; approve, deny and revoke them.",
            "operator.grants",
            "REF is the id of a grant, or the URL that the client sends its user to (`interact.redirect`).",
        ),
        "key": Noun("key", "Manage the public keys that clients sign with.", "operator.keys"),
        "search": Noun("", "Find wallets, payments, grants, keys and changes.", "operator.search"),
    },
    "Currencies": {
        "asset": Noun("", "Show the currencies in use, with their fees and liquidity.", "operator.assets"),
        "liquidity": Noun(
            "",
            "Fund exchange between currencies.",
            "operator.assets",
            "In a payment between two currencies, the receiver is paid from the operator's liquidity in the one, and"
            " the sender's money goes into the liquidity in the other.",
        ),
        "rate": Noun("", "Set exchange rates.", "operator.assets"),
        "fee": Noun("", "Set the fees for sending; withdraw collected fees.", "operator.assets"),
    },
    "Other servers and programs": {
        "peer": Noun("peer", "Connect to other Interledger servers, and settle with them.", "operator.peers"),
        "webhook": Noun(
            "",
            "Send events to your programs, and list their deliveries.",
            "operator.webhooks operator.deliveries",
            "ID is what `payres webhook add` printed. docs/events.md lists the events, and says how to verify their"
            " signatures.",
        ),
        "api-key": Noun(
            "",
            "Let programs use the operator's API.",
            "operator.api_keys",
            "A program shows its key as `Authorization: Bearer <key>`. Scopes say what it may do.",
        ),
    },
    "Operators and their books": {
        "admin": Noun(
            "",
            "Let people use the admin pages.",
            "operator.operators",
            "The pages are at /admin; docs/operators-api.md describes them.",
        ),
        "audit": Noun("", "See what was changed and by whom.", "operator.audit"),
        "ledger": Noun("status", "Check the ledger."),
        "export": Noun(
            "",
            "Export payments, the ledger and statements.",
            "operator.exports",
            "The rows go to standard output, in constant memory.",
        ),
    },
    "Try, and build clients": {
        "demo": Noun("demo", "Show one payment, step by step, against a temporary server."),
        "sandbox": Noun("sandbox", "Run a temporary server for the tests of an app."),
        "pay": Noun("open_payments", "Pay from a wallet anywhere, with its owner's consent."),
        "request": Noun("open_payments", "Send a signed request."),
        "sign": Noun("open_payments", "Sign a request, and print the headers."),
        "verify": Noun("open_payments", "Check the signature of a request."),
    },
    "The shell": {
        "completion": Noun("manual", "Print a script that completes commands in a shell."),
        "man": Noun("manual", "Print the manual page."),
    },
}
COMMANDS: Mapping[str, Noun] = {name: noun for section in SECTIONS.values() for name, noun in section.items()}


class Command(click.Command):
    """A command whose help ends with an example, or with several, one on each line."""

    def __init__(self, *args: Any, example: str, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        label = "Examples: " if "\npayres" in example else "Example: "
        lines = example.replace("\n", "\n" + " " * len(label))
        self.help = f"{cleandoc(self.help or '')}\n\n\b\n{label}{lines}"


class Group(click.Group):
    """A group that suggests the closest command if there is none of the name. Commands keep their `old_names` too."""

    command_class = Command

    def __init__(self, *args: Any, old_names: Mapping[str, str] | None = None, **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self._old_names = old_names or {}

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, self._old_names.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name.startswith("-") or self.get_command(ctx, name) is not None:
            return super().resolve_command(ctx, args)
        from difflib import get_close_matches  # loads slowly, and only mistakes need it

        found = get_close_matches(name, self.list_commands(ctx), n=1)
        if found and found[0] not in NEVER_SUGGESTED:
            hint = f"Did you mean `{ctx.command_path} {found[0]}`?"
        else:
            hint = f"`{ctx.command_path} --help` lists the commands"
        raise click.UsageError(f"No such command '{name}'. {hint}", ctx)


class LazyGroup(Group):
    """A group that imports its commands by name: the attribute of that name in a module of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        try:
            return _load(cmd_name) if cmd_name in COMMANDS else None
        except ModuleNotFoundError as error:
            from payres.core.protocol.errors import explain_missing

            raise click.ClickException(explain_missing(error)) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        width = max(map(len, COMMANDS))
        for title, section in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), noun.line) for name, noun in section.items()])


@cache
def _load(name: str) -> click.Command:
    """The command; its docstring follows its line in COMMANDS."""
    noun = COMMANDS[name]
    command: click.Command = Group(name, help=noun.about)
    if noun.module:
        command = getattr(import_module(f"{__name__}.{noun.module}"), name.replace("-", "_"))
    if noun.operations:
        from payres.cli.operations import commands_of

        found = commands_of(noun.operations.split(), name)
        if name in found:
            command = found[name]
        elif isinstance(command, Group):
            command.commands = {**command.commands, **found}
    command.help = f"{noun.line}\n\n{cleandoc(command.help or '')}"
    return command


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--database", metavar="PATH", help="The database file; every command takes this option too.")
@click.version_option(__version__, "--version", message="payres %(version)s")
def main(database: str | None) -> None:
    """payres is a wallet provider for Open Payments: one process on one SQLite file.

    Begin with a wallet and a server:

    \b
      payres init
      payres wallet create alice --asset USD --scale 2
      payres wallet deposit alice 100.00
      payres serve

    Settings come from flags, PAYRES_* variables and payres.toml, in this order; that file is in the working directory
    or in /etc/payres, and `payres init` writes it with every setting explained. Commands work on the database while
    the server runs.
    """
