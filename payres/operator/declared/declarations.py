"""What operators can do: each operation is declared once, above its rule.

A declaration gives a rule a command with its options and help, an endpoint with its part of the OpenAPI document, and a
list or a form on the operator's pages. Their texts are the rule's docstring and the `said` of its parameters. Anything
special, such as a command that reads a file, is written by hand in `cli/` or `pages/`.
"""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cache, cached_property, partial, update_wrapper
from importlib import import_module
from inspect import getdoc, iscoroutinefunction, signature
from typing import Any, Final, NamedTuple, Protocol, TypeVar, cast, get_type_hints
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from payres.core.protocol.errors import InvalidRequest
from payres.core.protocol.wire import Body, List, Page, broken_rule
from payres.core.store import audit
from payres.core.store.representations import page_of
from payres.core.store.work import Units, Work
from payres.operator.declared.inputs import Input, inputs_of
from payres.operator.declared.nouns import NOUNS
from payres.operator.declared.shapes import Cell, Shape, members_of
from payres.operator.store.audit import count_changes

DeclaredRule = Callable[..., object]
F = TypeVar("F", bound=DeclaredRule)
T = TypeVar("T")
NOTHING: Final = (None, UNSET, (), "")  # what is no detail
WHOLE: Final = re.compile("-?(0|[1-9][0-9]*)")


class ContextUnits(Units, Protocol):
    """Units of work with what they need of the server, its `context`: a request with an actor, or a command."""

    @property
    def context(self) -> Any: ...


