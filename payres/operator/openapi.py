"""The OpenAPI document of the operator's API, made from the operations and their structs on first request."""

from functools import cache
from typing import Any, Final

import msgspec

from payres.core.http.responses import JSON
from payres.core.protocol.urls import ADMIN_API
from payres.openapi import documents
from payres.operator.api import admin_endpoints
from payres.operator.api_keys import SCOPES
from payres.operator.declarations import Operation, endpoint
from payres.operator.exports import MEDIA_TYPES, Export

ERRORS_HERE: Final = documents.ERRORS | {
    401: "The API key is missing, unknown, expired or revoked",
    403: "The API key lacks the scope, or there is not enough money",
    404: "It does not exist, or the request comes from an address without access",
}


TAGS: Final = {
    "wallets": "Wallets with their keys, movements and passwords",
    "grants": "What clients may do: the grants of owners, consent, ending them",
    "assets": "Assets with their fees and liquidity",
    "rates": "Exchange rates",
    "peers": "Interledger peers with their routes, credit and settlements",
    "packets": "The outcome of packets that peers left unanswered",
    "payments": "Payments and refunds",
    "webhooks": "Webhooks and their tests",
    "deliveries": "What was sent to webhooks",
    "replays": "Sending events again",
    "status": "The state of the server",
    "ledger": "Entries of the ledger, and its check",
    "exports": "Files for bookkeeping",
    "api-keys": "Keys of this API",
    "audit-log": "Who changed what",
    "backups": "Copies of the database",
    "events": "What has happened, as webhooks get it",
}


@endpoint("GET /openapi.json")
@cache
def read(base_url: str) -> msgspec.Raw:
    """Read this document."""
    return msgspec.Raw(documents.as_text(admin_document(base_url)).encode())


def admin_document(base_url: str) -> dict[str, Any]:
    """The document of the server at a base URL."""
    return documents.document(
        "The operator's API of payres",
        "Scopes: " + "; ".join(f"`{scope}`: {what}" for scope, what in SCOPES.items()) + ".",
        base_url,
        [(one.method, ADMIN_API + one.path, _operation(one)) for one in admin_endpoints() if one.scope],
        TAGS,
        {"apiKey": {"type": "http", "scheme": "bearer", "description": "A key of `payres api-key create`."}},
        [{"apiKey": []}],
    )


def _operation(operation: Operation) -> documents.Schema:
    needless = {409} if operation.method == "GET" else set()
    needless |= set() if operation.takes_json else {413, 415}
    needless |= set() if operation.method == "POST" else {422}
    meaning, answers = "The result", {JSON: operation.answer_type}
    if operation.answer_type is Export:
        meaning = "The rows: CSV with a heading, or a JSON object a line. A file that is cut off has no last chunk"
        answers = {media_type: {"type": "string"} for media_type in MEDIA_TYPES.values()}
    return documents.operation(
        {
            "operationId": operation.id,
            "summary": operation.summary,
            "tags": [operation.path.split("/")[1]],
            "description": f"Needs the scope `{'` and `'.join(operation.scope.split())}`.",
        },
        _parameters(operation),
        operation.status,
        meaning,
        answers,
        {status: meant for status, meant in ERRORS_HERE.items() if status not in needless},
        operation.struct if operation.takes_json else None,
    )


def _parameters(operation: Operation) -> list[documents.Schema]:
    kinds = {name: operation.inputs[name].kind for name in operation.segments}
    parameters = [documents.path_parameter(name, msgspec.json.schema(kind)) for name, kind in kinds.items()]
    if operation.is_paged:
        parameters += documents.page_parameters()
    if not operation.takes_json and operation.struct is not None:
        [_], components = msgspec.json.schema_components([operation.struct])
        found = components[operation.struct.__name__]["properties"]
        parameters += [documents.query_parameter(name, schema) for name, schema in found.items()]
    if operation.method == "POST" and not operation.shows_secret:
        parameters.append(documents.idempotency_key())
    return parameters
