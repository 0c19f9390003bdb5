"""An HTTP/1.1 connection to another server, for one exchange at a time (RFC 9112), and the ways an exchange fails."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple, TypeVar

import httptools
import msgspec

from payres.core.protocol.urls import DEFAULT_PORTS

T = TypeVar("T")

MAX_FRAMING_BYTES: Final = 128 * 1024  # of an answer without its body: heads, interim answers, chunk framing

# Clients see these words if a receiver on another server cannot be paid.
Reason = Literal[
    "unreachable",  # no permitted address, no connection, no answer in time, or an error of the other server
    "untrusted_certificate",  # TLS does not accept its certificate
    "busy",  # not sent: too many exchanges or lookups are in progress here
    "bad_content",  # the answer is not HTTP, too long, or of the wrong form
    "refused",  # the other server denies access, or requires consent
    "not_found",  # there is no such incoming payment
    "completed",  # the incoming payment accepts no more money: it is fully paid or was completed
    "expired",  # it accepts no more money: it has expired
    "no_ilp_method",  # it cannot be paid over Interledger
]


class FetchFailed(Exception):
    """A request to another server failed.

    `sentence` may be shown to a client: it names the host and what to do, never an address behind the name. `retryable`
    means that a later request may succeed. `unsent`, after a failed `GuardedClient.request`, is False once bytes of the
    request may have been sent, so that the other server may have acted on it.
    """

    def __init__(self, sentence: str, reason: Reason = "unreachable", *, retryable: bool = True) -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.reason = reason
        self.retryable = retryable
        self.unsent = True


class SilentServer(FetchFailed):
    """No connection, or no answer in time."""


class NoAddress(FetchFailed):
    """The host has no permitted address; the client must not learn why."""


def bad_content(sentence: str) -> FetchFailed:
    """The error for an answer of the wrong form, which a repeated request would not change."""
    return FetchFailed(sentence, "bad_content", retryable=False)


@contextmanager
def failing_as(error_of: Callable[[FetchFailed], Exception]) -> Iterator[None]:
    """Around requests to another server, whose failure is told as another error here."""
    try:
        yield
    except FetchFailed as failed:
        raise error_of(failed) from failed


class Response(msgspec.Struct, frozen=True):
    """An answer of any status. Header names are lower-case; repeated headers are joined with commas."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may get another answer later."""
        return self.status in {408, 425, 429} or self.status >= 500

    def decoded(self, kind: type[T], failure: str, *, says_why: bool = False) -> T:
        """The body as JSON of this kind. Otherwise raises FetchFailed, whose sentence is `failure`, and perhaps why."""
        try:
            return msgspec.json.decode(self.body, type=kind)
        except (ValueError, RecursionError) as error:
            raise bad_content(f"{failure}: {error}" if says_why else failure) from error


class Server(NamedTuple):
    """The other end of a connection; `host` is the name in its certificate."""

    scheme: str
    host: str
    port: int

    @property
    def authority(self) -> str:
        """Host and port as in a Host header; without the scheme's default port."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == DEFAULT_PORTS[self.scheme] else f"{host}:{self.port}"


class GuardedConnection(asyncio.Protocol):
    """Reads bodies of at most `max_body_bytes`. `reusable` says whether another exchange may follow."""

    idle_since = 0.0  # by the event loop's clock; the pool sets it

    def __init__(self, server: Server, max_body_bytes: int) -> None:
        self.server = server
        self.reusable = False
        self._max_body_bytes = max_body_bytes
        self._transport: asyncio.Transport
        self._parser = httptools.HttpResponseParser(self)
        self._answer: asyncio.Future[Response] | None = None
        self._begin_answer()

    async def exchange(self, request: bytes) -> Response:
        """Sends a request as is, and reads the whole answer. Closes unless reusable. Raises FetchFailed."""
        self.reusable, self._framing_bytes = False, 0
        self._begin_answer()  # otherwise a closed connection would look like the end of the last answer
        self._answer = asyncio.get_running_loop().create_future()
        try:
            if self._transport.is_closing():
                self.connection_lost(None)
            else:
                self._transport.write(request)
            return await self._answer
        except asyncio.CancelledError:
            self.reusable = False  # also if the answer has just come: nobody is left to keep it
            raise
        finally:
            answer, self._answer = self._answer, None
            if answer.done() and not answer.cancelled():
                answer.exception()  # so that asyncio logs nothing if nobody waits for it
            if not self.reusable:
                self.close()

    def close(self) -> None:
        self.reusable = False
        self._transport.abort()

    # Called by the event loop

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # it is one that writes
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._answer is None:  # no request was sent
            self.close()
            return
        self._framing_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):  # also for bytes after an answer
            self._fail(_broken(f"The answer of {self.server.authority} is not valid HTTP/1.1"))
        if self._framing_bytes > MAX_FRAMING_BYTES:
            self._fail(_broken(f"The answer of {self.server.authority} has longer headers than are read"))

    def eof_received(self) -> None:
        self.reusable = False  # before the loop reports the end

    def connection_lost(self, exc: Exception | None) -> None:
        self.reusable = False
        if exc is not None:
            self._fail(SilentServer(f"The connection to {self.server.authority} failed; check that it is up"))
        elif self._in_head or not self._headers.keys().isdisjoint({"content-length", "transfer-encoding"}):
            self._fail(FetchFailed(f"The answer of {self.server.authority} broke off"))
        else:
            self._answered(reusable=False)  # the end of the connection ends the body

    # Called by the parser

    def on_message_begin(self) -> None:
        """Begins an answer; a second answer ends the connection."""
        self.reusable = False
        if self._answer is not None and not self._answer.done():
            self._begin_answer()

    def on_header(self, raw_name: bytes, raw_value: bytes) -> None:
        """Joins repeated headers with commas (RFC 9110 section 5.3). Ignores trailers of chunked bodies."""
        if self._in_head:
            name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1").strip(" \t")
            self._headers[name] = f"{self._headers[name]}, {value}" if name in self._headers else value

    def on_headers_complete(self) -> None:
        self._in_head = False
        if self._headers.get("content-encoding", "identity").lower() != "identity":
            self._fail(_broken(f"{self.server.authority} answered with a content coding although none was accepted"))

    def on_body(self, part: bytes) -> None:
        self._framing_bytes -= len(part)
        self._body += part
        if len(self._body) > self._max_body_bytes:
            self._fail(bad_content(f"{self.server.authority} answered with more than {self._max_body_bytes} bytes"))

    def on_message_complete(self) -> None:
        if self._parser.get_status_code() >= 200:
            self._answered(reusable=self._parser.should_keep_alive())
        else:
            self._begin_answer()  # it is still to come (RFC 9110 section 15.2)

    def _begin_answer(self) -> None:
        self._headers: dict[str, str] = {}
        self._body = bytearray()
        self._in_head = True

    def _answered(self, *, reusable: bool) -> None:
        if self._answer is not None and not self._answer.done():
            self.reusable = reusable
            self._answer.set_result(Response(self._parser.get_status_code(), self._headers, bytes(self._body)))

    def _fail(self, failure: FetchFailed) -> None:
        """Fails the exchange and stops reading."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(failure)
        self.close()


def _broken(sentence: str) -> FetchFailed:
    """The error for an answer that may come from a proxy rather than the server, so the next one may be better."""
    return FetchFailed(sentence, "bad_content")
