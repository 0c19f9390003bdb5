"""Calls as steps: what is signed, sent, repeated and waited for, without a word on threads or tasks.

A call is a generator that yields effects and returns its result; failures are thrown into it. `sync` and `aio` perform
the effects.
"""

import logging
import random
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from payres import __version__
from payres.client.errors import (
    AnswerLost,
    ApiError,
    BadRequest,
    ConfigurationError,
    Conflict,
    InsecureUrl,
    NoAnswer,
    NotSent,
    OpenPaymentsError,
    ServerError,
    SignatureRejected,
    TokenError,
    TooManyRequests,
    api_error,
)
from payres.clock import SECOND, Clock
from payres.identifiers import base64url_decoded
from payres.signatures.sign import Message, prepare

log = logging.getLogger("payres.client")
T = TypeVar("T")
Signer = Callable[[bytes], Any]
Key = str | bytes | Path | Mapping[str, Any] | Ed25519PrivateKey | Signer
LONGEST_PAUSE: Final = 10  # seconds; a server that asks for more is not waited for
FIRST_PAUSE: Final = 0.25
UNAVAILABLE: Final = (502, 503, 504)
NEVER_SENT: Final = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)


class Sleep(NamedTuple):
    """Pause for so many seconds."""

    seconds: float


class Ask(NamedTuple):
    """Call a function of the app, which in an asynchronous client may return an awaitable."""

    function: Callable[[Any], Any]
    argument: Any


class Acquire(NamedTuple):
    """Take a lock, whose holder may be a thread or a task."""

    lock: Lock


Effect = httpx2.Request | Sleep | Ask | Acquire
Steps = Generator[Effect, Any, T]


class Held:
    """An access token that can be rotated."""

    value: str
    manage: str
    lock: Lock

    def take(self, content: bytes) -> None:
        """Keeps the token of the answer to a rotation."""
        raise NotImplementedError


class Call(NamedTuple):
    """One request, however often it is sent.

    `repeat` says whether it may be sent again when its answer was lost: `always`, `never`, `quoted` for a payment of a
    quote, which is paid once, and `keyed` for one that only an Idempotency-Key makes the same.
    """

    name: str
    method: str
    url: str
    status: int = 200
    body: Any = None
    token: str | Held | None = None
    key: str | None = None
    wait: int | None = None
    timeout: float | None = None
    repeat: str = "always"


