"""What operators can do: each operation is declared once, where its rule is.

A declaration makes of a rule a command with its options and help, an endpoint with its part of the OpenAPI document, a
list or a form among the pages. Their words are the rule's docstring and what `said` says of its parameters. What is
special about one of them, such as a command that reads a file, is written by hand in `cli/`, `admin/` or `pages/`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from importlib import import_module
from inspect import Parameter, getdoc, iscoroutinefunction, signature
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    NamedTuple,
    ParamSpec,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
from msgspec import Meta, UnsetType

from payres.operator.inputs import Query
from payres.operator.shapes import Shape
from payres.representations import page_of
from payres.store.work import Work
from payres.wire import Body, List, Page

P = ParamSpec("P")
T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])
REQUIRED: Final = Parameter.empty
# The rules with operations, in the order of the endpoints.
NOUNS: Final = (
    *("wallets", "keys", "grants", "assets", "peers", "unresolved_packets", "payments", "payment_history", "webhooks"),
    *("status", "ledger", "exports", "api_keys", "audit"),
)
# Rows that a unit of work changes at most. What changes more does it in several, and others have their turn between.
ROWS_AT_ONCE: Final = 256


class Units(Protocol):
    """Runs the units of work of an operation that takes several, each in a transaction of its own.

    One that may take long only reads, and delays nobody. After a crash between two that write, the operation can be
    repeated, and does what is left.
    """

    async def read(self, unit: Callable[[Work], T]) -> T: ...
    async def write(self, unit: Callable[[Work], T]) -> T: ...


class Input(NamedTuple):
    """A parameter: `kind` is its annotation, `type` that without bounds, None and UNSET."""

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
        """Whether it is on or off."""
        return self.type is bool


class Listing(NamedTuple):
    """How a list is shown: as `member` of the JSON that the command prints; `none` is said of an empty list.

    With a `title` the list is a page, at the path of the endpoint or at `page`; `{name}` in the title is a segment of
    the path. `also` is a link to another list.
    """

    member: str
    none: str
    title: str = ""
    page: str = ""
    about: str = ""
    also: tuple[str, str] | None = None


class Form(NamedTuple):
    """A page with a form that carries an operation out, for operators who may change something.

    The page says what it is `about`, which the path names, and what `will` happen; nothing of what `is_over`. Behind it
    comes the page one segment above, or `back`, which names segments of the path or members of the thing. The button
    has a word, or there is one for each value of a parameter; with a `question` these are its answers. What moves money
    takes the operator's password again.
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
        """What is on each, by the choice that it sends."""
        return {self.button.split()[0].lower(): self.button} if isinstance(self.button, str) else self.button

    def sentences(self, thing: Any) -> Sequence[str]:
        """What will happen to the thing."""
        if self.is_over(thing):
            return []
        will = self.will(thing) if callable(self.will) else self.will
        return [will] if isinstance(will, str) else will


class Operation:
    """A rule with what was declared of it."""

    method = path = scope = command = example = ""
    shows: Shape | None = None
    then: Shape | None = None
    text: Callable[[Any], str] | None = None
    listing: Listing | None = None
    form: Form | None = None
    shows_secret = False
    stream: Callable[..., Any] | None = None
    media_types: Sequence[str] = ()

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    @property
    def id(self) -> str:
        """Such as `assets.set_fee`."""
        return f"{self.function.__module__.rpartition('.')[2]}.{self.function.__name__}"

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
        """Of the answer when all went well."""
        return 201 if self.method == "POST" else 200

    @property
    def only_reads(self) -> bool:
        return self.method == "GET" or self.listing is not None

    @property
    def is_async(self) -> bool:
        """Whether it is more than one unit of work, and gets the `call` in place of one."""
        return iscoroutinefunction(self.function)

    @property
    def is_paged(self) -> bool:
        return "page" in self.hints

    @cached_property
    def whole(self) -> str:
        """The parameter that is a struct of the inputs, where there is one."""
        kinds = ((name, kind) for name, kind in self.hints.items() if name not in {"page", "return"})
        return next((name for name, kind in kinds if isinstance(kind, type) and issubclass(kind, Body | Query)), "")

    @cached_property
    def inputs(self) -> Mapping[str, Input]:
        """What it takes besides its unit and a page, by name."""
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
        """The names in the path."""
        return re.findall(r"{(\w+)}", self.path or (self.form.path if self.form else ""))

    @cached_property
    def struct(self) -> type[msgspec.Struct] | None:
        """What the body has, or the query of a GET or DELETE; None when nothing is taken there."""
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
        """Reads a body."""
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
        """What the function gets by name; a page is one of them."""
        if not self.whole:
            return {**given}
        kind = self.hints[self.whole]
        taken = {name: given[name] for name in kind.__struct_fields__ if name in given}
        return {name: one for name, one in given.items() if name not in taken} | {self.whole: kind(**taken)}

    def run(self, work: Work, given: Mapping[str, Any]) -> Any:
        """The answer: what the rule returns, as it is shown."""
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
    shows_secret: bool = False,
    stream: Callable[..., Any] | None = None,
    media_types: Sequence[str] = (),
) -> Callable[[F], F]:
    """Serves a rule in the operator's API, for keys with the scope; `request` is a method and a path.

    A `scope` may be several with blanks between. Parameters that the path does not name are members of the body, or of
    the query of a GET or DELETE; `page: PageQuery` makes it a paged list. What the rule returns is answered as the
    struct that `shows` makes of it.

    An answer with a secret is not kept for an Idempotency-Key. `stream` answers whoever accepts its media types.
    """
    method, _, path = request.partition(" ")
    answer = {"shows_secret": shows_secret, "stream": stream, "media_types": media_types}
    return _declare(shows=shows, method=method, path=path, scope=scope, **answer)


def command(
    words: str,
    example: str = "",
    shows: Shape | None = None,
    *,
    then: Shape | None = None,
    text: Callable[[Any], str] | None = None,
) -> Callable[[F], F]:
    """Makes a command of a rule, which names its arguments in capitals, in the order of the parameters.

    The other parameters are options, `limit` only here. It prints what the endpoint answers, or of `then` what the
    path names, as `text` writes it or with the labels of its shape. Of the example, lines begin with the command.
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
    """A decorator that takes what `make` takes."""
    return lambda *args, **options: _declare(**{member: make(*args, **options)})


lists = _declares("listing", Listing)
form = _declares("form", Form)


def declared(*modules: str) -> Sequence[Operation]:
    """The operations of these modules, such as `operator.wallets`, of all rules when none is named; in their order."""
    names = [f"payres.{module}" for module in modules or (f"operator.{noun}" for noun in NOUNS)]
    for name in names:
        import_module(name)
    return [one for name in names for one in _DECLARED.values() if one.function.__module__ == name]


def operation_of(function: Callable[..., Any]) -> Operation:
    """What was declared of a rule."""
    return _DECLARED[function]


def _reduced(kind: Any) -> tuple[Any, list[Meta]]:
    """A type without what is said of it, and None and UNSET; and what is said of it, inner things first."""
    origin = get_origin(kind)
    if origin is Annotated:
        inner, *said_here = get_args(kind)
        plain, metas = _reduced(inner)
        return plain, [*metas, *(meta for meta in said_here if isinstance(meta, Meta))]
    if origin in {Union, UnionType}:
        [one] = [arg for arg in get_args(kind) if arg not in {NoneType, UnsetType}]
        return _reduced(one)
    return kind, []
