"""SQL of how much wallets have paid and received a day, counted from the transfers of the ledger."""

from collections import Counter
from typing import NamedTuple

from payres.amounts import Asset
from payres.clock import DAY
from payres.store.entries import REFUND_OF_TRANSFER
from payres.store.work import Transaction

_HALF = 1 << 32  # SQLite adds up no further than 2^63: the upper and the lower half are summed by themselves


class Flow(NamedTuple):
    """The transfers of one day (its number since 1970) and asset into wallets (`received`), or out of them."""

    day: int
    asset: Asset
    received: bool


def sums_by_day(tx: Transaction, first: int, last: int) -> Counter[Flow]:
    """What payments moved into wallets and out of them, by the transfers with these ids; refunds do not count."""
    found = Counter[Flow]()
    for side, received in (("debit", False), ("credit", True)):
        rows = tx.execute(
            "SELECT t.created_at / ?, s.code, s.scale, sum(t.amount >> 32), sum(t.amount & 4294967295)"
            f" FROM transfer t JOIN account a ON a.id = t.{side}_account_id AND a.kind = 'wallet'"
            " JOIN asset s ON s.id = a.asset_id"
            f" WHERE t.id BETWEEN ? AND ? AND t.kind IN ('payment', 'exchange') AND {REFUND_OF_TRANSFER} IS NULL"
            " GROUP BY 1, 2, 3",
            (DAY, first, last),
        )
        for day, code, scale, upper, lower in rows:
            found[Flow(day, Asset(code, scale), received)] = upper * _HALF + lower
    return found
