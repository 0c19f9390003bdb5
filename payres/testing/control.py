"""The control API of a sandbox, below `/_sandbox`: access to it, and its actions by method and path.

`payres serve` does not have it.
"""

import asyncio
import hmac
import logging
import re
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Literal, TypeVar, get_args, get_origin
from urllib.parse import unquote

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from payres.core.http.request_head import credentials
from payres.core.http.requests import idempotency_key, other_parameters
from payres.core.http.responses import json_error, json_response
from payres.core.protocol.clock import format_time
from payres.core.protocol.errors import (
    BearerTokenInvalid,
    DomainError,
    InvalidRequest,
    NotFound,
    ServerFailed,
    WrongState,
    nothing_here,
)
from payres.core.protocol.identifiers import new_secret
from payres.core.protocol.urls import ADMIN_API
from payres.core.protocol.wire import decode
from payres.core.store.events import last_sequence
from payres.core.store.work import EVENTS
from payres.testing import faults, set_up
from payres.testing import journal as journals
from payres.testing.faults import FaultRule
from payres.testing.journal import ADDED
from payres.testing.names import require_known, require_operation, with_known
from payres.testing.rules import ConsentRule, Rules
from payres.testing.sandbox import ROOT, ControlAnswer, Made, Sandbox
from payres.testing.server import SandboxServer

T = TypeVar("T", bound=msgspec.Struct)
CURSOR: Final = re.compile("([0-9]{1,9})-([0-9]{1,15})")
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
        act, named = _find(scope["method"], path)
        query = read_query(Request(scope), act)
        key = idempotency_key(scope["headers"]) if scope["method"] == "POST" else None
        earlier = None if key is None else self._sandbox.made.get((self._server, key))
        if earlier is not None and (earlier.path, earlier.body) != (path, body):
            raise WrongState("The Idempotency-Key was used before, for another request")
        call = ControlCall(self._sandbox, self._server, body, named, query)
        task = asyncio.create_task(act(call)) if earlier is None else earlier.task
        if key is not None:
            self._sandbox.made[self._server, key] = Made(path, body, task)
        if act not in UNCUT:
            self._sandbox.under_way.add(task)
            task.add_done_callback(self._sandbox.under_way.discard)
        await asyncio.wait({task})
        if task.cancelled():
            raise WrongState("The sandbox was reset meanwhile")
        if task.exception() is not None and key is not None:
            self._sandbox.made.pop((self._server, key), None)
        return task.result()


class ControlCall(msgspec.Struct, frozen=True):
    """A request of a server's control API. `named` are the path parameters, `query` the struct of the query."""

    sandbox: Sandbox
    server: SandboxServer
    body: bytes
    named: Mapping[str, str]
    query: Any

    def read(self, kind: type[T]) -> T:
        """Decodes the body. Raises InvalidRequest, which lists the valid members."""
        try:
            return decode(msgspec.json.Decoder(kind), self.body, has_defaults=True)
        except InvalidRequest as error:
            raise InvalidRequest(f"{error}. The members are: {_names(kind)}", **error.details) from error

    def rules(self) -> Rules[Any]:
        """The rules named in the path."""
        return self.server.rules if self.named["kind"] == "consent-rules" else self.server.faults.rules


ControlAction = Callable[[ControlCall], Coroutine[Any, Any, ControlAnswer]]


def read_query(request: Request, act: ControlAction) -> set_up.Given:
    """Decodes the query. Raises InvalidRequest, which lists the valid parameters."""
    kind = QUERIES.get(act, set_up.Nothing)
    try:
        return msgspec.convert(other_parameters(request, ()), kind, strict=False)
    except msgspec.ValidationError as error:
        sentence = f"The query breaks a rule: {error}. The parameters are: {_names(kind)}"
        raise InvalidRequest(sentence, field="query") from error


async def show_state(call: ControlCall) -> ControlAnswer:
    now = format_time(call.sandbox.clock.now())
    return 200, {**call.server.line, "now": now, "generation": call.sandbox.generation}


