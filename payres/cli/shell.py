"""What a shell and `man` know of the command, made from its help."""

from collections.abc import Iterator

import click
from click.shell_completion import get_completion_class

from payres import __version__
from payres.cli.commands import Command


@click.command(cls=Command, example="payres completion bash > ~/.local/share/bash-completion/completions/payres")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """The script is for the shell's own start-up file, or for its folder of completions."""
    found = get_completion_class(shell)
    assert found is not None
    click.echo(found(context.find_root().command, {}, "payres", "_PAYRES_COMPLETE").source())


@click.command(cls=Command, example="payres man > /usr/local/share/man/man1/payres.1")
@click.pass_context
def man(context: click.Context) -> None:
    """It goes to standard output, with every command and option."""
    root = context.find_root()
    click.echo(f'.TH PAYRES 1 "" "payres {__version__}"\n.SH NAME\npayres \\- a wallet provider for Open Payments')
    for line in _section(root.command, click.Context(root.command, info_name="payres")):
        click.echo(line)


def _section(command: click.Command, context: click.Context) -> Iterator[str]:
    """The command, and those in it."""
    yield f".SH {_escaped(context.command_path.upper())}"
    yield ".nf"
    yield from (_escaped(line) for line in command.get_help(context).splitlines())
    yield ".fi"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _section(inner, click.Context(inner, info_name=name, parent=context))


def _escaped(line: str) -> str:
    """For roff, where a backslash and a period or quote at the beginning of a line mean something."""
    text = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text
