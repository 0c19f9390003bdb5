"""Observation: what the request log and the metrics record of each request."""

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import Final, cast
from urllib.parse import unquote, urlsplit

import msgspec
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from payres.core.http.responses import CutShort
from payres.core.process.logs import Metrics, RequestLog
from payres.core.protocol.errors import DomainError, TooManyRequests, shown
from payres.core.protocol.urls import ADMIN_ROOT, PAGE_ROOTS, is_loopback

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
# A root of pages, whose links may have secrets, anywhere in a path that may be misspelled: `//interact/`, `/Admin/`.
ROOTS: Final = frozenset(root.encode() for root in (ADMIN_ROOT, *PAGE_ROOTS))
LIKE_PAGE: Final = re.compile(
    rf"(?<!/\.well-known)[/\\](?:{'|'.join(root.decode()[1:] for root in sorted(ROOTS))})[/\\]", re.IGNORECASE
)
NOT_ANSWERED: Final = 499  # as in nginx: the server stopped before it answered


class Observation(msgspec.Struct):
    """What is known so far of a request, without secrets.

    `secret_at` is the number of the path's first secret segment, 0 if it has none, and None if no route has taken the
    path as it is. `address_error` is the error for its address unless it proves its sender; `release_slot` frees its
    slot among the requests of its address.
    """

    cut: str | None = None  # why the answer was cut short
    route: str = "unknown"  # as in the table of endpoints
    secret_at: int | None = None
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


def shown_path(scope: Scope) -> str:
    """The path for logs, without its query, still escaped, so that it cannot forge lines, and without secrets.

    Its route says where they are. If it has none, all that follows the root of a page may be a misspelled secret.
    """
    raw: bytes = scope["raw_path"]
    secret_at = observation_of(scope).secret_at
    if secret_at:
        raw = b"/".join([*raw.split(b"/", secret_at)[:secret_at], b"..."])
    elif secret_at is None and LIKE_PAGE.search(scope["path"]):
        root = b"/" + raw.split(b"/", 2)[1]
        raw = root + b"/..." if root in ROOTS else b"/..."
    return raw[:MAX_PATH_LENGTH].decode("ascii", "backslashreplace")


class _WithoutSecrets(logging.Filter):
    """Leaves queries and secrets out of uvicorn's access log, which `payres serve` does not write."""

    def filter(self, record: logging.LogRecord) -> bool:
        client, method, target, *others = cast("Sequence[object]", record.args)
        path = str(target).partition("?")[0]
        shown = shown_path({"raw_path": path.encode(), "path": unquote(path), OBSERVATION: Observation()})
        record.args = (client, method, shown, *others)
        return True


WITHOUT_SECRETS: Final = _WithoutSecrets()


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
                self._log.write(
                    scope["method"], shown_path(scope), status, code, seconds, named | _details(observation)
                )

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
