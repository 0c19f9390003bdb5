"""Options that several commands take."""

import click
import pytest

from payres.cli import main


@pytest.mark.parametrize(
    "command",
    [
        "wallet password alice --password-file -",
        "key add alice --jwk -",
        "key add alice --pem - --kid mine",
    ],
)
def test_standard_input_that_is_closed_is_told(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)  # as Python has it then
    with pytest.raises(click.BadParameter, match="standard input is closed"):
        main(command.split(), standalone_mode=False)
