"""HTTP/1.1 as the servers of `payres serve` and payres.testing speak it: uvicorn's, with refusals like all others.

uvicorn answers what is no HTTP in plain text and ahead of the answers that are still due, reads header sections without
end, waits for ever, takes any number of connections, and writes a line into the log for each request that is none.
"""

import asyncio
import logging
import resource
from http import HTTPStatus
from typing import Any, Final

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from payres.errors import Refusal, unavailable
from payres.limits import BODY_SECONDS, HEADER_SECONDS, MAX_CONNECTIONS, MAX_HEADER_BYTES, SPARE_FILES, UNREAD_SECONDS
from payres.routes.header_limit import section_bytes, too_long
from payres.routes.refusals import refusal_response
from payres.routes.request_head import MALFORMED, ambiguity

log = logging.getLogger("payres.routes")

LINGER_SECONDS: Final = 2
# A section that begins inside a piece is measured from the next one on: by so much at most, it may be noticed late.
PIECE_BYTES: Final = 4096
NEW: Final = -1.0


def most_connections() -> int:
    """How many connections may be open: MAX_CONNECTIONS, or what the process's files allow."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if files == resource.RLIM_INFINITY else min(MAX_CONNECTIONS, max(files - SPARE_FILES, 1))


class HttpProtocol(HttpToolsProtocol):
    """One connection. Once something on it is refused, nothing that follows is read."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._unfinished = 0  # bytes that came since the parser last had something to hand on
        self._fault: Refusal | None = None  # of the head that the parser was stopped at
        self._last_words: bytes | None = None
        self._coming: float | None = HEADER_SECONDS  # how long what is coming may take; None when nothing is
        self._watched: float | None = None  # what the watch was set for
        self._begun = False  # a request has, and is not complete
        self._running: RequestResponseCycle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn's
        """Takes the connection, or refuses one too many: what it sends is not read."""
        super().connection_made(transport)
        if len(self.connections) > most_connections():
            self._refuse(unavailable("The server has as many connections as it takes. Try again shortly"))
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

    def data_received(self, data: bytes) -> None:
        """Parses what came, and stops at a section of headers or trailers that has become too long to wait for."""
        for start in range(0, len(data), PIECE_BYTES):
            if self._last_words is not None:
                return
            piece = data[start : start + PIECE_BYTES]
            self._unfinished += len(piece)
            self._parse(piece)
            if self._unfinished > MAX_HEADER_BYTES and self._last_words is None:
                self._refuse(too_long())
        if self._coming is None and self._unfinished:  # empty lines before a request
            self._coming = HEADER_SECONDS
        if self._coming != self._watched:
            self._set_watch()

    def on_message_begin(self) -> None:
        """Begins a request."""
        self._begun, self._coming, self._watched = True, HEADER_SECONDS, NEW
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Makes a request of a header section, unless that is too long or ambiguous."""
        self._unfinished = 0
        self._coming = BODY_SECONDS
        self._fault = self._fault_of_head()
        if self._fault is not None:
            raise ValueError("the head is refused")  # the parser stops at it, and nothing is dispatched
        super().on_headers_complete()
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
        """Goes on with the next request that waits; after the last one, what was refused gets its answer."""
        is_last = not self.pipeline
        super().on_response_complete()
        if is_last and self._last_words is not None and not self.transport.is_closing():
            self._hang_up()

    def pause_writing(self) -> None:
        """The client does not read its answers. It has a while to go on."""
        super().pause_writing()
        self._unread = self.loop.call_later(UNREAD_SECONDS, self.transport.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

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

    def _fault_of_head(self) -> Refusal | None:
        parser = self.parser
        if section_bytes(parser.get_method(), len(self.url), self.headers) > MAX_HEADER_BYTES:
            return too_long()
        return ambiguity(parser.get_http_version(), self.headers, parser.should_upgrade())

    def _parse(self, data: bytes) -> None:
        """uvicorn's data_received, which loses what follows an offer of another protocol."""
        self._unset_keepalive_if_required()
        while data:
            try:
                self.parser.feed_data(data)
            except httptools.HttpParserUpgrade as offer:  # it is passed over (RFC 9110 section 7.8)
                data = data[offer.args[0] :]
            except httptools.HttpParserError:
                self._refuse(self._fault or Refusal(400, "invalid_request", MALFORMED))
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
            self.transport.close()
        else:
            self._refuse(Refusal(408, "too_slow", f"The request did not come within {self._coming} seconds"))

    def _refuse(self, refusal: Refusal) -> None:
        """Answers with a refusal as soon as the requests before it have their answers, and hangs up."""
        # No higher than that: a stranger could fill the log.
        log.debug("refused what came from %s: %s", self.client, refusal.description)
        self._coming = None
        self._set_watch()
        self._last_words = self._answer(refusal)
        if self.cycle is None or self.cycle.response_complete:
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

    def _answer(self, refusal: Refusal) -> bytes:
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
        if self.transport.can_write_eof():
            # Closed at once, the answer would be lost to a client that is still sending (RFC 9112 section 9.6).
            self.transport.write_eof()
            self.timeout_keep_alive_task = self.loop.call_later(LINGER_SECONDS, self.transport.close)
        else:
            self.transport.close()
