"""A sandbox as tests of an app use it: a process of its own, asked over HTTP."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import httpx2

from payres.core.protocol.clock import Clock, SystemClock
from payres.openapi.documents import as_text
from payres.testing.openapi import control_document
from tests.helpers import TIMEOUT, child, free_of_settings
from tests.openapi.documents import Documented
from tests.signing_client import Client

DOCUMENTED = Documented(json.loads(as_text(control_document("http://127.0.0.1"))))
Started = tuple["subprocess.Popen[str]", dict[str, Any]]


@contextmanager
def started(folder: Path, *options: str, **streams: Any) -> Iterator[Started]:
    """The process and its line; its temporary folder is in this one."""
    command = [sys.executable, "-m", "payres", "sandbox", *options]
    inherited = free_of_settings(TMPDIR=str(folder), PAYRES_DATABASE=str(folder / "not-this.db"))
    given = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "env": inherited, "cwd": folder} | streams
    with child(command, **given) as process:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())


class Sandbox:
    """One of its servers; `app` signs as its client and opens every redirect."""

    def __init__(self, line: dict[str, Any]) -> None:
        self.line = line
        self.base_url: str = line["base_url"]
        self.token = {"Authorization": f"Bearer {line['control_token']}"}
        self.control = httpx2.Client(
            base_url=line["control_url"],
            headers=self.token,
            timeout=TIMEOUT,
            event_hooks={"response": [DOCUMENTED.check]},
        )
        self.admin = httpx2.Client(base_url=f"{self.base_url}/admin/v1", headers=self.token, timeout=TIMEOUT)
        self.alice: str = line["wallets"]["alice"]["address"]
        self.bob: str = line["wallets"]["bob"]["address"]
        self.app = self.sign(line["client"])
        self.peers = [Sandbox(one) for one in line.get("peers", ())]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for one in (self.control, self.admin, self.app):
            one.close()
        for peer in self.peers:
            peer.__exit__()

    def sign(self, client: dict[str, str], clock: Clock | None = None) -> Client:
        return Client.of(client, self.base_url, clock or SystemClock(), self.open)

    def open(self, redirect: str) -> str | None:
        """Where a browser is sent that has no script and no password."""
        return httpx2.get(redirect, timeout=TIMEOUT).headers.get("location")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body)
        answer = self.control.request(method, path, content=content)
        assert answer.is_success, answer.text
        return answer.json() if answer.content else None

    def refused(self, method: str, path: str, body: Any) -> tuple[int, str]:
        answer = self.control.request(method, path, json=body)
        return answer.status_code, answer.json()["error"]["code"]

    def redirect(self, **members: Any) -> str:
        item = {"type": "outgoing-payment", "actions": ["create"], "identifier": self.alice}
        return str(self.app.request_grant(item, **members).json()["interact"]["redirect"])

    def balance(self, path: str = "alice") -> str:
        return str(self.ask("GET", f"/wallets/{path}")["balance"])
