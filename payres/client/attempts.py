"""Sending signed requests with retries."""

import asyncio
import inspect
import logging
import random
import ssl
import time
from collections.abc import Callable, Coroutine, Mapping
from datetime import date
from threading import TIMEOUT_MAX
from typing import (
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
)
from urllib.parse import urlsplit

import httpx2
import msgspec

from payres import __version__
from payres.client import errors
from payres.core.protocol.clock import SECOND, Clock
from payres.core.signatures.sign import Message, Unsigned, prepare

log = logging.getLogger("payres.client")
T = TypeVar("T")
Signer = Callable[[bytes], Any]
Repeat = Literal["always", "signed", "never", "quoted", "keyed"]
LONGEST_PAUSE: Final = 10  # seconds; a longer Retry-After ends the retries
FIRST_PAUSE: Final = 0.25
UNAVAILABLE: Final = (502, 503, 504)
UNDONE: Final = ("too_fast", "user_denied")  # no earlier attempt has got a token either
# Codes and, of Rafiki, a description: the token of a rotation or continuation has been used, or has ended.
SPENT: Final = {"invalid_rotation", "invalid_continuation", "request_denied", "invalid_token", "invalid access token"}
UNENCODABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)
PLAIN: Final[Mapping[type, Callable[[Any], Any]]] = {
    Mapping: dict,
    str: str.__str__,
    int: int.__int__,
    float: float.__float__,
    date: lambda moment: moment.isoformat(),
}
NEVER_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.ProxyError)


class Call(NamedTuple):
    """One request, with its retries.

    `repeat` says whether to retry if the response is lost: `always`, `never`, `signed` for a request that gets the same
    again with another signature, `quoted` for a payment of a quote, which is paid once, and `keyed` for one that only
    an Idempotency-Key makes idempotent.
    """

    name: str
    method: str
    url: str
    status: int = 200
    body: object = None
    token: str | None = None
    key: str | None = None
    wait: int | None = None
    timeout: float | None = None
    repeat: Repeat = "always"


