"""Calls as generators: signing, sending and retrying, independent of threads and asyncio.

A call is a generator that yields effects and returns its result; failures are thrown into it. `drivers` performs the
effects.
"""

import logging
import random
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from threading import Lock
from typing import Any, Final, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from payres import __version__
from payres.client import errors
from payres.clock import SECOND, Clock
from payres.identifiers import base64url_decoded
from payres.signatures.sign import Message, Unsigned, prepare

log = logging.getLogger("payres.client")
T = TypeVar("T")
Signer = Callable[[bytes], Any]
Key = str | bytes | Path | Mapping[str, Any] | Ed25519PrivateKey | Signer
LONGEST_PAUSE: Final = 10  # seconds; a longer Retry-After ends the retries
FIRST_PAUSE: Final = 0.25
UNAVAILABLE: Final = (502, 503, 504)


class Sleep(NamedTuple):
    """Pause, in seconds."""

    seconds: float


class Ask(NamedTuple):
    """Call a function of the app, which may return an awaitable if the client is asynchronous."""

    function: Callable[[Any], Any]
    argument: Any


class Acquire(NamedTuple):
    """Acquire a lock, which a thread or a task may hold."""

    lock: Lock


Effect = httpx2.Request | Sleep | Ask | Acquire
Steps = Generator[Effect, Any, T]


class Call(NamedTuple):
    """One request, with its retries.

    `repeat` says whether to retry if the response is lost: `always`, `never`, `quoted` for a payment of a quote, which
    is paid once, and `keyed` for a request that only an Idempotency-Key makes idempotent.
    """

    name: str
    method: str
    url: str
    status: int = 200
    body: Any = None
    token: str | None = None
    key: str | None = None
    wait: int | None = None
    timeout: float | None = None
    repeat: Literal["always", "never", "quoted", "keyed"] = "always"


