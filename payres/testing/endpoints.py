"""What the control API of a sandbox does: its endpoints, each an action by method and path."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus
from inspect import iscoroutinefunction
from typing import Any, Final, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import unquote

import msgspec
from msgspec.structs import asdict
from starlette.requests import Request

from payres.core.http.requests import other_parameters
from payres.core.protocol.clock import format_time
from payres.core.protocol.errors import InvalidRequest, WrongState, nothing_here
from payres.core.protocol.wire import OutgoingPayment, decode
from payres.core.store.events import last_sequence
from payres.core.store.work import EVENTS
from payres.testing import faults, set_up
from payres.testing import journal as journals
from payres.testing.answers import ClientKey, Clock, DecidedGrant, MovedClock, Reset, SetKey, State, Wallet
from payres.testing.faults import FaultList, FaultRule, KeptFault
from payres.testing.journal import ADDED, EventList, EventsWanted, RequestList, RequestsWanted
from payres.testing.names import require_known, require_operation, with_known
from payres.testing.request_rules import ConsentRule, ConsentRuleList, KeptConsentRule, Rules
from payres.testing.sandbox import ControlAnswer, Sandbox
from payres.testing.server import SandboxServer

G = TypeVar("G", bound=msgspec.Struct)
CURSOR: Final = re.compile("([0-9]{1,9})-([0-9]{1,15})")


class Endpoint(NamedTuple):
    """An action, with what the document says of it. `act` is a unit of work, or a coroutine of the call. It gets the
    parameters of the path by name, the struct of the body as `given` and that of the query as `wanted`. It returns an
    `answer`, perhaps behind another status than `status`; without one, 204."""

    act: Callable[..., Any]
    summary: str
    tag: str
    answer: Any = None
    status: int = HTTPStatus.OK
    name: str = ""

    @property
    def id(self) -> str:
        return self.name or self.act.__name__.replace("_", "-")

    def struct_of(self, parameter: Literal["given", "wanted"]) -> type[set_up.Given] | None:
        """What the action gets as this parameter, if it has one."""
        found: type[set_up.Given] | None = get_type_hints(self.act).get(parameter)
        return found


class ControlCall(msgspec.Struct, frozen=True):
    """A request of a server's control API. `named` are the parameters of the path."""

    sandbox: Sandbox
    server: SandboxServer
    endpoint: Endpoint
    named: Mapping[str, str]

    async def run(self, body: bytes, query: set_up.Given) -> ControlAnswer:
        """Raises InvalidRequest for a body, and the errors of the action."""
        act, arguments = self.endpoint.act, dict[str, object](self.named)
        if kind := self.endpoint.struct_of("given"):
            arguments["given"] = read_body(body, kind)
        if self.endpoint.struct_of("wanted"):
            arguments["wanted"] = query
        is_unit = not iscoroutinefunction(act)
        answer = await (self.server.write(partial(act, **arguments)) if is_unit else act(self, **arguments))
        status = self.endpoint.status if self.endpoint.answer else HTTPStatus.NO_CONTENT
        return answer if isinstance(answer, tuple) else (status, answer)

    @property
    def rules(self) -> Rules[ConsentRule] | Rules[FaultRule]:
        return self.server.decisions.rules if self.endpoint.tag == "consents" else self.server.faults.rules


def read_body(body: bytes, kind: type[G]) -> G:
    """Raises InvalidRequest, which lists the valid members."""
    try:
        return decode(msgspec.json.Decoder(kind), body, has_defaults=True)
    except InvalidRequest as error:
        raise InvalidRequest(f"{error}. The members are: {_names(kind)}", **error.details) from error


def read_query(request: Request, kind: type[G]) -> G:
    """Raises InvalidRequest, which lists the valid parameters."""
    try:
        return msgspec.convert(other_parameters(request, ()), kind, strict=False)
    except msgspec.ValidationError as error:
        sentence = f"The query breaks a rule: {error}. The parameters are: {_names(kind)}"
        raise InvalidRequest(sentence, field="query") from error


async def read_sandbox(call: ControlCall) -> State:
    now = format_time(call.sandbox.clock.now())
    return State(**asdict(call.server.line), now=now, generation=call.sandbox.generation)


async def reset(call: ControlCall, given: set_up.Nothing) -> Reset:
    return Reset(await call.sandbox.reset())


async def keep_baseline(call: ControlCall, given: set_up.Nothing) -> Reset:
    await call.sandbox.keep_baseline()
    return Reset(call.sandbox.generation)


async def decide(call: ControlCall, given: set_up.Decided) -> DecidedGrant:
    decided, asked = await call.server.write(partial(set_up.decide, given=given))
    decided.redirect = call.server.faults.redirect(decided.redirect, asked)
    return decided


async def create_payment(call: ControlCall, given: set_up.BillPayment) -> OutgoingPayment:
    return await set_up.pay_bill(call.server.context, given)


async def create_fault(call: ControlCall, given: FaultRule) -> dict[str, object]:
    return (await call.server.faults.add(call.server.context, given)).shown()


async def create_consent_rule(call: ControlCall, given: ConsentRule) -> dict[str, object]:
    return call.server.decisions.rules.add(await with_known(call.server.context, given)).shown()


async def list_rules(call: ControlCall) -> dict[str, object]:
    return {"rules" if call.endpoint.tag == "consents" else "faults": call.rules.shown()}


async def read_rule(call: ControlCall, id: str) -> dict[str, object]:
    return call.rules.require(id).shown()


async def delete_rules(call: ControlCall, id: str | None = None) -> None:
    call.rules.remove(id)


async def read_clock(call: ControlCall) -> Clock:
    clock = call.sandbox.clock
    return Clock(format_time(clock.now()), clock.frozen)


