"""The actions of the control API, by method and path below `/_sandbox`."""

import asyncio
import re
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from payres.core.http.requests import other_parameters
from payres.core.protocol.clock import format_time
from payres.core.protocol.errors import InvalidRequest, WrongState
from payres.core.protocol.identifiers import new_secret
from payres.core.protocol.wire import decode
from payres.core.store.work import EVENTS
from payres.testing import looking, set_up
from payres.testing.faults import Fault, check
from payres.testing.journal import ADDED
from payres.testing.rules import ConsentRule, Rules
from payres.testing.sandbox import Sandbox
from payres.testing.server import Server

T = TypeVar("T", bound=msgspec.Struct)
Answer = tuple[int, Any]
CURSOR: Final = re.compile("([0-9]{1,9})-([0-9]{1,15})")


class Call(msgspec.Struct, frozen=True):
    """A request of a server's control API. `named` are the path parameters, `query` the struct of the query."""

    sandbox: Sandbox
    server: Server
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


Action = Callable[[Call], Coroutine[Any, Any, Answer]]


def read_query(request: Request, act: Action) -> set_up.Given:
    """Decodes the query. Raises InvalidRequest, which lists the valid parameters."""
    kind = QUERIES.get(act, set_up.Nothing)
    try:
        return msgspec.convert(other_parameters(request, ()), kind, strict=False)
    except msgspec.ValidationError as error:
        sentence = f"The query breaks a rule: {error}. The parameters are: {_names(kind)}"
        raise InvalidRequest(sentence, field="query") from error


async def show_state(call: Call) -> Answer:
    now = format_time(call.sandbox.clock.now())
    return 200, {**call.server.line, "now": now, "generation": call.sandbox.generation}


async def read_document(call: Call) -> Answer:
    """The OpenAPI document of these actions."""
    from payres.testing.openapi import encoded_document  # loads slowly

    return 200, await asyncio.to_thread(encoded_document, call.server.settings.base_url)


async def reset(call: Call) -> Answer:
    call.read(set_up.Nothing)
    return 200, {"generation": await call.sandbox.reset()}


async def keep_baseline(call: Call) -> Answer:
    call.read(set_up.Nothing)
    await call.sandbox.keep_baseline()
    return 200, {"generation": call.sandbox.generation}


async def put_wallet(call: Call) -> Answer:
    wanted = call.read(set_up.WalletState)
    is_new, shown = await call.server.write(partial(set_up.put_wallet, path=call.named["path"], wanted=wanted))
    return 201 if is_new else 200, shown


async def post_wallet(call: Call) -> Answer:
    wanted = call.read(set_up.WalletState)
    return 201, (await call.server.write(partial(set_up.put_wallet, path=_unused("wallet"), wanted=wanted)))[1]


async def post_client(call: Call) -> Answer:
    name = call.read(set_up.Named).name
    return 201, await call.server.write(partial(set_up.open_client, path=_unused("client"), name=name))


async def decide(call: Call) -> Answer:
    given = call.read(set_up.Decided)
    shown, asked = await call.server.write(partial(set_up.decide, given=given))
    shown["redirect"] = shown["redirect"] and (
        call.server.faults.falsified(shown["redirect"], asked) or shown["redirect"]
    )
    return 200, shown


async def post_fault(call: Call) -> Answer:
    fault = call.read(Fault)
    check(fault)
    if fault.kind.needs_peer and len(call.sandbox.servers) == 1:
        raise WrongState(f"{fault.fault} happens to packets between servers: start the sandbox with --peers 2")
    return 201, call.server.faults.rules.add(fault).shown()


async def post_rule(call: Call) -> Answer:
    return 201, call.server.rules.add(call.read(ConsentRule)).shown()


async def list_rules(call: Call) -> Answer:
    return 200, {call.named["kind"].removeprefix("consent-"): call.rules().shown()}


async def read_rule(call: Call) -> Answer:
    return 200, call.rules().require(call.named["id"]).shown()


async def delete_rules(call: Call) -> Answer:
    call.rules().remove(call.named.get("id"))
    return 204, None


async def read_clock(call: Call) -> Answer:
    clock = call.sandbox.clock
    return 200, {"now": format_time(clock.now()), "frozen": clock.frozen}


async def move_clock(call: Call) -> Answer:
    set_up.move(call.sandbox.clock, call.read(set_up.Move))
    settled = await call.sandbox.settle()
    status, clock = await read_clock(call)
    return status, {**clock, "settled": settled}


async def list_requests(call: Call) -> Answer:
    """The matching requests, as soon as there is one, or at the end of `wait`."""
    wanted: looking.RequestsWanted = call.query
    after = 0 if wanted.after is None else _position(call, wanted.after)
    journal = call.server.journal
    found, last = await looking.wait_for(
        journal.changes, ADDED, wanted.wait, partial(looking.find_requests, journal, wanted, after), 1
    )
    return 200, {"requests": found, "cursor": _cursor(call, last)}


async def delete_requests(call: Call) -> Answer:
    call.server.journal.clear()
    return 204, None


async def list_events(call: Call) -> Answer:
    """The matching events, as soon as there are `count`, or at the end of `wait`."""
    wanted: looking.EventsWanted = call.query
    looking.check(wanted)
    after = call.server.last_event if wanted.after is None else _position(call, wanted.after)
    look = partial(call.server.read, partial(looking.find_events, wanted=wanted, after=after))
    found, last = await looking.wait_for(call.server.context.changes, EVENTS, wanted.wait, look, wanted.count)
    return 200, {"events": found, "cursor": _cursor(call, last), "timed_out": len(found) < wanted.count}


def _unit(unit: Callable[..., Any], given: type[set_up.Given] | None = None, status: int = 200) -> Action:
    """An action of one unit of work, which gets the path parameters, and the body as `given` if declared."""

    async def act(call: Call) -> Answer:
        body = {} if given is None else {"given": call.read(given)}
        return status, await call.server.write(partial(unit, **call.named, **body))

    return act


def _cursor(call: Call, last: int) -> str:
    """A cursor after the entry with this number."""
    return f"{call.sandbox.generation}-{last}"


def _position(call: Call, text: str) -> int:
    """The number in a cursor. Raises InvalidRequest, and WrongState if the cursor is from before a reset."""
    found = CURSOR.fullmatch(text)
    if found is None:
        raise InvalidRequest("after is the cursor of an earlier answer", field="after")
    if int(found[1]) != call.sandbox.generation:
        raise WrongState("This cursor is of before a reset: begin without after")
    return int(found[2])


def _names(kind: type[msgspec.Struct]) -> str:
    return ", ".join(field.encode_name for field in msgspec.structs.fields(kind)) or "none"


def _unused(kind: str) -> str:
    return f"{kind}-{new_secret()[:10].lower().replace('_', '-')}"


_WALLET: Final = "/wallets/(?P<path>[^/]+)"
_KEY: Final = f"{_WALLET}/keys/(?P<kid>[^/]+)"
_RULES: Final = "/(?P<kind>faults|consent-rules)"
_RULE: Final = f"{_RULES}/(?P<id>[^/]+)"
ACTIONS: Final[Mapping[tuple[str, str], Action]] = {
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
QUERIES: Final[Mapping[Action, type[set_up.Given]]] = {
    list_requests: looking.RequestsWanted,
    list_events: looking.EventsWanted,
}
# Actions that a reset does not cancel; they wait for one another.
UNCUT: Final = frozenset({reset, keep_baseline})
