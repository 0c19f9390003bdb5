"""Rows as structs: a record's fields name its table's columns, so that each column is written once.

Also cursor pagination: newest first by id, using an index, never an offset. A cursor is the id of a resource; it works
even if that resource is not in the list.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from payres.core.protocol.clock import CORRECTION
from payres.core.store.work import Damaged, Transaction

R = TypeVar("R", bound=msgspec.Struct)
Row = Sequence[Any]
AFTER_ALL: Final = "~"  # sorts after every UUID and every number
EVERY: Final[Mapping[str, Any]] = {}


class Embedded(NamedTuple):
    """A field that is stored in several columns: their names, and how to read and write them."""

    columns: Sequence[str]
    read: Callable[[Row], Any]
    write: Callable[[Any], Row]


def json_column(name: str) -> Embedded:
    """A column of JSON text."""
    return Embedded(
        [name], lambda row: msgspec.json.decode(row[0]), lambda value: [msgspec.json.encode(value).decode()]
    )


class Rows:
    """The rows of a table, by what some of its columns are equal to."""

    def __init__(self, table: str) -> None:
        self.table: Final = table

    def create(self, tx: Transaction, **values: object) -> int:
        """Inserts a row with these columns. Returns its id."""
        return insert_row(tx, self.table, **values)

    def delete(self, tx: Transaction, **equal: object) -> int:
        """Deletes the rows with these columns. Returns how many."""
        return tx.execute(f"DELETE FROM {self.table} WHERE {_equal(equal)}", (*equal.values(),)).rowcount

    def count(self, tx: Transaction, **equal: object) -> int:
        """How many rows have these columns."""
        return number(tx, f"SELECT count(*) FROM {self.table} WHERE {_equal(equal)}", *equal.values())


class Table(Rows, Generic[R]):
    """The SQL of a record, built once. The columns are in the order of the fields, so a row converts directly.

    `source` is the table or join to read from; `prefix` qualifies the columns of fields not named in `columns`. At most
    one field is Embedded.
    """

    def __init__(
        self, record: type[R], source: str, prefix: str = "", key: str = "", **columns: str | Embedded
    ) -> None:
        super().__init__(source.partition(" ")[0])
        self._record = record
        self._embedded: tuple[slice, Embedded] | None = None
        names: list[str] = []
        for field in msgspec.structs.fields(record):
            column = columns.get(field.name, prefix + field.name)
            if isinstance(column, Embedded):
                self._embedded = slice(len(names), len(names) + len(column.columns)), column
                names += column.columns
            else:
                names.append(column)
        self.columns = ", ".join(names)
        self.width = len(names)
        self.source, self._prefix = source, prefix
        self.key = key or names[0]
        self._select = f"SELECT {self.columns} FROM {source} "
        self._lookups: dict[tuple[str, ...], str] = {}  # built once for each choice of columns
        self._into = f"INTO {source} ({self.columns}) VALUES ({', '.join('?' * len(names))})"

    def record(self, row: Row) -> R:
        """The record of a full row."""
        if self._embedded is None:
            return self._record(*row)
        place, embedded = self._embedded
        return self._record(*row[: place.start], embedded.read(row[place]), *row[place.stop :])

    def values(self, record: R) -> Row:
        """The values of all columns."""
        values = msgspec.structs.astuple(record)
        if self._embedded is None:
            return values
        place, embedded = self._embedded
        return (*values[: place.start], *embedded.write(values[place.start]), *values[place.start + 1 :])

    def find(self, tx: Transaction, where: str = "", /, *values: object, **equal: object) -> R | None:
        """The first row with these columns; or `where` is everything after the source: conditions, order, limit."""
        row = tx.execute(self._select + where if where else self._by(equal), values or (*equal.values(),)).fetchone()
        return self.record(row) if row else None

    def get(self, tx: Transaction, row_id: int | str | bytes) -> R | None:
        """The row with this key."""
        return self.find(tx, f"WHERE {self.key} = ?", row_id)

    def by_id(self, tx: Transaction, row_id: int | str) -> R:
        """The row with this key. Raises Damaged if missing: ids come from rows that refer to this one."""
        record = self.get(tx, row_id)
        if record is None:
            raise Damaged(f"{self.table} {row_id} does not exist")
        return record

    def list(self, tx: Transaction, where: str = "", /, *values: object, **equal: object) -> Sequence[R]:
        """The rows with these columns, by their keys; `where` as in `find`."""
        statement = self._select + where if where else f"{self._by(equal)} ORDER BY {self.key}"
        return [self.record(row) for row in tx.execute(statement, values or (*equal.values(),))]

    def _by(self, equal: Iterable[str]) -> str:
        columns = (*equal,)
        if columns not in self._lookups:
            where = f"WHERE {_equal(columns, self._prefix)}" if columns else ""
            self._lookups[columns] = f"{self._select}{where}"
        return self._lookups[columns]

    def insert(self, tx: Transaction, record: R) -> None:
        """Inserts a row."""
        tx.execute(f"INSERT {self._into}", self.values(record))

    def replace(self, tx: Transaction, record: R) -> None:
        """Inserts a row, replacing the one with its key."""
        tx.execute(f"INSERT OR REPLACE {self._into}", self.values(record))

    def update(self, tx: Transaction, row_id: int | str, **values: object) -> None:
        """Sets columns of the row with this key."""
        columns, key = ", ".join(f"{column} = ?" for column in values), self.key.rpartition(".")[2]
        tx.execute(f"UPDATE {self.table} SET {columns} WHERE {key} = ?", (*values.values(), row_id))


def find_number(tx: Transaction, sql: str, *values: object) -> int | None:
    """The first number of a query; None if there is no row, or it is NULL."""
    row = tx.execute(sql, values).fetchone()
    return None if row is None else row[0]


def number(tx: Transaction, sql: str, *values: object) -> int:
    """The first number of a query; 0 if there is no row, or it is NULL."""
    return find_number(tx, sql, *values) or 0


def halves(amounts: str) -> tuple[str, str]:
    """SQL for the upper and lower halves of a sum: SQLite cannot sum beyond 2^63."""
    return f"coalesce(sum(({amounts}) >> 32), 0)", f"coalesce(sum(({amounts}) & 4294967295), 0)"


def lasting(column: str, now: int, lifetime: int | str) -> tuple[str, tuple[int, int]]:
    """`lasts` of a column, as an SQL condition with its parameters; the lifetime may be an expression of the row. For a
    column with the time from which something lasts, `now` is less by the lifetime."""
    return f"({column} > ? AND {column} <= ? + {lifetime})", (now, now + CORRECTION)


def first_row_from(tx: Transaction, table: str, key: str, moment: int) -> int:
    """The key of the first row at a time (microseconds) or later; the last key plus one if there is none.

    For tables whose keys rise with `created_at`. A binary search, which reads a few tens of rows.
    """
    # Two statements: for a plain min() and max() SQLite may scan the whole table.
    ends = f"SELECT {key} FROM {table} WHERE {key} > 0 ORDER BY {key}"
    first, end = number(tx, f"{ends} LIMIT 1") or 1, number(tx, f"{ends} DESC LIMIT 1") + 1
    while first < end:
        middle = (first + end) // 2
        found, time = tx.execute(
            f"SELECT {key}, created_at FROM {table} WHERE {key} >= ? ORDER BY {key} LIMIT 1", (middle,)
        ).fetchone()
        first, end = (found + 1, end) if time < moment else (first, middle)
    return first


def insert_row(tx: Transaction, table: str, **values: object) -> int:
    """Inserts a row with these columns. Returns its id."""
    cursor = tx.execute(_insertion(table, tuple(values)), tuple(values.values()))
    assert cursor.lastrowid is not None
    return cursor.lastrowid


def _equal(columns: Iterable[str], prefix: str = "") -> str:
    return " AND ".join(f"{prefix}{column} = ?" for column in columns)


@cache
def _insertion(table: str, columns: tuple[str, ...]) -> str:
    return f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


class PageQuery(msgspec.Struct, frozen=True):
    """A page request: `count` items `older` or `newer` than the cursor, or the newest without one."""

    count: int
    cursor: str | None = None
    towards: Literal["older", "newer"] = "older"


class PageBounds(msgspec.Struct, frozen=True):
    """Whether there are rows beyond the page on either side."""

    has_older: bool
    has_newer: bool


def select_page(
    tx: Transaction, table: Table[R], query: PageQuery, conditions: Mapping[str, Any] = EVERY
) -> tuple[Sequence[R], PageBounds]:
    """A page of the rows that satisfy the conditions (SQL, and the value of its `?` or a tuple of several; None
    permits all), newest first by key."""
    key, values = table.key, list[object]()
    given = {sql: value for sql, value in conditions.items() if value is not None}
    for value in given.values():
        values += value if isinstance(value, tuple) else (value,)
    source = f"{table.source} WHERE {''.join(f'{one} AND ' for one in given)}"
    older = query.towards == "older" or query.cursor is None
    comparison, order = ("<", "DESC") if older else (">", "ASC")
    cursor = AFTER_ALL if query.cursor is None else query.cursor
    rows = tx.execute(
        f"SELECT {table.columns} FROM {source}{key} {comparison} ? ORDER BY {key} {order} LIMIT ?",
        [*values, cursor, query.count + 1],
    ).fetchall()
    page, more = rows[: query.count], len(rows) > query.count
    # Whether there are rows on the other side: before the page's first row, or from the cursor on if the page is empty.
    other = f"{'>' if older else '<'}{'' if page else '='}"
    beyond = query.cursor is not None and bool(  # nothing is newer than the newest
        tx.execute(
            f"SELECT EXISTS (SELECT 1 FROM {source}{key} {other} ?)", [*values, page[0][0] if page else cursor]
        ).fetchone()[0]
    )
    records = [table.record(row) for row in (page if older else page[::-1])]
    has_older, has_newer = (more, beyond) if older else (beyond, more)
    return records, PageBounds(has_older, has_newer)


def page_of_wallet(
    tx: Transaction, table: Table[R], query: PageQuery, wallet_id: int, client_id: int | None
) -> tuple[Sequence[R], PageBounds]:
    """A page of a wallet's rows; with client_id, only that client's."""
    return select_page(tx, table, query, {"wallet_address_id = ?": wallet_id, "client_id = ?": client_id})
