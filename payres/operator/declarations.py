"""What operators can do: each operation is declared once, above its rule.

A declaration gives a rule a command with its options and help, an endpoint with its part of the OpenAPI document, and a
list or a form on the operator's pages. Their texts are the rule's docstring and the `said` of its parameters. Anything
special, such as a command that reads a file, is written by hand in `cli/`, `admin/` or `pages/`.

Amounts are decimal texts in units of their asset, times RFC 3339. They have their types here, so that each command and
each endpoint gives the same errors.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, partial
from importlib import import_module
from inspect import Parameter, getdoc, iscoroutinefunction, signature
from types import NoneType, UnionType
from typing import Annotated, Any, Final, NamedTuple, ParamSpec, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta, UnsetType

from payres.core.payments.idempotency import MAX_REFERENCE_LENGTH
from payres.core.protocol.amounts import MAX_DECIMAL_LENGTH
from payres.core.protocol.clock import parse_day_or_time
from payres.core.protocol.errors import InvalidRequest
from payres.core.protocol.visible import is_visible
from payres.core.protocol.wire import AssetCode, Body, List, Page
from payres.core.store.representations import page_of
from payres.core.store.work import Work
from payres.operator.shapes import Shape

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
REQUIRED: Final = Parameter.empty
# The modules that declare operations, in the order of the endpoints.
NOUNS: Final = (
    *("wallets", "keys", "grants", "assets", "peers", "unresolved_packets", "payments"),
    *("payment_history", "webhooks"),
    *("status", "ledger", "exports", "api_keys", "audit"),
)
# The most rows that one unit of work changes. An operation on more takes several units, and others run in between.
ROWS_AT_ONCE: Final = 256
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
Sum = Annotated[DecimalText, said("Such as 100.00, in units of the asset.")]
Currency = Annotated[AssetCode, Meta(examples=["USD"])]
TimeText = Annotated[str, Meta(max_length=64, examples=["2027-01-31T09:30:00Z"], extra={"is_time": True})]


# The default of a member that is called `from` on the wire.
FROM: Final[Any] = msgspec.field(name="from", default=msgspec.UNSET)


class Query(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of structs for the parameters in a query."""


class Input(NamedTuple):
    """A parameter: `kind` is its annotation, `type` the annotation without bounds, None and UNSET."""

    name: str
    kind: Any
    default: Any
    type: Any
    words: str
    extra: Mapping[str, Any]
    longest: int | None

    @classmethod
    def of(cls, name: str, kind: Any, default: Any) -> "Input":
        plain, metas = _reduced(kind)
        extra = {key: value for meta in metas for key, value in (meta.extra or {}).items()}

        def last(attribute: str) -> Any:
            return next((found for meta in reversed(metas) if (found := getattr(meta, attribute)) is not None), None)

        return cls(name, kind, default, plain, last("description") or "", extra, last("max_length"))

    @property
    def is_required(self) -> bool:
        return self.default is REQUIRED

    @property
    def is_mark(self) -> bool:
        """Whether it is a flag."""
        return self.type is bool


class Listing(NamedTuple):
    """How a list is shown: the command prints it as the `member` of a JSON object, and as text prints `none` if it is
    empty.

    With a `title` the list is also a page, at the path of the endpoint or at `page`; `{name}` in the title stands for a
    segment of the path. `also` is a link to another list.
    """

    member: str
    none: str
    title: str = ""
    page: str = ""
    about: str = ""
    also: tuple[str, str] | None = None


