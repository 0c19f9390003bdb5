"""Secrets of the command line: `--NAME-file FILE` keeps out of `ps` what `--NAME TEXT` shows to the whole machine."""

from typing import IO

import click

from payres.errors import InvalidRequest

SecretFile = IO[bytes] | None


def read_secret(name: str, text: str | None, file: SecretFile) -> str | None:
    """The secret that `--NAME TEXT` gives, or the next line of the file of `--NAME-file`; None when there is neither.

    The end of the line is left out, spaces are not. A usage error when both are given; refuses with 400 a file that is
    no text.
    """
    if file is None:
        return text
    what = name.replace("-", " ")
    if text is not None:
        raise click.UsageError(f"Give the {what} once, with --{name}-file or with --{name}")
    try:
        return file.readline().decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        # Without its cause, which would show what the file holds.
        raise InvalidRequest(f"The file with the {what} is not text in UTF-8") from None
