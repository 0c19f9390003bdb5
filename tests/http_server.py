"""An HTTP server beside a test, on a free port of this machine: a proxy, another wallet provider, a rates service."""

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from itertools import cycle
from random import SystemRandom
from typing import Final

from payres.testing.receiver import QuickHandler, QuickServer

# Below the range that outgoing connections are given theirs from. Each process of a run has a part of that: a port that
# another one has chosen is free while its server is down.
WORKER: Final = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 8
PORTS: Final = cycle(range(20_000 + WORKER * 1500, 21_500 + WORKER * 1500))
for _ in range(SystemRandom().randrange(1500)):
    next(PORTS)


@contextmanager
def serving(
    answer: Callable[[BaseHTTPRequestHandler], None], tls: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[int]:
    """The port where each request is answered until the block ends; with `tls` it speaks HTTPS."""

    class Handler(QuickHandler):
        def respond(self) -> None:
            answer(self)

        do_GET = do_OPTIONS = do_POST = do_DELETE = do_CONNECT = respond  # noqa: N815 - as http.server calls them

    with QuickServer(("127.0.0.1", port or free_port()), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server.server_port
        finally:
            server.shutdown()
            thread.join()


def reply(handler: BaseHTTPRequestHandler, status: int, body: bytes = b"", **headers: str) -> None:
    handler.send_response(status)
    for name, value in {"Content-Length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def free_port() -> int:
    """A port that stays free between two starts."""
    while True:
        port = next(PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
