"""docs/testing.md on apps that are not in Python, taken at its word in a shell."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from payres.clock import SystemClock
from payres.signatures.jwk import jwk_from_pem
from tests.helpers import ROOT, TIMEOUT, child, free_of_settings, is_refused, usd, wait_until
from tests.signing_client import Client

MARK = "the block has ended"


def shown_blocks() -> list[str]:
    document = (ROOT / "docs/testing.md").read_text(encoding="utf-8")
    section = document.partition("\n## In other languages\n")[2]
    return re.findall(r"^```\n(.*?)^```$", section, re.M | re.S)


def run(process: "subprocess.Popen[str]", block: str) -> str:
    """What the commands of a block print in a shell. Raises AssertionError when one fails."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(f"{block}\necho; echo {MARK}\n")
    process.stdin.flush()
    lines: list[str] = []
    for line in process.stdout:
        if line == f"{MARK}\n":
            return "".join(lines)
        lines.append(line)
    raise AssertionError(lines)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Runs the blocks of a document one after the other."""
    inherited = free_of_settings()
    environment = inherited | {"PATH": f"{Path(sys.executable).parent}:{inherited['PATH']}"}
    pipe = subprocess.PIPE
    with child(["sh", "-eu"], cwd=tmp_path, env=environment, stdin=pipe, stdout=pipe) as process:
        yield partial(run, process)


def test_shown_commands_serve_an_app_in_another_language(shell: Callable[[str], str], tmp_path: Path) -> None:
    start, approve, stop = shown_blocks()
    shell(start)
    base_url = shell('echo "$PAYRES_BASE_URL"').strip()
    ready = json.loads((tmp_path / "ready.json").read_text())
    alice, bob = (wallet["walletAddress"] for wallet in ready["demoWallets"])
    pem = (tmp_path / "private.pem").read_bytes()
    private_key = load_pem_private_key(pem, None)
    assert isinstance(private_key, Ed25519PrivateKey)

    def consent(redirect: str) -> str:
        printed: Any = json.loads(shell(f"REDIRECT='{redirect}'\n{approve}"))
        assert printed["grant"]["state"] == "approved"
        return str(printed["redirect"])

    app = Client(f"{base_url}/my-app", private_key, jwk_from_pem("my-key", pem), base_url, SystemClock(), consent)
    spending = {"type": "outgoing-payment", "actions": ["create"], "identifier": alice}
    asked = app.request_grant(spending, interact={"start": ["redirect"]}).json()
    assert asked["continue"].get("wait", 0) == 0, "each question would take seconds"
    bill = app.create_incoming_payment(bob, usd(500))
    paid = app.pay(alice, bill["id"])
    app.close()
    assert paid["sentAmount"]["value"] == "500"
    shell(stop)
    wait_until(lambda: is_refused(int(base_url.rpartition(":")[2])), seconds=TIMEOUT)


def test_shown_commands_end_when_the_server_does_not_start(tmp_path: Path) -> None:
    variables = free_of_settings(PAYRES_HOST="0.0.0.0")  # which a server with demo wallets does not listen on
    environment = variables | {"PATH": f"{Path(sys.executable).parent}:{variables['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", shown_blocks()[0]], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: --demo opens wallets whose passwords everyone knows")
