"""The invariants of the database and the queries that check them. Those of tables stand in `invariants.sql` of the
stores of the core and of the parts, whichever has the uppermost of these tables. Also SQL of the last check's result.

Every query is one scan, at most with lookups by index. Queries over tables that grow with each payment take a range of
keys at a time, to keep transactions short.
"""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from payres.core.store.rows import find_number, halves, number
from payres.core.store.work import Transaction, Work

OWNERS: Final = ("core", "interledger", "operator")  # from the ground up
MAX_BREACHES: Final = 5
RECENT: Final = 1000

RowKey = int | str | bytes
Keys = tuple[str, str]
_ROWS = re.compile(r"^-- rows: (.+?) = (.+)$", re.MULTILINE)
_SECTION = re.compile(
    r"^-- (\w+): (.+)\n-- about ([^,\n]+)(?:, by (\w+)\.(\w+))?(?:, after (\w+))?\n((?:.+\n)+)", re.MULTILINE
)
_SUMS_TO = re.compile(r"sums_to\(([^,]+), ([^)]+)\)")


# Recently used keys. Each query reads from the end of a table, in constant time.
RECENTLY_USED: Final[dict[Keys, str]] = {
    ("transfer", "id"): f"SELECT id FROM transfer ORDER BY id DESC LIMIT {RECENT}",
    ("incoming_payment", "id"): f"""
        SELECT DISTINCT incoming_payment_id
        FROM (SELECT incoming_payment_id FROM transfer ORDER BY id DESC LIMIT {RECENT})
        WHERE incoming_payment_id IS NOT NULL
    """,
    ("outgoing_payment", "id"): f"SELECT id FROM outgoing_payment ORDER BY id DESC LIMIT {RECENT}",
    ("refund", "id"): f"SELECT id FROM refund ORDER BY id DESC LIMIT {RECENT}",
    ("refund", "incoming_payment_id"): f"SELECT incoming_payment_id FROM refund ORDER BY id DESC LIMIT {RECENT}",
    ("grant", "id"): f"""
        SELECT DISTINCT grant_id FROM (SELECT grant_id FROM outgoing_payment ORDER BY id DESC LIMIT {RECENT})
        WHERE grant_id IS NOT NULL
    """,
}


class Invariant(msgspec.Struct, frozen=True):
    """An invariant in words, the rows that it covers (one of ROWS), and the SQL that describes its breaches. If `sql`
    takes a range of rows, :first to :last, `keys` is their table and column."""

    name: str
    claim: str
    rows: str
    sql: str
    keys: Keys | None = None


def examined(tx: Transaction, invariant: Invariant) -> int:
    """How many rows the invariant covers."""
    return number(tx, ROWS[invariant.rows])


def breaches(
    tx: Transaction, invariant: Invariant, first: RowKey | None = None, last: RowKey | None = None
) -> Sequence[str]:
    """The first few breaches, a sentence each; with `first` and `last`, of an invariant with keys, in that range."""
    limited = f"SELECT * FROM ({invariant.sql}) LIMIT {MAX_BREACHES}"
    return [row[0] for row in tx.execute(limited, {"first": first, "last": last})]


def recent_breaches(tx: Transaction, invariant: Invariant) -> Sequence[str]:
    """The first few breaches, among recently used rows if the invariant has keys."""
    if invariant.keys is None:
        return breaches(tx, invariant)
    keys = [key for (key,) in tx.execute(RECENTLY_USED[invariant.keys])] if invariant.keys in RECENTLY_USED else []
    return [breach for key in keys for breach in breaches(tx, invariant, key, key)][:MAX_BREACHES]


def next_batch(tx: Transaction, keys: Keys, after: RowKey | None, rows: int) -> tuple[RowKey, RowKey] | None:
    """The first and last key of the next rows after a key, or of the first rows; None if there are none."""
    table, column = keys
    where = "" if after is None else "WHERE k > :after"
    first, last = tx.execute(
        f'SELECT min(k), max(k) FROM (SELECT "{column}" AS k FROM "{table}" {where} ORDER BY k LIMIT :rows)',
        {"after": after, "rows": rows},
    ).fetchone()
    return None if first is None else (first, last)


