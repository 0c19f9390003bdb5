"""Routing: which function a request goes to, by the table of endpoints, and what becomes of what that raises."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import Final
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from payres.endpoints import ADMIN_ROOT, ENDPOINTS, RESERVED_SEGMENTS, Endpoint, Kind, path_pattern
from payres.errors import DomainError, MethodNotAllowed, NotFound, nothing_here
from payres.http.accept import check_accept
from payres.http.admin_hosts import AdminHosts
from payres.http.observation import observation_of
from payres.routes.exception_handlers import fault_response, render_error
from payres.urls import ROOT_WALLET_PATH

Handler = Callable[[Request], Awaitable[Response]]

ADMIN: Final = f"{ADMIN_ROOT}/"
# A path that a wallet can have, so that a wrong method on a path of the API is a 405 and not an unknown wallet.
WALLET: Final = rf"(?!(?:{'|'.join(map(re.escape, sorted(RESERVED_SEGMENTS)))})(?:/|$)).+|{re.escape(ROOT_WALLET_PATH)}"


class Route:
    """All endpoints at one path. Other methods are answered 405, save at pages and wallet addresses, which get every
    method: a page explains the error to a person, and a path without a wallet is 404 for all methods.
    """

    def __init__(self, path: str, kind: Kind, handlers: Mapping[str, Handler], streams: Sequence[str] = ()) -> None:
        self.path = path
        self.handlers = dict(handlers)
        if "GET" in self.handlers:
            self.handlers["HEAD"] = self.handlers["GET"]
        self.streams = streams
        self.is_json = kind in {Kind.API, Kind.ADMIN}
        self._takes_all = kind in {Kind.PAGE, Kind.ADMIN_PAGE, Kind.WALLET}
        self._allowed = ", ".join(sorted({"OPTIONS", *self.handlers}))  # RFC 9110 section 10.2.1

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Matches the path."""
        return path_pattern(self.path, WALLET)

    def handler(self, method: str) -> Handler:
        """What answers the method. Raises 405."""
        found = self.handlers.get(method)
        if found is None:
            if not self._takes_all:
                raise MethodNotAllowed(self._allowed)
            found = self.handlers["GET"]
        return found


class Router:
    """The application behind the middleware: one pass from the path to the answer.

    Starlette's own layers, of which each would be a coroutine around every request, are left out. `load_admin` gives
    the routes of the operator's API and pages, which are there only for who is let in by `admin_hosts`. It is called
    when they are first asked for, because to import them takes a third of the time of a start.
    """

    def __init__(self, load_admin: Callable[[], Sequence[Route]], admin_hosts: AdminHosts) -> None:
        self._load_admin = load_admin
        self._admin_routes: Sequence[Route] | None = None
        self._admin_hosts = admin_hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            response = await self._answer(scope, request)
        except DomainError as error:
            response = render_error(request, error)
        except Exception as fault:
            await fault_response(request, fault)(scope, receive, send)
            raise  # uvicorn ends the connection
        await response(scope, receive, send)

    def _answer(self, scope: Scope, request: Request) -> Awaitable[Response]:
        """Raises NotFound at an address of no route, 405, and 406 for what accepts no JSON where that is the answer."""
        path: str = scope["path"]
        if path.startswith(ADMIN) or path == ADMIN_ROOT:
            return self._answer_operator(scope, request)
        return _handle(_route(scope, path), scope, request)

    async def _answer_operator(self, scope: Scope, request: Request) -> Response:
        """The path is matched as it was sent, because a wallet's may have slashes, which are escaped here."""
        if not self._admin_hosts.let_in(scope):
            raise nothing_here()
        if self._admin_routes is None:
            self._admin_routes = await asyncio.to_thread(self._load_admin)
        route = _match(self._admin_routes, scope["raw_path"].decode("latin-1").removesuffix("/"), scope)
        scope["path_params"] = {name: unquote(text) for name, text in scope["path_params"].items()}
        return await _handle(route, scope, request)


def _handle(route: Route, scope: Scope, request: Request) -> Awaitable[Response]:
    observation_of(scope).route = route.path
    handler = route.handler(scope["method"])
    if route.is_json:
        check_accept(scope["headers"], route.streams)
    return handler(request)


def build_routes(endpoints: Iterable[Endpoint], handler: Callable[[Endpoint], Handler]) -> list[Route]:
    """A route for each path of the endpoints, in their order."""
    by_path: dict[str, dict[str, Endpoint]] = {}
    for one in endpoints:
        by_path.setdefault(one.path, {})[one.method] = one
    return [
        Route(
            path,
            next(iter(found.values())).kind,
            {method: handler(one) for method, one in found.items()},
            [media_type for one in found.values() for media_type in one.streams],
        )
        for path, found in by_path.items()
    ]


def _route(scope: Scope, path: str) -> Route:
    if b"%" in scope["raw_path"] and b"%2F" in scope["raw_path"].upper():
        raise NotFound("There is nothing at this address: an escaped slash is not a slash (RFC 3986 section 2.2)")
    # One trailing slash is accepted on every path; the signature check sees the path as it was sent.
    if len(path) > 1 and path.endswith("/"):
        path = scope["path"] = path[:-1]
    route = LITERAL.get(path)
    if route is None:
        return _match(PATTERNS, path, scope)
    scope["path_params"] = {}
    return route


def _match(routes: Sequence[Route], path: str, scope: Scope) -> Route:
    for route in routes:
        found = route.pattern.match(path)
        if found is not None:
            scope["path_params"] = found.groupdict()
            return route
    raise nothing_here()


def _handler(endpoint: Endpoint) -> Handler:
    module, _, name = endpoint.handler.partition(".")
    handler: Handler = getattr(import_module(f"payres.routes.{module}"), name)
    return handler


ROUTES: Final = build_routes(ENDPOINTS, _handler)
LITERAL: Final = {route.path: route for route in ROUTES if "{" not in route.path}
PATTERNS: Final = [route for route in ROUTES if "{" in route.path]