class Query(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Base of structs for the parameters in a query."""


class Listing(NamedTuple):
    """How a list is shown: the command prints it as the `member` of a JSON object, and as text prints `none` with the
    `advice` for a shell if it is empty. A page says `none_yet` where nothing was filtered.

    With a `title` the list is also a page, at the path of the endpoint or at `page`; `{name}` in the title stands for a
    segment of the path. `views` are queries that are often wanted, by name, and `also` is a link to another list. The
    page has the mark `narrowed` set unless its query says otherwise. It is in this section of the `menu`, if any.
    """

    member: str
    none: str
    title: str = ""
    page: str = ""
    about: str = ""
    views: Mapping[str, str] = {}
    also: tuple[str, str] | None = None
    advice: str = ""
    narrowed: str = ""
    menu: str = ""
    none_yet: str = ""


class CommandLine(NamedTuple):
    """A command: its `words` name its arguments in capitals, in the order of the inputs; the others are options, and
    only commands have `limit`. One of a paged list that `sorts` all rows, by this member if any, has none. It can make
    the database if it `creates` something first. What it was called `once` goes on working.

    It prints the answer, or with `then` the thing that the path names: as `text`, which has its members in braces or
    formats it, or with the labels of its shape; and fails with the `failure` of the answer. The JSON has a list of
    results as the `member`, and those of other lists `besides`, by member, each with the help of the option that prints
    it. The help shows each line of `example` after the name of the command.
    """

    words: str
    example: str = ""
    then: Shape | None = None
    text: str | Callable[[Any], str] = ""
    member: str = ""
    sorts: str | None = None
    besides: Mapping[str, tuple[DeclaredRule, str]] = {}
    creates: bool = False
    once: str = ""
    failure: Callable[[Any], str | None] = lambda _: None


MONEY: Final = "this moves money"
FOR_GOOD: Final = "this cannot be undone"
ACCESS: Final = "this is about who may do what"

# Why a form asks for the operator's password and second step again, by the scope that its operation needs.
STAKES: Final[Mapping[str, str]] = (
    dict.fromkeys(("wallets:fund", "payments:refund", "grants:write", "assets:write", "liquidity:write"), MONEY)
    | {"peers:write": MONEY, "backup:write": "the file has every secret"}
    | dict.fromkeys(("wallets:write", "webhooks:write", "keys:write", "operators:write"), ACCESS)
)


class LookOver(NamedTuple):
    """What a form will do, as it is looked over, also where no password is asked for: a question, the button, rows of
    what is now and will be, in place of those that a rehearsal finds, other facts, and who set the present values; with
    a `risk` why it is unusual, in a sentence and more. Without a button it would do nothing, which the risk says."""

    question: str
    button: str
    rows: Sequence[tuple[str, Cell, Cell]] = ()
    facts: Sequence[tuple[str, str]] = ()
    risk: tuple[str, str] | None = None
    set_by: str = ""


class OperationForm(NamedTuple):
    """A page with a form that carries out an operation, for operators with write access.

    The page of the thing that it is `about` has its button, unless the form `is_over` for the thing. One that makes
    something new is about nothing; the list with the path `lists` has its button. The form says what `will` happen, by
    default with the docstring of the rule. It has one button, or one for each value of a parameter; with a `question`
    these are its answers.

    - `path` is by default that of the thing's page, and the first word of the button; for something new it is made of
      the title. The inputs `needs` are required here, though they are optional elsewhere.
    - With `changes`, the fields have the thing's present values, from its members or from this function, and only those
      that were changed are sent.
    - A form whose operation has a scope in STAKES is looked over, and asks for the operator's password again, for that
      reason or another `because`; unless it is `unasked`, which says why: it only takes access away, or undoes what
      was asked for. Before that, `plan` raises what an operation of several units refuses, and returns what fields
      that are left empty stand for; after it, `weighs` says of arguments that are good what is to be looked at. A form
      that `presses` is a button on the page itself, because what it does can be taken back. One that `ends` something
      stands at the end of the page. One that `begins` a long work of this kind waits only for its `plan`.
    - `says` has what a field says to whoever acts, by its name.
    - `done` is the line after it, with members of the answer and the thing, and its `name`, in braces; `back` is the
      next page, or makes its path of the thing; by default it is that of the thing.
    """

    button: str | Mapping[str, str]
    about: Shape | None = None
    done: str = ""
    title: str = ""
    path: str = ""
    lists: str = ""
    back: str | Callable[[Any], str] = ""
    needs: Collection[str] = ()
    will: str | Sequence[str] | Callable[[Any], Sequence[str]] = ()
    is_over: Callable[[Any], object] = lambda _: False
    changes: bool | Callable[[Any], Mapping[str, object]] = False
    question: str = ""
    because: str = ""
    unasked: str = ""
    plan: Callable[..., Mapping[str, str]] = lambda _, **given: {}
    weighs: Callable[..., LookOver | None] | None = None
    says: Callable[[Work], Mapping[str, str]] = lambda _: {}
    presses: bool = False
    ends: bool = False
    begins: str = ""

    @property
    def buttons(self) -> Mapping[str, str]:
        """The text of each button, by the value that it sends."""
        return {self.button.split()[0].lower(): self.button} if isinstance(self.button, str) else self.button

    @property
    def heading(self) -> str:
        """The heading of the page, and the text of the button that leads to it."""
        return self.title or next(iter(self.buttons.values()))

    @property
    def url(self) -> str:
        """The path of the page, with parameters in braces."""
        if self.lists:
            return self.path or f"/{self.title.lower().replace(' ', '-')}"
        return self.path or f"{self.about.page if self.about else ''}/{next(iter(self.buttons))}"

    def url_of(self, names: Mapping[str, str]) -> str:
        """The path of the page about the thing with these names."""
        return self.url.format(**{name: quote(value, safe="") for name, value in names.items()})

    def present(self, thing: object) -> Mapping[str, object]:
        """The values that the fields begin with."""
        if callable(self.changes):
            return self.changes(thing)
        return members_of(thing) if self.changes else {}


class Operation(msgspec.Struct, frozen=True, eq=False, dict=True):
    """A rule with its declaration: an endpoint if it has a `request`, a `command`, a page with a list or a `form`.

    Written as `@operation(...)` above the rule, whose parameters besides the unit of work, the call and the page are
    its inputs. `shows` makes the struct of the answer of what the rule returns.

    The `request` of an endpoint is a method, a path, and the scopes that a key needs, or of several with `|` between
    them one. Inputs that are not in the path are members of the body, or of the query of a GET or DELETE; `page:
    PageQuery` makes it a paged list. An answer that `shows_secret` is not stored for an Idempotency-Key. `stream`
    answers requests that accept its `media_types`. `noun` is the first part of the id, by default the name of the
    module. An operation with a form and no endpoint names the `scope` that an endpoint would need.

    One that changes something names what it `audits`, such as `fee.set`, or several of which it does one; by default
    these are the words of its command. A call that has changed something leaves this row in the audit log, with the
    names in the path as its object and the other arguments as details, unless the rule has recorded it with others.
    An irregular verb is `told` as what was done to its noun, such as `froze the`. One that `carries` over what a
    restore brings back, by its name, has its kind (`operator/store/restored_rights.py`) and what such are called.
    """

    request: str = ""
    shows: Shape | None = None
    command: CommandLine | None = None
    listing: Listing | None = None
    form: OperationForm | None = None
    noun: str = ""
    scope: str = ""
    audits: str = ""
    told: str = ""
    carries: tuple[str, str] | None = None
    shows_secret: bool = False
    stream: Callable[..., Any] | None = None
    media_types: Sequence[str] = ()
    function: Any = None  # the rule, once it is known

    def __call__(self, function: F) -> F:
        assert self.scopes or self.form is None, f"{function.__name__} has a form, so it needs a scope"
        made = msgspec.structs.replace(self, function=function)
        if made.changes:
            assert self.actions, f"{function.__name__} changes something, so it must say what it audits"
            rule = partial(made.recorded_steps if made.is_async else made.recorded)
            function = cast(F, update_wrapper(rule, made.function))
        _DECLARED[function] = msgspec.structs.replace(made, function=function)
        return function

    def recorded(self, work: Work, *args: object, **given: object) -> Any:
        """Runs the rule of one unit, and writes the row of the audit log."""
        return self._record(work, partial(self.function, work, *args, **given), args, given)

    async def recorded_steps(self, call: Units, *args: object, **given: object) -> Any:
        """Runs the rule of several units, the first of which that changes something writes the row."""

        def once(work: Work, unit: Callable[[Work], object]) -> tuple[object, bool]:
            found = self._record(work, partial(unit, work), args, given)
            return found, work.recorded > 0

        return await self.function(_Recording(call, once), *args, **given)

    def _record(self, work: Work, run: Callable[[], T], args: Sequence[object], given: Mapping[str, object]) -> T:
        recorded, before = work.recorded, count_changes(work)
        found = run()
        if work.recorded == recorded and count_changes(work) != before:
            bound = signature(self.function).bind(None, *args, **given)
            bound.apply_defaults()
            named = bound.arguments
            names = self.segments or [*self.inputs][:1]
            own = {names[0]: self.shows.member} if self.shows and self.shows.member else {}
            about = (str(getattr(found, own.get(name, name), named[name])) for name in names)
            details = {
                self.wire_names[one.name]: named[one.name]
                for one in self.inputs.values()
                if one.name not in names and not one.is_secret and named[one.name] not in NOTHING
            }
            audit.record(work, self.actions[0], " ".join(about), **details)
        return found

    @cached_property
    def method(self) -> str:
        return self.request.partition(" ")[0]

    @property
    def path(self) -> str:
        """The path of the endpoint below ADMIN_API, with parameters in braces."""
        return self.request.split()[1] if self.request else ""

    @property
    def list_url(self) -> str:
        """The path of the page of its list."""
        return (self.listing and self.listing.page) or self.path

    @cached_property
    def scopes(self) -> Sequence[str]:
        """What a key needs for the endpoint, or would need."""
        return self.request.split()[2:] or self.scope.split()

    @property
    def id(self) -> str:
        """Such as `assets.set_fee`; clients see it, so it stays if the rule moves to another module."""
        return f"{self.noun or self.function.__module__.rpartition('.')[2]}.{self.function.__name__}"

    @cached_property
    def because(self) -> str:
        """Why the form asks for the password again; "" if it does not."""
        if self.form is None or self.form.unasked:
            return ""
        parts = [part for one in self.scopes for part in one.split("|")]
        return self.form.because or next((STAKES[one] for one in parts if one in STAKES), "")

    @property
    def docstring(self) -> str:
        return getdoc(self.function) or ""

    @property
    def summary(self) -> str:
        return self.docstring.partition("\n")[0]

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        return get_type_hints(self.function, include_extras=True)

    def sentences(self, thing: object) -> Sequence[str]:
        """What the form will do with the thing: by default what the docstring says."""
        will = self.form.will if self.form else ()
        will = will(thing) if callable(will) else will
        return [will] if isinstance(will, str) else will or self.docstring.split("\n\n")

    @property
    def takes_json(self) -> bool:
        return self.method in {"POST", "PUT", "PATCH"}

    @property
    def status(self) -> int:
        return 201 if self.method == "POST" else 200

    @property
    def only_reads(self) -> bool:
        return self.method == "GET" or self.listing is not None

    @cached_property
    def changes(self) -> bool:
        """Whether it changes what operators should know of: all but what lists, or has only scopes to read."""
        reads = self.scopes and all(one.endswith(":read") for one in self.scopes)
        return not (self.only_reads or reads)

    @cached_property
    def actions(self) -> Sequence[str]:
        """What it does, in the words of the audit log."""
        words = self.command.words.replace("-", "_").split()[:2] if self.command else []
        return self.audits.split() or [".".join(words)] * bool(words)

    @cached_property
    def is_async(self) -> bool:
        """Whether it takes several units of work, and so gets a `call` instead of one."""
        return iscoroutinefunction(self.function)

    @cached_property
    def is_paged(self) -> bool:
        return "page" in self.hints

    @cached_property
    def inputs(self) -> Mapping[str, Input]:
        """The parameters by name, without the unit of work, the call and the page."""
        return inputs_of(self.function, "work", "call", "page")

    @cached_property
    def segments(self) -> Sequence[str]:
        """The names of the parameters in the path."""
        return re.findall(r"{(\w+)}", self.path or (self.form.url if self.form else ""))

    @cached_property
    def struct(self) -> type[msgspec.Struct] | None:
        """The struct of the body, or of the query of a GET or DELETE; None if there are no parameters for it."""
        rest = [one for one in self.inputs.values() if one.name not in self.segments and not one.is_of_people]
        base = Body if self.takes_json else Query
        if not rest and base is Query:
            return None
        return msgspec.defstruct(
            "".join(word.capitalize() for word in re.split(r"[._]", self.id)),
            [(one.name, one.kind, one.member) for one in rest],
            bases=(base,),
            namespace={"__repr__": lambda self: f"{type(self).__name__}(...)"},  # some have secrets
            frozen=True,
            kw_only=True,
        )

    @cached_property
    def wire_names(self) -> Mapping[str, str]:
        """The names of the inputs as clients know them: `expiresAt`."""
        named = {one.name: one.encode_name for one in msgspec.structs.fields(self.struct)} if self.struct else {}
        return {name: named.get(name, name) for name in self.inputs}

    @cached_property
    def decoder(self) -> msgspec.json.Decoder[Any]:
        return msgspec.json.Decoder(self.struct or Body)

    def read(self, typed: Mapping[str, object]) -> dict[str, object]:
        """The arguments of what was typed in a command or a form, where a number is a text. Raises InvalidRequest, in
        the words of the API, for one that breaks a bound of its type."""
        arguments = {}
        for name, value in typed.items():
            if self.inputs[name].type is int and WHOLE.fullmatch(str(value)) is None:  # msgspec takes 1e2
                raise InvalidRequest(f"{value!r} is not a whole number", field=self.wire_names[name])
            try:
                arguments[name] = msgspec.convert(value, self.inputs[name].kind, strict=False)
            except msgspec.ValidationError as error:
                raise broken_rule(error, self.wire_names[name]) from error
        return arguments

    @cached_property
    def answer_type(self) -> Any:
        if self.shows is None or self.shows.show is None:
            return self.hints["return"]
        shown: Any = get_type_hints(self.shows.show)["return"]
        many: Any = Page if self.is_paged else List
        return many[shown] if self.is_paged or self.listing else shown

    def run(self, work: Work, given: Mapping[str, object]) -> Any:
        """Calls the rule, and returns its result in the form of the answer."""
        found = self.function(work, **given)
        if self.shows is None or self.shows.show is None:
            return found
        show = partial(self.shows.show, work)
        if self.is_paged:
            return page_of(found, show)
        return List(result=[show(one) for one in found]) if self.listing else show(found)


class _Recording:
    """The `call` of an operation of several units: `once` runs its units that write, until one has left a row."""

    def __init__(self, call: Units, once: Callable[[Work, Callable[[Work], object]], tuple[object, bool]]) -> None:
        self._call = call
        self._once = once
        self._is_recorded = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    async def write(self, unit: Callable[[Work], Any]) -> Any:
        if self._is_recorded:
            return await self._call.write(unit)
        found, self._is_recorded = await self._call.write(lambda work: self._once(work, unit))
        return found


_DECLARED: Final[dict[DeclaredRule, Operation]] = {}
operation: Final = Operation


@cache
def declared(*modules: str) -> Sequence[Operation]:
    """The operations of these modules, such as `wallets`, in their order; without arguments, those of all nouns."""
    found = modules or [module for noun in NOUNS for module in noun.modules.split()]
    names = [f"payres.operator.{module}" for module in found]
    for name in names:
        import_module(name)
    return [one for name in names for one in _DECLARED.values() if one.function.__module__ == name]


def operation_of(function: DeclaredRule) -> Operation:
    return _DECLARED[function]
