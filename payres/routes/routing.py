"""The routes of the application, made of the table of endpoints: which function a request goes to."""

import re
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Final

from starlette.convertors import PathConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from payres.endpoints import ENDPOINTS, RESERVED_SEGMENTS, Endpoint, Kind
from payres.http.accept import check_accept
from payres.http.error_responses import ErrorResponse
from payres.urls import ROOT_WALLET_PATH

Handler = Callable[[Request], Awaitable[Response]]


class WalletPath(PathConvertor):
    """A path that a wallet can have, so that a wrong method on a path of the API is a 405 and not an unknown wallet."""

    regex = rf"(?!(?:{'|'.join(map(re.escape, sorted(RESERVED_SEGMENTS)))})(?:/|$)).+|{re.escape(ROOT_WALLET_PATH)}"


register_url_convertor("wallet", WalletPath())


class EndpointRoute(Route):
    """All endpoints at one path. Other methods are answered 405, save at pages and wallet addresses, which get every
    method: a page explains the error to a person, and a path without a wallet is 404 for all methods.
    """

    def __init__(self, path: str, endpoints: Sequence[Endpoint]) -> None:
        self.handlers = {one.method: _handler(one) for one in endpoints}
        if "GET" in self.handlers:
            self.handlers["HEAD"] = self.handlers["GET"]
        kind = endpoints[0].kind
        self._takes_all = kind in {Kind.PAGE, Kind.WALLET}
        self._is_json = kind is Kind.API
        self._allowed = {"Allow": ", ".join(sorted({"OPTIONS", *self.handlers}))}  # RFC 9110 section 10.2.1
        super().__init__(path, self.handlers[endpoints[0].method])
        self.methods = None

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Raises 405, and 406 for what accepts no JSON where the answer is JSON."""
        handler = self.handlers.get(scope["method"])
        if handler is None:
            if not self._takes_all:
                sentence = "This address does not take that method"
                raise ErrorResponse(405, "method_not_allowed", sentence, headers=self._allowed)
            handler = self.handlers["GET"]
        if self._is_json:
            check_accept(scope["headers"])
        # Starlette's own would catch here what the handler raises, and once more around all routes; once is enough.
        response = await handler(Request(scope, receive, send))
        await response(scope, receive, send)


def _handler(endpoint: Endpoint) -> Handler:
    module, _, name = endpoint.handler.partition(".")
    handler: Handler = getattr(import_module(f"payres.routes.{module}"), name)
    return handler


def _routes() -> list[EndpointRoute]:
    by_path: dict[str, list[Endpoint]] = {}
    for endpoint in ENDPOINTS:
        by_path.setdefault(endpoint.path, []).append(endpoint)
    return [EndpointRoute(path, endpoints) for path, endpoints in by_path.items()]


ROUTES: Final = _routes()


class TrailingSlash:
    """Accepts one trailing slash on every path; routing sees the path without, the signature check sees it as sent."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        # An escaped slash is not a slash (RFC 3986 section 2.2), so it is the raw path that counts.
        if scope["type"] == "http" and len(scope["path"]) > 1 and scope["raw_path"].endswith(b"/"):
            scope["path"] = scope["path"][:-1]
        await self.app(scope, receive, send)
