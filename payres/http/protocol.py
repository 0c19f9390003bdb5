"""HTTP/1.1 as `payres serve` and payres.testing speak it, with limits on connections, header sections and waiting.

uvicorn answers what is no HTTP in plain text and ahead of the answers that are still due, reads header sections without
end, waits forever, takes any number of connections, makes requests of all that is pipelined, buffers answers that are
not read, drops the request of a client that has finished sending, and writes a line into the log for each that is none.
"""

import asyncio
import logging
from enum import Enum, auto
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from payres.clock import SECOND
from payres.errors import DomainError, TooSlow, Unavailable
from payres.http.connections import connections_of, most_connections, most_of_one_address
from payres.http.exchange import Exchange, scope_of
from payres.http.flow_control import Flow
from payres.http.request_head import ambiguity, declared_length, malformed, section_bytes, too_long
from payres.http.responses import last_headers, last_response
from payres.http.streams import CutShort
from payres.limits import BODY_SECONDS, HEADER_SECONDS, MAX_HEADER_BYTES, SPARE_FILES, UNREAD_SECONDS
from payres.rate_limiter import too_many

log = logging.getLogger("payres.http")

LINGER_SECONDS: Final = 2
# Bytes that are parsed at a time where neither a section nor a body ends earlier.
PIECE_BYTES: Final = 4096
# Bytes of answers that wait to be sent, above which a client counts as one that does not read.
UNSENT_BYTES: Final = 4096
END_OF_SECTION: Final = b"\r\n\r\n"


class State(Enum):
    """What a connection waits for."""

    NEW = auto()  # a request; none has begun, though empty lines may have come
    HEAD = auto()  # the rest of a header section
    BODY = auto()  # the rest of a body; its request may have its answer already
    ANSWER = auto()  # the answer to a request that has come completely, or the client to read it
    LAST_ANSWER = auto()  # the same, of a client that sends no more
    IDLE = auto()  # the next request; all answers have gone
    END = auto()  # the client to hang up; what still comes is not read


# As names of their own, because an attribute of an Enum costs a call in Python 3.11.
NEW, HEAD, BODY, ANSWER, LAST_ANSWER, IDLE, END = State

# How long it waits. Answers take as long as they take; between requests it is uvicorn's setting.
SECONDS: Final[dict[State, float]] = {
    NEW: HEADER_SECONDS,
    HEAD: HEADER_SECONDS,
    BODY: BODY_SECONDS,
    END: LINGER_SECONDS,
}
WANTS_BYTES: Final = (IDLE, NEW, HEAD, BODY)
WANTS_ANSWER: Final = (ANSWER, LAST_ANSWER)


