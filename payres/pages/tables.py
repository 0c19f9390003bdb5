"""Tables of a page, also as CSV."""

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from payres.operator.shapes import Cell, Column


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
        Cell(column.label, "number" if kind == "number" else "text")
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