class Core(msgspec.Struct, kw_only=True):
    """The state of a client. It caches only which servers support Idempotency-Keys (`keeping`)."""

    wallet_address: str | None
    signer: Signer | None
    kid: str | None
    use_http: bool
    timeout: float
    max_retries: int
    strict: bool
    on_rotate: Callable[[Any], object] | None
    clock: Clock
    http: httpx2.Client | httpx2.AsyncClient
    noticed: set[str] = msgspec.field(default_factory=set)  # the non-standard members that were logged
    keeping: set[str] = msgspec.field(default_factory=set)
    finishing: set[asyncio.Task[object]] = msgspec.field(default_factory=set)  # `finish`

    async def ask(self, function: Callable[[T], Any], argument: T) -> Any:
        """The result of a function, which may return an awaitable if the client is asynchronous."""
        result = function(argument)
        is_awaited = isinstance(self.http, httpx2.AsyncClient) and inspect.isawaitable(result)
        return await result if is_awaited else result

    async def sleep(self, seconds: float) -> None:
        """Pauses the task or the thread."""
        await self.ask(asyncio.sleep if isinstance(self.http, httpx2.AsyncClient) else time.sleep, seconds)

    async def finish(self, steps: Coroutine[object, None, T]) -> T:
        """The result of steps that go on to their end if the caller is cancelled, as by `asyncio.timeout`."""
        if not isinstance(self.http, httpx2.AsyncClient):
            return await steps
        task = asyncio.create_task(steps)
        self.finishing.add(task)
        task.add_done_callback(self._finished)
        await asyncio.wait([task])  # unlike shield, it logs no error that nobody waits for, in any version of Python
        return task.result()

    def _finished(self, task: asyncio.Task[object]) -> None:
        self.finishing.discard(task)
        if not task.cancelled():
            task.exception()  # else it is logged as never retrieved

    async def exchange(self, call: Call) -> httpx2.Response:
        """Sends the request, with retries, and returns the response with the expected status."""
        is_lost = False  # whether the server may have done it
        attempt = 0
        while True:
            try:
                return await self._attempt(call)
            except (errors.NoAnswer, errors.ApiError, errors.ConfigurationError) as failure:
                is_lost = is_lost or isinstance(failure, errors.AnswerLost | errors.ServerError)
                is_repeated = attempt < self.max_retries and self._may_repeat(call, failure)
                pause = _pause(call, failure, attempt) if is_repeated else None
                if pause is None:
                    if is_lost and call.method == "DELETE" and isinstance(failure, errors.NotFound):
                        return httpx2.Response(call.status)  # an earlier attempt has ended it
                    if is_lost:  # even if a retry got a 4xx or was not made
                        _raise_lost(call, failure)
                    raise
            await self.sleep(pause)
            attempt += 1

    def _may_repeat(self, call: Call, failure: Exception) -> bool:
        if isinstance(failure, errors.NotSent | errors.TooManyRequests) or is_copy(failure):  # it was not done
            return True
        if not isinstance(failure, errors.AnswerLost) and getattr(failure, "status", None) not in UNAVAILABLE:
            return False
        if call.repeat == "keyed":
            return bool(call.key) and urlsplit(call.url).netloc in self.keeping
        return call.repeat != "never"

    async def _attempt(self, call: Call) -> httpx2.Response:
        request, base = await self._request(call)
        started, status, code = time.perf_counter(), 0, "no_answer"
        try:
            answer: httpx2.Response = await self.ask(self.http.send, request)
            status, code = answer.status_code, "-"
            if "idempotency-key" in answer.headers:
                self.keeping.add(urlsplit(call.url).netloc)
            if status == call.status:
                return answer
            error = errors.error_of(status, answer.headers, answer.content)
            code = getattr(error, "code", "") or "-"
            if isinstance(error, errors.SignatureRejected):
                error.our_base = base
            raise error
        except httpx2.HTTPError as failure:
            where = f"{call.name} at {request.url.netloc.decode()}"
            if isinstance(failure, NEVER_SENT):
                raise errors.NotSent(f"{where} was not sent: {cause_of(failure)}") from failure
            raise errors.AnswerLost(f"{where} got no answer: {cause_of(failure)}", call.key) from failure
        finally:
            ms = (time.perf_counter() - started) * 1000
            log.debug("%s %s %s %s %.1f ms", call.name, request.url.host, status, code, ms)

    async def _request(self, call: Call) -> tuple[httpx2.Request, str | None]:
        """The request to send, and its signature base if it is signed, by the same rule as the JavaScript client."""
        if self.http.is_closed:
            raise errors.ConfigurationError("The client is closed")
        url = self._url(call.url)
        timeout = seconds(self.timeout if call.timeout is None else call.timeout) + (call.wait or 0)
        extensions = {"timeout": httpx2.Timeout(timeout).as_dict(), "call": call.name}
        try:
            body = b"" if call.body is None else encoded(call.body)
        except UNENCODABLE as error:
            raise errors.ConfigurationError(f"{call.name} cannot be sent as JSON: {error}") from error
        headers, base = _headers(call), None
        if call.method == "POST" or call.token is not None:
            if self.signer is None or self.kid is None:
                raise errors.ConfigurationError(f"{call.name} is signed: give the client a private_key and its kid")
            try:
                unsigned = unsigned_request(call.method, url, headers, body, self.kid, self.clock)
            except ValueError as error:  # a kid or token with characters that are invalid in headers
                raise errors.ConfigurationError(f"{call.name} cannot be signed: {error}") from error
            signature = await self.ask(self.signer, unsigned.base)
            if not isinstance(signature, bytes):
                raise errors.ConfigurationError("The signer gave no bytes; one that is awaited needs an AsyncClient")
            headers |= unsigned.signed(signature)
            base = unsigned.base.decode("utf-8", "replace")
        return httpx2.Request(call.method, url, headers=headers, content=body or None, extensions=extensions), base

    def _url(self, text: str) -> httpx2.URL:
        url = url_of(text)
        if self.use_http:
            return httpx2.URL(f"http://{text.partition('://')[2]}")
        if url.scheme == "http" and not (self.wallet_address or "").startswith("http://"):
            raise errors.InsecureUrl(f"{text!r} is plain http; for tests, make the client with use_http=True")
        return url


def encoded(value: object) -> bytes:
    """The value as JSON. Raises one of UNENCODABLE."""
    return msgspec.json.encode(value, enc_hook=plain)