async def read_document(call: ControlCall) -> ControlAnswer:
    """The OpenAPI document of these actions."""
    from payres.testing.openapi import encoded_control_document  # loads slowly

    return 200, await asyncio.to_thread(encoded_control_document, call.server.settings.base_url)


async def reset(call: ControlCall) -> ControlAnswer:
    call.read(set_up.Nothing)
    return 200, {"generation": await call.sandbox.reset()}


async def keep_baseline(call: ControlCall) -> ControlAnswer:
    call.read(set_up.Nothing)
    await call.sandbox.keep_baseline()
    return 200, {"generation": call.sandbox.generation}


async def put_wallet(call: ControlCall) -> ControlAnswer:
    wanted = call.read(set_up.WalletState)
    is_new, shown = await call.server.write(partial(set_up.put_wallet, path=call.named["path"], wanted=wanted))
    return 201 if is_new else 200, shown


async def post_wallet(call: ControlCall) -> ControlAnswer:
    wanted = call.read(set_up.WalletState)
    return 201, (await call.server.write(partial(set_up.put_wallet, path=_unused("wallet"), wanted=wanted)))[1]


async def post_client(call: ControlCall) -> ControlAnswer:
    name = call.read(set_up.Named).name
    return 201, await call.server.write(partial(set_up.open_client, path=_unused("client"), name=name))


async def decide(call: ControlCall) -> ControlAnswer:
    given = call.read(set_up.Decided)
    shown, asked = await call.server.write(partial(set_up.decide, given=given))
    return 200, {**shown, "redirect": call.server.faults.redirect(shown["redirect"], asked)}


async def post_payment(call: ControlCall) -> ControlAnswer:
    return 201, await set_up.pay_bill(call.server.context, call.read(set_up.BillPayment))


async def post_fault(call: ControlCall) -> ControlAnswer:
    return 201, (await call.server.faults.add(call.server.context, call.read(FaultRule))).shown()


async def post_rule(call: ControlCall) -> ControlAnswer:
    return 201, call.server.rules.add(await with_known(call.server.context, call.read(ConsentRule))).shown()


async def list_rules(call: ControlCall) -> ControlAnswer:
    return 200, {call.named["kind"].removeprefix("consent-"): call.rules().shown()}


async def read_rule(call: ControlCall) -> ControlAnswer:
    return 200, call.rules().require(call.named["id"]).shown()


async def delete_rules(call: ControlCall) -> ControlAnswer:
    call.rules().remove(call.named.get("id"))
    return 204, None


async def read_clock(call: ControlCall) -> ControlAnswer:
    clock = call.sandbox.clock
    return 200, {"now": format_time(clock.now()), "frozen": clock.frozen}


async def move_clock(call: ControlCall) -> ControlAnswer:
    set_up.move(call.sandbox.clock, call.read(set_up.Move))
    settled = await call.sandbox.settle()
    status, clock = await read_clock(call)
    return status, {**clock, "settled": settled}


async def list_requests(call: ControlCall) -> ControlAnswer:
    """The matching requests, as soon as there is one, or at the end of `wait`."""
    wanted: journals.RequestsWanted = await with_known(call.server.context, call.query)
    require_known(wanted.fault, faults.KINDS, "fault")
    require_operation(wanted.operation)
    journal = call.server.journal
    after = 0 if wanted.after is None else _position(call, wanted.after, journal.last)
    found, last = await journals.wait_for(
        journal.changes, ADDED, wanted.wait, partial(journals.find_requests, journal, wanted, after), 1
    )
    return 200, {"requests": found, "cursor": _cursor(call, last)}


async def delete_requests(call: ControlCall) -> ControlAnswer:
    call.server.journal.clear()
    return 204, None


async def list_events(call: ControlCall) -> ControlAnswer:
    """The matching events, as soon as there are `count`, or at the end of `wait`."""
    wanted: journals.EventsWanted = await with_known(call.server.context, call.query)
    journals.check(wanted)
    last = await call.server.read(last_sequence)
    after = call.server.last_event if wanted.after is None else _position(call, wanted.after, last)
    look = partial(call.server.read, partial(journals.find_events, wanted=wanted, after=after))
    found, last = await journals.wait_for(call.server.context.changes, EVENTS, wanted.wait, look, wanted.count)
    return 200, {"events": found, "cursor": _cursor(call, last), "timed_out": len(found) < wanted.count}