class Core:
    """What the calls of a client share; it caches nothing but which servers keep Idempotency-Keys."""

    def __init__(
        self,
        wallet_address: str | None,
        private_key: Key | None,
        kid: str | None,
        *,
        use_http: bool,
        timeout: float,
        max_retries: int,
        strict: bool,
        on_rotate: Callable[[Any], Any] | None,
        clock: Clock,
    ) -> None:
        if isinstance(private_key, Mapping):
            kid = kid or private_key.get("kid")
        self.wallet_address = wallet_address
        self.signer = None if private_key is None else _signer(private_key)
        self.kid = kid
        self.use_http = use_http
        self.timeout = timeout
        self.max_retries = max_retries
        self.strict = strict
        self.on_rotate = on_rotate
        self.clock = clock
        self.noticed: set[str] = set()  # of what answers have beyond the standard
        self._keeping: set[str] = set()
        self._may_be_plain = use_http or (wallet_address or "").startswith("http://")

    def exchange(self, call: Call) -> Steps[httpx2.Response]:
        """The answer that has the status called for; with a grant, its token is rotated once when it has expired."""
        if not isinstance(call.token, Held):
            return (yield from self._attempts(call))
        used = call.token.value
        try:
            return (yield from self._attempts(call))
        except TokenError as error:
            yield from self._rotate(call.token, used, error)
        return (yield from self._attempts(call))

    def rotate(self, url: str, token: str | Held, timeout: float | None = None) -> Steps[httpx2.Response]:
        """The answer of the server that manages a token."""
        value = token.value if isinstance(token, Held) else token
        return (
            yield from self._attempts(Call("token.rotate", "POST", url, token=value, timeout=timeout, repeat="never"))
        )

    def _rotate(self, grant: Held, used: str, expired: TokenError) -> Steps[None]:
        yield Acquire(grant.lock)
        try:
            if grant.value != used:
                return  # by another thread or task
            try:
                answer = yield from self.rotate(grant.manage, used)
            except ApiError as error:
                if error.status >= 500 or error.status == 429:
                    raise
                raise expired from error  # revoked, or rotated by another process
            grant.take(answer.content)
            if self.on_rotate is not None:
                yield Ask(self.on_rotate, grant)
        finally:
            grant.lock.release()

    def _attempts(self, call: Call) -> Steps[httpx2.Response]:
        is_lost = False
        attempt = 0
        while True:
            failure: OpenPaymentsError
            try:
                answer = yield from self._attempt(call)
            except NoAnswer as error:
                failure = error
            else:
                if isinstance(answer, httpx2.Response):
                    return answer
                failure = answer
            if is_lost and call.repeat == "quoted" and _is_paid(failure):
                raise self._lost(call) from failure
            is_lost = is_lost or isinstance(failure, AnswerLost) or _is_unavailable(failure)
            pause = self._pause(call, failure, attempt)
            if pause is None:
                if call.repeat in ("quoted", "keyed") and is_lost:
                    raise self._lost(call) from failure
                raise failure
            yield Sleep(pause)
            attempt += 1

    def _pause(self, call: Call, failure: OpenPaymentsError, attempt: int) -> float | None:
        """Seconds until the next attempt; None if there is none."""
        is_safe = isinstance(failure, NotSent | TooManyRequests)
        is_known = isinstance(failure, AnswerLost) or _is_unavailable(failure)
        may_repeat = is_safe or (is_known and self._may_repeat(call))
        if not may_repeat or attempt >= self.max_retries:
            return None
        asked = failure.retry_after if isinstance(failure, ApiError) else None
        if asked is not None:
            return asked if asked <= LONGEST_PAUSE else None
        return FIRST_PAUSE * float(2**attempt) * random.uniform(0.75, 1.25)  # noqa: S311 - no secret

    def _may_repeat(self, call: Call) -> bool:
        if call.repeat == "keyed":
            return bool(call.key) and urlsplit(call.url).netloc in self._keeping
        return call.repeat in ("always", "quoted")

    def _lost(self, call: Call) -> AnswerLost:
        error = AnswerLost(f"{call.name}: the answer was lost, and the server may have done it")
        error.idempotency_key = call.key
        return error

    def _attempt(self, call: Call) -> Steps[httpx2.Response | ApiError]:
        request, base = yield from self._signed(call)
        started, status, code = time.perf_counter(), 0, "no_answer"
        try:
            answer: httpx2.Response = yield request
            status, code = answer.status_code, ""
            if "idempotency-key" in answer.headers:
                self._keeping.add(urlsplit(call.url).netloc)
            if status == call.status:
                return answer
            error = api_error(status, answer.headers, answer.content)
            code = error.code
            if isinstance(error, SignatureRejected) and base is not None:
                error.our_base = base.decode("utf-8", "replace")
            return error
        finally:
            ms = (time.perf_counter() - started) * 1000
            log.debug("%s %s %s %s %.1f ms", call.name, request.url.host, status, code or "-", ms)

    def _signed(self, call: Call) -> Steps[tuple[httpx2.Request, bytes | None]]:
        """The request as it is sent, with its signature base if the JavaScript client would sign it too."""
        url = httpx2.URL(self._url(call.url))
        target = f"{url.scheme}://{url.netloc.decode()}{url.raw_path.decode()}"
        body = b"" if call.body is None else msgspec.json.encode(call.body)
        headers = self._headers(call)
        base = None
        if call.method == "POST" or call.token is not None:
            if self.signer is None or self.kid is None:
                raise ConfigurationError(f"{call.name} is signed: give the client a private_key and its kid")
            lines = [(name.encode(), value.encode()) for name, value in headers.items()]
            now = self.clock.now() // SECOND
            unsigned = prepare(Message(call.method, target, lines, body), self.kid, now, ["idempotency-key"])
            base = unsigned.base
            headers |= unsigned.signed((yield Ask(self.signer, base)))
        seconds = (self.timeout if call.timeout is None else call.timeout) + (call.wait or 0)
        extensions = {"timeout": httpx2.Timeout(seconds).as_dict()}
        return httpx2.Request(call.method, url, headers=headers, content=body or None, extensions=extensions), base

    def _headers(self, call: Call) -> dict[str, str]:
        headers = {
            "accept": "application/json",
            "content-type": "application/json",
            "accept-encoding": "gzip, deflate",
            "connection": "keep-alive",
            "user-agent": f"payres-client/{__version__}",
        }
        if call.token is not None:
            headers["authorization"] = f"GNAP {call.token.value if isinstance(call.token, Held) else call.token}"
        if call.key:
            headers["idempotency-key"] = f'"{call.key}"'
        if call.wait:
            headers["prefer"] = f"wait={call.wait}"
        return headers

    def _url(self, url: str) -> str:
        scheme, colon, rest = url.partition("://")
        if scheme.lower() not in ("http", "https") or not colon:
            raise ConfigurationError(f"{url!r} is no URL of http or https")
        if self.use_http:
            return f"http://{rest}"
        if scheme.lower() == "http" and not self._may_be_plain:
            raise InsecureUrl(f"{url!r} is plain http; for tests, make the client with use_http=True")
        return url


def failure_of(error: httpx2.HTTPError) -> NoAnswer:
    """What it means that the transport failed."""
    kind = NotSent if isinstance(error, NEVER_SENT) else AnswerLost
    return kind(str(error) or type(error).__name__)


def _is_unavailable(failure: OpenPaymentsError) -> bool:
    return isinstance(failure, ServerError) and failure.status in UNAVAILABLE


def _is_paid(failure: OpenPaymentsError) -> bool:
    """Whether a payment of a quote failed because that quote was paid."""
    if isinstance(failure, Conflict):
        return True
    return isinstance(failure, BadRequest) and "invalid_quote" in (failure.code, failure.description.replace(" ", "_"))


def _signer(key: Key) -> Signer:
    """What signs with a key, in whichever form that is. Text is never taken for a path."""
    try:
        if isinstance(key, Path):
            key = key.read_bytes()
        if isinstance(key, Mapping):
            key = base64url_decoded(key["d"])
        if isinstance(key, str):
            key = key.encode()
        if isinstance(key, bytes):
            key = _private_key(key)
    except (KeyError, OSError, ValueError, TypeError) as error:
        raise ConfigurationError(f"The private key cannot be read: {type(error).__name__}") from None
    if isinstance(key, Ed25519PrivateKey):
        return key.sign
    if not callable(key):
        raise ConfigurationError("The private key is no Ed25519 key")
    return key


def _private_key(data: bytes) -> Any:
    if len(data) == 32:
        return Ed25519PrivateKey.from_private_bytes(data)
    return load_pem_private_key(data, password=None)
