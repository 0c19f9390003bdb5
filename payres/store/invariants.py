"""Invariants in SQL, and the queries of their check; `payres.store.ledger_invariants` has those of the money.

Every query is one scan, or one scan with lookups by index. Those over tables that grow with each payment are asked a
range of keys at a time, so that no transaction is long.
"""

from collections.abc import Sequence

import msgspec

from payres.store.work import Transaction

MAX_BREACHES = 5

Key = int | str | bytes


class Invariant(msgspec.Struct, frozen=True):
    """An invariant in words, the SQL that counts the rows it is about, and the SQL that describes what breaks it.

    When `breaches` is about the rows from :first to :last, `keys` is the table and column of these, and `recent`
    selects those that were used lately.
    """

    name: str
    claim: str
    unit: str
    counted: str
    breaches: str
    keys: tuple[str, str] | None = None
    recent: str = ""


FILE = Invariant(
    name="file",
    claim="the file and its indexes are sound",
    unit="pages",
    counted="PRAGMA page_count",
    breaches="SELECT * FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
)


def breaches(tx: Transaction, invariant: Invariant, first: Key | None = None, last: Key | None = None) -> Sequence[str]:
    """The first few breaches, a sentence each, of an invariant without keys or among the rows from one to another."""
    limited = f"SELECT * FROM ({invariant.breaches}) LIMIT {MAX_BREACHES}"
    return [row[0] for row in tx.execute(limited, {"first": first, "last": last})]


def recent_breaches(tx: Transaction, invariant: Invariant) -> Sequence[str]:
    """The first few breaches of an invariant without keys, or among the rows that were used lately."""
    if invariant.keys is None:
        return breaches(tx, invariant)
    keys = [key for (key,) in tx.execute(invariant.recent)] if invariant.recent else []
    return [breach for key in keys for breach in breaches(tx, invariant, key, key)][:MAX_BREACHES]


def next_batch(tx: Transaction, keys: tuple[str, str], after: Key | None, rows: int) -> tuple[Key, Key] | None:
    """The first and the last key of the next rows after a key, or of the first rows; None when there are none."""
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
    """The id and balance of each account from one id to another."""
    return tx.execute("SELECT id, balance FROM account WHERE id BETWEEN ? AND ?", (first, last)).fetchall()


def reference_invariants(tx: Transaction) -> Sequence[Invariant]:
    """An invariant for each reference of the schema: that what it refers to exists. All are to one column."""
    # The keys are found once, not for each reference: SQLite would take ten times as long.
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
            unit="tables",
            counted="SELECT count(*) FROM sqlite_schema WHERE type = 'table'",
            breaches=f"""
                SELECT '{child} row ' || quote(c."{key}") || ' refers to a missing {parent}' FROM "{child}" c
                WHERE c."{key}" BETWEEN :first AND :last AND c."{column}" IS NOT NULL
                AND NOT EXISTS (SELECT 1 FROM "{parent}" p WHERE p."{parent_key}" = c."{column}")
            """,
            keys=(child, key),
        )
        for child, column, parent, parent_key, key in found
    ]
