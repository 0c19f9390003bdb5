"""Tables: columns over the structs of the operator's API, shown in a page or written as CSV."""

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from payres.grants.wording import visible_text

GOOD: Final = frozenset({"active", "completed", "valid", "issued", "approved", "fulfilled"})
BAD: Final = frozenset({"failed", "revoked", "denied", "inactive", "doubtful", "unresolved"})
# What a spreadsheet would take for a formula (OWASP, CSV injection).
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


Kind = Literal["text", "long", "number", "time", "code", "state"]


class Cell(msgspec.Struct, frozen=True):
    """A value: its text as in CSV, what it is, and the page that it leads to. A `long` text may be broken anywhere."""

    text: str
    kind: Kind = "text"
    link: str | None = None

    @property
    def shown(self) -> str:
        """The text as a page has it: digits in groups, times to the second."""
        if self.kind == "number":
            sign, digits = ("−", self.text[1:]) if self.text.startswith("-") else ("", self.text)
            whole, point, decimals = digits.partition(".")
            return f"{sign}{int(whole):,}{point}{decimals}" if whole.isdecimal() else self.text
        return f"{self.text[:10]} {self.text[11:19]}" if self.kind == "time" else visible_text(self.text)

    @property
    def written(self) -> str:
        """The text as CSV has it."""
        if self.kind in {"number", "time"}:
            return self.text
        return f"'{self.shown}" if self.shown.startswith(FORMULA) else self.shown

    @property
    def tone(self) -> str:
        """Of a state."""
        return "good" if self.text in GOOD else "bad" if self.text in BAD else "plain"


class Column(NamedTuple):
    """A heading, and what a row has under it."""

    heading: str
    cell: Callable[[Any], Cell]


class Table(NamedTuple):
    """`none` stands for a table without rows."""

    name: str
    headings: Sequence[Cell]
    rows: Sequence[Sequence[Cell]]
    none: str


def make_table(name: str, columns: Sequence[Column], records: Iterable[Any], none: str) -> Table:
    """The table of these records."""
    rows = [[column.cell(one) for column in columns] for one in records]
    kinds = [cell.kind for cell in rows[0]] if rows else ["text"] * len(columns)
    headings = [
        Cell(column.heading, "number" if kind == "number" else "text")
        for column, kind in zip(columns, kinds, strict=True)
    ]
    return Table(name, headings, rows, none)


def as_csv(table: Table) -> str:
    """The table with its headings (RFC 4180)."""
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow(heading.text for heading in table.headings)
    writer.writerows([cell.written for cell in row] for row in table.rows)
    return file.getvalue()


def text(name: str) -> Callable[[Any], Cell]:
    """A field of the struct; nothing for None."""
    return lambda one: Cell(_text(getattr(one, name)))


def long(name: str) -> Callable[[Any], Cell]:
    """A field of any length, such as a URL."""
    return lambda one: Cell(_text(getattr(one, name)), "long")


def number(name: str) -> Callable[[Any], Cell]:
    return lambda one: Cell(_text(getattr(one, name)), "number")


def time(name: str) -> Callable[[Any], Cell]:
    return lambda one: Cell(_text(getattr(one, name)), "time" if getattr(one, name) else "text")


def code(name: str) -> Callable[[Any], Cell]:
    """An identifier, or another text of machines."""
    return lambda one: Cell(_text(getattr(one, name)), "code")


def state(one: Any) -> Cell:
    return Cell(one.state, "state")


def linked(section: str, name: str | None, kind: Kind = "long") -> Cell:
    """The name of a thing with a page of its own; nothing for None."""
    return Cell("", kind) if name is None else Cell(name, kind, page_of(section, name))


def page_of(*names: str) -> str:
    """The page of a thing, which a section and its name lead to."""
    return "/".join(["/admin", *(quote(name, safe="") for name in names)])


def _text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else str(value)
