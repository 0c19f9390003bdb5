"""The OpenAPI document of the control API of a sandbox, made from the structs of its actions on first request."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from payres.core.http.responses import JSON
from payres.core.protocol.event_types import EVENT_TYPES
from payres.core.protocol.wire import OutgoingPayment
from payres.openapi import documents, resources
from payres.testing import faults, set_up
from payres.testing.faults import FaultRule
from payres.testing.journal import Entry, EventsWanted, RequestsWanted
from payres.testing.rules import ConsentRule
from payres.testing.sandbox import ROOT
from payres.webhooks.sender import EventView

ERRORS: Final = {
    400: "The body or the query breaks a rule; an unknown member too",
    401: "The control token is missing or wrong",
    404: "It does not exist, or the request comes from an address without access",
    409: "The state does not allow it, or the sandbox was reset meanwhile",
    500: "A fault of the sandbox",
    503: "A reset has just begun, or storage is lacking: try again",
}
TAGS: Final = {
    "sandbox": "The sandbox itself, and resets",
    "wallets": "Wallets, clients and keys",
    "consents": "Decisions on grants",
    "faults": "What goes wrong in future requests",
    "clock": "Time and expiry",
    "journal": "What the servers were asked, and events",
}


class Wallet(msgspec.Struct):
    address: str
    asset_code: str
    asset_scale: int
    balance: str


class ClientKey(msgspec.Struct):
    """What a client signs with; `private_key` is PKCS#8 PEM."""

    wallet_address: str
    kid: str
    private_key: str


class Webhook(msgspec.Struct):
    id: str
    url: str
    secret: str


class Line(msgspec.Struct):
    """What the command prints; `webhook` with --webhook only."""

    base_url: str
    control_url: str
    control_token: str
    wallets: dict[str, Wallet]
    client: ClientKey
    peers: "list[Line]"
    webhook: Webhook | UnsetType = UNSET


class State(Line, kw_only=True):
    now: str
    generation: int


class Reset(msgspec.Struct):
    """The number of resets."""

    generation: int


class SetKey(msgspec.Struct):
    wallet_address: str
    kid: str


class DecidedGrant(msgspec.Struct):
    """`redirect` is where the browser would go, or null."""

    grant: str
    redirect: str | None


class KeptConsentRule(ConsentRule, frozen=True, kw_only=True):
    id: str
    used: int


class KeptFault(FaultRule, frozen=True, kw_only=True):
    id: str
    used: int


class ConsentRuleList(msgspec.Struct):
    rules: list[KeptConsentRule]


class FaultList(msgspec.Struct):
    faults: list[KeptFault]


class Clock(msgspec.Struct):
    now: str
    frozen: bool


class MovedClock(Clock):
    """`settled` is false if what became due took more than five seconds."""

    settled: bool


class RequestList(msgspec.Struct):
    requests: list[Entry]
    cursor: str


class EventList(msgspec.Struct):
    events: list[EventView]
    cursor: str
    timed_out: bool


class Endpoint(NamedTuple):
    id: str
    summary: str
    tag: str
    answer: Any = None
    body: Any = None
    query: type[msgspec.Struct] | None = None
    status: int = 200


