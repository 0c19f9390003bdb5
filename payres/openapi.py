"""OpenAPI 3.1 documents, made of operations and of the structs that cross HTTP.

There are two: `payres/routes/openapi.py` makes that of the Open Payments endpoints,
`payres/admin/openapi.py` that of the operator's API.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from payres import __version__
from payres.http.responses import JSON
from payres.limits import DEFAULT_PAGE, MAX_IDEMPOTENCY_KEY_LENGTH, MAX_PAGE
from payres.wire import Resource

REFERENCE: Final = "#/components/schemas/{name}"
# What each status means wherever it is answered; a document adds those that mean something of their own there.
ERRORS: Final = {
    400: "The request breaks a rule of form",
    406: "Accept rules JSON out",
    409: "The state of the resource does not allow it",
    413: "The body is too long",
    415: "The body is not application/json",
    422: "The Idempotency-Key was used for another request",
    429: "Too many requests: wait as Retry-After says",
    503: "Storage is lacking; nothing was changed",
}

Schema = Mapping[str, Any]


class ErrorDetails(Resource, frozen=True, kw_only=True):
    """`hint` says what to do. There may be more members; docs/reference/errors.md has all."""

    hint: str


class Error(Resource, frozen=True, kw_only=True):
    code: str
    description: str
    details: ErrorDetails


class ErrorBody(Resource, frozen=True, kw_only=True):
    error: Error


class Described(NamedTuple):
    """An operation of a document: `members` are those of its OpenAPI object that are not made of the rest.

    `answers` has a struct, several to choose from, or a JSON Schema for each media type of the answer `status`; it is
    empty for an answer without content.
    """

    method: str
    path: str
    members: Mapping[str, Any]
    parameters: Sequence[Schema]
    status: int
    meaning: str
    answers: Mapping[str, Any]
    errors: Mapping[int, str]
    body: Any = None
    needs_body: bool = True

    @property
    def types(self) -> Sequence[Any]:
        """The structs that it takes and answers with."""
        found = [one for answer in self.answers.values() for one in (answer if _is_choice(answer) else (answer,))]
        return [one for one in (*found, self.body) if one is not None and not isinstance(one, Mapping)]


def document(
    title: str, description: str, operations: Sequence[Described], security_schemes: Schema, security: Sequence[Schema]
) -> dict[str, Any]:
    """The document; `security` is what an operation needs that does not say otherwise."""
    types = [*(one for operation in operations for one in operation.types), ErrorBody]
    schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = operation.path.replace(":wallet}", "}")
        paths.setdefault(path, {})[operation.method.lower()] = _described(operation, by_type)
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": __version__.removesuffix(".dev0"), "description": description},
        "security": security,
        "paths": paths,
        "components": {"securitySchemes": security_schemes, "schemas": components},
    }


def page_parameters() -> list[Schema]:
    """The parameters of every list (Specification 4.1)."""
    count = {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}
    return [
        query_parameter(
            "first", count | {"description": f"So many that are older than the cursor; {DEFAULT_PAGE} if left out."}
        ),
        query_parameter(
            "last", count | {"description": "So many that are newer than the cursor, which must be given."}
        ),
        query_parameter("cursor", {"type": "string", "description": "A startCursor or endCursor of another page."}),
    ]


def query_parameter(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "query", "schema": schema}


def path_parameter(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def idempotency_key() -> Schema:
    """The header that makes a creation safe to repeat."""
    what = (
        "A text of your own for this request: a copy of it under the same key does nothing, and gets the same answer."
    )
    # Characters that need no quotes; with quotes (RFC 9651 section 3.3.3) there may be others.
    schema = {"type": "string", "pattern": rf"^[A-Za-z0-9._:/=@-]{{1,{MAX_IDEMPOTENCY_KEY_LENGTH}}}$"}
    return {"name": "Idempotency-Key", "in": "header", "description": what, "schema": schema}


def as_text(document: Schema) -> str:
    """The document as it is shown."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _described(operation: Described, schemas: Mapping[Any, Schema]) -> dict[str, Any]:
    answers = {media_type: _schema(answer, schemas) for media_type, answer in operation.answers.items()}
    responses = {str(operation.status): _response(operation.meaning, answers)}
    for status, meaning in sorted(operation.errors.items()):
        responses[str(status)] = _response(meaning, {JSON: schemas[ErrorBody]})
    described = {**operation.members, "parameters": operation.parameters, "responses": responses}
    if operation.body is not None:
        content = {JSON: {"schema": schemas[operation.body]}}
        described["requestBody"] = {"required": operation.needs_body, "content": content}
    return described


def _schema(answer: Any, schemas: Mapping[Any, Schema]) -> Schema:
    if _is_choice(answer):
        return {"anyOf": [schemas[one] for one in answer]}
    found: Schema = answer if isinstance(answer, Mapping) else schemas[answer]
    return found


def _is_choice(answer: Any) -> bool:
    return isinstance(answer, tuple)


def _response(description: str, content: Mapping[str, Schema]) -> Schema:
    shown = {"content": {media_type: {"schema": schema} for media_type, schema in content.items()}} if content else {}
    return {"description": description, **shown}
