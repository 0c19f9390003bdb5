"""Observation: what the request log and the metrics know of each request."""

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
# Methods that are counted by name; anybody can send any number of others.
METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
# Headers with which a trusted proxy names a request, and the names of both in the log.
REQUEST_ID: Final = b"x-request-id"
IDENTIFIERS: Final = {REQUEST_ID: "request", b"traceparent": "trace"}
IDENTIFIER: Final = re.compile(rb"[0-9A-Za-z_.:/+=-]{1,128}")
MAX_PATH_LENGTH: Final = 200  # of a path in the log
MAX_HINT_LENGTH: Final = 500
# The segment before a secret, wherever it stands in a path that somebody has misspelled: `//interact/`, `/Admin/link/`.
LIKE_SECRET_PATH: Final = re.compile(
    rf"[/\\](?:{'|'.join(one.split('/')[-2] for one in SECRET_PATHS)})[/\\]", re.IGNORECASE
)
NOT_ANSWERED: Final = 499  # as nginx has it: the server stopped before it had an answer


class Observation(msgspec.Struct):
    """What is known of one request, as far as it has come; it holds no secrets.

    `address_error` is what it gets for its address unless it has proven who sent it; `release_slot` gives back the slot
    that it has among the requests of its address.
    """

    cut: str | None = None  # why the answer ended before its end
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
        # Until a request has come to another host, with a base URL that only this machine reaches.
        self._lonely_url = base_url if is_loopback(urlsplit(base_url).hostname or "") else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = perf_counter()
        if self._lonely_url is not None:
            self._warn_of_host(scope, self._lonely_url)
        observation = scope[OBSERVATION] = Observation()
        status = NOT_ANSWERED
        # As a trusted proxy calls it, else by a name of its own: whoever got an answer can ask for its line in the log.
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
            if status != NOT_ANSWERED and observation.error is None:  # an answer to an error is never a part
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
        """Says once that a proxy with a public name is in front: the wallet addresses and tokens of such a server lead
        nowhere, and no signature over the public URL verifies."""
        for name, value in scope["headers"]:
            if name == b"x-forwarded-host" and not _names_this_machine(value):
                self._lonely_url = None
                log.warning(
                    "A request came with X-Forwarded-Host: %s, but base_url is %s, which only this machine reaches. If"
                    " that is the name that clients use, set base_url to it (--base-url or PAYRES_BASE_URL)",
                    shown(value.decode("latin-1")),
                    base_url,
                )
                return


def _names_this_machine(value: bytes) -> bool:
    """Whether the first host of the header, which is the client's, is this machine."""
    first = value.decode("latin-1").partition(",")[0].strip()
    try:
        host = urlsplit(f"//{first}").hostname
    except ValueError:
        host = None
    return host is None or is_loopback(host)


def _why(error: BaseException) -> str:
    """Why an answer ended in the middle."""
    if isinstance(error, asyncio.CancelledError):
        return "the server stopped"
    return str(error) if isinstance(error, CutShort) else "the server failed"


def _details(observation: Observation) -> dict[str, str]:
    """What the log shows besides, of what is known."""
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
    """The path escaped as it came, so that it forges no line, without its query and the secret that it may have.

    That is left out wherever the request is answered: what no endpoint has seen may still be good.
    """
    raw: bytes = scope["raw_path"]
    if LIKE_SECRET_PATH.search(scope["path"]):
        kept = b"/".join(raw.split(b"/", 3)[:3])
        # Where one is misspelled, or a slash escaped, the secret may begin earlier.
        is_exact = scope["path"].startswith(SECRET_PATHS) and b"%" not in kept
        raw = kept + b"/..." if is_exact else b"/..."
    return raw[:MAX_PATH_LENGTH].decode("ascii", "backslashreplace")


def _is_from_proxy(scope: Scope) -> bool:
    """Whether a trusted proxy has said for whom it asks: uvicorn then puts port 0 in the place of the client's."""
    client = scope.get("client")
    return client is not None and client[1] == 0


def _identifiers(scope: Scope) -> dict[str, str]:
    """How the proxy calls the request."""
    return {
        IDENTIFIERS[name]: value.decode()
        for name, value in scope["headers"]
        if name in IDENTIFIERS and IDENTIFIER.fullmatch(value)
    }
