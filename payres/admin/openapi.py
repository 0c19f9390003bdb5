"""The OpenAPI 3.1 document of the operator's API, made of the table of endpoints and of the structs.

`python -m payres.admin.openapi` writes it anew into openapi.json, which is what the server shows.
"""

import json
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import msgspec

from payres import __version__
from payres.admin.downloads import Download
from payres.admin.endpoints import Operation, operations
from payres.admin.wire import ErrorBody
from payres.http.responses import JSON
from payres.limits import DEFAULT_PAGE, MAX_IDEMPOTENCY_KEY_LENGTH, MAX_PAGE
from payres.operator.api_keys import SCOPES
from payres.operator.exports import MEDIA_TYPES

FILE: Final = "openapi.json"
REFERENCE: Final = "#/components/schemas/{name}"
ERRORS: Final = {
    400: "The request breaks a rule of form",
    401: "The API key is missing, unknown, expired or revoked",
    403: "The API key lacks the scope, or there is not enough money",
    404: "It does not exist, or the API is not there for whom the request comes from",
    406: "Accept rules JSON out",
    409: "The state of the resource does not allow it",
    413: "The body is too long",
    415: "The body is not application/json",
    422: "The Idempotency-Key was used for another request",
    429: "Too many requests: wait as Retry-After says",
    503: "Storage is lacking; nothing was changed",
}


@cache
def read() -> msgspec.Raw:
    """Read this document."""
    return msgspec.Raw((files("payres.admin") / FILE).read_bytes())


def document() -> dict[str, Any]:
    """The document."""
    found = [operation for operation in operations() if operation.endpoint.scope]
    types = [one for operation in found for one in _types(operation) if one]
    schemas, components = msgspec.json.schema_components([*types, ErrorBody], ref_template=REFERENCE)
    by_type = dict(zip([*types, ErrorBody], schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in found:
        method = operation.endpoint.method.lower()
        paths.setdefault(operation.endpoint.path, {})[method] = _described(operation, by_type)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "The operator's API of payres",
            "version": __version__.removesuffix(".dev0"),
            "description": "Scopes: " + "; ".join(f"`{scope}`: {what}" for scope, what in SCOPES.items()) + ".",
        },
        "security": [{"apiKey": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "apiKey": {"type": "http", "scheme": "bearer", "description": "A key of `payres api-key create`."}
            },
            "schemas": components,
        },
    }


def _types(operation: Operation) -> list[Any]:
    """The structs that an endpoint takes and answers with."""
    answer = None if operation.answer is Download else operation.answer
    return [answer, operation.body and operation.body.type]


def _described(operation: Operation, schemas: dict[Any, Any]) -> dict[str, Any]:
    endpoint = operation.endpoint
    described: dict[str, Any] = {
        "operationId": endpoint.handler,
        "summary": (operation.function.__doc__ or "").partition("\n")[0],
        "description": f"Needs the scope `{endpoint.scope}`.",
        "parameters": [*_segments(operation), *_query(operation), *_headers(operation)],
        "responses": {str(operation.status): _answer(operation, schemas)}
        | {str(status): _response(ERRORS[status], schemas[ErrorBody]) for status in _statuses(operation)},
    }
    if operation.body is not None:
        described["requestBody"] = {"required": True, "content": {JSON: {"schema": schemas[operation.body.type]}}}
    return described


def _answer(operation: Operation, schemas: dict[Any, Any]) -> dict[str, Any]:
    if operation.answer is not Download:
        return _response("What was asked for", schemas[operation.answer])
    text = {"schema": {"type": "string"}}
    what = "The rows as `format` says: CSV with a heading, or an object a line. One that is cut off has no last chunk"
    return {"description": what, "content": dict.fromkeys(MEDIA_TYPES.values(), text)}


def _segments(operation: Operation) -> list[dict[str, Any]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": msgspec.json.schema(kind)}
        for name, kind in operation.segments.items()
    ]


def _query(operation: Operation) -> list[dict[str, Any]]:
    parameters: dict[str, Any] = {}
    if operation.is_paged:
        count = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}
        parameters = {
            "first": count | {"description": f"So many that are older than the cursor; {DEFAULT_PAGE} if left out."},
            "last": count | {"description": "So many that are newer than the cursor, which must be given."},
            "cursor": {"type": "string", "description": "A startCursor or endCursor of another page."},
        }
    if operation.query is not None:
        parameters |= _parameters_of(operation.query)
    return [{"name": name, "in": "query", "schema": schema} for name, schema in parameters.items()]


def _parameters_of(query: type[msgspec.Struct]) -> dict[str, Any]:
    [_], components = msgspec.json.schema_components([query])
    found: dict[str, Any] = components[query.__name__]["properties"]
    return found


def _headers(operation: Operation) -> list[dict[str, Any]]:
    if operation.endpoint.method != "POST" or operation.endpoint.shows_secret:
        return []
    what = (
        "A text of your own for this request: a copy of it under the same key does nothing, and gets the same answer."
    )
    # Characters that need no quotes; with quotes (RFC 9651 section 3.3.3) there may be others.
    schema = {"type": "string", "pattern": rf"^[A-Za-z0-9._:/=@-]{{1,{MAX_IDEMPOTENCY_KEY_LENGTH}}}$"}
    return [{"name": "Idempotency-Key", "in": "header", "description": what, "schema": schema}]


def _statuses(operation: Operation) -> list[int]:
    needless: set[int] = set()
    if operation.endpoint.method == "GET":
        needless.add(409)
    if not operation.endpoint.takes_json:
        needless |= {413, 415}
    if operation.endpoint.method != "POST":
        needless.add(422)
    return [status for status in ERRORS if status not in needless]


def _response(description: str, schema: Any) -> dict[str, Any]:
    return {"description": description, "content": {JSON: {"schema": schema}}}


def as_text() -> str:
    """The document as its file has it."""
    return json.dumps(document(), indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_text(as_text(), encoding="utf-8")
