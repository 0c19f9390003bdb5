"""Options and types that several commands take."""

import io
import os
import re
import sys
import warnings
from collections.abc import Callable
from functools import wraps
from getpass import GetPassWarning
from typing import IO, Any, Final

import click

from payres.cli.session import errors_in_sentences

Callback = Callable[..., None]
FILE_HELP: Final = "The same from a file, - for stdin."


class WholeNumber(click.IntRange):
    """A number within bounds; click's sentence for other input calls the type an "integer range"."""

    name = "whole number"


limit_option = click.option(
    "--limit",
    type=WholeNumber(1, 10_000),
    default=50,
    show_default=True,
    metavar="N",
    help="The maximum number of rows.",
)


def decimal_of(text: str) -> str:
    """The decimal that rules take of an amount as people write it where the user's locale is from, such as `1.234,50`.
    Raises InvalidAmount for what can be read in two ways."""
    from payres.html.language import Language, preferred
    from payres.html.typed_amounts import typed_decimal

    names = ("LC_ALL", "LC_MONETARY", "LC_NUMERIC", "LANG")
    found = next(filter(None, map(os.environ.get, names)), "")  # such as de_CH.UTF-8
    code, region = preferred(re.split("[.@]", found)[0].replace("_", "-"))
    return typed_decimal(text, Language(code, 0, region=region).point)


class InputFile(click.File):
    """A file to read bytes from, - for standard input. What is no file may be the content itself, which `inline` makes
    of the text; it raises ValueError with what it must be."""

    def __init__(self, inline: Callable[[str], bytes] | None = None) -> None:
        super().__init__("rb")
        self.inline = inline

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "-" and sys.stdin is None:
            self.fail("standard input is closed", param, ctx)
        if self.inline and isinstance(value, str) and value != "-" and not os.path.exists(value):
            try:
                return io.BytesIO(self.inline(value))
            except ValueError as error:
                self.fail(f"{value!r} is neither a file nor {error}", param, ctx)
        return super().convert(value, param, ctx)


def secret_option(
    name: str, metavar: str | None, help_text: str = "", asks: str = ""
) -> Callable[[Callback], Callback]:
    """Gives a command the options `--NAME METAVAR` and `--NAME-file FILE`; without a metavar, only the latter. The
    content of a file cannot be seen in `ps`. The command gets one keyword, None if neither was given, or what the user
    was asked for. Of several such decorators the first reads standard input first."""
    keyword = name.replace("-", "_")

    def decorate(command: Callback) -> Callback:
        @wraps(command)
        def run(*args: Any, **options: Any) -> None:
            file = options.pop(f"{keyword}_file")
            with errors_in_sentences():
                secret = _secret(name, options.get(keyword), file)
                options[keyword] = _ask(name, asks) if asks and secret is None else secret
            command(*args, **options)

        words = help_text if asks else FILE_HELP
        from_file = click.option(f"--{name}-file", type=InputFile(), metavar="FILE", help=words)(run)
        return click.option(f"--{name}", metavar=metavar, help=help_text)(from_file) if metavar else from_file

    return decorate


def _ask(name: str, asks: str) -> str:
    """A new secret from the terminal, without echo."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", GetPassWarning)  # of one that would be echoed
        try:
            # The prompt goes to standard error: standard output is for the resource.
            return str(click.prompt(asks, hide_input=True, confirmation_prompt=True, err=True))
        except GetPassWarning as error:
            sentence = f"There is no terminal to ask for the {name} on: give it with --{name}-file FILE, - for stdin"
            raise click.ClickException(sentence) from error


def require_secret(name: str, text: str | None) -> None:
    """Raises UsageError if the secret was not given."""
    if text is None:
        flag, what = name.replace("_", "-"), name.replace("_", " ")
        kind = name.rpartition("_")[2].upper()
        raise click.UsageError(f"Give the {what} with --{flag}-file FILE or --{flag} {kind}")


def _secret(name: str, text: str | None, file: IO[bytes] | None) -> str | None:
    """The text, or the file's next line without its line end; spaces count."""
    if file is None:
        return text
    what = name.replace("-", " ")
    if text is not None:
        raise click.UsageError(f"Give the {what} once, with --{name}-file or with --{name}")
    try:
        return file.readline().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        # Without its cause, which would show the content of the file.
        raise click.ClickException(f"The file with the {what} is not text in UTF-8") from None
