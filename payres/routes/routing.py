"""The routes: which function a request goes to, and what becomes of what that raises."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import msgspec
from starlette.convertors import StringConvertor, register_url_convertor
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import compile_path
from starlette.types import Receive, Scope, Send

from payres.errors import DomainError, MethodNotAllowed, NotFound, nothing_here
from payres.http.admin_hosts import AdminHosts
from payres.http.cross_origin import ANY_ORIGIN
from payres.http.observation import observation_of
from payres.http.responses import check_accept, json_response
from payres.routes import (
    consent,
    grants,
    ilp,
    incoming_payments,
    monitoring,
    outgoing_payments,
    wallet_addresses,
)
from payres.routes.exception_handlers import fault_response, render_error
from payres.urls import ADMIN_ROOT, ILP, RESERVED_SEGMENTS, ROOT_WALLET_PATH

Handler = Callable[[Request], Awaitable[Response]]

OPENAPI_CACHE: Final = {"Cache-Control": "public, max-age=3600", **ANY_ORIGIN}


class WalletConvertor(StringConvertor):
    """A path that a wallet can have, so that a wrong method on a path of the API is a 405 and not an unknown wallet."""

    regex = rf"(?!(?:{'|'.join(map(re.escape, sorted(RESERVED_SEGMENTS)))})(?:/|$)).+|{re.escape(ROOT_WALLET_PATH)}"


register_url_convertor("wallet", WalletConvertor())


class Route:
    """All methods at one path. HEAD is a GET; another method is answered 405, and where `takes_all` also a GET: a page
    explains the error to a person, and a path without a wallet is 404 for all methods.

    Where `is_json`, a request whose Accept takes neither JSON nor one of `streams` is answered 406.
    """

    def __init__(
        self,
        path: str,
        handlers: Mapping[str, Handler],
        *,
        is_json: bool = True,
        takes_all: bool = False,
        streams: Sequence[str] = (),
    ) -> None:
        self.path = path
        self.pattern = re.compile(
            compile_path(path)[0].pattern.removesuffix("$") + r"\Z"
        )  # `$` passes a line break over
        self.handlers = {**handlers, "HEAD": handlers["GET"]} if "GET" in handlers else handlers
        self.is_json = is_json
        self.streams = streams
        self._takes_all = takes_all
        self._allowed = ", ".join(sorted({"OPTIONS", *self.handlers}))  # RFC 9110 section 10.2.1

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers the request, with an error for what its function raises."""
        observation_of(scope).route = self.path
        request = Request(scope, receive, send)
        try:
            response = await self._answer(request)
        except DomainError as error:
            response = render_error(request, error)
        except Exception as fault:
            await fault_response(request, fault)(scope, receive, send)
            raise  # uvicorn ends the connection
        await response(scope, receive, send)

    def _answer(self, request: Request) -> Awaitable[Response]:
        """Raises 405 and 406."""
        handler = self.handlers.get(request.scope["method"])
        if handler is None:
            if not self._takes_all:
                raise MethodNotAllowed(self._allowed)
            handler = self.handlers["GET"]
        if self.is_json:
            check_accept(request.scope["headers"], self.streams)
        return handler(request)


