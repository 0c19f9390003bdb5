"""SQL of the figures for `payres status`."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from payres.core.protocol.wire import Resource
from payres.core.store.rows import find_number, number
from payres.core.store.work import Transaction


class LedgerSum(NamedTuple):
    """The total balance of one asset and kind of account, in the asset's minor unit, and how many accounts it is of."""

    asset_code: str
    asset_scale: int
    kind: str
    balance: int
    accounts: int


class PaymentCounts(Resource, frozen=True, kw_only=True):
    """What was created, and how many of the outgoing payments have failed."""

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


def count_payments_since(tx: Transaction, first_id: str) -> PaymentCounts:
    """Counts the payments with this id or a higher one."""
    incoming = number(tx, "SELECT count(*) FROM incoming_payment WHERE id >= ?", first_id)
    outgoing, failed = tx.execute(
        "SELECT count(*), count(*) FILTER (WHERE state = 'failed') FROM outgoing_payment WHERE id >= ?", (first_id,)
    ).fetchone()
    return PaymentCounts(incoming_payments=incoming, outgoing_payments=outgoing, failed=failed)


def first_transfer(tx: Transaction) -> int | None:
    """When money was first moved."""
    return find_number(tx, "SELECT created_at FROM transfer WHERE id > 0 ORDER BY id LIMIT 1")


def low_liquidity(tx: Transaction) -> Sequence[tuple[str, int, int]]:
    """Code, scale and balance, in the minor unit, of each liquidity account that is low."""
    return tx.execute(
        "SELECT s.code, s.scale, a.balance FROM asset s JOIN account a ON a.asset_id = s.id"
        " WHERE a.kind = 'liquidity' AND a.warned = 1 ORDER BY s.code, s.scale"
    ).fetchall()


def count_sending(tx: Transaction) -> int:
    """Outgoing payments to other servers in flight."""
    return number(tx, "SELECT count(*) FROM outgoing_payment WHERE state = 'sending'")
