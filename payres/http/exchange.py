"""An exchange: one request on a connection, and its answer."""

import asyncio
from typing import Any
from urllib.parse import unquote

import httptools
from uvicorn._types import HTTPScope
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from payres.http.flow_control import Flow
from payres.http.request_head import MEASURED
from payres.http.responses import last_headers

# What the head of an answer says about its connection and framing is uvicorn's to do, but for a length.
FRAMING = frozenset({b"connection", b"transfer-encoding"})
WITHOUT_BODY = (204, 304)


class Exchange(RequestResponseCycle):
    """uvicorn's, but an answer of known length, as nearly all are, is written in one piece with its head; and one of
    unknown length to HTTP/1.0, which knows no chunks, ends with its connection (RFC 9112 section 6.1)."""

    flow: Flow
    _head: bytes | None = None  # of the answer that has started, until its body comes
    _ends_with_connection = False

    async def send(self, message: Any) -> None:
        """As ASGI has it."""
        if not self.response_started:
            # So the answers of one turn of the event loop leave together: a process that waits for several wakes once.
            await asyncio.sleep(0)
        is_stream = self.chunked_encoding or self._ends_with_connection
        if self.flow.write_paused and is_stream and not self.disconnected:
            await self.flow.drain_stream()  # what has no known length is made while it is sent
        if self.disconnected:
            return
        if not self.response_started:
            if self._start(message):
                return
            if any(name == b"connection" for name, _ in message.get("headers", ())):  # it ends with this answer
                self.default_headers = last_headers(self.default_headers)
        head, self._head = self._head, None
        if head is None:
            await super().send(message)
        else:
            await self._send_with(head, message)

    async def _send_with(self, head: bytes, message: Any) -> None:
        """Sends a body, or a part of it, behind the head."""
        body = message.get("body", b"")
        if self._ends_with_connection:
            self.transport.write(head + body)
            self._head = b""
            if not message.get("more_body"):
                self._complete()
        elif len(body) == self.expected_content_length and not message.get("more_body"):
            self.transport.write(head + body)
            self.expected_content_length = 0
            self._complete()
        else:
            self.transport.write(head)
            await super().send(message)

    def _start(self, message: Any) -> bool:
        """Takes the head of an answer. False for one that uvicorn is to frame, and for what is none."""
        status, is_old = message.get("status"), self.scope["http_version"] == "1.0"
        if status is None or status in WITHOUT_BODY or self.scope["method"] == "HEAD":
            return False
        if not self.keep_alive and not is_old:
            return False
        lines = [STATUS_LINE[status]]
        length = None
        for name, value in (*self.default_headers, *message["headers"]):
            if name == b"content-length":
                length = int(value)
            elif name in FRAMING:
                return False
            lines.append(b"%b: %b\r\n" % (name, value))
        if length is None and not is_old:
            return False
        lines.append(b"connection: close\r\n\r\n" if is_old else b"\r\n")
        head = b"".join(lines)
        if not head.count(b"\n") == head.count(b"\r") == len(lines) + is_old:
            raise ValueError("a header of the answer has a line break")
        self._head, self.expected_content_length, self.chunked_encoding = head, length or 0, False
        self._ends_with_connection = length is None
        self.response_started = True
        self.waiting_for_100_continue = False
        return True

    def _complete(self) -> None:
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()


def scope_of(connection: HttpToolsProtocol, method: str, version: str) -> HTTPScope:
    """The scope (ASGI) of the request whose head has been parsed."""
    url = httptools.parse_url(connection.url)
    path = url.path.decode("ascii")
    return {
        "type": "http",
        "asgi": {"version": connection.asgi_version, "spec_version": "2.3"},
        "http_version": version,
        "server": connection.server,
        "client": connection.client,
        "scheme": connection.scheme or "http",
        "method": method,
        "root_path": "",
        "path": unquote(path) if "%" in path else path,
        "raw_path": url.path,
        "query_string": url.query or b"",
        "headers": connection.headers,
        "state": connection.app_state.copy(),
        "extensions": MEASURED,
    }
