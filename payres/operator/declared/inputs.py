"""The inputs of operations: the types that many have, and what a command, an endpoint and a form make of each.

Amounts are decimal texts in units of their asset, times RFC 3339. They have their types here, so that each command and
each endpoint gives the same errors, and each form reads what people type by its kind.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import Parameter, signature
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, UnsetType

from payres.core.payments.idempotency import MAX_REFERENCE_LENGTH
from payres.core.protocol.amounts import MAX_DECIMAL_LENGTH, MAX_RATE_LENGTH, Asset, format_decimal, parse_decimal
from payres.core.protocol.clock import parse_day_or_time
from payres.core.protocol.errors import DomainError, InvalidRequest
from payres.core.protocol.visible import is_visible
from payres.core.protocol.wire import AssetCode
from payres.core.store.work import Environment, Work
from payres.html.typed_amounts import typed_decimal

REQUIRED: Final = Parameter.empty
MAX_NAME_LENGTH: Final = 200
MAX_REASON: Final = 140
OF_PEOPLE: Final = frozenset({"limit", "again"})
DECIMALS: Final = frozenset({"amount", "rate"})  # kinds of inputs that are decimal texts
GROUPED: Final = re.compile("[0-9]{1,3}(,[0-9]{3})+")
PERCENT: Final = Asset("%", 2)  # whose smallest unit is a basis point
PERCENT_MOST: Final = 9999


def said(
    words: str = "",
    *,
    option: str = "",
    metavar: str = "",
    typed: Callable[[Work | Environment, Any], Any] | None = None,
    secret: bool = False,
    choices: Collection[str] = (),
    is_long: bool = False,
    label: str = "",
    unit_of: str = "",
    hint: str = "",
    asks: str = "",
    unless: tuple[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    of_commands: bool = False,
    file: bool = False,
    inline: Callable[[str], bytes] | None = None,
    given_by: Callable[..., Any] | None = None,
    offers: Callable[[Work, Any], Mapping[str, tuple[str, str]]] | None = None,
    **schema: Any,
) -> Meta:
    """Describes a parameter: the help of its option, the note of its form field, its description in OpenAPI.

    `option` and `metavar` are for the command, and `typed` converts what was typed there or in a form to the value of
    the rule. Only words in `choices` can be chosen; of several a form has those that it `offers` for the thing, each
    with what it is and more, all of them marked. A `secret` can be read from a file, and a text that `is_long` has
    several lines. A form calls it by the `label`, in which a code of another field stands for its name in braces, or
    else by its name; below that is the `hint`, or else the words. It is in the currency that the field `unit_of` has.

    More of commands, which alone have an input `of_commands`: one for a secret `asks` for it if it was not given; one
    cannot be given with another, `unless` names it and says why; a choice has `flags` with their help; the content of a
    `file` is read, or made of the text `inline`; a value is `given_by` a function, whose parameters are the options.
    """
    extra: dict[str, Any] = {"option": option, "metavar": metavar, "typed": typed, "choices": choices}
    extra |= {"is_secret": secret, "is_long": is_long, "label": label, "hint": hint, "asks": asks, "unless": unless}
    extra |= {"flags": flags, "is_of_commands": of_commands, "is_file": file, "inline": inline, "given_by": given_by}
    extra |= {"offers": offers, "unit_of": unit_of}
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
DecimalText = Annotated[
    str, Meta(max_length=MAX_DECIMAL_LENGTH, examples=["100.00"], extra={"metavar": "AMOUNT", "is_amount": True})
]
RateText = Annotated[
    str, Meta(max_length=MAX_RATE_LENGTH, description="An exact decimal, such as 0.92.", extra={"is_rate": True})
]
# Basis points, which forms have in per cent.
Share = Annotated[int, Meta(extra={"is_percent": True}, ge=0, le=PERCENT_MOST)]
Sum = Annotated[DecimalText, said("Such as 100.00, in units of the asset.")]
Currency = Annotated[AssetCode, Meta(examples=["USD"], extra={"label": "Currency"})]
TimeText = Annotated[str, Meta(max_length=64, examples=["2027-01-31T09:30:00Z"], extra={"is_day": True})]


class Input(NamedTuple):
    """A parameter: `kind` is its annotation, `type` the annotation without bounds, None and UNSET. `metas` are
    its annotations, the innermost first."""

    name: str
    kind: Any
    default: object
    type: Any
    words: str
    extra: Mapping[str, Any]
    metas: Sequence[Meta]

    @classmethod
    def of(cls, name: str, kind: Any, default: object) -> "Input":
        plain, metas = _reduced(kind)
        extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}
        words = next((meta.description for meta in reversed(metas) if meta.description), "")
        return cls(name, kind, default, plain, words, extra, metas)

    @property
    def longest(self) -> int | None:
        """The most characters, or of several the most of them."""
        return next((meta.max_length for meta in reversed(self.metas) if meta.max_length is not None), None)

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def member(self) -> object:
        """The field of a struct; one that is a word of Python, such as `from_`, has its name without the `_`."""
        name = self.name.rstrip("_") if self.name.endswith("_") else None
        return msgspec.field(name=name) if self.is_required else msgspec.field(name=name, default=self.default)

    @property
    def is_mark(self) -> bool:
        return self.type is bool

    @property
    def is_of_people(self) -> bool:
        """Whether endpoints do not have it."""
        return self.name in OF_PEOPLE or "is_of_commands" in self.extra

    @property
    def is_secret(self) -> bool:
        return "is_secret" in self.extra

    @property
    def hint(self) -> str:
        return self.extra.get("hint") or self.words

    def typed(self, work: Work | Environment, text: Any) -> Any:
        """The value of what was typed in a command."""
        return self.extra["typed"](work, text) if "typed" in self.extra else text

    def read(self, work: Work | Environment, text: str) -> Any:
        """The value of what was typed in a form. Operators' pages are in English, so numbers are read as these write
        them, whatever the browser asks for: `1,000.00`; but rates have no marks for thousands. Raises InvalidRequest,
        InvalidAmount for what can be read in two ways."""
        return self.typed(work, self.plain(text))

    def plain(self, text: str) -> str:
        """A number as rules take it, of what was typed in a form; any other text as it is. Raises as `read` does."""
        kind = self.kind_of_field
        if kind in DECIMALS:
            return typed_decimal(text, thousands="" if kind == "rate" else ",")
        if kind == "percent":
            try:
                points = parse_decimal(typed_decimal(text.removesuffix("%")), PERCENT)
            except ValueError:
                points = PERCENT_MOST + 1
            if points > PERCENT_MOST:
                raise InvalidRequest(f"{text!r} is no share: write it like 0.5, and at most 99.99")
            return str(points)
        return text.replace(",", "") if kind == "whole" and GROUPED.fullmatch(text) else text

    def filled(self, value: object) -> str:
        """A value as the field of a form has it."""
        if self.kind_of_field == "percent" and isinstance(value, int):
            return format_decimal(value, PERCENT).removesuffix("0").removesuffix(".0")
        return "\n".join(value) if isinstance(value, list | tuple) else "" if value is None else str(value)

    @property
    def is_several(self) -> bool:
        """Whether it is a list of texts."""
        return get_origin(self.type) in {list, tuple, Sequence}

    @property
    def choices(self) -> Collection[str]:
        """The words that can be chosen; none if any text can be given."""
        found: Collection[str] = self.extra.get("choices", ())
        return found or (get_args(self.type) if get_origin(self.type) is Literal else ())

    @property
    def kind_of_field(self) -> str:
        if self.is_several:
            return "choices" if self.choices or "offers" in self.extra else "lines"
        kinds = {kind: self.extra.get(f"is_{kind}") for kind in ("amount", "rate", "percent", "day", "secret", "long")}
        kinds |= {"mark": self.is_mark, "choice": self.choices, "whole": self.type is int}
        return next((kind for kind, is_it in kinds.items() if is_it), "text")


def inputs_of(function: Callable[..., object], *others: str) -> Mapping[str, Input]:
    """The parameters by name, without the others."""
    found, hints = signature(function).parameters, get_type_hints(function, include_extras=True)
    return {name: Input.of(name, hints[name], one.default) for name, one in found.items() if name not in others}


def _reduced(kind: Any) -> tuple[Any, list[Meta]]:
    """A type without annotations, None and UNSET; and its annotations, the innermost first."""
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *said_here = get_args(kind)
        plain, metas = _reduced(inner)
        return plain, [*metas, *(meta for meta in said_here if isinstance(meta, Meta))]
    if origin in {Union, UnionType}:
        [one] = [arg for arg in get_args(kind) if arg not in {NoneType, UnsetType}]
        return _reduced(one)
    return kind, []


def require_time(text: str, field: str) -> int:
    """Microseconds UTC of an RFC 3339 time, or of the beginning of a day. Raises InvalidRequest, naming the field."""
    try:
        return parse_day_or_time(text)
    except ValueError as error:
        raise InvalidRequest(str(error), field=field) from error


@contextmanager
def naming(field: str) -> Iterator[None]:
    """Errors inside name this field, unless they name another."""
    try:
        yield
    except DomainError as error:
        error.details.setdefault("field", field)
        raise


def check_reason(reason: str | None, field: str) -> None:
    """Raises InvalidRequest for what no owner can be told as the reason."""
    if reason is not None and not (len(reason) <= MAX_REASON and reason.strip() and is_visible(reason)):
        raise InvalidRequest(f"A reason has 1 to {MAX_REASON} printable characters", field=field)


def check_name(name: str, kind: str) -> None:
    """Raises InvalidRequest for an invalid name of this kind."""
    if not 1 <= len(name.strip()) <= MAX_NAME_LENGTH or not is_visible(name):
        raise InvalidRequest(f"A {kind} name has 1 to {MAX_NAME_LENGTH} printable characters", field="name")
