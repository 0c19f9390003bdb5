"""SQL of the entries of the ledger as operators read them: pages of transfers, and daily sums of wallets."""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY
from payres.core.store.rows import PageBounds, PageQuery, halves, select_page
from payres.core.store.work import Transaction
from payres.operator.store.all_payments import PaymentRecord
from payres.people.store.transfers import ENTRIES, REFUND_OF_TRANSFER, EntryRecord


def page_of_entries(
    tx: Transaction, query: PageQuery, *, account_id: int | None = None, payment: PaymentRecord | None = None
) -> tuple[Sequence[EntryRecord], PageBounds]:
    """A page of transfers, newest first; all, or those of one account or payment. Those of an account are found among
    all, because its two sides are not in one order."""
    of_account = {"? IN (t.debit_account_id, t.credit_account_id)": account_id}
    of_payment = {f"t.{payment.direction}_payment_id = ?": payment.id} if payment else {}
    return select_page(tx, ENTRIES, query, of_payment | of_account)


class DailyFlow(NamedTuple):
    """Transfers of one day (its number since 1970) and asset, into wallets (`received`) or out of them."""

    day: int
    asset: Asset
    received: bool


def sums_by_day(tx: Transaction, first: int, last: int) -> Counter[DailyFlow]:
    """The sums of payments into and out of wallets, over the transfers with these ids; refunds are excluded."""
    found = Counter[DailyFlow]()
    for side, received in (("debit", False), ("credit", True)):
        rows = tx.execute(
            f"SELECT t.created_at / ?, s.code, s.scale, {', '.join(halves('t.amount'))}"
            f" FROM transfer t JOIN account a ON a.id = t.{side}_account_id AND a.kind = 'wallet'"
            " JOIN asset s ON s.id = a.asset_id"
            f" WHERE t.id BETWEEN ? AND ? AND t.kind IN ('payment', 'exchange') AND {REFUND_OF_TRANSFER} IS NULL"
            " GROUP BY 1, 2, 3",
            (DAY, first, last),
        )
        for day, code, scale, upper, lower in rows:
            found[DailyFlow(day, Asset(code, scale), received)] = (upper << 32) + lower
    return found
