"""Shapes: how operators see a thing, as labelled values that command text, pages and CSV are made from."""

import base64
import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cache, cached_property
from inspect import signature
from operator import attrgetter
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, get_args, get_type_hints
from urllib.parse import quote

import msgspec
from msgspec.structs import asdict

from payres.core.protocol.amounts import Asset, format_decimal
from payres.core.protocol.clock import format_time
from payres.core.protocol.errors import nothing_here
from payres.core.protocol.visible import visible_text
from payres.core.protocol.wire import Resource, encode
from payres.core.store.work import Work
from payres.html.exports import as_csv

MEBIBYTE: Final = 1024 * 1024
GIBIBYTE: Final = 1024 * MEBIBYTE
GOOD: Final = frozenset(
    {"active", "completed", "valid", "issued", "approved", "fulfilled", "delivered", "checked", "holds"}
)
BAD: Final = frozenset(
    {"failed", "revoked", "denied", "inactive", "disabled", "doubtful", "unresolved", "locked out", "broken"}
)
WAITING: Final = frozenset({"pending", "sending", "invited"})

_WHOLE: Final = re.compile("((?:[^ 0-9-][^ ]* )?)([0-9]+)")  # after a currency
_UUID: Final = re.compile("(?:[a-z]+_)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_URL: Final = re.compile(r"https?://([^/]+)/\S{24,}")
WIDE: Final = 12  # digits
LAST: Final = 8  # characters that identify a long id or URL when it is shortened
R = TypeVar("R", bound=Resource)
Time = Annotated[str, msgspec.Meta(extra={"is_time": True})]  # RFC 3339

# Pages show the time of a `second` to the second, which matters for packets and attempts.
CellKind = Literal["text", "long", "number", "time", "second", "code", "state", "secret"]
TIMES: Final = frozenset({"time", "second"})


class Cell(msgspec.Struct, frozen=True):
    """A value: its text, its kind, and the page that it links to. A `long` text may be broken anywhere. `unit` is the
    currency of an amount, if the text does not include it."""

    text: str
    kind: CellKind = "text"
    link: str | None = None
    unit: str = ""

    @property
    def is_wide(self) -> bool:
        """Whether an amount has so many digits that it needs a line of its own on a telephone."""
        return self.kind == "number" and sum(map(str.isdigit, self.text)) >= WIDE

    @property
    def shown(self) -> str:
        """The text on a page: digits in groups; times, exact, in UTC."""
        if self.kind == "number":
            sign, number = ("−", self.text[1:]) if self.text.startswith("-") else ("", self.text)
            whole = _WHOLE.match(number)
            return f"{sign}{whole[1]}{int(whole[2]):,}{number[whole.end() :]}" if whole else self.text
        return f"{self.text[:10]} {self.text[11:19]} UTC" if self.kind in TIMES else visible_text(self.text)

    @property
    def brief(self) -> str:
        """The text where space is short: the end of an id, and the host and the end of a long URL."""
        found = _UUID.fullmatch(self.text) or _URL.fullmatch(self.text)
        if not found:
            return self.shown
        return visible_text(f"{'' if found.re is _UUID else found[1]}…{self.text[-LAST:]}")

    @property
    def printed(self) -> str:
        """The text in the output of a command, and in CSV."""
        return self.text if self.kind == "number" or self.kind in TIMES else visible_text(self.text)

    @property
    def tone(self) -> str:
        """How a state is coloured."""
        tones = {"good": GOOD, "bad": BAD, "waiting": WAITING}
        return next((tone for tone, states in tones.items() if self.text in states), "plain")


Fact = tuple[str, Cell]


class Column(NamedTuple):
    """A label, and a value of each thing: a field, such as `state` or `payment.state`, or the result of a function.

    With a `section`, the value names a thing that has a page in that section. Lists only have columns that are
    `listed`: on pages, in commands and files, or in both. In lists on pages a column that `titles` has what its row is
    called, with the first column below it.
    """

    label: str
    value: str | Callable[[Any], Any]
    kind: CellKind = "text"
    section: str | None = None
    listed: bool | Literal["on pages", "in files"] = True
    titles: bool = False

    def cell(self, thing: object) -> Cell:
        """The value of a thing in this column: empty for None; for a list, its texts separated by spaces."""
        found = attrgetter(self.value)(thing) if isinstance(self.value, str) else self.value(thing)
        if isinstance(found, Cell):
            return found
        if found is None or found == "":
            return Cell("", "text" if self.kind in TIMES else self.kind)
        text = " ".join(found) if isinstance(found, list | tuple) else str(found)
        is_amount = self.kind == "number" and isinstance(found, str) and isinstance(self.value, str)
        unit = getattr(thing, "asset_code", "") if is_amount else ""
        return Cell(text, self.kind, path_of(self.section, text) if self.section else None, unit)


class Shape:
    """How operators see things of one kind: `show` turns a record of the store into the struct of an answer; None if
    rules return the struct.

    `read` finds the record by the names in the path of an endpoint or of its `page`, whose heading is its `name`. The
    first of these names is the `member` of the struct, if that is called otherwise. `undo` is the path of the form that
    takes back what made it. The members in `moving` change by themselves; the others make its ETag, with the stored
    `secrets` of the record. At least one of these is encrypted or salted, so that a digest gives none of them away. The
    pages of a thing that has ended lead to the list, which says that it is `gone`, if that is given.
    """

    def __init__(
        self,
        show: Callable[[Work, Any], Any] | None,
        *columns: Column,
        read: Callable[..., object] | None = None,
        page: str = "",
        name: Callable[[Any], str] | None = None,
        member: str = "",
        undo: str = "",
        moving: Collection[str] = (),
        gone: str = "",
        secrets: Callable[[Work, Any], Collection[bytes | str | None]] | None = None,
    ) -> None:
        self.show: Any = show
        self.columns = columns
        self.read = read
        self.page = page
        self.member = member
        self.undo = undo
        self.moving = moving
        self.gone = gone
        self.secrets = secrets
        self.name = name or (lambda thing: columns[0].cell(thing).text)

    @property
    def listed(self) -> Sequence[Column]:
        """The columns of a list in a command or a file."""
        return [column for column in self.columns if column.listed in {True, "in files"}]

    @property
    def on_pages(self) -> Sequence[Column]:
        """The columns of a list on a page."""
        return [column for column in self.columns if column.listed in {True, "on pages"}]

    @cached_property
    def names(self) -> Sequence[str]:
        """The parameters of `read`."""
        return [] if self.read is None else [*signature(self.read).parameters][1:]

    def names_of(self, thing: object) -> dict[str, Any]:
        """The members of a struct by which it is found, and the others."""
        members = members_of(thing)
        return members | ({self.names[0]: members[self.member]} if self.member in members else {})

    def find(self, work: Work, **names: object) -> Any:
        """The struct of the thing, which has its names among these, as texts. Raises NotFound."""
        return self.show(work, self.record(work, **names))

    def secrets_of(self, work: Work, **names: object) -> str:
        """A text that is another one after a secret of the thing was set; "" if it has none. Raises NotFound."""
        return digest_of(self.secrets(work, self.record(work, **names))) if self.secrets else ""

    def record(self, work: Work, **names: object) -> object:
        """The record of the thing. Raises NotFound."""
        assert self.read is not None
        kinds = get_type_hints(self.read, include_extras=True)  # with bounds: a number can be too large for SQLite
        try:
            found = {name: msgspec.convert(names[name], kinds[name], strict=False) for name in self.names}
        except msgspec.ValidationError as error:
            raise nothing_here() from error
        if any(str(value) != str(names[name]) for name, value in found.items()):  # msgspec takes 2.0 for 2
            raise nothing_here()
        return self.read(work, **found)

    def changes(self, before: object, after: object) -> Sequence[tuple[str, Cell, Cell]]:
        """The values that are not the same after."""
        rows = zip(facts_of(self.columns, before), facts_of(self.columns, after), strict=True)
        return [(label, was, now) for (label, was), (_, now) in rows if was != now]

    def text(self, thing: object) -> str:
        """A line for each value that is not empty, as a command prints them."""
        columns = [column for column in self.columns if column.listed != "on pages"]
        return labelled(*((label, cell.printed) for label, cell in facts_of(columns, thing) if cell.text))


def digest_of(value: object) -> str:
    """A short text that is the same for the same value, and for no other."""
    return base64.urlsafe_b64encode(hashlib.sha256(encode(value)).digest()[:18]).decode()


def members_of(thing: object) -> dict[str, Any]:
    """The members of a struct by name; none of what is no struct."""
    return asdict(thing) if isinstance(thing, msgspec.Struct) else {}


def represent(struct: type[R], *records: object, **made: object) -> R:
    """A struct from records: the members in `made`, and the others from the first record with a field of the same name,
    or of the name and `_id`; those that are a `Time` as texts, which they are in microseconds UTC."""
    for name, is_time in _members(struct).items():
        if name not in made:
            made[name] = next(getattr(one, key) for one in records for key in (name, f"{name}_id") if hasattr(one, key))
        if is_time and isinstance(at := made[name], int):
            made[name] = format_time(at)
    return struct(**made)


def decimals(asset: Asset, **amounts: int | None) -> dict[str, str | None]:
    """The amounts, in the minor unit, as texts in units of the asset; None stays."""
    return {name: None if one is None else format_decimal(one, asset) for name, one in amounts.items()}


@cache
def _members(struct: type[Resource]) -> Mapping[str, bool]:
    """The names of the members, and whether each is a `Time`."""
    return {one.name: Time in {one.type, *get_args(one.type)} for one in msgspec.structs.fields(struct)}


def fact(label: str, value: str | Callable[[Any], Any], kind: CellKind = "text", section: str | None = None) -> Column:
    """A column that is shown for a single thing, and not in lists."""
    return Column(label, value, kind, section, listed=False)


def facts_of(columns: Iterable[Column], thing: object) -> list[Fact]:
    return [(column.label, column.cell(thing)) for column in columns]


def path_of(*names: str) -> str:
    """The path of a page: a section, then the names of the thing."""
    return "/".join(["/admin", *(quote(name, safe="") for name in names)])


class DataTable(NamedTuple):
    """`none` is the text for a table without rows."""

    name: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    none: str

    @property
    def csv(self) -> str:
        return as_csv([[column.label for column in self.columns], *([one.printed for one in row] for row in self.rows)])

    @property
    def title(self) -> int | None:
        """The index of the column that titles the rows."""
        return next((n for n, column in enumerate(self.columns) if column.titles), None)

    @property
    def places(self) -> Sequence[tuple[int, str, str]]:
        """The columns from left to right on a page: the index of each, its label, and its place in the two lines that a
        row has on a telephone. First is what a row is called, `own` if that leads to the row's page. Right are the
        first amount, the first time and the state; `also` and `more` are below."""
        left = {"number": "number", "time": "when", "state": "state"}
        name = next((n for n, column in enumerate(self.columns) if not column.titles and column.kind not in TIMES), 0)
        found = [(name, self.columns[name], "own" if self.columns[name].section else "name")]
        for n, column in enumerate(self.columns):
            if n != name and not column.titles:
                kind = "time" if column.kind in TIMES else column.kind
                found.append((n, column, left.pop(kind, "also" if kind == "number" else "more")))
        return [(n, column.label.removesuffix(" (UTC)"), place) for n, column, place in found]


def make_table(name: str, columns: Sequence[Column], records: Iterable[object], none: str) -> DataTable:
    return DataTable(name, columns, [[column.cell(one) for column in columns] for one in records], none)


def labelled(*rows: tuple[str, object]) -> str:
    """One line a row: the label, and the value in an aligned column."""
    width = max(len(label) for label, _ in rows)
    return "\n".join(f"{label:<{width}}  {value}" for label, value in rows)


def format_size(count: int) -> str:
    """A number of bytes, such as `64.0 MiB`."""
    return f"{count / MEBIBYTE:,.1f} MiB" if count < GIBIBYTE else f"{count / GIBIBYTE:,.1f} GiB"