async def move_clock(call: ControlCall, given: set_up.Move) -> MovedClock:
    set_up.move(call.sandbox.clock, given)
    is_done = await call.sandbox.do_due_work()
    return MovedClock(**asdict(await read_clock(call)), settled=is_done)


async def list_requests(call: ControlCall, wanted: RequestsWanted) -> RequestList:
    """The matching requests, as soon as there is one, or at the end of `wait`."""
    wanted = await with_known(call.server.context, wanted)
    require_known(wanted.fault, faults.KINDS, "fault")
    require_operation(wanted.operation)
    journal = call.server.journal
    after = 0 if wanted.after is None else _position(call, wanted.after, journal.last)
    look = partial(journals.find_requests, journal, wanted, after)
    found, last = await journals.wait_for(journal.changes, ADDED, wanted.wait, look, 1)
    return RequestList(found, _cursor(call, last))


async def delete_requests(call: ControlCall) -> None:
    call.server.journal.clear()


async def list_events(call: ControlCall, wanted: EventsWanted) -> EventList:
    """The matching events, as soon as there are `count`, or at the end of `wait`."""
    wanted = await with_known(call.server.context, wanted)
    journals.check(wanted)
    last = await call.server.read(last_sequence)
    after = call.server.last_event if wanted.after is None else _position(call, wanted.after, last)
    look = partial(call.server.read, partial(journals.find_events, wanted=wanted, after=after))
    found, last = await journals.wait_for(call.server.context.changes, EVENTS, wanted.wait, look, wanted.count)
    return EventList(found, _cursor(call, last), timed_out=len(found) < wanted.count)


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


def find_endpoint(method: str, path: str) -> tuple[Endpoint, dict[str, str]]:
    """The endpoint of a method and path, and the parameters in the path. Raises NotFound."""
    for template, endpoint in ENDPOINTS.items():
        found = re.fullmatch(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", template), f"{method} {path}")
        if found:
            return endpoint, {name: unquote(text) for name, text in found.groupdict().items()}
    raise nothing_here()


ENDPOINTS: Final[Mapping[str, Endpoint]] = {
    "GET ": Endpoint(read_sandbox, "Shows the line that the command printed.", "sandbox", State),
    "POST /reset": Endpoint(reset, "Returns to the start or baseline.", "sandbox", Reset),
    "POST /baseline": Endpoint(keep_baseline, "Lets resets return to what is now.", "sandbox", Reset),
    "POST /wallets": Endpoint(set_up.create_wallet, "Opens a wallet at an unused path.", "wallets", Wallet, 201),
    "GET /wallets/{path}": Endpoint(set_up.read_wallet, "Shows a wallet.", "wallets", Wallet),
    "PUT /wallets/{path}": Endpoint(set_up.set_wallet, "Opens a wallet, or changes it to be so.", "wallets", Wallet),
    "POST /clients": Endpoint(set_up.create_client, "Opens a wallet with a key.", "wallets", ClientKey, 201),
    "PUT /wallets/{path}/keys/{kid}": Endpoint(
        set_up.set_key, "Sets the only valid key of this name.", "wallets", SetKey
    ),
    "DELETE /wallets/{path}/keys/{kid}": Endpoint(set_up.delete_key, "Revokes a key, if there is one.", "wallets"),
    "POST /payments": Endpoint(
        create_payment, "Pays a bill as the owner of a wallet.", "wallets", OutgoingPayment, 201
    ),
    "POST /consents": Endpoint(decide, "Decides a grant as its owner.", "consents", DecidedGrant),
    "POST /consent-rules": Endpoint(create_consent_rule, "Decides future grants.", "consents", KeptConsentRule, 201),
    "GET /consent-rules": Endpoint(
        list_rules, "Lists the rules of consent.", "consents", ConsentRuleList, name="list-consent-rules"
    ),
    "GET /consent-rules/{id}": Endpoint(
        read_rule, "Shows a rule of consent.", "consents", KeptConsentRule, name="read-consent-rule"
    ),
    "DELETE /consent-rules": Endpoint(
        delete_rules, "Removes all rules of consent.", "consents", name="delete-consent-rules"
    ),
    "DELETE /consent-rules/{id}": Endpoint(
        delete_rules, "Removes a rule of consent.", "consents", name="delete-consent-rule"
    ),
    "POST /faults": Endpoint(create_fault, "Lets something go wrong in future requests.", "faults", KeptFault, 201),
    "GET /faults": Endpoint(list_rules, "Lists the faults.", "faults", FaultList, name="list-faults"),
    "GET /faults/{id}": Endpoint(
        read_rule, "Shows a fault, and how often it happened.", "faults", KeptFault, name="read-fault"
    ),
    "DELETE /faults": Endpoint(delete_rules, "Removes all faults.", "faults", name="delete-faults"),
    "DELETE /faults/{id}": Endpoint(delete_rules, "Removes a fault.", "faults", name="delete-fault"),
    "GET /clock": Endpoint(read_clock, "Shows the time.", "clock", Clock),
    "POST /clock": Endpoint(move_clock, "Moves, stops or starts the clock.", "clock", MovedClock),
    "POST /expire": Endpoint(set_up.expire, "Expires one thing or token now.", "clock"),
    "GET /requests": Endpoint(list_requests, "Lists what the server was asked.", "journal", RequestList),
    "DELETE /requests": Endpoint(delete_requests, "Empties that list.", "journal"),
    "GET /events": Endpoint(list_events, "Lists events, or waits for them.", "journal", EventList),
}
# Actions that a reset does not cancel; they wait for one another.
UNCUT: Final = frozenset({reset, keep_baseline})
