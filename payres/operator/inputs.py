"""The inputs of operators: the types of members and parameters, and how amounts and times are read.

Amounts are decimal texts in units of their asset, times RFC 3339. Both are read here, so that each command and each
endpoint gives the same errors.
"""

from collections.abc import Callable, Collection
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from payres.core.payments.idempotency import MAX_REFERENCE_LENGTH
from payres.core.protocol.amounts import MAX_DECIMAL_LENGTH
from payres.core.protocol.clock import parse_day_or_time
from payres.core.protocol.errors import InvalidRequest
from payres.core.protocol.visible import is_visible
from payres.core.protocol.wire import AssetCode
from payres.core.store.work import Work

MAX_NAME_LENGTH: Final = 200


def said(
    words: str = "",
    *,
    option: str = "",
    metavar: str = "",
    typed: Callable[[Work, Any], Any] | None = None,
    least: int | None = None,
    most: int | None = None,
    secret: bool = False,
    choices: Collection[str] = (),
    **schema: Any,
) -> Meta:
    """Describes a parameter: the help of its option, the note of its form field, its description in OpenAPI.

    `option` and `metavar` are for the command, and `typed` converts its argument to that of the rule. Commands check
    the bounds `least` and `most` and the words in `choices`; for endpoints the rule does. A `secret` can be read from a
    file.
    """
    extra: dict[str, Any] = {"option": option, "metavar": metavar, "typed": typed, "least": least, "most": most}
    extra |= {"secret": secret, "choices": choices}
    kept = {name: one for name, one in extra.items() if one not in ("", None, ()) and one is not False}
    return Meta(description=words or None, extra=kept, **schema)


Name = Annotated[str, Meta(min_length=1, max_length=MAX_NAME_LENGTH)]
# If it is left empty in a form, the form's own id is used, so that the form is carried out once.
Reference = Annotated[
    str,
    Meta(
        description="Your own name for it; a repetition with the same name changes nothing.",
        min_length=1,
        max_length=MAX_REFERENCE_LENGTH,
        extra={"is_reference": True},
    ),
]
DecimalText = Annotated[str, Meta(max_length=MAX_DECIMAL_LENGTH, examples=["100.00"], extra={"metavar": "AMOUNT"})]
Amount = Annotated[DecimalText, said("Such as 100.00, in units of the asset.")]
Code = Annotated[AssetCode, Meta(examples=["USD"])]
TimeText = Annotated[str, Meta(max_length=64, examples=["2027-01-31T09:30:00Z"], extra={"is_time": True})]


# The default of a member that is called `from` on the wire.
FROM: Final[Any] = msgspec.field(name="from", default=msgspec.UNSET)


class Query(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of structs for the parameters in a query."""


def require_time(text: str, field: str) -> int:
    """Microseconds UTC of an RFC 3339 time, or of the beginning of a day. Raises InvalidRequest, naming the field."""
    try:
        return parse_day_or_time(text)
    except ValueError as error:
        raise InvalidRequest(f"{field}: {error}", field=field) from error


def check_name(name: str, kind: str) -> None:
    """Raises InvalidRequest for an invalid name of this kind."""
    if not 1 <= len(name.strip()) <= MAX_NAME_LENGTH or not is_visible(name):
        raise InvalidRequest(f"A {kind} name has 1 to {MAX_NAME_LENGTH} printable characters", field="name")