class OperationForm(NamedTuple):
    """A page with a form that carries out an operation, for operators with write access.

    The page shows the thing that it is `about`, which the path names, and what `will` happen; nothing will to one that
    `is_over`. The next page is the one a segment above, or `back`, whose placeholders are segments of the path or
    members of the thing. There is one button, or one for each value of a parameter; with a `question` these are its
    answers. A form that `moves_money` asks for the operator's password again.
    """

    path: str
    title: str
    button: str | Mapping[str, str]
    will: str | Sequence[str] | Callable[[Any], Sequence[str]]
    about: Shape
    back: str = ""
    is_over: Callable[[Any], object] = lambda _: False
    question: str = ""
    moves_money: bool = False

    @property
    def buttons(self) -> Mapping[str, str]:
        """The text of each button, by the value that it sends."""
        return {self.button.split()[0].lower(): self.button} if isinstance(self.button, str) else self.button

    def sentences(self, thing: Any) -> Sequence[str]:
        """What will happen to the thing."""
        if self.is_over(thing):
            return []
        will = self.will(thing) if callable(self.will) else self.will
        return [will] if isinstance(will, str) else will


class Operation:
    """A rule with its declarations."""

    method = path = scope = noun = command = example = ""
    shows: Shape | None = None
    then: Shape | None = None
    text: Callable[[Any], str] | None = None
    listing: Listing | None = None
    form: OperationForm | None = None
    shows_secret = False
    stream: Callable[..., Any] | None = None
    media_types: Sequence[str] = ()

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @property
    def id(self) -> str:
        """Such as `assets.set_fee`; clients see it, so it stays if the rule moves to another module."""
        return f"{self.noun or self.function.__module__.rpartition('.')[2]}.{self.function.__name__}"

    @property
    def docstring(self) -> str:
        return getdoc(self.function) or ""

    @property
    def summary(self) -> str:
        return self.docstring.partition("\n")[0]

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        return get_type_hints(self.function, include_extras=True)

    @property
    def takes_json(self) -> bool:
        return self.method in {"POST", "PUT", "PATCH"}

    @property
    def status(self) -> int:
        """The HTTP status of success."""
        return 201 if self.method == "POST" else 200

    @property
    def only_reads(self) -> bool:
        return self.method == "GET" or self.listing is not None

    @property
    def is_async(self) -> bool:
        """Whether it takes several units of work, and so gets a `call` instead of one."""
        return iscoroutinefunction(self.function)

    @property
    def is_paged(self) -> bool:
        return "page" in self.hints

    @cached_property
    def whole(self) -> str:
        """The name of the parameter that takes all inputs as one struct; empty if there is none."""
        kinds = ((name, kind) for name, kind in self.hints.items() if name not in {"page", "return"})
        return next((name for name, kind in kinds if isinstance(kind, type) and issubclass(kind, Body | Query)), "")

    @cached_property
    def inputs(self) -> Mapping[str, Input]:
        """The parameters by name, without the unit of work, the call and the page."""
        found: list[Input] = []
        for name, parameter in signature(self.function).parameters.items():
            if name == self.whole:
                members = msgspec.structs.fields(self.hints[name])
                found += [Input.of(one.name, one.type, REQUIRED if one.required else one.default) for one in members]
            elif name not in {"work", "call", "page"}:
                found.append(Input.of(name, self.hints[name], parameter.default))
        return {one.name: one for one in found}

    @cached_property
    def segments(self) -> Sequence[str]:
        """The names of the parameters in the path."""
        return re.findall(r"{(\w+)}", self.path or (self.form.path if self.form else ""))

    @cached_property
    def struct(self) -> type[msgspec.Struct] | None:
        """The struct of the body, or of the query of a GET or DELETE; None if there are no parameters for it."""
        if self.whole:
            found: type[msgspec.Struct] = self.hints[self.whole]
            return found
        rest = [one for one in self.inputs.values() if one.name not in self.segments and one.name != "limit"]
        base = Body if self.takes_json else Query
        if not rest and base is Query:
            return None
        name = "".join(word.capitalize() for word in re.split(r"[._]", self.id))
        return msgspec.defstruct(
            name,
            [(one.name, one.kind) if one.is_required else (one.name, one.kind, one.default) for one in rest],
            bases=(base,),
            frozen=True,
            kw_only=True,
        )

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        """Decodes a body."""
        return msgspec.json.Decoder(self.struct or Body)

    @cached_property
    def answer_type(self) -> Any:
        """The struct of the answer."""
        if self.shows is None:
            return self.hints["return"]
        shown: Any = get_type_hints(self.shows.show)["return"]
        many: Any = Page if self.is_paged else List
        return many[shown] if self.is_paged or self.listing else shown

    def arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The keyword arguments of the function; a page is one of them."""
        if not self.whole:
            return {**given}
        kind = self.hints[self.whole]
        taken = {name: given[name] for name in kind.__struct_fields__ if name in given}
        return {name: one for name, one in given.items() if name not in taken} | {self.whole: kind(**taken)}

    def run(self, work: Work, given: Mapping[str, Any]) -> Any:
        """Calls the rule, and returns its result in the form of the answer."""
        found = self.function(work, **self.arguments(given))
        if self.shows is None:
            return found
        show = partial(self.shows.show, work)
        if self.is_paged:
            return page_of(found, show)
        return List(result=[show(one) for one in found]) if self.listing else show(found)


_DECLARED: Final[dict[Callable[..., Any], Operation]] = {}


def endpoint(
    request: str,
    scope: str = "",
    shows: Shape | None = None,
    *,
    noun: str = "",
    shows_secret: bool = False,
    stream: Callable[..., Any] | None = None,
    media_types: Sequence[str] = (),
) -> Callable[[F], F]:
    """Serves a rule in the operator's API, for keys with the scope; `request` is a method and a path.

    `scope` may be several, separated by spaces. Parameters that are not in the path are members of the body, or of the
    query of a GET or DELETE; `page: PageQuery` makes it a paged list. `shows` makes the struct of the answer of what
    the rule returns.

    An answer with a secret is not stored for an Idempotency-Key. `stream` answers requests that accept its media types.
    `noun` is the first part of the id, by default the name of the module.
    """
    method, _, path = request.partition(" ")
    answer = {"shows_secret": shows_secret, "stream": stream, "media_types": media_types}
    return _declare(shows=shows, method=method, path=path, scope=scope, noun=noun, **answer)


def command(
    words: str,
    example: str = "",
    shows: Shape | None = None,
    *,
    then: Shape | None = None,
    text: Callable[[Any], str] | None = None,
) -> Callable[[F], F]:
    """Makes a rule a command; `words` name its arguments in capitals, in the order of the parameters.

    The other parameters are options; only commands have `limit`. The command prints the answer of the endpoint, or with
    `then` the thing that the path names, as `text` formats it or with the labels of its shape. The help shows each line
    of `example` after the name of the command.
    """
    return _declare(shows=shows, command=words, example=example, then=then, text=text)


def _declare(shows: Shape | None = None, **members: Any) -> Callable[[F], F]:
    def declare(function: F) -> F:
        found = _DECLARED.setdefault(function, Operation(function))
        if shows is not None:
            found.shows = shows
        for name, value in members.items():
            setattr(found, name, value)
        return function

    return declare


def _declares(member: str, make: Callable[P, Any]) -> Callable[P, Callable[[F], F]]:
    """A decorator with the parameters of `make`; what `make` returns is the `member` of the operation."""
    return lambda *args, **options: _declare(**{member: make(*args, **options)})


lists = _declares("listing", Listing)
form = _declares("form", OperationForm)


def declared(*modules: str) -> Sequence[Operation]:
    """The operations of these modules, such as `operator.wallets`, in their order; without arguments, those of all
    rules."""
    names = [f"payres.{module}" for module in modules or (f"operator.{noun}" for noun in NOUNS)]
    for name in names:
        import_module(name)
    return [one for name in names for one in _DECLARED.values() if one.function.__module__ == name]


def operation_of(function: Callable[..., Any]) -> Operation:
    """The operation that the rule is declared as."""
    return _DECLARED[function]


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
