"""The routes: dispatch of requests, and handling of their errors."""

import asyncio
import re
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar
from urllib.parse import unquote

import msgspec
from starlette import routing
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from payres.core.http import grants, incoming_payments, outgoing_payments, wallet_addresses
from payres.core.http.context import Pages, context_of
from payres.core.http.error_answers import fault_response, render_error
from payres.core.http.observation import observation_of
from payres.core.http.responses import check_accept, prefers
from payres.core.protocol.errors import DomainError, MethodNotAllowed, NotFound, nothing_here
from payres.core.protocol.urls import ADMIN_ROOT, RESERVED_SEGMENTS, ROOT_WALLET_PATH

Handler = Callable[[Request], Awaitable[Response]]
T = TypeVar("T")
M = TypeVar("M", bound="Route | _Late")

LOADING: Final = threading.Lock()  # for the switch interval, which is one for the process


class WalletConvertor(StringConvertor):
    """A possible wallet path, so that a wrong method on an API path is a 405 and not an unknown wallet."""

    regex = rf"(?!(?:{'|'.join(map(re.escape, sorted(RESERVED_SEGMENTS)))})(?:/|$)).+|{re.escape(ROOT_WALLET_PATH)}"


register_url_convertor("wallet", WalletConvertor())
register_url_convertor("secret", StringConvertor())  # a segment that no log may show


class Route(routing.Route):
    """All methods of a path. HEAD is handled as GET. Other methods get a 405, or with `takes_all` are passed to the GET
    handler: a page explains the error, and a path without a wallet is 404 for all methods.

    Logs leave out what follows a segment such as `{nonce:secret}`.

    If `is_json`, a request that accepts neither JSON nor one of `streams` gets a 406. `page` handles the GET of a
    browser, which prefers HTML.
    """

    def __init__(
        self,
        path: str,
        handlers: Mapping[str, Handler],
        *,
        is_json: bool = True,
        takes_all: bool = False,
        streams: Sequence[str] = (),
        page: Callable[[Pages], Handler] | None = None,
    ) -> None:
        super().__init__(path, next(iter(handlers.values())))
        self.path = path.replace(":secret}", "}")
        self.secret_at = next((at for at, segment in enumerate(path.split("/")) if ":secret}" in segment), 0)
        self._takes_any = "{path:" in path
        before, variable, _ = path.partition("{")
        self.paths = () if variable else (path,)
        self.beginnings = (before[: before.rindex("/") + 1],) if variable else ()
        self.path_regex = re.compile(self.path_regex.pattern.removesuffix("$") + r"\Z")  # `$` ignores a final newline
        self.handlers = {**handlers, "HEAD": handlers["GET"]} if "GET" in handlers else handlers
        self.is_json = is_json
        self.streams = streams
        self._takes_all = takes_all
        self._page = page
        self._allowed = ", ".join(sorted({"OPTIONS", *self.handlers}))  # RFC 9110 section 10.2.1

    def match(self, path: str) -> Mapping[str, str] | None:
        """The parameters of a path, whatever the method; None if it is another's."""
        found = self.path_regex.match(path)
        return None if found is None else found.groupdict()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Calls the handler, and responds to its errors."""
        observation = observation_of(scope)
        observation.route = self.path
        observation.secret_at = None if self._takes_any else self.secret_at
        request = Request(scope, receive, send)
        try:
            response = await self._answer(request)
        except DomainError as error:
            response = render_error(request, error)
        except Exception as fault:
            await fault_response(request, fault)(scope, receive, send)
            raise  # uvicorn closes the connection
        await response(scope, receive, send)

    def _answer(self, request: Request) -> Awaitable[Response]:
        """The handler's response. Raises 405 and 406."""
        handler = self.handlers.get(request.method)
        if self._page and request.method in {"GET", "HEAD"} and prefers(request.scope["headers"], "text/html"):
            pages = context_of(request).pages
            if pages is not None:
                return self._page(pages)(request)
        if handler is None:
            if not self._takes_all:
                raise MethodNotAllowed(self._allowed)
            handler = self.handlers["GET"]
        if self.is_json:
            check_accept(request.scope["headers"], self.streams)
        return handler(request)


class LateRoutes(msgspec.Struct, frozen=True):
    """Routes below `paths` that `load` imports on first use, because that takes long.

    Requests that `let_in` refuses get a 404.
    """

    load: Callable[[], Sequence[Route]]
    paths: tuple[str, ...]
    let_in: Callable[[Request], bool] = lambda _: True


class RouteTable(Generic[M]):
    """Finds a literal path, else the first match of those with the longest beginning before their first variable."""

    def __init__(self, routes: Sequence[M]) -> None:
        self._literal = {path: route for route in reversed(routes) for path in route.paths}
        self._beginnings: dict[str, list[M]] = {}
        for beginning, route in [(beginning, one) for one in routes for beginning in one.beginnings]:
            self._beginnings.setdefault(beginning, []).append(route)
        self._deepest = max((one.count("/") for one in self._beginnings), default=0)

    def find(self, path: str) -> tuple[M | None, Mapping[str, str]]:
        """What answers the path, and the path's parameters."""
        if (literal := self._literal.get(path)) is not None:
            return literal, {}
        beginning = "/".join(path.split("/", self._deepest)[: self._deepest]) + "/"
        while beginning:
            for route in self._beginnings.get(beginning, ()):
                if (found := route.match(path)) is not None:
                    return route, found
            beginning = beginning[: beginning.rfind("/", 0, -1) + 1]
        return None, {}


