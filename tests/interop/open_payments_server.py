"""A small Open Payments server, with incoming payments that a receiver from npm takes the money of."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Json = dict[str, Any]
TOKEN = "a-token"


class OpenPaymentsServer:
    """Shows everybody the public form of its incoming payments, and the whole to whoever has asked it for a token."""

    def __init__(self, base: str) -> None:
        self.base = base
        self._payments: dict[str, Callable[[], Json]] = {}

    def add(self, receiver: Any, asset: Json, wanted: int | None) -> str:
        """The URL of an incoming payment that the receiver is paid by; it has received what the receiver counts."""
        path = f"/incoming-payments/{len(self._payments) + 1}"
        unit = {"assetCode": asset["code"], "assetScale": asset["scale"]}
        method = {"type": "ilp", "ilpAddress": receiver.destination, "sharedSecret": receiver.sharedSecret}

        def payment() -> Json:
            received = receiver.total()["received"]
            bound = {} if wanted is None else {"incomingAmount": {"value": str(wanted), **unit}}
            return {
                "id": self.base + path,
                "walletAddress": f"{self.base}/receiver",
                "completed": wanted is not None and received >= wanted,
                "receivedAmount": {"value": str(received), **unit},
                "methods": [method],
                "createdAt": "2026-01-31T09:30:00Z",
                "updatedAt": "2026-01-31T09:30:00Z",
                **bound,
            }

        self._payments[path] = payment
        return self.base + path

    def answer(self, path: str, authorization: str | None) -> Json | None:
        """What is shown at a path; nothing at one that leads nowhere."""
        payment = self._payments.get(path)
        if payment is None:
            return None
        if authorization != f"GNAP {TOKEN}":
            return {"receivedAmount": payment()["receivedAmount"], "authServer": f"{self.base}/"}
        return payment()


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        found = _served(self.server).answer(self.path, self.headers["Authorization"])
        self._send(200 if found else 404, found or {})

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        access = request["access_token"]["access"]
        assert "Signature" in self.headers
        token = {"value": TOKEN, "manage": f"{_served(self.server).base}/token/1", "access": access}
        self._send(200, {"access_token": token})

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name that the library gives it
        """Nothing: what goes wrong shows in the payment."""

    def _send(self, status: int, content: Json) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _served(server: Any) -> OpenPaymentsServer:
    served: OpenPaymentsServer = server.served
    return served


@contextmanager
def run_open_payments_server() -> Iterator[OpenPaymentsServer]:
    """Runs the server on a free loopback port until the block ends."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as http:
        served = OpenPaymentsServer(f"http://127.0.0.1:{http.server_port}")
        vars(http)["served"] = served
        thread = threading.Thread(target=http.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield served
        finally:
            http.shutdown()
            thread.join()
