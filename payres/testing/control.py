"""The control API of a sandbox, below `/_sandbox`: access to it, and its actions by method and path.

`payres serve` does not have it.
"""

import asyncio
import hmac
import logging
from http import HTTPStatus
from typing import Final

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from payres.core.http.request_head import credentials
from payres.core.http.requests import idempotency_key
from payres.core.http.responses import json_error, json_response
from payres.core.protocol.errors import (
    BearerTokenInvalid,
    DomainError,
    InvalidRequest,
    NotFound,
    ServerFailed,
    WrongState,
    nothing_here,
)
from payres.core.protocol.urls import ADMIN_API
from payres.testing.endpoints import UNCUT, ControlCall, find_endpoint, read_query
from payres.testing.sandbox import ROOT, ControlAnswer, Made, Sandbox
from payres.testing.server import SandboxServer
from payres.testing.set_up import Nothing

log: Final = logging.getLogger("payres.testing")
DOCUMENT: Final = f"{ROOT}/openapi.json"
# The few error codes of this API, by the status of the many errors of operators' rules.
CODES: Final = {400: InvalidRequest, 403: WrongState, 404: NotFound, 409: WrongState, 422: WrongState}


class Control:
    """The ASGI application of one server of a sandbox, with its control API."""

    def __init__(self, sandbox: Sandbox, server: SandboxServer) -> None:
        self._sandbox = sandbox
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == ROOT or path.startswith(f"{ROOT}/"):
            await (await self._respond(scope, receive))(scope, receive, send)
        else:
            await self._server(self._as_operator(scope), receive, send)

    def _as_operator(self, scope: Scope) -> Scope:
        """The request with an API key in place of the control token, which permits the whole operator's API."""
        if not scope["path"].startswith(ADMIN_API) or not self._has_token(scope):
            return scope
        others = [line for line in scope["headers"] if line[0] != b"authorization"]
        return {**scope, "headers": [*others, (b"authorization", f"Bearer {self._server.api_key}".encode())]}

    async def _respond(self, scope: Scope, receive: Receive) -> Response:
        try:
            self._authorize(scope)
            status, content = await self._answer(scope, await Request(scope, receive).body())
        except DomainError as error:
            kind = CODES.get(error.status, type(error))
            details = {name: value for name, value in error.details.items() if name != "reason"}  # of another code
            return json_error(error if isinstance(error, kind) else kind(str(error), **details))
        except ClientDisconnect:
            return Response(status_code=HTTPStatus.BAD_REQUEST)  # nobody reads it
        except Exception:
            log.exception("%s %s failed", scope["method"], scope["path"])
            return json_error(ServerFailed("The sandbox failed; the fault is not yours"))
        return Response(status_code=status) if status == HTTPStatus.NO_CONTENT else json_response(content, status)

    def _authorize(self, scope: Scope) -> None:
        """Raises NotFound for hosts that are not admitted, BearerTokenInvalid without the token."""
        if not self._sandbox.hosts.let_in(scope):
            raise nothing_here()
        if scope["path"] == DOCUMENT:  # anyone who is admitted may read it
            return
        if credentials(scope["headers"], "bearer") is None:
            raise BearerTokenInvalid("Send control_token as Authorization: Bearer <token>", "missing_token")
        if not self._has_token(scope):
            raise BearerTokenInvalid("This is not the sandbox's control_token", "unknown_token")

    def _has_token(self, scope: Scope) -> bool:
        token = credentials(scope["headers"], "bearer")
        return token is not None and hmac.compare_digest(token.encode(), self._sandbox.token.encode())

    async def _answer(self, scope: Scope, body: bytes) -> ControlAnswer:
        """Runs the action in a task, which a reset cancels; once per Idempotency-Key."""
        path = scope["raw_path"].decode("latin-1").removeprefix(ROOT).rstrip("/")
        if f"{ROOT}{path}" == DOCUMENT and scope["method"] == "GET":
            read_query(Request(scope), Nothing)
            return HTTPStatus.OK, await self._document()
        endpoint, named = find_endpoint(scope["method"], path)
        query = read_query(Request(scope), endpoint.struct_of("wanted") or Nothing)
        key = idempotency_key(scope["headers"]) if scope["method"] == "POST" else None
        earlier = None if key is None else self._sandbox.made.get((self._server, key))
        if earlier is not None and (earlier.path, earlier.body) != (path, body):
            raise WrongState("The Idempotency-Key was used before, for another request")
        call = ControlCall(self._sandbox, self._server, endpoint, named)
        task = asyncio.create_task(call.run(body, query)) if earlier is None else earlier.task
        if key is not None:
            self._sandbox.made[self._server, key] = Made(path, body, task)
        if endpoint.act not in UNCUT:
            self._sandbox.under_way.add(task)
            task.add_done_callback(self._sandbox.under_way.discard)
        await asyncio.wait({task})
        if task.cancelled():
            raise WrongState("The sandbox was reset meanwhile")
        if task.exception() is not None and key is not None:
            self._sandbox.made.pop((self._server, key), None)
        return task.result()

    async def _document(self) -> msgspec.Raw:
        from payres.testing.openapi import encoded_control_document  # loads slowly

        return await asyncio.to_thread(encoded_control_document, self._server.settings.base_url)
