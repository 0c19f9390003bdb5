"""The document that payres shows at /openapi.json, to hold its answers to."""

import json
from functools import cache

import jsonschema_rs

from payres.openapi import as_text
from payres.routes.openapi import public_document
from tests.helpers import Json
from tests.openapi.documents import JSON


@cache
def load() -> Json:
    document: Json = json.loads(as_text(public_document()))
    return document


@cache
def operations() -> dict[str, Json]:
    """Its operations by their ids, which are those of the published documents."""
    return {one["operationId"]: one for item in load()["paths"].values() for one in item.values()}


def has_response(operation: str, status: int) -> bool:
    return str(status) in operations()[operation]["responses"]


@cache
def validator(operation: str, status: int) -> "jsonschema_rs.Draft202012Validator":
    schema = operations()[operation]["responses"][str(status)]["content"][JSON]["schema"]
    return jsonschema_rs.Draft202012Validator({**schema, "components": load()["components"]})