OPERATIONS: Final[Mapping[str, Endpoint]] = {
    "GET ": Endpoint("read-sandbox", "Shows the line that the command printed.", "sandbox", State),
    "POST /reset": Endpoint("reset", "Returns to the start or baseline.", "sandbox", Reset, set_up.Nothing),
    "POST /baseline": Endpoint("keep-baseline", "Lets resets return to what is now.", "sandbox", Reset, set_up.Nothing),
    "POST /wallets": Endpoint(
        "create-wallet", "Opens a wallet at an unused path.", "wallets", Wallet, set_up.WalletState, status=201
    ),
    "GET /wallets/{path}": Endpoint("read-wallet", "Shows a wallet.", "wallets", Wallet),
    "PUT /wallets/{path}": Endpoint(
        "set-wallet", "Opens a wallet, or changes it to be so.", "wallets", Wallet, set_up.WalletState
    ),
    "POST /clients": Endpoint(
        "create-client", "Opens a wallet with a key.", "wallets", ClientKey, set_up.Named, status=201
    ),
    "PUT /wallets/{path}/keys/{kid}": Endpoint(
        "set-key", "Sets the only valid key of this name.", "wallets", SetKey, set_up.GivenKey
    ),
    "DELETE /wallets/{path}/keys/{kid}": Endpoint("delete-key", "Revokes a key, if there is one.", "wallets"),
    "POST /payments": Endpoint(
        "create-payment",
        "Pays a bill as the owner of a wallet.",
        "wallets",
        OutgoingPayment,
        set_up.BillPayment,
        status=201,
    ),
    "POST /consents": Endpoint("decide", "Decides a grant as its owner.", "consents", DecidedGrant, set_up.Decided),
    "POST /consent-rules": Endpoint(
        "create-consent-rule", "Decides future grants.", "consents", KeptConsentRule, ConsentRule, status=201
    ),
    "GET /consent-rules": Endpoint("list-consent-rules", "Lists the rules of consent.", "consents", ConsentRuleList),
    "GET /consent-rules/{id}": Endpoint("read-consent-rule", "Shows a rule of consent.", "consents", KeptConsentRule),
    "DELETE /consent-rules": Endpoint("delete-consent-rules", "Removes all rules of consent.", "consents"),
    "DELETE /consent-rules/{id}": Endpoint("delete-consent-rule", "Removes a rule of consent.", "consents"),
    "POST /faults": Endpoint(
        "create-fault", "Lets something go wrong in future requests.", "faults", KeptFault, FaultRule, status=201
    ),
    "GET /faults": Endpoint("list-faults", "Lists the faults.", "faults", FaultList),
    "GET /faults/{id}": Endpoint("read-fault", "Shows a fault, and how often it happened.", "faults", KeptFault),
    "DELETE /faults": Endpoint("delete-faults", "Removes all faults.", "faults"),
    "DELETE /faults/{id}": Endpoint("delete-fault", "Removes a fault.", "faults"),
    "GET /clock": Endpoint("read-clock", "Shows the time.", "clock", Clock),
    "POST /clock": Endpoint("move-clock", "Moves, stops or starts the clock.", "clock", MovedClock, set_up.Move),
    "POST /expire": Endpoint("expire", "Expires one thing or token now.", "clock", body=set_up.Expired),
    "GET /requests": Endpoint(
        "list-requests", "Lists what the server was asked.", "journal", RequestList, query=RequestsWanted
    ),
    "DELETE /requests": Endpoint("delete-requests", "Empties that list.", "journal"),
    "GET /events": Endpoint(
        "list-events", "Lists events, or waits for them.", "journal", EventList, query=EventsWanted
    ),
}

# What a text is one of, by the name of its member. Other texts are refused with sentences that list these.
CHOICES: Final = {"fault": [*faults.KINDS], "operation": [one.id for one in resources.OPERATIONS.values()]}
EVENT_FILTERS: Final = sorted({*EVENT_TYPES, *(f"{name.partition('.')[0]}.*" for name in EVENT_TYPES)})


@cache
def encoded_control_document(base_url: str) -> msgspec.Raw:
    """The encoded document."""
    return msgspec.Raw(documents.as_text(control_document(base_url)).encode())


def control_document(base_url: str) -> dict[str, Any]:
    """The document of the server at a base URL."""
    token = {"type": "http", "scheme": "bearer", "description": "The `control_token` of the sandbox's line."}
    made = documents.document(
        "The control API of payres sandbox",
        "Sets up and controls a sandbox for the tests of an app; `payres serve` does not have it.",
        base_url,
        [(method, ROOT + path, _operation(name)) for name in OPERATIONS for method, path in [name.split(" ")]],
        TAGS,
        {"controlToken": token},
        [{"controlToken": []}],
    )
    for component in made["components"]["schemas"].values():
        _add_choices(component.get("properties", {}), CHOICES)
    return made


def _operation(name: str) -> dict[str, Any]:
    operation = OPERATIONS[name]
    made = documents.operation(
        {"operationId": operation.id, "summary": operation.summary, "tags": [operation.tag]},
        [
            *(documents.path_parameter(one, {"type": "string"}) for one in re.findall(r"{(\w+)}", name)),
            *_query(operation.query),
            *([documents.idempotency_key()] if name.startswith("POST") else []),
        ],
        204 if operation.answer is None else operation.status,
        "Done" if operation.answer is None else "The result",
        {} if operation.answer is None else {JSON: operation.answer},
        ERRORS,
        operation.body,
    )
    if operation.id == "set-wallet":
        made["responses"]["201"] = {**made["responses"]["200"], "description": "It is new"}
    return made


def _query(kind: type[msgspec.Struct] | None) -> Sequence[documents.Schema]:
    if kind is None:
        return []
    [_], components = msgspec.json.schema_components([kind])
    members = components[kind.__name__]["properties"]
    _add_choices(members, {**CHOICES, "type": EVENT_FILTERS})
    return [documents.query_parameter(*member) for member in members.items()]


def _add_choices(members: Mapping[str, Any], choices: Mapping[str, Sequence[str]]) -> None:
    for name in members.keys() & choices.keys():
        for one in (members[name], *members[name].get("anyOf", ())):
            if one.get("type") == "string":
                one["enum"] = [*choices[name]]
