"""What tests ask of a sandbox, by method and path below `/_sandbox`."""

from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from payres.clock import format_time
from payres.errors import WrongState
from payres.identifiers import new_secret
from payres.testing import looking, steps
from payres.testing.calls import Answer, Call
from payres.testing.faults import Fault, check
from payres.testing.rules import ConsentRule

Action = Callable[[Call], Coroutine[Any, Any, Answer]]


async def show_state(call: Call) -> Answer:
    now = format_time(call.sandbox.clock.now())
    return 200, {**call.server.line, "now": now, "generation": call.sandbox.generation}


async def reset(call: Call) -> Answer:
    call.read(steps.Nothing)
    return 200, {"generation": await call.sandbox.reset()}


async def keep_baseline(call: Call) -> Answer:
    call.read(steps.Nothing)
    await call.sandbox.keep_baseline()
    return 200, {"generation": call.sandbox.generation}


async def read_wallet(call: Call) -> Answer:
    return 200, await call.server.read(partial(steps.show_wallet, path=call.named["path"]))


async def put_wallet(call: Call) -> Answer:
    wanted = call.read(steps.WalletState)
    is_new, shown = await call.server.write(partial(steps.put_wallet, path=call.named["path"], wanted=wanted))
    return 201 if is_new else 200, shown


async def post_wallet(call: Call) -> Answer:
    wanted = call.read(steps.WalletState)
    return 201, (await call.server.write(partial(steps.put_wallet, path=_unused("wallet"), wanted=wanted)))[1]


async def post_client(call: Call) -> Answer:
    name = call.read(steps.Named).name
    return 201, await call.server.write(partial(steps.open_client, path=_unused("client"), name=name))


async def put_key(call: Call) -> Answer:
    given = call.read(steps.GivenKey)
    return 200, await call.server.write(
        partial(steps.put_key, path=call.named["path"], kid=call.named["kid"], given=given)
    )


async def delete_key(call: Call) -> Answer:
    await call.server.write(partial(steps.delete_key, path=call.named["path"], kid=call.named["kid"]))
    return 204, None


async def decide(call: Call) -> Answer:
    given = call.read(steps.Decided)
    shown, asked = await call.server.write(partial(steps.decide, given=given))
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


async def list_faults(call: Call) -> Answer:
    return 200, {"faults": call.server.faults.rules.shown()}


async def read_fault(call: Call) -> Answer:
    return 200, call.server.faults.rules.require(call.named["id"]).shown()


async def delete_faults(call: Call) -> Answer:
    call.server.faults.rules.remove(call.named.get("id"))
    return 204, None


async def post_rule(call: Call) -> Answer:
    return 201, call.server.rules.add(call.read(ConsentRule)).shown()


async def list_rules(call: Call) -> Answer:
    return 200, {"rules": call.server.rules.shown()}


async def read_rule(call: Call) -> Answer:
    return 200, call.server.rules.require(call.named["id"]).shown()


async def delete_rules(call: Call) -> Answer:
    call.server.rules.remove(call.named.get("id"))
    return 204, None


async def read_clock(call: Call) -> Answer:
    return 200, _clock(call)


async def move_clock(call: Call) -> Answer:
    steps.move(call.sandbox.clock, call.read(steps.Move))
    settled = await call.sandbox.settle()
    return 200, {**_clock(call), "settled": settled}


async def expire(call: Call) -> Answer:
    given = call.read(steps.Expired)
    await call.server.write(partial(steps.expire, given=given))
    return 204, None


def _clock(call: Call) -> dict[str, Any]:
    clock = call.sandbox.clock
    return {"now": format_time(clock.now()), "frozen": clock.frozen}


def _unused(kind: str) -> str:
    return f"{kind}-{new_secret()[:10].lower().replace('_', '-')}"


_WALLET: Final = "/wallets/(?P<path>[^/]+)"
_KEY: Final = f"{_WALLET}/keys/(?P<kid>[^/]+)"
_RULE: Final = "/consent-rules/(?P<id>[^/]+)"
_FAULT: Final = "/faults/(?P<id>[^/]+)"
ACTIONS: Final[Mapping[tuple[str, str], Action]] = {
    ("GET", ""): show_state,
    ("POST", "/reset"): reset,
    ("POST", "/baseline"): keep_baseline,
    ("POST", "/wallets"): post_wallet,
    ("GET", _WALLET): read_wallet,
    ("PUT", _WALLET): put_wallet,
    ("POST", "/clients"): post_client,
    ("PUT", _KEY): put_key,
    ("DELETE", _KEY): delete_key,
    ("POST", "/consents"): decide,
    ("POST", "/consent-rules"): post_rule,
    ("GET", "/consent-rules"): list_rules,
    ("DELETE", "/consent-rules"): delete_rules,
    ("GET", _RULE): read_rule,
    ("DELETE", _RULE): delete_rules,
    ("POST", "/faults"): post_fault,
    ("GET", "/faults"): list_faults,
    ("DELETE", "/faults"): delete_faults,
    ("GET", _FAULT): read_fault,
    ("DELETE", _FAULT): delete_faults,
    ("GET", "/clock"): read_clock,
    ("POST", "/clock"): move_clock,
    ("POST", "/expire"): expire,
    ("GET", "/requests"): looking.list_requests,
    ("DELETE", "/requests"): looking.delete_requests,
    ("GET", "/events"): looking.list_events,
}
# What is in the query; nothing for the others.
QUERIES: Final[Mapping[Action, type[steps.Given]]] = {
    looking.list_requests: looking.RequestsWanted,
    looking.list_events: looking.EventsWanted,
}
# A reset ends what is under way, but not these, each of which waits for the one before.
UNCUT: Final = frozenset({reset, keep_baseline})
