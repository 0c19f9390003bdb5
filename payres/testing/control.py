"""The control API of a sandbox, below `/_sandbox`: access to it and its `ACTIONS`. `payres serve` does not have it."""

import asyncio
import hmac
import logging
import re
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import unquote

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
from payres.testing.actions import ACTIONS, UNCUT, Action, Answer, Call, read_query
from payres.testing.sandbox import ROOT, Sandbox
from payres.testing.server import Server

log: Final = logging.getLogger("payres.testing")
DOCUMENT: Final = f"{ROOT}/openapi.json"
# The few error codes of this API, by the status of the many errors of operators' rules.
CODES: Final = {400: InvalidRequest, 404: NotFound, 409: WrongState, 422: WrongState}


class Control:
    """The ASGI application of one server of a sandbox, with its control API."""

    def __init__(self, sandbox: Sandbox, server: Server) -> None:
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
            return json_error(error if isinstance(error, kind) else kind(str(error), **error.details))
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

    async def _answer(self, scope: Scope, body: bytes) -> Answer:
        """Runs the action in a task, which a reset cancels; once per Idempotency-Key."""
        path = scope["raw_path"].decode("latin-1").removeprefix(ROOT).rstrip("/")
        act, named = _find(scope["method"], path)
        query = read_query(Request(scope), act)
        key = idempotency_key(scope["headers"]) if scope["method"] == "POST" else None
        asked: Any = path, body
        made = {} if key is None else self._sandbox.made
        known, task = made.get((self._server, key), (asked, None))
        if known != asked:
            raise WrongState("The Idempotency-Key was used before, for another request")
        if task is None:
            task = asyncio.create_task(act(Call(self._sandbox, self._server, body, named, query)))
            made[self._server, key] = asked, task
        if act not in UNCUT:
            self._sandbox.under_way.add(task)
            task.add_done_callback(self._sandbox.under_way.discard)
        await asyncio.wait({task})
        if task.cancelled():
            raise WrongState("The sandbox was reset meanwhile")
        if task.exception() is not None:
            made.pop((self._server, key), None)
        answer: Answer = task.result()
        return answer


def _find(method: str, path: str) -> tuple[Action, dict[str, str]]:
    """The action of a method and path, and the path parameters. Raises NotFound."""
    for (served, pattern), act in ACTIONS.items():
        found = re.fullmatch(pattern, path)
        if found and served == method:
            return act, {name: unquote(text) for name, text in found.groupdict().items()}
    raise nothing_here()
