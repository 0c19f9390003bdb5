"""SQL of quotes."""

import msgspec

from payres.store.rows import Table
from payres.store.terms import TERMS_AS_TEXT
from payres.store.work import Transaction
from payres.terms import Terms


class QuoteRecord(msgspec.Struct, frozen=True):
    """A row of `quote`. purge_at (microseconds) is when to see whether it was used; None once that was seen."""

    id: str
    wallet_address_id: int
    client_id: int
    terms: Terms
    created_at: int
    expires_at: int
    purge_at: int | None


QUOTES = Table(QuoteRecord, "quote", terms=TERMS_AS_TEXT)
_FIND_QUOTE_AND_USE = f"""
SELECT {QUOTES.columns}, EXISTS (SELECT 1 FROM outgoing_payment WHERE quote_id = quote.id) FROM quote WHERE id = ?
"""


def insert_quote(tx: Transaction, quote: QuoteRecord) -> None:
    QUOTES.insert(tx, quote)


def find_quote(tx: Transaction, quote_id: str) -> QuoteRecord | None:
    return QUOTES.find(tx, "WHERE id = ?", quote_id)


def find_quote_and_use(tx: Transaction, quote_id: str) -> tuple[QuoteRecord, bool] | None:
    """The quote, and whether a payment has used it."""
    row = tx.execute(_FIND_QUOTE_AND_USE, (quote_id,)).fetchone()
    return (QUOTES.record(row[:-1]), bool(row[-1])) if row else None
