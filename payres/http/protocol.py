"""HTTP/1.1 as `payres serve` and payres.testing speak it: one connection, uvicorn's protocol with limits on slow
and long requests, on what is sent ahead, and on answers left unread.

uvicorn alone reads header sections without end, waits forever, takes any number of connections, makes requests of all
that is pipelined, buffers answers that are not read, answers what is no HTTP in plain text, and lets pass what a proxy
may understand in another way.
"""

import asyncio
import logging
import secrets
import socket
import struct
from functools import partial
from typing import Any, Final
from urllib.parse import unquote

import httptools
from starlette.types import ASGIApp
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from payres.clock import SECOND
from payres.errors import DomainError, TooSlow, Unavailable
from payres.http.connections import connections_of, most_connections, most_of_one_address
from payres.http.request_head import ambiguity, declared_length, malformed, section_bytes, too_long
from payres.http.responses import CutShort, last_headers, last_response
from payres.limits import MAX_HEADER_BYTES, REQUEST_SECONDS, SPARE_FILES, UNREAD_SECONDS
from payres.rate_limiter import too_many

log = logging.getLogger("payres.http")

LINGER_SECONDS: Final = 2
AT_ONCE: Final = struct.pack("ii", 1, 0)  # closing sends a reset
# Bytes that are parsed at a time where neither a section nor a body ends earlier.
PIECE_BYTES: Final = 4096
# Bytes of answers that wait to be sent, above which a client counts as one that does not read.
UNSENT_BYTES: Final = 4096
END_OF_SECTION: Final = b"\r\n\r\n"
WITHOUT_BODY: Final = (204, 304)

# What a connection waits for. Not an Enum, whose members cost a call in Python 3.11.
IDLE: Final = 0  # the next request; all answers have gone
HEAD: Final = 1  # the rest of a header section
BODY: Final = 2  # the rest of a body; its request may have its answer already
ANSWER: Final = 3  # the answer to a request that has come completely
END: Final = 4  # the client to hang up; what still comes is not read


class Flow(FlowControl):
    """Reads no further while bytes that have come wait to be parsed."""

    def __init__(self, transport: asyncio.Transport, held: bytearray) -> None:
        super().__init__(transport)
        self._held = held

    def resume_reading(self) -> None:
        if not self._held:
            super().resume_reading()


