"""SQL of the figures for `payres status`."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from payres.core.protocol.clock import DAY, lasting
from payres.core.protocol.limits import MAX_MISSING_RATES
from payres.core.store.rows import find_number, number
from payres.core.store.work import Transaction, Work

MISSING_RATES_KEPT: Final = 7 * DAY


class LedgerSum(NamedTuple):
    """The total balance of one asset and kind of account, in the asset's minor unit, and how many accounts it is of."""

    asset_code: str
    asset_scale: int
    kind: str
    balance: int
    accounts: int


class CreatedCounts(NamedTuple):
    """The number of payments created in a period, and how many outgoing ones failed."""

    incoming_payments: int
    outgoing_payments: int
    failed: int


def ledger_sums(tx: Transaction) -> Sequence[LedgerSum]:
    """Balances by asset and kind. Added in Python, because the sum may exceed SQLite's integers."""
    sums, counts = Counter[tuple[str, int, str]](), Counter[tuple[str, int, str]]()
    for code, scale, kind, balance in tx.execute(
        "SELECT s.code, s.scale, a.kind, a.balance FROM account a JOIN asset s ON s.id = a.asset_id"
        " ORDER BY s.code, s.scale, a.kind"
    ):
        sums[code, scale, kind] += balance
        counts[code, scale, kind] += 1
    return [LedgerSum(*key, balance, counts[key]) for key, balance in sums.items()]


def count_payments_since(tx: Transaction, first_id: str) -> CreatedCounts:
    """Counts the payments with this id or a higher one."""
    incoming = number(tx, "SELECT count(*) FROM incoming_payment WHERE id >= ?", first_id)
    outgoing = tx.execute(
        "SELECT count(*), count(*) FILTER (WHERE state = 'failed') FROM outgoing_payment WHERE id >= ?", (first_id,)
    ).fetchone()
    return CreatedCounts(incoming, *outgoing)


def last_backup(tx: Transaction, now: int) -> int | None:
    """When the last backup was made, not counting those of a clock that was ahead."""
    backups = "FROM audit WHERE action = 'database.backup' AND created_at <= ?"
    return find_number(tx, f"SELECT created_at {backups} ORDER BY id DESC LIMIT 1", now)


def maker_of_backup(tx: Transaction, path: str) -> str | None:
    """Who made the backup with this path, if the audit log says so."""
    sql = "SELECT actor FROM audit WHERE action = 'database.backup' AND object = ? ORDER BY id DESC LIMIT 1"
    row = tx.execute(sql, (path,)).fetchone()
    return None if row is None else str(row[0])


def last_restore(tx: Transaction) -> int | None:
    sql = "SELECT created_at FROM audit WHERE action = 'database.restore' ORDER BY id DESC LIMIT 1"
    return find_number(tx, sql)


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


def note_missing_rates(work: Work, pairs: Iterable[tuple[str, str]]) -> None:
    """Stores that somebody wanted to pay between these currencies, which have no valid rate, and deletes what is old,
    of a clock that was ahead, or beyond the limit."""
    rows = [(*pair, work.now) for pair in pairs]
    work.executemany("INSERT OR REPLACE INTO missing_rate (base_code, counter_code, asked_at) VALUES (?, ?, ?)", rows)
    is_recent, times = lasting("asked_at", work.now - MISSING_RATES_KEPT, MISSING_RATES_KEPT)
    kept = (
        f"SELECT base_code, counter_code FROM missing_rate WHERE {is_recent} ORDER BY base_code IN"
        " (SELECT code FROM asset) AND counter_code IN (SELECT code FROM asset) DESC, asked_at DESC LIMIT ?"
    )
    work.execute(
        f"DELETE FROM missing_rate WHERE (base_code, counter_code) NOT IN ({kept})", (*times, MAX_MISSING_RATES)
    )


def missing_rates(work: Work) -> Sequence[tuple[str, str]]:
    """The pairs that somebody wanted to pay between lately without a valid rate; some have one by now. Those of the
    last seconds follow: a page and a command say the same."""
    is_recent, times = lasting("asked_at", work.now - MISSING_RATES_KEPT, MISSING_RATES_KEPT)
    return work.execute(f"SELECT base_code, counter_code FROM missing_rate WHERE {is_recent}", times).fetchall()


def first_transfer(tx: Transaction) -> int | None:
    """When money was first moved."""
    return find_number(tx, "SELECT created_at FROM transfer WHERE id > 0 ORDER BY id LIMIT 1")


def low_liquidity(tx: Transaction) -> Sequence[tuple[str, int, int]]:
    """Code, scale and balance, in the minor unit, of each liquidity account that is low."""
    return tx.execute(
        "SELECT s.code, s.scale, a.balance FROM asset s JOIN account a ON a.asset_id = s.id"
        " WHERE a.kind = 'liquidity' AND a.warned = 1 ORDER BY s.code, s.scale"
    ).fetchall()


class Takeover(NamedTuple):
    """Another server was found at the base URL, with a later state of this database: its `restored_at`."""

    found_at: int
    base_url: str
    restored_at: str


def takeover(tx: Transaction) -> Takeover | None:
    """The last takeover in the audit log since the database was last restored."""
    row = tx.execute(
        "SELECT created_at, object, details ->> 'restoredAt' FROM audit WHERE action = 'database.superseded'"
        " AND created_at >= ? ORDER BY id DESC LIMIT 1",
        (last_restore(tx) or 0,),
    ).fetchone()
    return None if row is None else Takeover(*row)


def count_sending(tx: Transaction) -> int:
    """Outgoing payments to other servers in flight."""
    return number(tx, "SELECT count(*) FROM outgoing_payment WHERE state = 'sending'")
