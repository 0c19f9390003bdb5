"""Where payres deliberately answers otherwise than the published OpenAPI documents say: the one list, with reasons.

`docs/deviations.md` shows it to people and is tested against it.
"""

from typing import Any, NamedTuple


class Deviation(NamedTuple):
    """Refusals of one status and code that the documents do not have for these operations."""

    operations: tuple[str, ...]
    status: int
    code: str
    reason: str


class Amendment(NamedTuple):
    """What is read otherwise than it is written: `value` stands at `place`, instead of the member `replaces` there."""

    document: str
    place: tuple[str, ...]
    replaces: str | None
    value: Any
    reason: str


LISTED = ("paths", "/incoming-payments", "get", "responses", "200", "content", "application/json", "schema")
COMPLETED = ("paths", "/incoming-payments/{id}/complete", "post", "responses", "200", "content", "application/json")
NO_MEMBER_FITS = (
    "`additionalProperties` knows only the properties beside it, and there are none, so that no incoming payment would "
    "be valid. Those of the referenced schema are meant, and the official client reads it so"
)

AMENDMENTS = (
    Amendment(
        "resource-server",
        (*LISTED, "properties", "result", "items", "unevaluatedProperties"),
        "additionalProperties",
        False,
        NO_MEMBER_FITS,
    ),
    Amendment(
        "resource-server",
        (*COMPLETED, "schema", "unevaluatedProperties"),
        "additionalProperties",
        False,
        NO_MEMBER_FITS,
    ),
    Amendment(
        "auth-server",
        ("components", "schemas", "access-quote", "properties", "identifier"),
        None,
        {"type": "string", "format": "uri"},
        "Access to quotes can be narrowed to one wallet address, as the other kinds can; the answer says what was granted",
    ),
)

DEVIATIONS: tuple[Deviation, ...] = ()


def find_deviation(operation: str, status: int, code: str) -> Deviation | None:
    """The deviation that allows an operation to refuse with this status and code."""
    wanted = (status, code)
    return next((one for one in DEVIATIONS if operation in one.operations and (one.status, one.code) == wanted), None)
