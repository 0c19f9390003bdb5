"""The OpenAPI document of the control API of a sandbox, made from the structs of its actions on first request."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from http import HTTPStatus
from typing import Any, Final

import msgspec

from payres.core.http.responses import JSON
from payres.core.protocol.event_types import EVENT_TYPES
from payres.openapi import documents, resources
from payres.testing import faults
from payres.testing.endpoints import ENDPOINTS, Endpoint
from payres.testing.sandbox import ROOT

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


# What a text is one of, by the name of its member. Other texts are refused with sentences that list these.
CHOICES: Final = {"fault": [*faults.KINDS], "operation": [one.id for one in resources.OPERATIONS.values()]}
EVENT_FILTERS: Final = sorted({*EVENT_TYPES, *(f"{name.partition('.')[0]}.*" for name in EVENT_TYPES)})


@cache
def encoded_control_document(base_url: str) -> msgspec.Raw:
    return msgspec.Raw(documents.as_text(control_document(base_url)).encode())


def control_document(base_url: str) -> documents.Schema:
    token = {"type": "http", "scheme": "bearer", "description": "The `control_token` of the sandbox's line."}
    made = documents.document(
        "The control API of payres sandbox",
        "Sets up and controls a sandbox for the tests of an app; `payres serve` does not have it.",
        base_url,
        [
            (method, ROOT + path, _operation(name, one))
            for name, one in ENDPOINTS.items()
            for method, path in [name.split(" ")]
        ],
        TAGS,
        {"controlToken": token},
        [{"controlToken": []}],
    )
    for component in made["components"]["schemas"].values():
        _add_choices(component.get("properties", {}), CHOICES)
    return made


def _operation(name: str, endpoint: Endpoint) -> documents.Schema:
    made = documents.operation(
        {"operationId": endpoint.id, "summary": endpoint.summary, "tags": [endpoint.tag]},
        [
            *(documents.path_parameter(one, {"type": "string"}) for one in re.findall(r"{(\w+)}", name)),
            *_query(endpoint.struct_of("wanted")),
            *([documents.idempotency_key()] if name.startswith("POST") else []),
        ],
        endpoint.status if endpoint.answer else HTTPStatus.NO_CONTENT,
        "The result" if endpoint.answer else "Done",
        {JSON: endpoint.answer} if endpoint.answer else {},
        ERRORS,
        endpoint.struct_of("given"),
    )
    if endpoint.id == "set-wallet":
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
