"""The OpenAPI document of the operator's API, made of the table of endpoints and of the structs.

`python -m payres.admin.openapi` writes it into openapi.json, which is what the server shows.
"""

from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec

from payres import openapi
from payres.admin.exports import Download
from payres.admin.handlers import Operation, operations
from payres.http.responses import JSON
from payres.operator.api_keys import SCOPES
from payres.operator.exports import MEDIA_TYPES

ERRORS_HERE: Final = openapi.ERRORS | {
    401: "The API key is missing, unknown, expired or revoked",
    403: "The API key lacks the scope, or there is not enough money",
    404: "It does not exist, or the API is not there for whom the request comes from",
}


@cache
def read() -> msgspec.Raw:
    """Read this document."""
    return msgspec.Raw(Path(__file__).with_name(openapi.FILE).read_bytes())


def admin_document() -> dict[str, Any]:
    """The document."""
    return openapi.document(
        "The operator's API of payres",
        "Scopes: " + "; ".join(f"`{scope}`: {what}" for scope, what in SCOPES.items()) + ".",
        [_described(operation) for operation in operations() if operation.endpoint.scope],
        {"apiKey": {"type": "http", "scheme": "bearer", "description": "A key of `payres api-key create`."}},
        [{"apiKey": []}],
    )


def _described(operation: Operation) -> openapi.Described:
    endpoint, meaning, answers = operation.endpoint, "What was asked for", {JSON: operation.answer_type}
    if operation.answer_type is Download:
        meaning = (
            "The rows as `format` says: CSV with a heading, or an object a line. One that is cut off has no last chunk"
        )
        answers = {media_type: {"type": "string"} for media_type in MEDIA_TYPES.values()}
    return openapi.Described(
        endpoint,
        {
            "operationId": endpoint.handler,
            "summary": (operation.function.__doc__ or "").partition("\n")[0],
            "description": f"Needs the scope `{endpoint.scope}`.",
        },
        _parameters(operation),
        operation.status,
        meaning,
        answers,
        {status: ERRORS_HERE[status] for status in _statuses(operation)},
        operation.body and operation.body.type,
    )


def _parameters(operation: Operation) -> list[openapi.Schema]:
    parameters = [openapi.path_parameter(name, msgspec.json.schema(kind)) for name, kind in operation.segments.items()]
    if operation.is_paged:
        parameters += openapi.page_parameters()
    if operation.query is not None:
        [_], components = msgspec.json.schema_components([operation.query])
        found = components[operation.query.__name__]["properties"]
        parameters += [openapi.query_parameter(name, schema) for name, schema in found.items()]
    if operation.endpoint.method == "POST" and not operation.endpoint.shows_secret:
        parameters.append(openapi.idempotency_key())
    return parameters


def _statuses(operation: Operation) -> list[int]:
    needless: set[int] = set()
    if operation.endpoint.method == "GET":
        needless.add(409)
    if not operation.endpoint.takes_json:
        needless |= {413, 415}
    if operation.endpoint.method != "POST":
        needless.add(422)
    return [status for status in ERRORS_HERE if status not in needless]


if __name__ == "__main__":
    Path(__file__).with_name(openapi.FILE).write_text(openapi.as_text(admin_document()), encoding="utf-8")