def plain(value: object) -> object:
    """What msgspec encodes of a value of a subclass, such as a text of markupsafe, or of a mapping that is no dict."""
    for kind, form in PLAIN.items():
        if isinstance(value, kind):
            return form(value)
    raise TypeError(f"a value of type {type(value).__name__} is not one of JSON")


def url_of(text: str) -> httpx2.URL:
    """A URL of http or https that a socket takes. Raises ConfigurationError."""
    try:
        url = httpx2.URL(text)
        url.host.encode("idna")  # as the socket does
    except (httpx2.InvalidURL, UnicodeError) as error:
        raise errors.ConfigurationError(f"{text!r} is no URL: {error}") from error
    if url.scheme not in ("http", "https") or not url.host or (url.port or 0) > 65535:
        raise errors.ConfigurationError(f"{text!r} is no URL of http or https")
    return url


def seconds(timeout: float) -> float:
    """The timeout. Raises ConfigurationError."""
    if not (isinstance(timeout, int | float) and 0 <= timeout <= TIMEOUT_MAX):
        raise errors.ConfigurationError(f"A timeout is a number of seconds, and not {timeout!r}")
    return timeout


def unsigned_request(
    method: str, url: httpx2.URL, headers: Mapping[str, str], body: bytes, kid: str, clock: Clock
) -> Unsigned:
    """Prepares the signature of a request that httpx sends. Raises ValueError."""
    target = f"{url.scheme}://{url.netloc.decode()}{url.raw_path.decode()}"
    lines = [(name.encode(), value.encode("ascii")) for name, value in headers.items()]
    return prepare(Message(method, target, lines, body), kid, clock.now() // SECOND, ["idempotency-key"])


def _headers(call: Call) -> dict[str, str]:
    headers = {
        "accept": "application/json",
        "content-type": "application/json",
        "accept-encoding": "gzip, deflate",
        "connection": "keep-alive",
        "user-agent": f"payres-client/{__version__}",
    }
    if call.token is not None:
        headers["authorization"] = f"GNAP {call.token}"
    if call.key:
        headers["idempotency-key"] = f'"{call.key}"'
    if call.wait:
        headers["prefer"] = f"wait={call.wait}"
    return headers


def cause_of(failure: Exception) -> str:
    """Why there is no answer, and what to do if it is a certificate."""
    cause: BaseException | None = failure
    while cause is not None and not isinstance(cause, ssl.SSLCertVerificationError):
        cause = cause.__cause__ or cause.__context__
    if cause is None:
        return str(failure) or type(failure).__name__
    host = failure.request.url.host if isinstance(failure, httpx2.RequestError) else "the server"
    advice = "for a private CA, set SSL_CERT_FILE or give ca"
    return f"the certificate of {host} is not trusted ({cause.verify_message}); {advice}"


def is_copy(failure: Exception) -> bool:
    """Whether the same signature came before: of another process of this app in the same second, or by a proxy."""
    return isinstance(failure, errors.SignatureRejected) and failure.reason == "signature_reused"


def _raise_lost(call: Call, failure: Exception) -> None:
    """Raises AnswerLost or GrantLapsed if the answer to an earlier attempt said more than the last failure does."""
    where = f"{call.name} at {urlsplit(call.url).netloc}: the answer was lost"
    if call.repeat == "signed" and isinstance(failure, errors.ApiError):
        if failure.status >= 500 or failure.code in UNDONE:
            return
        if SPENT & {failure.code, failure.description}:
            raise errors.GrantLapsed(f"{where}, and the server does not repeat it ({failure})") from failure
    if call.repeat in ("quoted", "keyed", "signed"):
        raise errors.AnswerLost(f"{where}, and the server may have done it ({failure})", call.key) from failure


def _pause(call: Call, failure: Exception, attempt: int) -> float | None:
    """Seconds until the next attempt; None if Retry-After is too long."""
    asked = failure.retry_after if isinstance(failure, errors.ApiError) else None
    if asked is not None:
        return asked if asked <= LONGEST_PAUSE else None
    another_second = 1 if call.repeat == "signed" else 0
    return another_second + FIRST_PAUSE * float(2**attempt) * random.uniform(0.75, 1.25)  # noqa: S311 - no secret
