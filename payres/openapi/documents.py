"""OpenAPI 3.1 documents, generated from operations and structs.

There are three: of the endpoints of Open Payments (`payres/openapi/resources.py`), of the operator's API
(`payres/operator/declared/api.py`), and of the control API of a sandbox (`payres/testing/openapi.py`).
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from payres import __version__
from payres.core.http.responses import JSON
from payres.core.protocol.event_types import DATA, EVENT_TYPES
from payres.core.protocol.gnap import Access, Subject
from payres.core.protocol.limits import DEFAULT_PAGE, MAX_IDEMPOTENCY_KEY_LENGTH, MAX_PAGE
from payres.core.protocol.wire import Amount, Resource, encode

REFERENCE: Final = "#/components/schemas/{name}"
# The common meanings of statuses; each document adds its own.
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
# What a text is, by the name of its member in any struct.
FORMATS: Final = {
    "date-time": re.compile(r"at|now|timestamp|\w+(At|_at)"),
    "uri": re.compile(
        r"(wallet|auth|resource|base|control)_?([aA]ddress|[sS]erver|[uU]rl)|url|uri|redirect|manage|address"
        r"|quoteId|identifier"
    ),
}
NULL: Final = {"type": "null"}
LICENSE: Final = {"name": "Apache 2.0", "identifier": "Apache-2.0"}

Schema = Mapping[str, Any]


class PublicKey(msgspec.Struct, frozen=True):
    """An Ed25519 key that is valid (RFC 8037)."""

    kid: str
    x: str
    alg: str
    kty: str
    crv: str
    use: str | msgspec.UnsetType = msgspec.UNSET


class Happened(Resource, frozen=True, kw_only=True):
    """An event; `timestamp` is when it happened."""

    id: str
    timestamp: str
    sequence: int


# All events: a struct for each type, with its data.
EVENTS: Final[Any] = reduce(
    or_,
    (
        msgspec.defstruct(
            re.sub("[._]", " ", f"{name}.event").title().replace(" ", ""),
            [("data", DATA.get(name) or DATA[name.partition(".")[0]])],
            bases=(Happened,),
            tag_field="type",
            tag=name,
            kw_only=True,
        )
        for name in EVENT_TYPES
    ),
)
# What structs and members are that have raw JSON or dicts; granted access has the form of requested access.
SHOWN_AS: Final[Mapping[tuple[str, str], Any]] = {
    ("AccessToken", "access"): list[Access],
    ("ClientInstance", "jwk"): PublicKey,
    ("Grant", "access"): list[Access],
    ("Grant", "subject"): Subject | None,
    ("GrantEvent", "access"): list[Access],
    ("EventView", ""): EVENTS,
}


class ErrorDetails(Resource, frozen=True, kw_only=True):
    """`hint` says what to do, the others what is wrong; there may be more members."""

    hint: str
    reason: str | UnsetType = UNSET
    field: str | UnsetType = UNSET
    component: str | UnsetType = UNSET
    signature_base: str | UnsetType = UNSET
    type: str | UnsetType = UNSET
    action: str | UnsetType = UNSET
    scope: str | UnsetType = UNSET
    asset_code: str | UnsetType = UNSET
    asset_scale: int | UnsetType = UNSET
    min_send_amount: Amount | UnsetType = UNSET
    remaining: str | UnsetType = UNSET
    receive_value: str | UnsetType = UNSET
    left: str | UnsetType = UNSET
    needed: str | UnsetType = UNSET
    wait: int | UnsetType = UNSET


class Error(Resource, frozen=True, kw_only=True):
    code: str
    description: str
    details: ErrorDetails


class ErrorBody(Resource, frozen=True, kw_only=True):
    error: Error


def document(
    title: str,
    description: str,
    base_url: str,
    operations: Iterable[tuple[str, str, Schema]],
    tags: Mapping[str, str],
    security_schemes: Schema,
    security: Sequence[Schema],
) -> dict[str, Any]:
    """The document of these methods, paths and operations. `tags` are described; `security` is the default of
    operations."""
    paths: dict[str, dict[str, Any]] = {}
    found: list[Any] = []
    bodies: list[Any] = []
    for method, path, shown in operations:
        _with_schemas(shown, found.append)
        _with_schemas(shown.get("requestBody", {}), bodies.append)
        paths.setdefault(path.replace(":wallet}", "}"), {})[method.lower()] = shown
    types = [*(one for one in found if one is not ErrorBody), ErrorBody]  # the order of the components
    while True:
        schemas, components = msgspec.json.schema_components(types, ref_template=REFERENCE)
        more = [kind for (struct, _), kind in SHOWN_AS.items() if struct in components and kind not in types]
        if not more:
            break
        types += more
    schema_of = dict(zip(types, schemas, strict=True)).__getitem__
    asked = msgspec.json.schema_components(bodies)[1]
    for struct, component in components.items():
        for name, schema in component.get("properties", {}).items():
            _add_format(name, schema)
            if "default" in schema:
                _without_default(component, name, is_asked=struct in asked)
    for (struct, member), kind in SHOWN_AS.items():
        if struct in components:
            (components[struct]["properties"] if member else components)[member or struct] = schema_of(kind)
    components.get("JWK", {"properties": {}})["properties"].pop("d", None)  # a private key is refused
    info = {"title": title, "version": __version__.removesuffix(".dev0"), "description": description}
    return {
        "openapi": "3.1.0",
        "info": {**info, "license": LICENSE},
        "servers": [{"url": base_url}],
        "tags": [{"name": name, "description": what} for name, what in tags.items()],
        "security": security,
        "paths": _with_schemas(paths, schema_of),
        "components": {"securitySchemes": security_schemes, "schemas": components},
    }


def operation(
    members: Schema,
    parameters: Sequence[Schema],
    status: int,
    meaning: str,
    answers: Mapping[str, Any],
    errors: Mapping[int, str],
    body: Any = None,
    *,
    needs_body: bool = True,
    examples: Mapping[Any, Any] = {},
    headers: Mapping[str, str] = {},
) -> dict[str, Any]:
    """The OpenAPI object of an operation, in which a struct stands for its schema, and a tuple for alternatives.

    `members` are further members of the object. `answers` are the types of the response `status` by media type, empty
    if it has no content; `headers` are described. `examples` are values by their types.
    """
    described = {name: {"description": what, "schema": {"type": "string"}} for name, what in headers.items()}
    success = {**_response(meaning, answers, examples), **({"headers": described} if headers else {})}
    responses: dict[str, Schema] = {str(status): success}
    for error, sentence in sorted(errors.items()):
        responses[str(error)] = _response(sentence, {JSON: ErrorBody}, {})
    shown = {**members, "parameters": parameters, "responses": responses}
    if body is not None:
        shown["requestBody"] = {"required": needs_body, "content": {JSON: _content(body, examples)}}
    return shown


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
    """A parameter of the query, which may be absent but never null."""
    kinds = [one for one in schema.get("anyOf", ()) if one != NULL]
    if len(kinds) == 1:
        schema = {key: value for key, value in schema.items() if key != "anyOf" and value is not None} | kinds[0]
    return {"name": name, "in": "query", "schema": schema}


def path_parameter(name: str, schema: Schema) -> Schema:
    return {"name": name, "in": "path", "required": True, "schema": schema}


def header_parameter(name: str, description: str, schema: Schema) -> Schema:
    return {"name": name, "in": "header", "description": description, "schema": schema}


def idempotency_key() -> Schema:
    """The parameter of the Idempotency-Key header."""
    what = (
        "A text of your own for this request: a copy of it under the same key does nothing, and gets the same answer."
    )
    # Characters that need no quotes; quoted keys (RFC 9651 section 3.3.3) may have others.
    schema = {"type": "string", "pattern": rf"^[A-Za-z0-9._:/=@-]{{1,{MAX_IDEMPOTENCY_KEY_LENGTH}}}$"}
    return header_parameter("Idempotency-Key", what, schema)


def as_text(document: Schema) -> str:
    """The document as JSON text."""
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def _with_schemas(value: Any, schema: Callable[[Any], Any]) -> Any:
    """The value with each struct replaced by `schema` of it."""
    if isinstance(value, Mapping):
        return {name: _with_schemas(member, schema) for name, member in value.items()}
    if isinstance(value, list):
        return [_with_schemas(one, schema) for one in value]
    if isinstance(value, tuple):
        return {"anyOf": [schema(one) for one in value]}
    return value if value is None or isinstance(value, str | int | float) else schema(value)


def _add_format(name: str, schema: dict[str, Any]) -> None:
    found = [what for what, names in FORMATS.items() if names.fullmatch(name)]
    for one in (schema, *schema.get("anyOf", ())):
        if found and one.get("type") == "string":
            one["format"] = found[0]


def _without_default(component: dict[str, Any], name: str, *, is_asked: bool) -> None:
    """Takes the default of a member, which generators take for one that must be sent; an answer has them all."""
    schema = component["properties"][name]
    default = schema.pop("default")
    if not is_asked:
        component["required"] = [*component.get("required", ()), name]
    elif default is not None:
        schema["description"] = f"{default} if it is left out."


def _response(description: str, content: Mapping[str, Any], examples: Mapping[Any, Any]) -> Schema:
    shown = {media_type: _content(kind, examples) for media_type, kind in content.items()}
    return {"description": description, **({"content": shown} if shown else {})}


def _content(kind: Any, examples: Mapping[Any, Any]) -> Schema:
    """The schema of a type, and its example; of alternatives, that of the first."""
    first = kind[0] if isinstance(kind, tuple) else kind
    example = None if isinstance(first, Mapping) else examples.get(first)
    return {"schema": kind, **({} if example is None else {"example": json.loads(encode(example))})}
