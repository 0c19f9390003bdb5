"""HTTP/1.1 as `payres serve` and payres.testing speak it, with bounds on connections, header sections and waiting.

uvicorn answers what is no HTTP in plain text and ahead of the answers that are still due, reads header sections without
end, waits for ever, takes any number of connections, makes requests of all that is pipelined, keeps answers that nobody
reads, drops the request of a client that has finished sending, and writes a line into the log for each that is none.
"""

import asyncio
import fcntl
import logging
import termios
from array import array
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from payres.clock import SECOND
from payres.errors import DomainError, Unavailable
from payres.http.error_responses import ErrorResponse, error_response
from payres.limits import (
    BODY_SECONDS,
    HEADER_SECONDS,
    MAX_HEADER_BYTES,
    SPARE_FILES,
    UNREAD_SECONDS,
)
from payres.routes.connections import Flow, connections_of, most_connections, most_of_one_address
from payres.routes.header_limit import section_bytes, too_long
from payres.routes.refusals import refusal_response
from payres.routes.request_head import MALFORMED, ambiguity
from payres.throttle import too_many

log = logging.getLogger("payres.routes")

LINGER_SECONDS: Final = 2
# A section that begins inside a piece is measured from the next one on: by so much at most, it may be noticed late.
PIECE_BYTES: Final = 4096
# Bytes of answers that wait to be sent, above which a client counts as one that does not read.
UNSENT_BYTES: Final = 4096
END_OF_SECTION: Final = b"\r\n\r\n"
NEW: Final = -1.0


