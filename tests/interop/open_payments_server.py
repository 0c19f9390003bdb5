"""A small Open Payments server, with incoming payments that a receiver from npm takes the money of."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.helpers import Json, amount
from tests.http_server import reply, serving

TOKEN = "a-token"


class OpenPaymentsServer:
    """Shows everybody the public form of its incoming payments, and the whole to whoever has asked it for a token."""

    def __init__(self) -> None:
        self.base = ""
        self._payments: dict[str, Callable[[], Json]] = {}

    def add(self, receiver: Any, asset: Json, wanted: int | None) -> str:
        """The URL of an incoming payment that the receiver is paid by; it has received what the receiver counts."""
        path = f"/incoming-payments/{len(self._payments) + 1}"
        method = {"type": "ilp", "ilpAddress": receiver.destination, "sharedSecret": receiver.sharedSecret}

        def payment() -> Json:
            received = receiver.total()["received"]
            bound = {} if wanted is None else {"incomingAmount": amount(wanted, **asset)}
            return {
                "id": self.base + path,
                "walletAddress": f"{self.base}/receiver",
                "completed": wanted is not None and received >= wanted,
                "receivedAmount": amount(received, **asset),
                "methods": [method],
                "createdAt": "2026-01-31T09:30:00Z",
                "updatedAt": "2026-01-31T09:30:00Z",
                **bound,
            }

        self._payments[path] = payment
        return self.base + path

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        content = self._granted(request) if request.command == "POST" else self._shown(request)
        reply(request, 200, json.dumps(content).encode(), **{"Content-Type": "application/json"})

    def _granted(self, request: BaseHTTPRequestHandler) -> Json:
        asked = json.loads(request.rfile.read(int(request.headers["Content-Length"])))
        assert "Signature" in request.headers
        access = asked["access_token"]["access"]
        return {"access_token": {"value": TOKEN, "manage": f"{self.base}/token/1", "access": access}}

    def _shown(self, request: BaseHTTPRequestHandler) -> Json:
        payment = self._payments[request.path]()
        if request.headers["Authorization"] == f"GNAP {TOKEN}":
            return payment
        return {"receivedAmount": payment["receivedAmount"], "authServer": f"{self.base}/"}


@contextmanager
def run_open_payments_server() -> Iterator[OpenPaymentsServer]:
    """Runs the server on a free loopback port until the block ends."""
    server = OpenPaymentsServer()
    with serving(server.answer) as port:
        server.base = f"http://127.0.0.1:{port}"
        yield server