class Exchange(RequestResponseCycle):
    """One request and its answer. An answer of known length, as nearly all are, is written in one piece with its head;
    one of unknown length to HTTP/1.0, which knows no chunks, ends with its connection (RFC 9112 section 6.1)."""

    _head: bytes | None = None  # of the answer, until its body comes; None where uvicorn frames the answer

    async def run(self, app: ASGIApp, scope: Any, receive: Any, send: Any) -> None:
        """Runs the application for the request."""
        try:
            await app(scope, receive, send)
        except CutShort as cut:
            if cut.is_reset:  # in the sandbox
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            self._cut()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                raise  # a fault of ours, of which uvicorn makes a 500
            # The server stops and waits no longer. The outcome of the request is not known: no answer says it.
            self._cut()

    async def send(self, message: Any) -> None:
        """As ASGI has it."""
        if not self.response_started:
            # So the answers of one turn of the event loop leave together: a process that waits for several wakes once.
            await asyncio.sleep(0)
            if self._start(message):
                return
        if self._head is None:
            await super().send(message)
            return
        if self.flow.write_paused:
            await self.flow.drain()
        if self.disconnected:
            return
        self.transport.write(self._head + message.get("body", b""))
        self._head = b""
        if not message.get("more_body"):
            self.response_complete = True
            self.message_event.set()
            self.on_response()

    def _cut(self) -> None:
        """Ends the connection in the middle of the answer."""
        self.disconnected = True
        self.transport.close()
        self.on_response()

    def _start(self, message: Any) -> bool:
        """Takes the head of an answer. False for one that uvicorn is to frame."""
        headers, is_old = message["headers"], self.scope["http_version"] == "1.0"
        names = [name for name, _ in headers]
        if b"connection" in names:
            self.keep_alive = False
        if not self.keep_alive:
            self.default_headers = last_headers(self.default_headers)
        is_plain = is_old or b"content-length" in names
        if not is_plain or self.scope["method"] == "HEAD" or message["status"] in WITHOUT_BODY:
            return False
        fields = [b"%b: %b\r\n" % field for field in (*self.default_headers, *headers) if field[0] != b"connection"]
        lines = [STATUS_LINE[message["status"]], *fields, b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n"]
        self._head = b"".join(lines)
        if not self._head.count(b"\n") == self._head.count(b"\r") == len(lines) + (not self.keep_alive):
            raise ValueError("a header of the answer has a line break")
        self.response_started = True
        self.waiting_for_100_continue = False
        return True


class HttpProtocol(HttpToolsProtocol):
    """One connection: its `state`, and one deadline, by which a request must be complete, or a client have read.

    Requests are parsed one at a time: what a client sends ahead stays bytes, of which no more than one read are taken.
    After an error response, nothing that follows on the connection is read.
    """

    cycle: Exchange

    def __init__(self, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self.state = IDLE
        self._counts = connections_of(self.server_state, self.config)
        self._address: str | None = None  # for which the connection is counted
        self._deadline: asyncio.TimerHandle | None = None
        self._held = bytearray()  # what has come and is not parsed
        self._is_counted = False  # for what it buffers
        self._section_end = b""  # how the section that is being parsed ends so far, where that may be half an end
        self._unfinished = 0  # bytes that were parsed since the parser last had something to hand on
        self._body_left: int | None = None  # bytes of the body that are still to come; None for one in chunks

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Accepts the connection, or answers one too many with an error: what it sends is not read."""
        super().connection_made(transport)
        self.flow = Flow(transport, self._held)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self._address = self._counts.counted_address(self.client)
        of_address = self._counts.enter(self._address) if self._address is not None else 0
        most = most_connections()
        most_of_address = most_of_one_address(most)
        if len(self.connections) > most + SPARE_FILES // 2 or of_address > 2 * most_of_address:
            self.state = END  # without an answer, which would hold one of too many connections for a while
            transport.abort()
        elif len(self.connections) > most:
            self._reject(Unavailable("The server has as many connections as it takes. Try again shortly"))
        elif of_address > most_of_address:
            self._reject(too_many(SECOND, f"Your address has {most_of_address} connections. Close some, or reuse them"))
        else:
            self._set_deadline(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Drops all of the connection; uvicorn notifies the request that is in progress."""
        super().connection_lost(exc)
        self.state = END
        self._held.clear()
        self._drop_deadline()
        self._counts.buffer(self, 0)
        if self._address is not None:
            self._counts.leave(self._address)

    def data_received(self, data: bytes) -> None:
        """Parses what came, as far as it may be parsed yet."""
        if self.state != END:
            self._held += data
            self._parse_held()

    def eof_received(self) -> None:
        """The client has gone."""
        self._close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._drop_deadline()
        self.state = HEAD

    def on_headers_complete(self) -> None:
        """Starts the request. Raises the error for one that is ambiguous or too long: the parser stops there."""
        version, headers = self.parser.get_http_version(), self.headers
        error = ambiguity(version, headers, self.parser.should_upgrade())
        if error is not None:
            raise error
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["http_version"] = version
        self.scope["path"] = unquote(path) if "%" in path else path
        self.scope["raw_path"] = url.path
        self.scope["query_string"] = url.query or b""
        # The plain spelling of a section is less than twice as long as the shortest: most need not be measured.
        if self._unfinished > MAX_HEADER_BYTES // 2 and section_bytes(self.scope) > MAX_HEADER_BYTES:
            raise too_long()
        self.cycle = Exchange(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=version == "1.1" and self.parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        self._start_asgi_task(self.cycle, partial(self.cycle.run, self.app))
        self.state = BODY
        self._unfinished = 0
        self._body_left = declared_length(headers)
        self.headers = []  # trailers are no headers (RFC 9110 section 6.5.1)

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        if self._body_left is not None:
            self._body_left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._unfinished = 0
        if self._deadline is not None:
            self._drop_deadline()
        self.state = IDLE if self.cycle.response_complete else ANSWER

    def on_response_complete(self) -> None:
        """Goes on with what the client has sent ahead, at once or when it has read the answers so far."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._close()
        elif not self.cycle.keep_alive:
            self._linger() if self.state == BODY else self._close()
        else:
            if self.state == ANSWER:
                self.state = IDLE
            if not self.flow.write_paused:
                self._parse_held()

    def pause_writing(self) -> None:
        """The client does not read its answers. It has a while to do so, and nothing more is parsed for it."""
        super().pause_writing()
        self._set_deadline(UNREAD_SECONDS)
        self._count_buffers()

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._drop_deadline()
            self._parse_held()

    def buffered_bytes(self) -> int:
        """How many bytes are buffered: answers that are not sent, and what is not parsed."""
        return self.transport.get_write_buffer_size() + len(self._held)

    def shutdown(self) -> None:
        """The server stops: the answer that is due is the last, and what waits for a change waits no longer."""
        super().shutdown()
        if self.state == ANSWER:
            self.cycle.message_event.set()

    def _parse_held(self) -> None:
        """Parses what has come, and stops behind a request that has to be answered first, at a section of headers or
        trailers that has become too long to wait for, and at an error. Reads on when the rest is parsed."""
        while self._held and self.state < ANSWER and not self.flow.write_paused:
            piece = self._next_piece()
            self._unfinished += len(piece)
            self._parse(piece)
            if self._unfinished > MAX_HEADER_BYTES and self.state != END:
                self._reject(too_long())
        if self._held:
            self.flow.pause_reading()
        elif self.flow.read_paused and not self._is_body_waiting():
            self.flow.resume_reading()
        if self._held or self._is_counted:
            self._count_buffers()
        if self._deadline is None and self.state < ANSWER:
            self._set_deadline(self.timeout_keep_alive if self.state == IDLE else REQUEST_SECONDS)

    def _is_body_waiting(self) -> bool:
        """Whether so much of a body waits for the application that it has to be read first."""
        if self.state != BODY or self.cycle.response_complete:
            return False
        return len(self.cycle.body) > HIGH_WATER_LIMIT

    def _next_piece(self) -> bytearray:
        """Takes from what is held a piece that does not reach beyond the end of a request."""
        size = self._body_left if self.state == BODY else None
        if not size:
            # A request without a body ends with its header section, one in chunks with that of its trailers.
            seen = self._section_end + self._held[:PIECE_BYTES]
            end = seen.find(END_OF_SECTION)
            size = PIECE_BYTES if end < 0 else end + len(END_OF_SECTION) - len(self._section_end)
            self._section_end = seen[1 - len(END_OF_SECTION) :] if end < 0 else b""
        piece = self._held[:size]
        del self._held[:size]
        return piece

    def _parse(self, data: bytearray) -> None:
        """uvicorn's data_received, which loses what follows an offer of another protocol."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:  # it is passed over (RFC 9110 section 7.8)
                data = data[offer.args[0] :]
            except httptools.HttpParserError as error:
                raised = error.__context__  # by on_headers_complete
                self._reject(raised if isinstance(raised, DomainError) else malformed())
                return
            else:
                return

    def _count_buffers(self) -> None:
        self._is_counted = self.flow.write_paused or bool(self._held)
        self._counts.buffer(self, self.buffered_bytes() if self._is_counted else 0)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _set_deadline(self, seconds: float) -> None:
        self._drop_deadline()
        self._deadline = self.loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        """Cuts the connection of a client that does not read, and answers a request that takes too long to come with
        408. A connection on which none is coming is just closed."""
        self._deadline = None
        if self.transport.is_closing() or self.flow.write_paused:
            self.transport.abort()
        elif self.state == BODY and self.flow.read_paused:
            self._set_deadline(REQUEST_SECONDS)  # it is not the client that is slow
        elif self.state in (HEAD, BODY):
            self._reject(TooSlow(f"The request did not come within {REQUEST_SECONDS} seconds"))
        else:
            self._close()

    def _reject(self, error: DomainError) -> None:
        """Answers what came last with an error, unless its answer has begun, and hangs up."""
        # No higher than that: an unauthenticated client could fill the log.
        request_id = secrets.token_hex(8)
        log.debug("rejected what came from %s: %s request=%s", self.client, error, request_id)
        is_answered = False
        if self.state == BODY:
            is_answered = self.cycle.response_started  # a request has one answer
            self.cycle.disconnected = True
            self.cycle.waiting_for_100_continue = False
            self.cycle.message_event.set()
        if is_answered:
            self._close()
        else:
            headers, method = self.server_state.default_headers, self.parser.get_method()
            self.transport.write(last_response(error, headers, method, request_id))
            self._linger()

    def _linger(self) -> None:
        """Closes in a while: closed at once, the answer would be lost to a client that is still sending (RFC 9112
        section 9.6)."""
        if not self.transport.can_write_eof():
            self._close()
            return
        self.state = END
        self._held.clear()
        self.flow.resume_reading()
        self.transport.write_eof()
        self._set_deadline(LINGER_SECONDS)

    def _close(self) -> None:
        """Closes the connection, and cuts it after a while unless the client has read what is left to send."""
        self.state = END
        self.transport.close()
        if self in self.connections:  # it has not ended yet
            self._set_deadline(UNREAD_SECONDS)
