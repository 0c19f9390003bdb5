"""Observation: what the request log and the metrics record of each request."""

import asyncio
import logging
import re
import secrets
from collections.abc import Callable
from time import perf_counter
from typing import Final
from urllib.parse import urlsplit

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from payres.counters import Metrics
from payres.errors import DomainError, TooManyRequests
from payres.http.responses import CutShort
from payres.logs import RequestLog
from payres.signatures.reasons import shown
from payres.urls import SECRET_PATHS, is_loopback

log = logging.getLogger("payres.http")

OBSERVATION: Final = "payres.observation"  # in the scope of a request
# Methods that are counted by name; clients can send any number of others.
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Headers in which a trusted proxy identifies a request, and their names in the log.
REQUEST_ID: Final = b"x-request-id"
IDENTIFIERS: Final = {REQUEST_ID: "request", b"traceparent": "trace"}
IDENTIFIER: Final = re.compile(rb"[0-9A-Za-z_.:/+=-]{1,128}")
MAX_PATH_LENGTH: Final = 200  # in the log
MAX_HINT_LENGTH: Final = 500
# The segment before a secret, anywhere in a misspelled path: `//interact/`, `/Admin/link/`.
LIKE_SECRET_PATH: Final = re.compile(
    rf"[/\\](?:{'|'.join(one.split('/')[-2] for one in SECRET_PATHS)})[/\\]", re.IGNORECASE
)
NOT_ANSWERED: Final = 499  # as in nginx: the server stopped before it answered


class Observation(msgspec.Struct):
    """What is known so far of a request, without secrets.

    `address_error` is the error for its address unless it proves its sender; `release_slot` frees its slot among the
    requests of its address.
    """

    cut: str | None = None  # why the answer was cut short
    route: str = "unknown"  # as in the table of endpoints
    error: DomainError | None = None
    grant: str | None = None
    payment: str | None = None
    is_proven: bool = False
    address_error: TooManyRequests | None = None
    release_slot: Callable[[], None] | None = None


def observation_of(scope: Scope) -> Observation:
    """The observation of a request that passed an Observer."""
    found: Observation = scope[OBSERVATION]
    return found


class Observer:
    """Middleware: counts each request, and writes it to the log if there is one."""

    def __init__(self, app: ASGIApp, metrics: Metrics, log: RequestLog | None, base_url: str) -> None:
        self.app = app
        self._metrics = metrics
        self._log = log
        # None once a request has come for another host, or if base_url is not a loopback URL.
        self._loopback_url = base_url if is_loopback(urlsplit(base_url).hostname or "") else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        if self._loopback_url is not None:
            self._warn_of_host(scope, self._loopback_url)
        observation = scope[OBSERVATION] = Observation()
        status = NOT_ANSWERED
        # Named by a trusted proxy, else randomly, so that the recipient of an answer can ask about its line in the log.
        named = _identifiers(scope) if _is_from_proxy(scope) else {}
        named.setdefault("request", secrets.token_hex(8))
        request_id = REQUEST_ID, named["request"].encode()

        async def observed(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"] = [*message.get("headers", ()), request_id]
            await send(message)

        try:
            await self.app(scope, receive, observed)
        except BaseException as error:
            if status != NOT_ANSWERED and observation.error is None:  # error responses are never partial
                observation.cut = _why(error)
            raise
        finally:
            seconds = perf_counter() - started
            method = scope["method"] if scope["method"] in METHODS else "other"
            self._metrics.count_request(observation.route, method, status, seconds)
            if observation.error is not None:
                self._metrics.errors[observation.error.code] += 1
            if self._log is not None:
                code = None if observation.error is None else observation.error.code
                self._log.write(scope["method"], _path(scope), status, code, seconds, named | _details(observation))

    def _warn_of_host(self, scope: Scope, base_url: str) -> None:
        """Warns once if a proxy with a public name is in front: such a server's wallet addresses and tokens lead
        nowhere, and no signature over the public URL verifies."""
        for name, value in scope["headers"]:
            if name == b"x-forwarded-host" and not _names_this_machine(value):
                self._loopback_url = None
                log.warning(
                    "A request came with X-Forwarded-Host: %s, but base_url is %s, which only this machine reaches. If"
                    " that is the name that clients use, set base_url to it (--base-url or PAYRES_BASE_URL)",
                    shown(value.decode("latin-1")),
                    base_url,
                )
                return


def _names_this_machine(value: bytes) -> bool:
    """Whether the first host of the header, the client's, is this machine."""
    first = value.decode("latin-1").partition(",")[0].strip()
    try:
        host = urlsplit(f"//{first}").hostname
    except ValueError:
        host = None
    return host is None or is_loopback(host)


def _why(error: BaseException) -> str:
    """Why an answer was cut short."""
    if isinstance(error, asyncio.CancelledError):
        return "the server stopped"
    return str(error) if isinstance(error, CutShort) else "the server failed"


def _details(observation: Observation) -> dict[str, str]:
    """Further details for the log."""
    found = {}
    if observation.grant is not None:
        found["grant"] = observation.grant
    if observation.payment is not None:
        found["payment"] = observation.payment
    if observation.cut is not None:
        found["cut"] = observation.cut
    if observation.error is not None:
        found["hint"] = str(observation.error)[:MAX_HINT_LENGTH]
    return found


def _path(scope: Scope) -> str:
    """The path without its query, still escaped, so that it cannot forge log lines, and without a secret in it.

    A secret is removed whatever the response: it may be valid although no endpoint has used it.
    """
    raw: bytes = scope["raw_path"]
    if LIKE_SECRET_PATH.search(scope["path"]):
        kept = b"/".join(raw.split(b"/", 3)[:3])
        # If it is misspelled or has an escaped slash, the secret may begin earlier.
        is_exact = scope["path"].startswith(SECRET_PATHS) and b"%" not in kept
        raw = kept + b"/..." if is_exact else b"/..."
    return raw[:MAX_PATH_LENGTH].decode("ascii", "backslashreplace")


def _is_from_proxy(scope: Scope) -> bool:
    """Whether a trusted proxy named the client: uvicorn then sets port 0."""
    client = scope.get("client")
    return client is not None and client[1] == 0


def _identifiers(scope: Scope) -> dict[str, str]:
    """The proxy's identifiers of the request."""
    return {
        IDENTIFIERS[name]: value.decode()
        for name, value in scope["headers"]
        if name in IDENTIFIERS and IDENTIFIER.fullmatch(value)
    }
