"""Routing: which function a request goes to, by the table of endpoints, and what becomes of what that raises."""

import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from importlib import import_module
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from payres.endpoints import ENDPOINTS, RESERVED_SEGMENTS, Endpoint, Kind, path_pattern
from payres.errors import DomainError, NotFound
from payres.http.accept import check_accept
from payres.http.error_responses import ErrorResponse
from payres.http.observation import observation_of
from payres.routes.exception_handlers import fault_response, render_error
from payres.urls import ROOT_WALLET_PATH

Handler = Callable[[Request], Awaitable[Response]]

# A path that a wallet can have, so that a wrong method on a path of the API is a 405 and not an unknown wallet.
WALLET: Final = rf"(?!(?:{'|'.join(map(re.escape, sorted(RESERVED_SEGMENTS)))})(?:/|$)).+|{re.escape(ROOT_WALLET_PATH)}"


class Route:
    """All endpoints at one path. Other methods are answered 405, save at pages and wallet addresses, which get every
    method: a page explains the error to a person, and a path without a wallet is 404 for all methods.
    """

    def __init__(self, path: str, endpoints: Sequence[Endpoint]) -> None:
        self.path = path
        self.pattern = path_pattern(path, WALLET)
        self.handlers = {one.method: _handler(one) for one in endpoints}
        if "GET" in self.handlers:
            self.handlers["HEAD"] = self.handlers["GET"]
        kind = endpoints[0].kind
        self.is_json = kind is Kind.API
        self._takes_all = kind in {Kind.PAGE, Kind.WALLET}
        self._allowed = {"Allow": ", ".join(sorted({"OPTIONS", *self.handlers}))}  # RFC 9110 section 10.2.1

    def handler(self, method: str) -> Handler:
        """What answers the method. Raises 405."""
        found = self.handlers.get(method)
        if found is None:
            if not self._takes_all:
                sentence = "This address does not take that method"
                raise ErrorResponse(405, "method_not_allowed", sentence, headers=self._allowed)
            found = self.handlers["GET"]
        return found


class Router:
    """The application behind the middleware: one pass from the path to the answer.

    Starlette's own layers, of which each would be a coroutine around every request, are left out.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        try:
            response = await _answer(scope, request)
        except DomainError as error:
            response = render_error(request, error)
        except Exception as fault:
            await fault_response(request, fault)(scope, receive, send)
            raise  # uvicorn ends the connection
        await response(scope, receive, send)


def _answer(scope: Scope, request: Request) -> Awaitable[Response]:
    """Raises NotFound at an address that is no route's, 405, and 406 for what accepts no JSON where the answer is."""
    path: str = scope["path"]
    if b"%" in scope["raw_path"] and b"%2F" in scope["raw_path"].upper():
        raise NotFound("There is nothing at this address: an escaped slash is not a slash (RFC 3986 section 2.2)")
    # One trailing slash is accepted on every path; the signature check sees the path as it was sent.
    if len(path) > 1 and path.endswith("/"):
        path = scope["path"] = path[:-1]
    route = LITERAL.get(path)
    if route is None:
        route = _match(path, scope)
    else:
        scope["path_params"] = {}
    observation_of(scope).route = route.path
    handler = route.handler(scope["method"])
    if route.is_json:
        check_accept(scope["headers"])
    return handler(request)


def _match(path: str, scope: Scope) -> Route:
    for route in PATTERNS:
        found = route.pattern.match(path)
        if found is not None:
            scope["path_params"] = found.groupdict()
            return route
    raise NotFound("There is nothing at this address")


def _handler(endpoint: Endpoint) -> Handler:
    module, _, name = endpoint.handler.partition(".")
    handler: Handler = getattr(import_module(f"payres.routes.{module}"), name)
    return handler


def _routes() -> Iterable[Route]:
    by_path: dict[str, list[Endpoint]] = {}
    for endpoint in ENDPOINTS:
        by_path.setdefault(endpoint.path, []).append(endpoint)
    return [Route(path, endpoints) for path, endpoints in by_path.items()]


ROUTES: Final = _routes()
LITERAL: Final = {route.path: route for route in ROUTES if "{" not in route.path}
PATTERNS: Final = [route for route in ROUTES if "{" in route.path]
