import re
import subprocess
import sys

import pytest

from payres import __version__
from payres.cli import COMMANDS
from payres.cli.commands import NEVER_SUGGESTED
from tests.cli.conftest import Command
from tests.helpers import commands

ALL = {name.removeprefix("payres "): command for name, command in commands().items()}
WITHOUT_DATABASE = {"demo", "sandbox", "completion", "man"}  # their help is written by hand, or they have none


@pytest.mark.parametrize("name", ALL)
def test_command_has_help_with_an_example_and_the_common_options(name: str, payres: Command) -> None:
    result = payres(*name.split(), "--help")
    assert result.exit_code == 0
    assert f": payres {name} " in result.stdout or f": payres {name}\n" in result.stdout
    if name not in WITHOUT_DATABASE:
        assert "--database PATH" in result.stdout
        assert "--json" in result.stdout


def test_first_sentence_of_help_fits_its_line() -> None:
    assert [name for name, command in ALL.items() if command.get_short_help_str(60).endswith("...")] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_main_help_says_what_the_command_says(name: str, payres: Command) -> None:
    line = COMMANDS[name].line
    assert line in payres("--help").stdout
    assert payres(name, "--help").stdout.split("\n\n")[1].strip().replace("\n  ", " ").startswith(line[:-1])


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("walet", "wallet"),
        ("sevre", "serve"),
        ("wallet ls", "wallet list"),
        ("grant aprove", None),
        ("peer ad", "peer add"),
        ("nonsense", None),
        ("wallet withdrew", None),
    ],
)
def test_mistyped_command_is_a_usage_error_that_says_what_was_meant(
    payres: Command, typed: str, meant: str | None
) -> None:
    result = payres(*typed.split())
    assert result.exit_code == 2
    *_, line = result.stderr.splitlines()
    assert f"No such command '{typed.split()[-1]}'" in line
    if meant is None:
        assert line.endswith("--help` lists the commands")
    else:
        assert line.endswith(f" {meant}`?")


def test_no_mistake_leads_to_a_command_that_takes_something_away(payres: Command) -> None:
    """Each command with one letter missing or two letters swapped."""
    for name in [*COMMANDS, *ALL]:
        *group, command = name.split()
        missing = [command[:at] + command[at + 1 :] for at in range(len(command))]
        exchanged = [command[:at] + command[at + 1] + command[at] + command[at + 2 :] for at in range(len(command) - 1)]
        for typed in {*missing, *exchanged} - {command, ""}:
            line = payres(*group, typed).stderr.splitlines()[-1]
            found = re.search(r"Did you mean `\w+ (.+)`\?$", line)
            assert found is not None or line.endswith("lists the commands"), line
            if found is not None:
                assert found[1].split()[-1] not in NEVER_SUGGESTED
                assert command not in NEVER_SUGGESTED or found[1] != name
            assert found is not None or command in NEVER_SUGGESTED, line


def test_version(payres: Command) -> None:
    assert payres("--version").stdout == f"payres {__version__}\n"


def test_module_runs_like_the_command_and_help_loads_no_heavy_modules() -> None:
    result = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "payres", "--help"], capture_output=True, text=True, check=True
    )
    assert "Usage: payres [OPTIONS]" in result.stdout
    imported = {line.rpartition("|")[2].strip() for line in result.stderr.splitlines()}
    assert not imported & {"uvicorn", "argon2", "cryptography", "jinja2", "asyncio", "sqlite3", "msgspec", "starlette"}
