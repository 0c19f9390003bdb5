"""The `payres` command. Its subcommands are in modules by noun, which are loaded when they are needed."""

from collections.abc import Mapping
from functools import cache
from importlib import import_module
from inspect import cleandoc
from typing import Any, NamedTuple

import click

from payres import __version__
from payres.cli.commands import Group
from payres.operator.declared.nouns import NOUNS


class Listed(NamedTuple):
    """A command or a group: its help, which begins with its line in the help of `payres`; the modules of the operations
    that it is made from, or the module here that has it."""

    help: str
    operations: str = ""
    module: str = ""

    @property
    def line(self) -> str:
        return self.help.partition("\n")[0]


def _declared(section: str) -> Mapping[str, Listed]:
    """The commands of operations in a section."""
    found = [(noun.modules, noun.commands.items()) for noun in NOUNS if noun.section == section]
    return {name: Listed(text, modules) for modules, commands in found for name, text in commands}


# The lines are here so that `payres --help` loads none of the modules.
SECTIONS: Mapping[str, Mapping[str, Listed]] = {
    "Set up and run": {
        "init": Listed("Write an annotated payres.toml and create the database.", module="server"),
        "serve": Listed("Run the server.", module="server"),
        "status": Listed("Show the state of the server and its money.", module="status"),
        **_declared("Set up and run"),
        "backup": Listed("Copy the database while the server runs.", module="backup"),
        "restore": Listed("Replace the database by a backup.", module="backup"),
    },
    **{title: _declared(title) for title in ("Wallets and payments", "Currencies")},
    "Other servers and programs": _declared("Other servers and programs"),
    "Operators and their books": _declared("Operators and their books"),
    "Try, and build clients": {
        "demo": Listed("Show one payment, step by step, against a temporary server.", module="demo"),
        "sandbox": Listed("Run a temporary server for the tests of an app.", module="sandbox"),
        "pay": Listed("Pay from a wallet anywhere, with its owner's consent.", module="open_payments"),
        "request": Listed("Send a signed request.", module="open_payments"),
        "sign": Listed("Sign a request, and print the headers.", module="open_payments"),
        "verify": Listed("Check the signature of a request.", module="open_payments"),
    },
    "The shell": {
        "completion": Listed("Print a script that completes commands in a shell.", module="manual"),
        "man": Listed("Print the manual page.", module="manual"),
    },
}
COMMANDS: Mapping[str, Listed] = {name: entry for section in SECTIONS.values() for name, entry in section.items()}


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
                formatter.write_dl([(name.ljust(width), entry.line) for name, entry in section.items()])


@cache
def _load(name: str) -> click.Command:
    """The command; its docstring follows its line in COMMANDS."""
    entry = COMMANDS[name]
    if entry.operations:
        from payres.cli.operations import command_of

        command = command_of(entry.operations.split(), name)
    else:
        command = getattr(import_module(f"{__name__}.{entry.module}"), name.replace("-", "_"))
    command.help = f"{entry.help}\n\n{cleandoc(command.help or '')}"
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
