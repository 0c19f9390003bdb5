"""SQL of quotes."""

import msgspec

from payres.amounts import Asset
from payres.store.database import Transaction
from payres.store.rows import Table


class QuoteRecord(msgspec.Struct, frozen=True):
    """A row of `quote`. The values are decimal text.

    incoming_payment_id is set when the receiver is here, path (JSON) when it is not. forget_at (microseconds) is when
    to see whether it was used; None in one that was, once that was seen.
    """

    id: str
    wallet_address_id: int
    client_id: int
    receiver: str
    incoming_payment_id: str | None
    debit_value: str
    receive_value: str
    receive_code: str
    receive_scale: int
    fee_value: str
    created_at: int
    expires_at: int
    path: str | None = None
    forget_at: int | None = None

    @property
    def receive_asset(self) -> Asset:
        return Asset(self.receive_code, self.receive_scale)


QUOTES = Table(QuoteRecord, "quote")


def insert_quote(tx: Transaction, quote: QuoteRecord) -> None:
    QUOTES.insert(tx, quote)


def find_quote(tx: Transaction, quote_id: str) -> QuoteRecord | None:
    return QUOTES.find(tx, "WHERE id = ?", quote_id)
