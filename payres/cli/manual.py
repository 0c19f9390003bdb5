"""Shell completion and a man page for the command, made from its help."""

from collections.abc import Iterator
from inspect import cleandoc

import click
from click.shell_completion import get_completion_class

from payres import __version__
from payres.cli.commands import Command


@click.command(cls=Command, example="payres completion bash > ~/.local/share/bash-completion/completions/payres")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Add the script to the shell's own start-up file, or to its folder of completions."""
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(context.find_root().command, {}, "payres", "_PAYRES_COMPLETE").source())


@click.command(cls=Command, example="payres man > /usr/local/share/man/man1/payres.1")
@click.pass_context
def man(context: click.Context) -> None:
    """The page goes to standard output, with every command and option."""
    root = click.Context(context.find_root().command, info_name="payres")
    lines = [
        f'.TH PAYRES 1 "" "payres {__version__}"',
        *(".SH NAME", "payres \\- a wallet provider for Open Payments"),
        *(".SH SYNOPSIS", _bold("payres"), _escaped(" ".join(root.command.collect_usage_pieces(root)))),
        *(".SH DESCRIPTION", *_explained(root)),
        *(".SH COMMANDS", *_commands(root)),
    ]
    click.echo("\n".join(lines))


def _commands(context: click.Context) -> Iterator[str]:
    """The commands of a group, and those in its groups."""
    group = context.command
    for name in group.list_commands(context) if isinstance(group, click.Group) else ():
        assert isinstance(group, click.Group)
        command = group.get_command(context, name)
        assert command is not None
        inner = click.Context(command, info_name=name, parent=context)
        usage = " ".join(command.collect_usage_pieces(inner))
        yield from (".SS", f"{_bold(inner.command_path)} {_escaped(usage)}", *_explained(inner), *_commands(inner))


def _explained(context: click.Context) -> Iterator[str]:
    """The paragraphs of the help, preformatted ones as they are, and the options."""
    for paragraph in cleandoc(context.command.help or "").split("\n\n"):
        lines = [_escaped(line) for line in paragraph.splitlines()]
        if lines[:1] == ["\b"]:
            yield from (".PP", ".RS 4", ".nf", *lines[1:], ".fi", ".RE")
        else:
            yield from (".PP", *(line.strip() for line in lines))
    for parameter in context.command.params:
        record = parameter.get_help_record(context)
        if record is not None and record[1]:
            yield from (".TP", _bold(record[0]), _escaped(record[1]))


def _bold(text: str) -> str:
    return f"\\fB{_escaped(text)}\\fR"


def _escaped(line: str) -> str:
    """For roff, where a backslash, and a period or quote at the beginning of a line, are special."""
    text = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.lstrip().startswith((".", "'")) else text