class HttpProtocol(HttpToolsProtocol):
    """One connection. Once something on it is refused, nothing that follows is read.

    Requests are parsed one at a time: what a client sends ahead stays bytes, of which no more than one read are taken.
    """

    flow: Flow

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._server = connections_of(server_state, config)
        self._address: str | None = None  # for which the connection is counted
        self._held = b""  # what has come, of which so much is parsed:
        self._parsed = 0
        self._unfinished = 0  # bytes that came since the parser last had something to hand on
        self._fault: ErrorResponse | None = None  # of the head that the parser was stopped at
        self._last_words: bytes | None = None
        self._coming: float | None = HEADER_SECONDS  # how long what is coming may take; None when nothing is
        self._watched: float | None = None  # what the watch was set for
        self._begun = False  # a request has, and is not complete
        self._running: RequestResponseCycle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._is_clogged = False  # there are answers that the client does not read
        self._is_put_off = False  # what follows the latest answer, until the client has read
        self._has_ended = False  # the client sends no more

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Takes the connection, or refuses one too many: what it sends is not read."""
        super().connection_made(transport)
        self.flow = Flow(transport)
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self._address = self._server.counted_address(self.client)
        of_address = self._server.enter(self._address) if self._address is not None else 0
        most = most_connections()
        most_of_address = most_of_one_address(most)
        if len(self.connections) > most + SPARE_FILES // 2 or of_address > 2 * most_of_address:
            self._last_words = b""  # a refusal keeps the connection for a while, and here are too many for that
            transport.abort()
        elif len(self.connections) > most:
            self._refuse(Unavailable("The server has as many connections as it takes. Try again shortly"))
        elif of_address > most_of_address:
            self._refuse(too_many(SECOND, f"Your address has {most_of_address} connections. Close some, or reuse them"))
        else:
            self._set_watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forgets the connection, and tells the request under way, which need not be the latest as uvicorn takes it."""
        super().connection_lost(exc)
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True  # or it would write, and fail
            self._running.message_event.set()
        self._coming = None
        self._set_watch()
        if self._unread is not None:
            self._unread.cancel()
        self._held = b""
        self._server.release(self)
        if self._address is not None:
            self._server.leave(self._address)

    def data_received(self, data: bytes) -> None:
        """Parses what came, as far as it may be parsed yet."""
        self._held = self._held[self._parsed :] + data if self._held else data
        self._parsed = 0
        self._parse_on()

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio's
        """The client sends no more. What it has asked for is answered; then the connection is closed."""
        running = self._running
        self._has_ended = True
        self._coming = None
        self._set_watch()
        if running is None or running.response_complete or running.more_body or self.scheme == "https":
            self._cut_later()
            return False  # closes the transport
        if self.pipeline and self.cycle.more_body:
            self.pipeline.popleft()  # the rest of it will not come
        return True

    def on_message_begin(self) -> None:
        """Begins a request."""
        self._begun, self._coming, self._watched = True, HEADER_SECONDS, NEW
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Makes a request of a header section, unless that is too long or ambiguous."""
        self._unfinished = 0
        self._fault = self._fault_of_head()
        if self._fault is not None:
            raise ValueError("the head is refused")  # the parser stops at it, and nothing is dispatched
        super().on_headers_complete()
        self._coming = BODY_SECONDS
        self.headers = []  # trailers are no headers (RFC 9110 section 6.5.1), and the request has been handed on

    def on_body(self, body: bytes) -> None:
        """Hands on a part of the body."""
        self._unfinished = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Ends the request."""
        self._unfinished = 0
        self._begun, self._coming = False, None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Goes on with the next request, or when the client has read the answers so far."""
        if self._is_clogged:
            self._recount()
        self._is_put_off = self._is_clogged and not self.transport.is_closing()
        if not self._is_put_off:
            self._go_on()

    def pause_writing(self) -> None:
        """The client does not read its answers. It has a while to go on.

        An answer that has begun is written to its end, unlike uvicorn's: it is in memory in any case, and counted only
        where the transport has it.
        """
        self._is_clogged = True
        self._recount()
        if self._unread is None:
            self._watch_reader(self._unread_bytes())

    def resume_writing(self) -> None:
        """The client has read."""
        self._is_clogged = False
        self._recount()
        if self.transport.is_closing():
            return
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None
        if self._is_put_off:
            self._is_put_off = False
            self._go_on()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing has come for a while."""
        if not self.transport.is_closing():
            self._close()

    def buffered_bytes(self) -> int:
        """How many bytes are kept for this connection: answers that are not sent, and what is not parsed."""
        return self.transport.get_write_buffer_size() + len(self._held)

    def cut(self) -> None:
        """Ends the connection, whatever is left to send."""
        self._held, self._is_clogged = b"", False  # a request under way may still write, and shall not be counted
        self.transport.abort()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        async def run(scope: Any, receive: Any, send: Any) -> None:
            try:
                await app(scope, receive, send)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or not task.cancelling():
                    raise  # a fault of ours, of which uvicorn makes a 500
                # The server stops and waits no longer. What has become of the request is not known: no answer says it.
                cycle.disconnected = True
                self.transport.close()

        self._running = cycle
        super()._start_asgi_task(cycle, run)

    def _fault_of_head(self) -> ErrorResponse | None:
        parser = self.parser
        if section_bytes(parser.get_method(), len(self.url), self.headers) > MAX_HEADER_BYTES:
            return too_long()
        return ambiguity(parser.get_http_version(), self.headers, parser.should_upgrade())

    def _go_on(self) -> None:
        """Starts the next request that waits; after the last one, what was refused gets its answer."""
        is_last = not self.pipeline
        super().on_response_complete()
        if self.transport.is_closing():
            self._cut_later()
        elif is_last and self._last_words is not None:
            self._hang_up()
        elif is_last and self._has_ended:
            self._close()
        elif self._held:
            self._parse_on()

    def _parse_on(self) -> None:
        """Parses what is held, and stops behind a request that has to be answered first, at a section of headers or
        trailers that has become too long to wait for, and at what is refused."""
        held, start = self._held, self._parsed
        while start < len(held) and self._last_words is None and not self._is_busy():
            end = held.find(END_OF_SECTION, start, start + PIECE_BYTES)  # so that a piece ends no more than one section
            end = start + PIECE_BYTES if end < 0 else end + len(END_OF_SECTION)
            piece, start = held[start:end], end
            self._unfinished += len(piece)
            self._parse(piece)
            if self._unfinished > MAX_HEADER_BYTES and self._last_words is None:
                self._refuse(too_long())
        self._hold(start)
        if self._coming is None and self._unfinished and self._last_words is None:  # empty lines before a request
            self._coming = HEADER_SECONDS
        if self._coming != self._watched:
            self._set_watch()

    def _is_busy(self) -> bool:
        """Whether a request that has come wants an answer, or the client to read one."""
        if self._is_clogged or self.pipeline:
            return True
        cycle = self.cycle
        return not (cycle is None or cycle.more_body or cycle.response_complete)

    def _hold(self, parsed: int) -> None:
        """Keeps the rest of what has come until it may be parsed, and reads no more until then."""
        if parsed < len(self._held) and self._last_words is None:
            self._parsed = parsed
            if not self.flow.holds:
                self.flow.pause_reading()
                self.flow.holds = True
                self._recount()
            return
        self._held, self._parsed = b"", 0
        if self.flow.holds:
            self.flow.holds = False
            self.flow.resume_reading()
            self._recount()

    def _recount(self) -> None:
        if self._is_clogged or self._held:
            self._server.buffer(self)
        else:
            self._server.release(self)

    def _parse(self, data: bytes) -> None:
        """uvicorn's data_received, which loses what follows an offer of another protocol."""
        self._unset_keepalive_if_required()
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:  # it is passed over (RFC 9110 section 7.8)
                data = data[offer.args[0] :]
            except httptools.HttpParserError:
                self._refuse(self._fault or ErrorResponse(400, "invalid_request", MALFORMED))
                return
            else:
                return

    def _set_watch(self) -> None:
        """Watches that what is coming comes in time. What comes in one piece, as nearly all does, is not watched."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._watched = self._coming
        if self._coming is not None:
            self._watch = self.loop.call_later(self._coming, self._time_out)

    def _time_out(self) -> None:
        """Refuses a request that takes too long to come; a connection on which none has begun is just closed."""
        self._watch = None
        is_answered = self.cycle is None or self.cycle.response_complete
        if self.transport.is_closing():
            return
        if self.flow.read_paused or not (self._begun or is_answered):  # it is not the client that is slow
            self._set_watch()
        elif is_answered and (not self._begun or self._coming == BODY_SECONDS):
            self._close()
        else:
            self._refuse(ErrorResponse(408, "too_slow", f"The request did not come within {self._coming} seconds"))

    def _refuse(self, error: DomainError) -> None:
        """Answers with a refusal as soon as the requests before it have their answers, and hangs up."""
        # No higher than that: a stranger could fill the log.
        log.debug("refused what came from %s: %s", self.client, error)
        is_answered = self.cycle is None or self.cycle.response_complete
        is_in_body = self._begun and self._coming == BODY_SECONDS
        self._coming = None
        self._set_watch()
        self._last_words = self._answer(error_response(error))
        if is_answered and is_in_body:  # a request has one answer, and this one has it
            self._close()
        elif is_answered:
            self._hang_up()
        elif self.cycle.more_body:
            self._abandon()

    def _abandon(self) -> None:
        """Drops the latest request: it is the one that broke, inside its body."""
        if self.pipeline:
            self.pipeline.popleft()
            return
        self.cycle.disconnected = True
        self.cycle.waiting_for_100_continue = False
        self.cycle.message_event.set()
        if self.cycle.response_started:
            self.transport.close()
        else:
            self._hang_up()

    def _answer(self, refusal: ErrorResponse) -> bytes:
        response = refusal_response(refusal)
        status = HTTPStatus(refusal.status)
        fields = [*self.server_state.default_headers, *response.raw_headers, (b"connection", b"close")]
        lines = [
            f"HTTP/1.1 {status.value} {status.phrase}".encode(),
            *(b"%b: %b" % field for field in dict(fields).items()),
        ]
        body = b"" if self.parser.get_method() == b"HEAD" else bytes(response.body)
        return b"\r\n".join([*lines, b"", body])

    def _hang_up(self) -> None:
        assert self._last_words is not None
        self._unset_keepalive_if_required()
        self.flow.resume_reading()
        self.transport.write(self._last_words)
        if self.transport.can_write_eof() and not self._has_ended:
            # Closed at once, the answer would be lost to a client that is still sending (RFC 9112 section 9.6).
            self.transport.write_eof()
            self.timeout_keep_alive_task = self.loop.call_later(LINGER_SECONDS, self._close)
        else:
            self._close()

    def _close(self) -> None:
        self.transport.close()
        self._cut_later()

    def _cut_later(self) -> None:
        """Ends the connection after a while, unless the client reads: what is left to send would keep it for ever."""
        if self._unread is None and self.transport.get_write_buffer_size():
            self._watch_reader(self._unread_bytes())

    def _watch_reader(self, unread: int) -> None:
        """Gives the client a while to read something, and then another."""
        self._unread = self.loop.call_later(UNREAD_SECONDS, self._judge_reader, unread)

    def _judge_reader(self, before: int) -> None:
        now = self._unread_bytes()
        if now > before - UNSENT_BYTES:
            self.transport.abort()
        else:
            self._watch_reader(now)

    def _unread_bytes(self) -> int:
        """How much the client has not taken: of what is kept here, and of what the system keeps for it."""
        count = array("i", [0])
        with suppress(OSError, ValueError):  # the socket is closed, or none that could tell
            fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, count)
        return self.transport.get_write_buffer_size() + count[0]
