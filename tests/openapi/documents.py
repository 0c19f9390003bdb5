"""The three published OpenAPI documents, as the official client's npm package carries them, and ours of /openapi.json.

What they promise.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx2
import jsonschema_rs
import yaml

from payres.core.protocol.urls import RESERVED_SEGMENTS, ROOT_WALLET_PATH
from payres.openapi.documents import as_text
from payres.openapi.resources import public_document
from tests.helpers import Json
from tests.openapi.deviations import AMENDMENTS

PACKAGE: Final = Path(__file__).parents[1] / "interop/node_modules/@interledger/open-payments"
RESOURCE_SERVER, AUTH_SERVER, WALLET_ADDRESS_SERVER = DOCUMENTS = (
    "resource-server",
    "auth-server",
    "wallet-address-server",
)
METHODS: Final = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
BASE_URL: Final = "https://pay.example.com"
MAX_UINT64: Final = 2**64 - 1
JSON: Final = "application/json"


class Operation(NamedTuple):
    """One operation of one document. `responses` has the documented ones by their status, with references followed;
    `body` is the schema of the request."""

    document: str
    id: str
    method: str
    path: str
    responses: Mapping[int, Json]
    tags: Sequence[str]
    body: Json | None


@cache
def load(name: str) -> Json:
    """A document as published, with its amendments. Raises FileNotFoundError where npm has not run."""
    path = PACKAGE / "dist/openapi/specs" / f"{name}.yaml"
    if not path.exists():
        raise FileNotFoundError(f"{path} is missing: run `make test`, which installs the official client")
    document: Json = yaml.load(path.read_bytes(), yaml.CSafeLoader)
    _amend(name, document)
    return document


@cache
def operations() -> tuple[Operation, ...]:
    """Every operation of the three documents."""
    return tuple(operation for name in DOCUMENTS for operation in _operations_of(name))


def paths_at(path: str) -> list[tuple[str, str]]:
    """The documents and their paths that describe what is served at a URL path; none for what they do not know."""
    path = path.rstrip("/") or "/"
    known = {(operation.document, operation.path) for operation in operations()}
    served = [(name, template) for name, template in known if name != WALLET_ADDRESS_SERVER]
    found = [(name, template) for name, template in served if _pattern(template).fullmatch(path)]
    return found or _wallet_address_path(path)


def find_operation(method: str, path: str) -> Operation | None:
    """The operation that a request calls; HEAD asks for what GET would say."""
    wanted = "get" if method == "HEAD" else method.lower()
    places = paths_at(path)
    return next((one for one in operations() if one.method == wanted and (one.document, one.path) in places), None)


@cache
def validator(operation_id: str, status: int) -> "jsonschema_rs.Draft202012Validator | None":
    """What checks the body of a documented response; None for one that is documented without a body."""
    operation = next(one for one in operations() if one.id == operation_id)
    content = operation.responses[status].get("content")
    return None if content is None else validator_of(content[JSON]["schema"], load(operation.document))


@cache
def refusal_validator() -> "jsonschema_rs.Draft202012Validator":
    """What checks every refusal, documented there or not: the error response of the resource server."""
    return validator_of({"$ref": "#/components/schemas/error-response"}, load(RESOURCE_SERVER))


@cache
def ours() -> Json:
    """The document that payres shows."""
    document: Json = json.loads(as_text(public_document(BASE_URL)))
    return document


@cache
def our_operations() -> dict[str, Json]:
    """Its operations by their ids, which are those of the published documents."""
    return {one["operationId"]: one for item in ours()["paths"].values() for one in item.values()}


@cache
def our_validator(operation_id: str, status: int) -> "jsonschema_rs.Draft202012Validator":
    schema = our_operations()[operation_id]["responses"][str(status)]["content"][JSON]["schema"]
    return validator_of(schema, ours())


def validator_of(schema: Json, document: Json) -> "jsonschema_rs.Draft202012Validator":
    """References in the schema begin at the document's root, so its components come along."""
    whole = {**schema, "components": document["components"]}
    formats = {"uint64": lambda text: text.isascii() and text.isdigit() and int(text) <= MAX_UINT64}
    return jsonschema_rs.Draft202012Validator(whole, validate_formats=True, formats=formats)


