"""Cursor pages: newest first by id, walked with an index and never an offset.

A cursor is a position, the id of a resource; it keeps working when its own resource is not in the list.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from payres.store.rows import R, Table
from payres.store.work import Transaction


class PageQuery(msgspec.Struct, frozen=True):
    """Which page: `count` items `older` or `newer` than the cursor, the newest ones when there is none."""

    count: int
    cursor: str | None = None
    towards: Literal["older", "newer"] = "older"


class PageBounds(msgspec.Struct, frozen=True):
    """Whether the list goes on beyond the page, on the older and the newer side."""

    has_older: bool
    has_newer: bool


AFTER_ALL: Final = "~"  # sorts after every UUID and every number
EVERY: Final[Mapping[str, Any]] = {}


def select_page(
    tx: Transaction, table: Table[R], query: PageQuery, conditions: Mapping[str, Any] = EVERY
) -> tuple[Sequence[R], PageBounds]:
    """Rows under these conditions, each SQL with one `?` and its value, newest first by the first column."""
    key = table.key
    source, values = f"{table.source} WHERE {''.join(f'{one} AND ' for one in conditions)}", [*conditions.values()]
    older = query.towards == "older" or query.cursor is None
    comparison, order = ("<", "DESC") if older else (">", "ASC")
    cursor = AFTER_ALL if query.cursor is None else query.cursor
    rows = tx.execute(
        f"SELECT {table.columns} FROM {source}{key} {comparison} ? ORDER BY {key} {order} LIMIT ?",
        [*values, cursor, query.count + 1],
    ).fetchall()
    page, more = rows[: query.count], len(rows) > query.count
    # Beyond the other edge: what comes before the page's first row, or from the cursor on when the page is empty.
    other = f"{'>' if older else '<'}{'' if page else '='}"
    beyond = query.cursor is not None and bool(  # there is nothing newer than the newest
        tx.execute(
            f"SELECT EXISTS (SELECT 1 FROM {source}{key} {other} ?)", [*values, page[0][0] if page else cursor]
        ).fetchone()[0]
    )
    records = [table.record(row) for row in (page if older else page[::-1])]
    has_older, has_newer = (more, beyond) if older else (beyond, more)
    return records, PageBounds(has_older, has_newer)


def of_client(wallet_id: int, client_id: int | None) -> dict[str, int]:
    """The conditions of a wallet's rows: of one client's own when client_id is given."""
    conditions = {"wallet_address_id = ?": wallet_id}
    return conditions if client_id is None else conditions | {"client_id = ?": client_id}