class Core(msgspec.Struct, kw_only=True):
    """The state of a client. It caches only which servers support Idempotency-Keys (`keeping`)."""

    wallet_address: str | None
    signer: Signer | None
    kid: str | None
    use_http: bool
    timeout: float
    max_retries: int
    strict: bool
    on_rotate: Callable[[Any], Any] | None
    clock: Clock
    noticed: set[str] = msgspec.field(default_factory=set)  # the non-standard members that were logged
    keeping: set[str] = msgspec.field(default_factory=set)

    def exchange(self, call: Call) -> Steps[httpx2.Response]:
        """Sends the request, with retries, and returns the response with the expected status."""
        is_lost = False
        attempt = 0
        while True:
            try:
                return (yield from self._attempt(call))
            except (errors.NoAnswer, errors.ApiError) as failure:
                is_unknown = isinstance(failure, errors.AnswerLost) or _is_unavailable(failure)
                is_lost = is_lost or is_unknown
                is_safe = isinstance(failure, errors.NotSent | errors.TooManyRequests)
                pause = None
                if attempt < self.max_retries and (is_safe or (is_unknown and self._may_repeat(call))):
                    pause = _pause(failure, attempt)
                if pause is None:
                    if is_lost and call.repeat in ("quoted", "keyed"):  # even if a retry failed with a 4xx
                        sentence = f"{call.name}: the answer was lost, and the server may have done it"
                        raise errors.AnswerLost(sentence, call.key) from failure
                    raise
            yield Sleep(pause)
            attempt += 1

    def _may_repeat(self, call: Call) -> bool:
        if call.repeat == "keyed":
            return bool(call.key) and urlsplit(call.url).netloc in self.keeping
        return call.repeat != "never"

    def _attempt(self, call: Call) -> Steps[httpx2.Response]:
        request, base = yield from self._request(call)
        started, status, code = time.perf_counter(), 0, "no_answer"
        try:
            answer: httpx2.Response = yield request
            status, code = answer.status_code, "-"
            if "idempotency-key" in answer.headers:
                self.keeping.add(urlsplit(call.url).netloc)
            if status == call.status:
                return answer
            error = errors.api_error(status, answer.headers, answer.content)
            code = error.code or "-"
            if isinstance(error, errors.SignatureRejected):
                error.our_base = base
            raise error
        finally:
            ms = (time.perf_counter() - started) * 1000
            log.debug("%s %s %s %s %.1f ms", call.name, request.url.host, status, code, ms)

    def _request(self, call: Call) -> Steps[tuple[httpx2.Request, str | None]]:
        """The request to send, and its signature base if it is signed, by the same rule as the JavaScript client."""
        url = self._url(call.url)
        body = b"" if call.body is None else msgspec.json.encode(call.body)
        headers, base = _headers(call), None
        if call.method == "POST" or call.token is not None:
            if self.signer is None or self.kid is None:
                raise errors.ConfigurationError(f"{call.name} is signed: give the client a private_key and its kid")
            try:
                unsigned = unsigned_request(call.method, url, headers, body, self.kid, self.clock)
            except ValueError as error:  # a kid or token with characters that are invalid in headers
                raise errors.ConfigurationError(f"{call.name} cannot be signed: {error}") from error
            signature = yield Ask(self.signer, unsigned.base)
            if not isinstance(signature, bytes):
                raise errors.ConfigurationError("The signer gave no bytes; one that is awaited needs an AsyncClient")
            headers |= unsigned.signed(signature)
            base = unsigned.base.decode("utf-8", "replace")
        seconds = (self.timeout if call.timeout is None else call.timeout) + (call.wait or 0)
        extensions = {"timeout": httpx2.Timeout(seconds).as_dict()}
        return httpx2.Request(call.method, url, headers=headers, content=body or None, extensions=extensions), base

    def _url(self, text: str) -> httpx2.URL:
        try:
            url = httpx2.URL(text)
        except httpx2.InvalidURL as error:
            raise errors.ConfigurationError(f"{text!r} is no URL: {error}") from error
        if url.scheme not in ("http", "https") or not url.host:
            raise errors.ConfigurationError(f"{text!r} is no URL of http or https")
        if self.use_http:
            return httpx2.URL(f"http://{text.partition('://')[2]}")
        if url.scheme == "http" and not (self.wallet_address or "").startswith("http://"):
            raise errors.InsecureUrl(f"{text!r} is plain http; for tests, make the client with use_http=True")
        return url


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


def _pause(failure: Exception, attempt: int) -> float | None:
    """Seconds until the next attempt; None if Retry-After is too long."""
    asked = failure.retry_after if isinstance(failure, errors.ApiError) else None
    if asked is not None:
        return asked if asked <= LONGEST_PAUSE else None
    return FIRST_PAUSE * float(2**attempt) * random.uniform(0.75, 1.25)  # noqa: S311 - no secret


def _is_unavailable(failure: Exception) -> bool:
    return isinstance(failure, errors.ApiError) and failure.status in UNAVAILABLE


def signer_of(key: Key) -> Signer:
    """The signing function of a key in any form. Text is never a path. Raises ConfigurationError."""
    try:
        if isinstance(key, Path):
            key = key.read_bytes()
        if isinstance(key, Mapping):
            key = base64url_decoded(key["d"])
        if isinstance(key, str):
            key = key.encode()
        found: Any = key
        if isinstance(key, bytes):
            is_raw = len(key) == 32
            found = Ed25519PrivateKey.from_private_bytes(key) if is_raw else load_pem_private_key(key, password=None)
    except (KeyError, OSError, ValueError, TypeError) as error:
        forms = "PEM without a password, 32 raw bytes, or a JWK with its d"
        raise errors.ConfigurationError(
            f"The private key cannot be read ({type(error).__name__}): give {forms}"
        ) from None
    if isinstance(found, Ed25519PrivateKey):
        return found.sign
    if not callable(found):
        raise errors.ConfigurationError("The private key is no Ed25519 key")
    signer: Signer = found
    return signer
