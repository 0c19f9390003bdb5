"""docs/peering.md, taken at its word: two servers on one machine, and the tutorial's payment from one to the other."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, chdir
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from payres.cli import main
from tests.crash.server import free_port
from tests.helpers import ROOT, TIMEOUT, child, free_of_settings, is_refused, wait_until

SERVE = "payres serve\n"


class Shell:
    """Runs what the documents show, with their ports replaced by free ones."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.ports = {shown: str(free_port()) for shown in ("8081", "8082")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self.environment = free_of_settings(PATH=path, PAYRES_CONFIG="payres.toml", PAYRES_CONTINUE_WAIT="1")

    def text(self, text: str) -> str:
        return re.sub("|".join(self.ports), lambda port: self.ports[port[0]], text)

    def run(self, commands: str) -> str:
        done = subprocess.run(
            ["sh", "-euc", commands], cwd=self.directory, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def resource(self, side: str, *command: str) -> Any:
        """What a command that is not in the documents prints: it is run in this process, which takes a tenth."""
        with chdir(self.directory / side):
            done = CliRunner().invoke(main, [*command, "--json"], catch_exceptions=False)
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shell]:
    """The two servers of the document, running."""
    for name in [name for name in os.environ if name.startswith("PAYRES_")]:
        monkeypatch.delenv(name)
    shell = Shell(tmp_path)
    section = re.search(
        r"^### Try it on one machine$(.*?)^## ", (ROOT / "docs/peering.md").read_text(encoding="utf-8"), re.M | re.S
    )
    assert section is not None
    folders, *servers = (shell.text(block) for block in re.findall(r"^```\n(.*?)^```$", section[1], re.M | re.S))
    shell.run(folders)
    with ExitStack() as running:
        for commands, (shown, port) in zip(servers, shell.ports.items(), strict=True):
            assert commands.endswith(SERVE), shown
            shell.run(commands.removesuffix(SERVE))
            command = [sys.executable, "-m", "payres", "serve"]
            folder = tmp_path / commands.split()[1]
            running.enter_context(child(command, cwd=folder, env=shell.environment))
            wait_until(partial(_serves, int(port)))
        yield shell


def test_shown_servers_peer_and_the_shown_payment_arrives(shell: Shell) -> None:
    tutorial = (ROOT / "docs/tutorials/on-behalf-of-an-owner.md").read_text(encoding="utf-8")
    program = re.search(r"^```js\n(.*?)^```$", tutorial, re.M | re.S)
    assert program is not None
    elsewhere = program[1].replace(":8080/bob", ":8082/bob").replace(":8080/", ":8081/")
    (shell.directory / "pay.mjs").write_text(shell.text(elsewhere), encoding="utf-8")
    (shell.directory / "node_modules").symlink_to(ROOT / "tests/interop/node_modules")
    node = shutil.which("node")
    assert node is not None
    command = [node, "pay.mjs"]
    with child(command, cwd=shell.directory, stdout=subprocess.PIPE, encoding="utf-8") as paying:
        assert paying.stdout is not None
        shell.run(f"cd first && payres grant approve {paying.stdout.readline().split()[-1]}")
        assert paying.stdout.read().startswith("Paying 500 cents to http://127.0.0.1:")
        assert paying.wait(TIMEOUT) == 0
    show = ("first", "peer", "show", "second")
    wait_until(
        lambda: shell.resource("second", "wallet", "show", "bob")["balance"] == "5.00",
        lambda: str(shell.resource(*show)),
        pause=0.05,
    )
    assert shell.resource("second", "peer", "show", "first")["standing"] == "the peer owes us 5.00 USD"
    wait_until(lambda: not shell.resource(*show)["inFlight"]["packets"], pause=0.05)
    second = shell.resource(*show)
    assert (second["standing"], second["repeatsAnswers"]) == ("we owe the peer 5.00 USD", True)
    for side in ("first", "second"):
        assert shell.resource(side, "ledger", "check")["ok"]


def _serves(port: int) -> bool:
    return not is_refused(port)
