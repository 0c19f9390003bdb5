"""docs/testing.md on apps that are not in Python, taken at its word in a shell."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from payres.clock import SystemClock
from payres.signatures.jwk import jwk_from_pem
from payres.testing.client import Client
from tests.helpers import ROOT, TIMEOUT, child, free_of_settings, is_refused, usd, wait_until

MARK = "the block has ended"


class Shell:
    """A shell in which the blocks of a document run one after the other."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process

    def run(self, block: str) -> str:
        """What the commands print. Raises AssertionError when one fails."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{block}\necho; echo {MARK}\n")
        self._process.stdin.flush()
        lines: list[str] = []
        for line in self._process.stdout:
            if line == f"{MARK}\n":
                return "".join(lines)
            lines.append(line)
        raise AssertionError(lines)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    inherited = free_of_settings()
    environment = inherited | {"PATH": f"{Path(sys.executable).parent}:{inherited['PATH']}"}
    pipe = subprocess.PIPE
    with child(["sh", "-eu"], cwd=tmp_path, env=environment, stdin=pipe, stdout=pipe) as process:
        yield Shell(process)


def test_shown_commands_serve_an_app_in_another_language(shell: Shell, tmp_path: Path) -> None:
    document = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    section = document.partition("\n## In other languages\n")[2]
    start, approve, stop = re.findall(r"^```\n(.*?)^```$", section, re.M | re.S)
    shell.run(start)
    base_url = shell.run('echo "$PAYRES_BASE_URL"').strip()
    ready = json.loads((tmp_path / "ready.json").read_text())
    alice, bob = (wallet["walletAddress"] for wallet in ready["demoWallets"])
    pem = (tmp_path / "private.pem").read_bytes()
    private_key = load_pem_private_key(pem, None)
    assert isinstance(private_key, Ed25519PrivateKey)

    def consent(redirect: str) -> str:
        printed: Any = json.loads(shell.run(f"REDIRECT='{redirect}'\n{approve}"))
        assert printed["grant"]["state"] == "approved"
        return str(printed["redirect"])

    app = Client(f"{base_url}/my-app", private_key, jwk_from_pem("my-key", pem), base_url, SystemClock(), consent)
    bill = app.create_incoming_payment(bob, usd(500))
    paid = app.pay(alice, bill["id"])
    app.close()
    assert paid["sentAmount"]["value"] == "500"
    shell.run(stop)
    wait_until(lambda: is_refused(int(base_url.rpartition(":")[2])), seconds=TIMEOUT)
