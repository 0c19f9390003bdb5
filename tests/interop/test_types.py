"""What type checkers say of an app on `payres.client`, as strict as they can be."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.helpers import ROOT, TIMEOUT
from tests.interop.conftest import HERE

WRONG = """\
from payres.client import Client, PendingGrant, webhooks


def f(client: Client, pending: PendingGrant) -> None:
    client.quote.get("u", pending)
    client.quote.get("u", "t", tmeout=1)
    client.quote.create("u", "t", receiver="r", idempotency_key=1)
    event = webhooks.verify(b"", {}, "")
    if event.type == "incoming_payment.completed":
        event.data.failure
"""
LINES = {5, 6, 7, 10}


def test_app_is_typed_and_its_mistakes_are_found(tmp_path: Path) -> None:
    shutil.copy(ROOT / "tests/client/typed_app.py", tmp_path / "app.py")
    (tmp_path / "wrong.py").write_text(WRONG)
    (tmp_path / "pyrightconfig.json").write_text(json.dumps({"typeCheckingMode": "strict", "include": ["*.py"]}))
    pyright = ("node", str(HERE / "node_modules/pyright/index.js"), "--pythonpath", sys.executable)
    mypy = (sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "app.py", "wrong.py")
    for command in (pyright, mypy):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        found = re.findall(r"(\w+)\.py:(\d+).*error", done.stdout)
        assert {(name, int(line)) for name, line in found} == {("wrong", line) for line in LINES}, done.stdout