def _operations_of(name: str) -> Iterator[Operation]:
    document = load(name)
    for path, item in document["paths"].items():
        for method in METHODS:
            if method in item:
                described = item[method]
                responses = {int(status): _followed(document, one) for status, one in described["responses"].items()}
                body = described.get("requestBody", {}).get("content", {}).get(JSON, {}).get("schema")
                yield Operation(name, described["operationId"], method, path, responses, described["tags"], body)


class Documented:
    """Holds the answers of an API to its document."""

    def __init__(self, document: Json) -> None:
        self._document = document
        self._validator = cache(self._validator_at)
        described = sorted(document["paths"].items(), key=lambda item: -len(item[0]))
        self._operations = [
            (re.compile(re.sub(r"{\w+}", segment, path)), method, item[method])
            for segment in ("[^/]+", ".+")  # a wallet's path may have slashes
            for path, item in described
            for method in METHODS
            if method in item
        ]

    def check(self, answer: httpx2.Response) -> None:
        """Raises AssertionError or ValidationError for an answer that is not as the document says."""
        answer.read()
        path, method = answer.request.url.path.rstrip("/"), answer.request.method.lower().replace("head", "get")
        for place, (pattern, known, operation) in enumerate(self._operations):
            if known == method and pattern.fullmatch(path):
                status = str(answer.status_code)
                assert status in operation["responses"], f"{status} of {method} {path} is not documented"
                if answer.content and answer.headers["content-type"] == JSON:
                    self._validator(place, status).validate(answer.json())
                return
        assert answer.status_code in {401, 404, 405}, f"{method} {path} is not documented"

    def _validator_at(self, place: int, status: str) -> "jsonschema_rs.Draft202012Validator":
        _, _, operation = self._operations[place]
        return validator_of(operation["responses"][status]["content"][JSON]["schema"], self._document)


def formats(document: Json, schema: Json, path: str = "") -> Iterator[tuple[str, str]]:
    """The members in a schema that have a format, such as `incomingAmount.value`, each with its format."""
    schema = _followed(document, schema) if "$ref" in schema else schema
    if "format" in schema:
        yield path.lstrip("."), schema["format"]
    for kind in ("allOf", "anyOf", "oneOf"):
        for one in schema.get(kind, ()):
            yield from formats(document, one, path)
    for name, member in schema.get("properties", {}).items():
        yield from formats(document, member, f"{path}.{name}")
    if "items" in schema:
        yield from formats(document, schema["items"], f"{path}[]")


def _followed(document: Json, value: Json) -> Json:
    while "$ref" in value:
        target: Any = document
        for name in value["$ref"].removeprefix("#/").split("/"):
            target = target[name]
        value = target
    return value


def _pattern(template: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)))


def _wallet_address_path(path: str) -> list[tuple[str, str]]:
    """Wallet addresses take every path that is left; the document's own paths begin at the wallet address."""
    wallet, _, last = path.strip("/").rpartition("/")
    if last not in {"jwks.json", "did.json"}:
        wallet, last = path.strip("/"), ""
    reserved = wallet.split("/")[0] in RESERVED_SEGMENTS and wallet != ROOT_WALLET_PATH
    return [] if reserved or not wallet else [(WALLET_ADDRESS_SERVER, f"/{last}")]


def _amend(name: str, document: Json) -> None:
    """Applies the amendments of the document. Raises KeyError when one does not fit it any more."""
    for amendment in AMENDMENTS:
        if amendment.document == name:
            *way, last = amendment.place
            target: Any = document
            for step in way:
                target = target[step]
            assert amendment.replaces is None or target.pop(amendment.replaces) is not None
            assert last not in target, "the published document has changed"
            target[last] = amendment.value
