"""An HTTP server beside a test, on a free port of this machine: a proxy, another wallet provider, a rates service."""

import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler

from payres.testing.receiver import QuickHandler, QuickServer


@contextmanager
def serving(
    answer: Callable[[BaseHTTPRequestHandler], None], tls: ssl.SSLContext | None = None, port: int = 0
) -> Iterator[int]:
    """The port where each request is answered until the block ends; with `tls` it speaks HTTPS."""

    class Handler(QuickHandler):
        def respond(self) -> None:
            answer(self)

        do_GET = do_OPTIONS = do_POST = do_DELETE = do_CONNECT = respond  # noqa: N815 - as http.server calls them

    with QuickServer(("127.0.0.1", port), Handler) as server:
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
