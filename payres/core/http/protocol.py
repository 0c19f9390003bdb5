"""HTTP/1.1 for `payres serve` and payres.testing: uvicorn's protocol with limits on slow and long requests, on
pipelining, and on unread answers.

uvicorn alone reads endless header sections, waits forever, accepts any number of connections, starts all pipelined
requests, buffers unread answers, answers invalid HTTP in plain text, and accepts requests that a proxy may interpret
differently.
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

from payres.core.http.connections import connections_of, most_connections, most_of_one_address
from payres.core.http.request_head import ambiguity, declared_length, malformed, section_bytes, too_long, without_offer
from payres.core.http.responses import CutShort, last_headers, last_response
from payres.core.process.rate_limiter import too_many
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import DomainError, TooSlow, Unavailable
from payres.core.protocol.limits import MAX_HEADER_BYTES, REQUEST_SECONDS, SPARE_FILES, UNREAD_SECONDS

log = logging.getLogger("payres.http")

LINGER_SECONDS: Final = 2
AT_ONCE: Final = struct.pack("ii", 1, 0)  # closing sends a reset
# Bytes parsed at a time, unless a section or body ends earlier.
PIECE_BYTES: Final = 4096
# Unsent bytes of answers above which a client counts as not reading.
UNSENT_BYTES: Final = 4096
END_OF_SECTION: Final = b"\r\n\r\n"
WITHOUT_BODY: Final = (204, 304)

# The states of a connection. In each, one whose client does not read its answers is aborted at its deadline. Not an
# Enum, whose members cost a call in Python 3.11.
#
#         waits for                              from                           received data   its deadline
# IDLE    the next request                       the start, or the last answer  is parsed       closes
# HEAD    the rest of a header section           the first byte                 is parsed       answers 408
# BODY    the rest of a body, which is perhaps   the end of the header section  is parsed       answers 408, unless
#         answered already                                                                      the application is slow
# ANSWER  the answer                             the end of the request         waits           there is none
# END     the client to close                    an error, or the last answer   is ignored      closes, then aborts
IDLE: Final = 0
HEAD: Final = 1
BODY: Final = 2
ANSWER: Final = 3
END: Final = 4


class Flow(FlowControl):
    """Does not resume reading while received bytes wait to be parsed."""

    def __init__(self, transport: asyncio.Transport, unparsed: bytearray) -> None:
        super().__init__(transport)
        self._unparsed = unparsed

    def resume_reading(self) -> None:
        if not self._unparsed:
            super().resume_reading()


class Exchange(RequestResponseCycle):
    """A request and its answer. An answer of known length, the common case, is written together with its head. One of
    unknown length to HTTP/1.0, which has no chunks, ends with its connection (RFC 9112 section 6.1)."""

    _head: bytes | None = None  # of the answer, until its body comes; None if uvicorn frames it

    async def run(self, app: ASGIApp, scope: Any, receive: Any, send: Any) -> None:
        """Runs the application for the request."""
        try:
            await app(scope, receive, send)
        except CutShort as cut:
            if cut.is_reset and not self.transport.is_closing():  # in the sandbox
                self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, AT_ONCE)
            self._cut()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                raise  # our own fault, for which uvicorn sends a 500
            # The server stops and waits no longer. The request's outcome is unknown, so there is no answer.
            self._cut()

    async def send(self, message: Any) -> None:
        """ASGI's send."""
        if not self.response_started:
            # Lets the answers of one turn of the loop leave together: a process waiting for several wakes once.
            await asyncio.sleep(0)
        self.disconnected |= self.transport.is_closing()  # the client has left, perhaps in this turn of the loop
        if self.disconnected or (not self.response_started and self._start(message)):
            return
        if self._head is None:
            await super().send(message)
            return
        if self.flow.write_paused:
            await self.flow.drain()
            if self.transport.is_closing():
                return
        self.transport.write(self._head + message.get("body", b""))
        self._head = b""
        if not message.get("more_body"):
            self.response_complete = True
            self.message_event.set()
            self.on_response()

    def _cut(self) -> None:
        """Closes the connection in the middle of the answer."""
        self.disconnected = True
        self.transport.close()
        self.on_response()

    def _start(self, message: Any) -> bool:
        """Prepares the head of an answer. False if uvicorn is to frame it."""
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
    """A connection: its `state`, and one deadline for completing a request, or for reading answers.

    Requests are parsed one at a time: pipelined data is kept as bytes, at most one read of it. After an error response,
    nothing more is read.
    """

    cycle: Exchange

    def __init__(self, **uvicorns: Any) -> None:
        super().__init__(**uvicorns)
        self.state = IDLE
        self._counts = connections_of(self.server_state, self.config)
        self._address: str | None = None  # that the connection counts for
        self._deadline: asyncio.TimerHandle | None = None
        self._unparsed = bytearray()  # received bytes
        self._is_counted = False  # whether its buffers are counted
        self._section_end = b""  # the last bytes of the section so far, which may be part of its end
        self._unfinished = 0  # bytes parsed since the parser's last callback
        self._body_left: int | None = None  # bytes of the body still to come; None if chunked

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Accepts the connection, or answers it with an error if it is one too many, without reading."""
        super().connection_made(transport)
        self.flow = Flow(transport, self._unparsed)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self._address = self._counts.counted_address(self.client)
        of_address = self._counts.enter(self._address) if self._address is not None else 0
        most = most_connections()
        most_of_address = most_of_one_address(most)
        if self._counts.is_stopping:
            self._close()
        elif len(self.connections) > most + SPARE_FILES // 2 or of_address > 2 * most_of_address:
            self.state = END  # without an answer, which would keep it open for a while
            transport.abort()
        elif len(self.connections) > most:
            self._reject(Unavailable("The server has its maximum number of connections. Try again shortly"))
        elif of_address > most_of_address:
            self._reject(too_many(SECOND, f"Your address has {most_of_address} connections. Close some, or reuse them"))
        else:
            self._set_deadline(REQUEST_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        """Cleans up; uvicorn notifies the request in progress."""
        super().connection_lost(exc)
        self.state = END
        self._unparsed.clear()
        self._drop_deadline()
        self._counts.buffer(self, 0)
        if self._address is not None:
            self._counts.leave(self._address)

    def data_received(self, data: bytes) -> None:
        """Parses received data, as far as possible yet."""
        if self.state != END:
            self._unparsed += data
            self._parse_received()

    def eof_received(self) -> None:  # the client has closed
        self._close()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._drop_deadline()
        self.state = HEAD

    def on_headers_complete(self) -> None:
        """Starts the request, unless its head is parsed again without an offer to upgrade. Raises an error, which stops
        the parser, if it is ambiguous or too long."""
        version, headers = self.parser.get_http_version(), self.headers
        error = ambiguity(version, headers)
        if error is not None:
            raise error
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        self.scope["method"] = self.parser.get_method().decode("ascii")
        self.scope["http_version"] = version
        self.scope["path"] = unquote(path) if "%" in path else path
        self.scope["raw_path"] = url.path
        self.scope["query_string"] = url.query or b""
        # The plain spelling of a section is less than twice as long as the shortest, so most need not be measured.
        if self._unfinished > MAX_HEADER_BYTES // 2 and section_bytes(self.scope) > MAX_HEADER_BYTES:
            raise too_long()
        if self.parser.should_upgrade():
            if self.scope["method"] == "CONNECT":  # would be taken for an offer again
                raise malformed()
            return
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
        self.headers = []  # trailers are not headers (RFC 9110 section 6.5.1)

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        if self._body_left is not None:
            self._body_left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self.parser.should_upgrade():
            return
        super().on_message_complete()
        self._unfinished = 0
        if self._deadline is not None:
            self._drop_deadline()
        self.state = IDLE if self.cycle.response_complete else ANSWER

    def on_response_complete(self) -> None:
        """Continues with pipelined data, at once or when the client has read its answers."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._close()
        elif not self.cycle.keep_alive:
            self._linger() if self.state == BODY else self._close()
        else:
            if self.state == ANSWER:
                self.state = IDLE
            if not self.flow.write_paused:
                self._parse_received()

    def pause_writing(self) -> None:
        """Called when the client does not read its answers: sets a deadline, and stops parsing."""
        super().pause_writing()
        self._set_deadline(UNREAD_SECONDS)
        self._count_buffers()

    def resume_writing(self) -> None:
        """Called when the client has read."""
        super().resume_writing()
        if not self.transport.is_closing():
            self._drop_deadline()
            self._parse_received()

    def buffered_bytes(self) -> int:
        """The number of buffered bytes: unsent answers and unparsed data."""
        return self.transport.get_write_buffer_size() + len(self._unparsed)

    def shutdown(self) -> None:
        """The server stops: the pending answer is the last, and requests waiting for a change are woken."""
        super().shutdown()
        if self.state == ANSWER:
            self.cycle.message_event.set()

    def _parse_received(self) -> None:
        """Parses received data until a request must be answered first, a header or trailer section becomes too long, or
        there is an error. Resumes reading when everything is parsed."""
        while self._unparsed and self.state <= BODY and not self.flow.write_paused:
            piece = self._next_piece()
            self._unfinished += len(piece)
            self._parse(piece)
            if self._unfinished > MAX_HEADER_BYTES and self.state != END:
                self._reject(too_long())
        if self._unparsed:
            self.flow.pause_reading()
        elif self.flow.read_paused and not self._is_body_waiting():
            self.flow.resume_reading()
        if self._unparsed or self._is_counted:
            self._count_buffers()
        if self._deadline is None and self.state <= BODY:
            self._set_deadline(self.timeout_keep_alive if self.state == IDLE else REQUEST_SECONDS)

    def _is_body_waiting(self) -> bool:
        """Whether the application must first read the buffered part of a body."""
        if self.state != BODY or self.cycle.response_complete:
            return False
        return len(self.cycle.body) > HIGH_WATER_LIMIT

    def _next_piece(self) -> bytearray:
        """Takes the next piece of the unparsed data, at most to the end of a request."""
        size = self._body_left if self.state == BODY else None
        if not size:
            # A request without a body ends with its header section, a chunked one with its trailer section.
            seen = self._section_end + self._unparsed[:PIECE_BYTES]
            end = seen.find(END_OF_SECTION)
            size = PIECE_BYTES if end < 0 else end + len(END_OF_SECTION) - len(self._section_end)
            self._section_end = seen[1 - len(END_OF_SECTION) :] if end < 0 else b""
        piece = self._unparsed[:size]
        del self._unparsed[:size]
        return piece

    def _parse(self, data: bytes | bytearray) -> None:
        """uvicorn's data_received, except that an offer to upgrade changes nothing (RFC 9110 section 7.8): a parser
        takes what follows for the other protocol's data, so another one gets the head without the offer."""
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:
                data = without_offer(self.parser, self.url, self.headers) + data[offer.args[0] :]
                self.parser = httptools.HttpRequestParser(self)
                continue
            except httptools.HttpParserError as error:
                raised = error.__context__  # by on_headers_complete
                self._reject(raised if isinstance(raised, DomainError) else malformed())
            return

    def _count_buffers(self) -> None:
        self._is_counted = self.flow.write_paused or bool(self._unparsed)
        self._counts.buffer(self, self.buffered_bytes() if self._is_counted else 0)

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _set_deadline(self, seconds: float) -> None:
        self._drop_deadline()
        self._deadline = self.loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        """Aborts the connection of a client that does not read, answers a slow request with 408, and closes a
        connection without a request."""
        self._deadline = None
        if self.transport.is_closing() or self.flow.write_paused:
            self.transport.abort()
        elif self.state == BODY and self.flow.read_paused:
            self._set_deadline(REQUEST_SECONDS)  # the application is slow, not the client
        elif self.state in (HEAD, BODY):
            self._reject(TooSlow(f"The request was not complete within {REQUEST_SECONDS} seconds"))
        else:
            self._close()

    def _reject(self, error: DomainError) -> None:
        """Answers the last request with an error, unless its answer has begun, and closes the connection."""
        # At DEBUG, because unauthenticated clients could fill the log.
        request_id = secrets.token_hex(8)
        log.debug("rejected a request from %s: %s request=%s", self.client, error, request_id)
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
        """Closes after a while: otherwise a client still sending would lose the answer (RFC 9112 section 9.6)."""
        if not self.transport.can_write_eof():
            self._close()
            return
        self.state = END
        self._unparsed.clear()
        self.flow.resume_reading()
        self.transport.write_eof()
        self._set_deadline(LINGER_SECONDS)

    def _close(self) -> None:
        """Closes the connection, and aborts it later if the client has not read the rest."""
        self.state = END
        self.transport.close()
        if self in self.connections:  # not lost yet
            self._set_deadline(UNREAD_SECONDS)
