"""The `payres` command. Its subcommands are in one module a noun, which is loaded when it is called."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import cleandoc

import click

from payres import __version__
from payres.cli.commands import Group

# The module of each command, and the first line of its help, so that `payres --help` loads none of the modules.
COMMANDS: Mapping[str, tuple[str, str]] = {
    "init": ("server", "Write an annotated payres.toml and create the database."),
    "serve": ("server", "Run the server."),
    "status": ("status", "Show on one screen how the server and its money stand."),
    "doctor": ("doctor", "Look for what is wrong, and say how to fix it."),
    "demo": ("demo", "Show one payment, step by step, against a throw-away server."),
    "wallet": ("wallet", "Open wallets and move money in and out of them."),
    "key": ("key", "Manage the public keys that clients sign with."),
    "payment": ("payment", "Look through payments, and send money back."),
    "grant": ("grant", "See what clients ask for; approve, deny and revoke it."),
    "asset": ("assets", "Show the currencies in use, with their fees and liquidity."),
    "liquidity": ("assets", "Fund exchange between currencies."),
    "rate": ("assets", "Set exchange rates."),
    "fee": ("assets", "Set what sending costs; take collected fees out."),
    "peer": ("peer", "Connect to other Interledger servers, and settle with them."),
    "webhook": ("webhook", "Send events to your programs, and see what became of them."),
    "ledger": ("ledger", "Check the ledger."),
    "export": ("export", "Export payments, the ledger and statements."),
    "api-key": ("api_key", "Let programs use the operator's API."),
    "admin": ("admin", "Let people use the admin pages."),
    "audit": ("audit", "See what was changed, by whom."),
    "backup": ("backup", "Copy the database while the server runs."),
    "restore": ("backup", "Put a backup in the place of the database."),
}


class LazyGroup(Group):
    """A group whose commands are imported by name: the attribute of that name in a module of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return _load(cmd_name) if cmd_name in COMMANDS else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, help_text) for name, (_, help_text) in COMMANDS.items()])


@cache
def _load(name: str) -> click.Command:
    """The command; its docstring continues its line in COMMANDS."""
    module, line = COMMANDS[name]
    command = getattr(import_module(f"{__name__}.{module}"), name.replace("-", "_"))
    assert isinstance(command, click.Command)
    command.help = f"{line}\n\n{cleandoc(command.help or '')}"
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

    Settings come from flags, PAYRES_* variables and payres.toml, in this order; `payres init` writes that file with
    every setting explained. Commands work on the database while the server runs.
    """