class HttpProtocol(HttpToolsProtocol):
    """One connection: its `state`, and one deadline, which is the state's or that of a client that does not read.

    Requests are parsed one at a time: what a client sends ahead stays bytes, of which no more than one read are taken.
    After an error response, nothing that follows on the connection is read.
    """

    flow: Flow
    state: State

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
        self._deadline: asyncio.TimerHandle | None = None
        self._held = bytearray()  # what has come and is not parsed
        self._section_end = b""  # how the section that is being parsed ends so far, where that may be half an end
        self._unfinished = 0  # bytes that were parsed since the parser last had something to hand on
        self._body_left: int | None = None  # bytes of the body that are still to come; None for one in chunks
        self._unread = 0  # bytes that the client had not taken when the deadline of one that does not read was set

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Accepts the connection, or answers one too many with an error: what it sends is not read."""
        super().connection_made(transport)
        self.flow = Flow(transport, self._held)
        self.state = NEW
        transport.set_write_buffer_limits(high=UNSENT_BYTES)
        self._address = self._server.counted_address(self.client)
        of_address = self._server.enter(self._address) if self._address is not None else 0
        most = most_connections()
        most_of_address = most_of_one_address(most)
        if len(self.connections) > most + SPARE_FILES // 2 or of_address > 2 * most_of_address:
            self.state = END  # without an answer, which would hold one of too many connections for a while
            transport.abort()
        elif len(self.connections) > most and not self._server.close_idle():
            self._reject(Unavailable("The server has as many connections as it takes. Try again shortly"))
        elif of_address > most_of_address and not self._server.close_idle(self._address):
            self._reject(too_many(SECOND, f"Your address has {most_of_address} connections. Close some, or reuse them"))
        else:
            self._set_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Drops all of the connection; uvicorn notifies the request that is in progress."""
        super().connection_lost(exc)
        self._enter(END)
        self._held.clear()
        self._server.release(self)
        if self._address is not None:
            self._server.leave(self._address)

    def data_received(self, data: bytes) -> None:
        """Parses what came, as far as it may be parsed yet."""
        if self.state is not END:
            self._held += data
            self._parse_held()

    def eof_received(self) -> bool:  # type: ignore[override]  # as asyncio's
        """The client sends no more. What it has asked for is answered; then the connection is closed."""
        if self.state is ANSWER and self.scheme != "https":
            self.state = LAST_ANSWER
            self.cycle.message_event.set()  # a request that waits for a change waits no longer
            return True  # keeps the transport open
        self._close()
        return False

    def on_message_begin(self) -> None:
        self._enter(HEAD)
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        """Makes a request of a header section. Raises the error for one that is too long or ambiguous: the parser stops
        there, and nothing is dispatched."""
        came, self._unfinished = self._unfinished, 0
        method, version, headers = self.parser.get_method(), self.parser.get_http_version(), self.headers
        # The plain spelling of a section is less than twice as long as the shortest: most need not be measured.
        if came > MAX_HEADER_BYTES // 2 and section_bytes(method, len(self.url), headers) > MAX_HEADER_BYTES:
            raise too_long()
        error = ambiguity(version, headers, self.parser.should_upgrade())
        if error is not None:
            raise error
        self._dispatch(method.decode("ascii"), version)
        self._enter(BODY)
        self._body_left = declared_length(headers)
        self.headers = []  # trailers are no headers (RFC 9110 section 6.5.1), and the request has been handed on

    def on_body(self, body: bytes) -> None:
        self._unfinished = 0
        if self._body_left is not None:
            self._body_left -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unfinished = 0
        super().on_message_complete()
        self._enter(IDLE if self.cycle.response_complete else ANSWER)

    def on_response_complete(self) -> None:
        """Goes on with what the client has sent ahead, at once or when it has read the answers so far."""
        self.server_state.total_requests += 1
        if self.flow.write_paused and not self.transport.is_closing():
            self._count_buffers()
        else:
            self._go_on()

    def pause_writing(self) -> None:
        """The client does not read its answers. It has a while to go on, and nothing more is parsed for it."""
        super().pause_writing()
        self._count_buffers()
        self._watch_reader()

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        self._count_buffers()
        if self.transport.is_closing():
            return  # there may be something left to send, for which the deadline stands
        self._drop_deadline()
        if self._is_answered() or self.state not in WANTS_ANSWER:
            self._go_on()

    def buffered_bytes(self) -> int:
        """How many bytes are buffered: answers that are not sent, and what is not parsed."""
        return self.transport.get_write_buffer_size() + len(self._held)

    def cut(self) -> None:
        """Ends the connection, whatever is left to send."""
        self._held.clear()
        self.flow.resume_writing()  # a request in progress may still write, and shall not be counted
        self.transport.abort()

    def shutdown(self) -> None:
        """The server stops: the answer that is due is the last, and what waits for a change waits no longer."""
        super().shutdown()
        if self.cycle is not None:
            self.cycle.default_headers = last_headers(self.cycle.default_headers)
        if self.state in WANTS_ANSWER:
            self.cycle.message_event.set()

    def _dispatch(self, method: str, version: str) -> None:
        """Starts a request. Requests are parsed one at a time, so none is waiting for an answer."""
        self.scope = scope_of(self, method, version)
        keeps_alive = version == "1.1" and self.parser.should_keep_alive()
        headers = self.server_state.default_headers
        self.cycle = Exchange(
            scope=self.scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=headers if keeps_alive else last_headers(headers),
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=keeps_alive,
            on_response=self.on_response_complete,
        )
        self._start_asgi_task(self.cycle, self._run)

    async def _run(self, scope: Any, receive: Any, send: Any) -> None:
        cycle = self.cycle
        try:
            await self.app(scope, receive, send)
        except CutShort:
            cycle.disconnected = True
            self._close()
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is None or not task.cancelling():
                raise  # a fault of ours, of which uvicorn makes a 500
            # The server stops and waits no longer. The outcome of the request is not known: no answer says it.
            cycle.disconnected = True
            self._close()

    def _enter(self, state: State) -> None:
        """Waits for something else, at first without a deadline: what comes in one piece, as nearly all does, needs
        none. The caller sets it in the end."""
        if state is IDLE:
            self._server.enter_idle(self, self._address)
        elif self.state is IDLE:
            self._server.leave_idle(self)
        self.state = state
        if self._deadline is not None:
            self._drop_deadline()

    def _drop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _set_deadline(self) -> None:
        """Sets the deadline of what the connection waits for, unless it has one already."""
        if self._deadline is None and self.state not in WANTS_ANSWER:
            seconds = self.timeout_keep_alive if self.state is IDLE else SECONDS[self.state]
            self._deadline = self.loop.call_later(seconds, self._time_out)

    def _time_out(self) -> None:
        """Answers a request that has begun, and takes too long to come, with 408. A connection on which none is coming
        is just closed, or cut when there is something that the client does not read."""
        self._deadline = None
        is_closing = self.transport.is_closing()
        watches_reader = is_closing if self.state is END else self.flow.write_paused
        if watches_reader:
            self._judge_reader()
        elif self.state is BODY and self.flow.read_paused:
            self._set_deadline()  # it is not the client that is slow
        elif not is_closing and (self.state is HEAD or (self.state is BODY and not self._is_answered())):
            sentence = f"The request did not come within {SECONDS[self.state]} seconds"
            self._reject(TooSlow(sentence))
        else:
            self._close()

    def _is_answered(self) -> bool:
        """Whether the latest request has its answer."""
        return self.cycle is not None and self.cycle.response_complete

    def _go_on(self) -> None:
        """Goes on after an answer that the client reads."""
        if self.transport.is_closing() or self.state is LAST_ANSWER:
            self._close()
            return
        if self.state is ANSWER:
            self._enter(IDLE)
        if self._held:
            self._parse_held()
            self._count_buffers()
        else:
            self._set_deadline()
        if self.flow.read_paused:
            self.flow.resume_reading()

    def _parse_held(self) -> None:
        """Parses what has come, and stops behind a request that has to be answered first, at a section of headers or
        trailers that has become too long to wait for, and at an error. Reads on when the rest is parsed."""
        while self._held and self.state in WANTS_BYTES and not self.flow.write_paused:
            piece = self._next_piece()
            self._unfinished += len(piece)
            self._parse(piece)
            if self._unfinished > MAX_HEADER_BYTES and self.state is not END:
                self._reject(too_long())
        if self._held:
            self.flow.pause_reading()
            self._count_buffers()
        if self.state is IDLE and self._unfinished:  # empty lines before a request
            self._enter(NEW)
        self._set_deadline()

    def _next_piece(self) -> bytearray:
        """Takes from what is held a piece that does not reach beyond the end of a request."""
        size = self._body_left if self.state is BODY else None
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
        if self.flow.write_paused or self._held:
            self._server.buffer(self)
        else:
            self._server.release(self)

    def _reject(self, error: DomainError) -> None:
        """Answers what came last with an error, unless its answer has begun, and hangs up."""
        # No higher than that: an unauthenticated client could fill the log.
        log.debug("rejected what came from %s: %s", self.client, error)
        is_in_body = self.state is BODY
        self._enter(END)
        self._held.clear()
        self.flow.resume_reading()
        if is_in_body:
            self.cycle.disconnected = True
            self.cycle.waiting_for_100_continue = False
            self.cycle.message_event.set()
        if is_in_body and self.cycle.response_started:  # a request has one answer
            self._close()
            return
        self.transport.write(last_response(error, self.server_state.default_headers, self.parser.get_method()))
        if self.transport.can_write_eof():
            # Closed at once, the answer would be lost to a client that is still sending (RFC 9112 section 9.6).
            self.transport.write_eof()
            self._set_deadline()
        else:
            self._close()

    def _close(self) -> None:
        """Closes the connection, and cuts it after a while unless the client reads what is left to send."""
        self._enter(END)
        self.transport.close()
        if self.transport.get_write_buffer_size():
            self._watch_reader()

    def _watch_reader(self) -> None:
        """Gives the client a while to read something."""
        self._unread = self.flow.unread_bytes()
        self._drop_deadline()
        self._deadline = self.loop.call_later(UNREAD_SECONDS, self._time_out)

    def _judge_reader(self) -> None:
        """Gives a client that has read something another while, and cuts one that has not."""
        before = self._unread
        self._watch_reader()
        if self._unread > before - UNSENT_BYTES:
            self.transport.abort()