def _unit(unit: Callable[..., Any], given: type[set_up.Given] | None = None, status: int = 200) -> ControlAction:
    """An action of one unit of work, which gets the path parameters, and the body as `given` if declared."""

    async def act(call: ControlCall) -> ControlAnswer:
        body = {} if given is None else {"given": call.read(given)}
        return status, await call.server.write(partial(unit, **call.named, **body))

    return act


def _cursor(call: ControlCall, last: int) -> str:
    """A cursor after the entry with this number."""
    return f"{call.sandbox.generation}-{last}"


def _position(call: ControlCall, text: str, last: int) -> int:
    """The number in a cursor, `last` at most. Raises InvalidRequest, and WrongState if it is from before a reset."""
    found = CURSOR.fullmatch(text)
    if found is not None and int(found[1]) < call.sandbox.generation:
        raise WrongState("This cursor is of before a reset: begin without after")
    if found is None or int(found[1]) > call.sandbox.generation or int(found[2]) > last:
        raise InvalidRequest("after is the cursor of an earlier answer", field="after")
    return int(found[2])


def _names(kind: type[msgspec.Struct]) -> str:
    return ", ".join(map(_named, msgspec.structs.fields(kind))) or "none"


def _named(field: msgspec.structs.FieldInfo) -> str:
    """The member, with the words that it may be."""
    words = get_args(field.type) if get_origin(field.type) is Literal else ()
    return f"{field.encode_name} ({' or '.join(words)})" if words else field.encode_name


def _unused(kind: str) -> str:
    return f"{kind}-{new_secret()[:10].lower().replace('_', '-')}"


def _find(method: str, path: str) -> tuple[ControlAction, dict[str, str]]:
    """The action of a method and path, and the path parameters. Raises NotFound."""
    for (served, pattern), act in ACTIONS.items():
        found = re.fullmatch(pattern, path)
        if found and served == method:
            return act, {name: unquote(text) for name, text in found.groupdict().items()}
    raise nothing_here()


_WALLET: Final = "/wallets/(?P<path>[^/]+)"
_KEY: Final = f"{_WALLET}/keys/(?P<kid>[^/]+)"
_RULES: Final = "/(?P<kind>faults|consent-rules)"
_RULE: Final = f"{_RULES}/(?P<id>[^/]+)"
ACTIONS: Final[Mapping[tuple[str, str], ControlAction]] = {
    ("GET", ""): show_state,
    ("GET", "/openapi.json"): read_document,
    ("POST", "/reset"): reset,
    ("POST", "/baseline"): keep_baseline,
    ("POST", "/wallets"): post_wallet,
    ("GET", _WALLET): _unit(set_up.show_wallet),
    ("PUT", _WALLET): put_wallet,
    ("POST", "/clients"): post_client,
    ("PUT", _KEY): _unit(set_up.put_key, set_up.GivenKey),
    ("DELETE", _KEY): _unit(set_up.delete_key, status=204),
    ("POST", "/payments"): post_payment,
    ("POST", "/consents"): decide,
    ("POST", "/consent-rules"): post_rule,
    ("POST", "/faults"): post_fault,
    ("GET", _RULES): list_rules,
    ("DELETE", _RULES): delete_rules,
    ("GET", _RULE): read_rule,
    ("DELETE", _RULE): delete_rules,
    ("GET", "/clock"): read_clock,
    ("POST", "/clock"): move_clock,
    ("POST", "/expire"): _unit(set_up.expire, set_up.Expired, status=204),
    ("GET", "/requests"): list_requests,
    ("DELETE", "/requests"): delete_requests,
    ("GET", "/events"): list_events,
}
# The structs of queries; other actions have none.
QUERIES: Final[Mapping[ControlAction, type[set_up.Given]]] = {
    list_requests: journals.RequestsWanted,
    list_events: journals.EventsWanted,
}
# Actions that a reset does not cancel; they wait for one another.
UNCUT: Final = frozenset({reset, keep_baseline})