class Router:
    """Finds the route of a request. A trailing slash is accepted on every path and never redirected: the signature
    check sees the path as it was sent. A path without parameters finds its route at once; the other routes are tried
    in their order, the most frequent first.

    The operator's API and pages are there only for who is let in by `admin_hosts`. `load` gives their routes. It is
    called when they are first asked for, because to import them takes a third of the time of a start.
    """

    def __init__(self, load: Callable[[], Sequence[Route]], admin_hosts: AdminHosts) -> None:
        self._by_path = {route.path: route for route in ROUTES if "{" not in route.path}
        self._tried = [route for route in ROUTES if "{" in route.path]
        self._load = load
        self._operators: Sequence[Route] | None = None
        self._admin_hosts = admin_hosts

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers a request."""
        path, raw = scope["path"], scope["raw_path"]
        is_operators = path == ADMIN_ROOT or path.startswith(f"{ADMIN_ROOT}/")
        if b"%" in raw and b"%2F" in raw.upper() and not is_operators:
            sentence = "There is nothing at this address: an escaped slash is not a slash (RFC 3986 section 2.2)"
            await _refuse(NotFound(sentence), scope, receive, send)
            return
        if len(path) > 1 and path.endswith("/"):
            path = scope["path"] = path[:-1]
        if is_operators:
            await self._answer_operator(scope, receive, send)
            return
        route = self._by_path.get(path) or _find(self._tried, path, scope)
        await (_refuse_all if route is None else route.handle)(scope, receive, send)

    async def _answer_operator(self, scope: Scope, receive: Receive, send: Send) -> None:
        """The path is matched as it was sent, because a wallet's may have slashes, which are escaped here."""
        if not self._admin_hosts.let_in(scope):
            await _refuse_all(scope, receive, send)
            return
        if self._operators is None:
            self._operators = await asyncio.to_thread(self._load)
        route = _find(self._operators, scope["raw_path"].decode("latin-1").removesuffix("/"), scope)
        if route is None:
            await _refuse_all(scope, receive, send)
            return
        scope["path_params"] = {name: unquote(text) for name, text in scope["path_params"].items()}
        await route.handle(scope, receive, send)


def _find(routes: Sequence[Route], path: str, scope: Scope) -> Route | None:
    """The route at a path, which is under no other; the scope gets what the path names."""
    for route in routes:
        found = route.pattern.match(path)
        if found is not None:
            scope["path_params"] = found.groupdict()
            return route
    return None


async def _refuse(error: DomainError, scope: Scope, receive: Receive, send: Send) -> None:
    await render_error(Request(scope, receive, send), error)(scope, receive, send)


async def _refuse_all(scope: Scope, receive: Receive, send: Send) -> None:
    await _refuse(nothing_here(), scope, receive, send)


async def _read_openapi(_: Request) -> Response:
    """GET /openapi.json. To make the document takes a while, the first time."""
    return json_response(await asyncio.to_thread(_openapi_document), headers=OPENAPI_CACHE)


def _openapi_document() -> msgspec.Raw:
    from payres.routes.openapi import encoded_document  # loads slowly

    return encoded_document()


ROUTES: Final = (
    Route(ILP, {"POST": ilp.receive}, is_json=False),
    Route("/incoming-payments/{id}", {"GET": incoming_payments.read}),
    Route("/incoming-payments", {"POST": incoming_payments.create, "GET": incoming_payments.list_page}),
    Route("/incoming-payments/{id}/complete", {"POST": incoming_payments.complete}),
    # The official .NET client completes with two slashes; what it signed cannot be redirected.
    Route("/incoming-payments/{id}//complete", {"POST": incoming_payments.complete}),
    Route("/quotes", {"POST": outgoing_payments.create_quote}),
    Route("/quotes/{id}", {"GET": outgoing_payments.read_quote}),
    Route("/outgoing-payments", {"POST": outgoing_payments.create, "GET": outgoing_payments.list_page}),
    Route("/outgoing-payments/{id}", {"GET": outgoing_payments.read}),
    Route("/outgoing-payment-grant", {"GET": outgoing_payments.read_grant_spending}),
    Route("/", {"POST": grants.request, "OPTIONS": grants.discover}),
    Route("/continue/{id}", {"POST": grants.continue_request, "DELETE": grants.cancel}),
    Route("/token/{id}", {"POST": grants.rotate_token, "DELETE": grants.revoke_token}),
    Route("/interact/{id}/{nonce}", {"GET": consent.serve, "POST": consent.serve}, is_json=False, takes_all=True),
    Route("/healthz", {"GET": monitoring.healthz}, is_json=False),
    Route("/readyz", {"GET": monitoring.readyz}, is_json=False),
    Route("/metrics", {"GET": monitoring.read_metrics}, is_json=False),
    Route("/openapi.json", {"GET": _read_openapi}),
    Route("/{path:wallet}/jwks.json", {"GET": wallet_addresses.read_keys}, is_json=False, takes_all=True),
    Route("/{path:wallet}/did.json", {"GET": wallet_addresses.read_did}, is_json=False, takes_all=True),
    Route("/{path:wallet}", {"GET": wallet_addresses.read}, is_json=False, takes_all=True),
)
