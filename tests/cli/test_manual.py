import os
import shutil
import subprocess
import sys
from itertools import pairwise

import click
import pytest

from tests.cli.conftest import Command
from tests.helpers import TIMEOUT, commands, free_of_settings


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_script_asks_the_command(payres: Command, shell: str) -> None:
    script = payres("completion", shell).stdout
    assert "_PAYRES_COMPLETE" in script
    if shutil.which(shell):
        subprocess.run([shell, "-n"], input=script, text=True, check=True, timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("words", "expected"),
    [("payres wal", "plain,wallet"), ("payres wallet cr", "plain,create"), ("payres completion z", "plain,zsh")],
)
def test_words_are_completed(words: str, expected: str) -> None:
    environment = free_of_settings(
        _PAYRES_COMPLETE="bash_complete", COMP_WORDS=words, COMP_CWORD=str(len(words.split()) - 1)
    )
    command = [sys.executable, "-c", "from payres.cli import main; main(prog_name='payres')"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=TIMEOUT)
    assert expected in done.stdout.splitlines()


def test_manual_has_every_command(payres: Command) -> None:
    page = payres("man").stdout
    lines = [line.replace("\\-", "-") for line in page.splitlines()]
    headings = [after for line, after in pairwise(lines) if line == ".SS"]
    for name, command in commands().items():
        assert name == "payres" or any(heading.startswith(f"\\fB{name}\\fR") for heading in headings), name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert any(parameter.opts[-1] in after for line, after in pairwise(lines) if line == ".TP"), parameter
    if shutil.which("man"):
        environment = os.environ | {"MANPAGER": "cat", "MANWIDTH": "80"}
        done = subprocess.run(
            ["man", "--warnings", "-l", "-"],
            input=page,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        assert (done.returncode, done.stderr) == (0, "")