def transfers_after(tx: Transaction, transfer_id: int, rows: int) -> Sequence[tuple[int, int, int, int]]:
    """The next transfers: id, debited and credited account, amount."""
    return tx.execute(
        "SELECT id, debit_account_id, credit_account_id, amount FROM transfer WHERE id > ? ORDER BY id LIMIT ?",
        (transfer_id, rows),
    ).fetchall()


def balances(tx: Transaction, first: int, last: int) -> Sequence[tuple[int, int]]:
    """The id and balance of each account in a range of ids."""
    return tx.execute("SELECT id, balance FROM account WHERE id BETWEEN ? AND ?", (first, last)).fetchall()


def reference_invariants(tx: Transaction) -> Sequence[Invariant]:
    """An invariant for each foreign key of the schema: the referenced row exists. All have one column."""
    # The keys are collected once: SQLite would take ten times as long to find them for each reference.
    found = tx.execute("""
        WITH keyed AS MATERIALIZED (SELECT t.name AS "table", key.name AS key
          FROM sqlite_schema t JOIN pragma_table_info(t.name) key ON key.pk = 1 WHERE t.type = 'table')
        SELECT child."table", link."from", parent."table", coalesce(link."to", parent.key), child.key
        FROM keyed child JOIN pragma_foreign_key_list(child."table") link
        JOIN keyed parent ON parent."table" = link."table" COLLATE nocase
    """).fetchall()
    return [
        Invariant(
            name="references",
            claim="what rows refer to exists",
            rows="tables",
            sql=f"""
                SELECT '{child} row ' || quote(c."{key}") || ' refers to a missing {parent}' FROM "{child}" c
                WHERE c."{key}" BETWEEN :first AND :last AND c."{column}" IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM "{parent}" p WHERE p."{parent_key}" = c."{column}")
            """,
            keys=(child, key),
        )
        for child, column, parent, parent_key, key in found
    ]


def sums_to(terms: str, figure: str) -> str:
    """SQL: whether the exact sum of `terms` over a group is `figure`. An account's turnover may exceed 2^63, though not
    its balance; so the lower half of the sum is carried over to the upper."""
    high, low = halves(terms)
    return f"({high} + ({low} >> 32) = {figure} >> 32 AND {low} & 4294967295 = {figure} & 4294967295)"


def _read() -> tuple[Mapping[str, str], Sequence[Invariant]]:
    """The query that counts each kind of rows, and the invariants in the order of their check."""
    count, found = "SELECT count(*) FROM ", list[Invariant]()
    rows = {"pages": "SELECT page_count FROM pragma_page_count", "tables": f"{count}sqlite_schema WHERE type = 'table'"}
    for owner in OWNERS:
        text = (Path(__file__).parents[2] / owner / "store" / "invariants.sql").read_text(encoding="utf-8")
        rows |= {kind: count + source for kind, source in _ROWS.findall(text)}
        place = len(found)
        for name, claim, kind, table, column, after, sql in _SECTION.findall(text):
            if after:
                place = 1 + [one.name for one in found].index(after)
            sql = _SUMS_TO.sub(lambda macro: sums_to(macro[1], macro[2]), sql.rstrip().removesuffix(";"))
            found.insert(place, Invariant(name, claim, kind, sql, (table, column) if table else None))
            place += 1
    return rows, found


ROWS, LEDGER_INVARIANTS = _read()
FILE: Final = Invariant(
    name="file",
    claim="the file and its indexes are sound",
    rows="pages",
    sql="SELECT * FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
)


def last_check(tx: Transaction) -> int | None:
    """When the last check found all ledger invariants intact; None if it found a breach."""
    return find_number(tx, "SELECT checked_at FROM ledger_check WHERE broken IS NULL")


def broken_invariant(tx: Transaction) -> str | None:
    """The first broken invariant of the last check."""
    row = tx.execute("SELECT broken FROM ledger_check WHERE broken IS NOT NULL").fetchone()
    return None if row is None else str(row[0])


def note_check(work: Work, checked_at: int, broken: str | None = None) -> None:
    """Stores that all invariants held at a time, or the first that did not, unless a later check is stored. One that is
    stored with a time in the future was made while the clock was ahead, before this one."""
    work.execute(
        "INSERT INTO ledger_check (id, checked_at, broken) VALUES (1, ?, ?)"
        " ON CONFLICT (id) DO UPDATE SET checked_at = excluded.checked_at, broken = excluded.broken"
        " WHERE excluded.checked_at >= checked_at OR checked_at > ?",
        (checked_at, broken, work.now),
    )