class _Late:
    """Late routes, and those that were loaded."""

    def __init__(self, wanted: LateRoutes) -> None:
        self._wanted = wanted
        self.paths = wanted.paths
        self.beginnings = tuple(f"{path}/" for path in wanted.paths)
        self._routes = OnFirstUse(lambda: RouteTable(wanted.load()))

    def match(self, path: str) -> Mapping[str, str] | None:
        return {} if path.startswith(self.beginnings) else None

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Matches the path as sent, because wallet paths may contain slashes, which are escaped here."""
        if not self._wanted.let_in(Request(scope)):
            await _refuse_all(scope, receive, send)
            return
        route, found = (await self._routes.get()).find(scope["raw_path"].decode("latin-1").removesuffix("/"))
        scope["path_params"] = {name: unquote(text) for name, text in found.items()}
        await (_refuse_all if route is None else route.handle)(scope, receive, send)


class Router(routing.Router):
    """Accepts a trailing slash on every path and never redirects, because signatures cover the path as sent."""

    def __init__(self, routes: Sequence[Route] = (), late: Sequence[LateRoutes] = ()) -> None:
        """With the routes of parts. Those of wallets are matched last, because a wallet may have almost any path."""
        super().__init__()
        self.find = RouteTable[Route | _Late]([*RESOURCE_ROUTES, *routes, *map(_Late, late), *WALLET_ROUTES]).find

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        path, raw = scope["path"], scope["raw_path"]
        if b"%" in raw and b"%2F" in raw.upper() and not path.startswith(f"{ADMIN_ROOT}/"):
            sentence = "There is nothing at this address: an escaped slash is not a slash (RFC 3986 section 2.2)"
            await _refuse(NotFound(sentence), scope, receive, send)
            return
        if len(path) > 1 and path.endswith("/"):
            path = scope["path"] = path[:-1]
        route, scope["path_params"] = self.find(path)
        await (_refuse_all if route is None else route.handle)(scope, receive, send)


class OnFirstUse(Generic[T]):
    """What a function gives that imports much: it is called in a thread when that is first needed. On the event loop's
    thread, as units that write, all would wait."""

    def __init__(self, load: Callable[[], T]) -> None:
        self._load = load
        self._loaded: list[T] = []

    async def get(self) -> T:
        if not self._loaded:
            await asyncio.to_thread(self._fill)
        return self._loaded[0]

    def _fill(self) -> None:
        """Meanwhile the interpreter's switch interval is a hundredth of the usual 5 ms, which the event loop would
        otherwise wait after each system call."""
        with LOADING:
            usual = sys.getswitchinterval()
            sys.setswitchinterval(usual / 100)
            try:
                if not self._loaded:  # by another thread
                    self._loaded.append(self._load())
            finally:
                sys.setswitchinterval(usual)


async def _refuse(error: DomainError, scope: Scope, receive: Receive, send: Send) -> None:
    await render_error(Request(scope, receive, send), error)(scope, receive, send)


async def _refuse_all(scope: Scope, receive: Receive, send: Send) -> None:
    await _refuse(nothing_here(), scope, receive, send)


RESOURCE_ROUTES: Final = (
    Route("/incoming-payments/{id}", {"GET": incoming_payments.read}),
    Route("/incoming-payments", {"POST": incoming_payments.create, "GET": incoming_payments.list_page}),
    Route("/incoming-payments/{id}/complete", {"POST": incoming_payments.complete}),
    # The official .NET client completes with two slashes; a signed request cannot be redirected.
    Route("/incoming-payments/{id}//complete", {"POST": incoming_payments.complete}),
    Route("/quotes", {"POST": outgoing_payments.create_quote}),
    Route("/quotes/{id}", {"GET": outgoing_payments.read_quote}),
    Route("/outgoing-payments", {"POST": outgoing_payments.create, "GET": outgoing_payments.list_page}),
    Route("/outgoing-payments/{id}", {"GET": outgoing_payments.read}),
    Route("/outgoing-payment-grant", {"GET": outgoing_payments.read_grant_spending}),
    Route("/", {"POST": grants.request, "OPTIONS": grants.discover}, page=lambda pages: pages.front),
    Route("/continue/{id}", {"POST": grants.continue_request, "DELETE": grants.cancel}),
    Route("/token/{id}", {"POST": grants.rotate_token, "DELETE": grants.revoke_token}),
)
WALLET_ROUTES: Final = (
    Route("/{path:wallet}/jwks.json", {"GET": wallet_addresses.read_keys}, is_json=False, takes_all=True),
    Route("/{path:wallet}/did.json", {"GET": wallet_addresses.read_did}, is_json=False, takes_all=True),
    Route(
        "/{path:wallet}", {"GET": wallet_addresses.read}, is_json=False, takes_all=True, page=lambda pages: pages.wallet
    ),
)
ROUTES: Final = (*RESOURCE_ROUTES, *WALLET_ROUTES)
