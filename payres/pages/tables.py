"""Tables: columns over the structs of the operator's API, shown in a page or written as CSV."""

import csv
import io
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from payres.grants.wording import visible_text

GOOD: Final = frozenset({"active", "completed", "valid", "issued", "approved", "fulfilled"})
BAD: Final = frozenset({"failed", "revoked", "denied", "inactive", "doubtful", "unresolved"})
# What a spreadsheet would take for a formula (OWASP, CSV injection).
FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
_WHOLE: Final = re.compile("[0-9]+")


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
            sign, number = ("−", self.text[1:]) if self.text.startswith("-") else ("", self.text)
            whole = _WHOLE.match(number)
            return f"{sign}{int(whole[0]):,}{number[whole.end() :]}" if whole else self.text
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
    """A heading, and what a row has under it: a field of its struct, or what a function makes of it. With a `section`,
    the field is the name of a thing that has a page there."""

    heading: str
    value: str | Callable[[Any], Cell]
    kind: Kind = "text"
    section: str | None = None

    def cell(self, row: Any) -> Cell:
        """What the row has under the heading."""
        if not isinstance(self.value, str):
            return self.value(row)
        return cell_of(getattr(row, self.value), self.kind, self.section)


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


def facts_of(columns: Iterable[Column], record: Any) -> Sequence[tuple[str, Cell]]:
    """What a page says of one record."""
    return [(column.heading, column.cell(record)) for column in columns]


def cell_of(value: object, kind: Kind = "text", section: str | None = None) -> Cell:
    """Nothing for None; the texts of a list with spaces between. With a `section`, it names what has a page there."""
    if value is None or value == "":
        return Cell("", "text" if kind == "time" else kind)
    text = " ".join(value) if isinstance(value, list | tuple) else str(value)
    return Cell(text, kind, path_of(section, text) if section else None)


def path_of(*names: str) -> str:
    """The path of the page of a thing: a section, then the names that lead to it."""
    return "/".join(["/admin", *(quote(name, safe="") for name in names)])
