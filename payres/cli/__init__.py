"""The `payres` command. Its subcommands are in modules by noun, which are loaded when they are needed."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import cleandoc
from typing import Any, NamedTuple

import click

from payres import __version__
from payres.cli.commands import Group


class Noun(NamedTuple):
    """A command or a group: the first line of its help, the modules with the operations that become commands of the
    group, the rest of its help if it has no module here, and that module."""

    line: str
    operations: str = ""
    about: str = ""
    module: str = ""


# The lines are here so that `payres --help` loads none of the modules.
SECTIONS: Mapping[str, Mapping[str, Noun]] = {
    "Set up and run": {
        "init": Noun("Write an annotated payres.toml and create the database.", module="server"),
        "serve": Noun("Run the server.", module="server"),
        "status": Noun("Show the state of the server and its money.", module="status"),
        "doctor": Noun("Find problems, and say how to fix them.", module="status"),
        "due": Noun("See what waits; try it now, or give it up.", "due_work"),
        "backup": Noun("Copy the database while the server runs.", module="backup"),
        "restore": Noun("Replace the database by a backup.", module="backup"),
    },
    "Wallets and payments": {
        "wallet": Noun("Open wallets and move money in and out of them.", "wallets separations", module="wallet"),
        "payment": Noun("List payments, and send money back.", "payments payment_history", module="payment"),
        "order": Noun("See the standing orders of owners.", "standing_orders"),
        "grant": Noun(
            "List grants; approve, deny and revoke them.",
            "grants",
            "REF is the id of a grant, or the URL that the client sends its user to (`interact.redirect`).",
        ),
        "key": Noun("Manage the public keys that clients sign with.", "keys", module="key"),
        "search": Noun("Find wallets, payments, grants, keys and changes.", "search"),
    },
    "Currencies": {
        "asset": Noun("Show the currencies in use, with their fees and liquidity.", "assets"),
        "liquidity": Noun(
            "Fund exchange between currencies.",
            "assets",
            "In a payment between two currencies, the receiver is paid from the operator's liquidity in the one, and"
            " the sender's money goes into the liquidity in the other.",
        ),
        "rate": Noun("Set exchange rates.", "assets"),
        "fee": Noun("Set the fees for sending; withdraw collected fees.", "assets"),
    },
    "Other servers and programs": {
        "peer": Noun("Connect to other Interledger servers, and settle with them.", "peers", module="peer"),
        "webhook": Noun(
            "Send events to your programs, and list their deliveries.",
            "webhooks deliveries",
            "ID is what `payres webhook add` printed. docs/events.md lists the events, and says how to verify their"
            " signatures.",
        ),
        "mail": Noun("Try the mail server for the notices of owners.", module="mail"),
        "api-key": Noun(
            "Let programs use the operator's API.",
            "api_keys",
            "A program shows its key as `Authorization: Bearer <key>`. Scopes say what it may do.",
        ),
    },
    "Operators and their books": {
        "admin": Noun(
            "Let people use the admin pages.",
            "operators",
            "The pages are at /admin; docs/operators-api.md describes them.",
        ),
        "audit": Noun("See what was changed and by whom.", "audit"),
        "ledger": Noun("Check the ledger.", module="status"),
        "export": Noun(
            "Export payments, the ledger and statements.",
            "exports",
            "The rows go to standard output, in constant memory.",
        ),
    },
    "Try, and build clients": {
        "demo": Noun("Show one payment, step by step, against a temporary server.", module="demo"),
        "sandbox": Noun("Run a temporary server for the tests of an app.", module="sandbox"),
        "pay": Noun("Pay from a wallet anywhere, with its owner's consent.", module="open_payments"),
        "request": Noun("Send a signed request.", module="open_payments"),
        "sign": Noun("Sign a request, and print the headers.", module="open_payments"),
        "verify": Noun("Check the signature of a request.", module="open_payments"),
    },
    "The shell": {
        "completion": Noun("Print a script that completes commands in a shell.", module="manual"),
        "man": Noun("Print the manual page.", module="manual"),
    },
}
COMMANDS: Mapping[str, Noun] = {name: noun for section in SECTIONS.values() for name, noun in section.items()}


class LazyGroup(Group):
    """A group that imports its commands by name: the attribute of that name in a module of this package."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.ClickException as error:
            from payres.core.protocol.visible import visible_text

            # Others may have written it for a terminal.
            error.message = visible_text(error.message)  # type: ignore[misc]
            raise

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
