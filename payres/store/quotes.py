"""SQL of quotes, and the purge of those that were never used."""

from typing import Final

import msgspec

from payres.clock import DAY
from payres.store.clients import purge_client
from payres.store.rows import Table
from payres.store.terms import TERMS_AS_TEXT
from payres.store.work import Transaction
from payres.terms import Terms

# Microseconds that an unused quote stays after it has expired: longer than the response to its creation is cached.
QUOTE_RETENTION: Final = DAY
# Each new quote purges two, so what is stored is bounded by what comes in a day, and no unit of work is long.
QUOTES_PER_PURGE: Final = 2


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
_IS_USED = "EXISTS (SELECT 1 FROM outgoing_payment WHERE quote_id = quote.id)"
_FIND_QUOTE_AND_USE = f"SELECT {QUOTES.columns}, {_IS_USED} FROM quote WHERE id = ?"
_FIND_DUE = f"SELECT id, client_id, {_IS_USED} FROM quote WHERE purge_at <= ? ORDER BY purge_at LIMIT ?"


def find_quote_and_use(tx: Transaction, quote_id: str) -> tuple[QuoteRecord, bool] | None:
    """The quote, and whether a payment has used it."""
    row = tx.execute(_FIND_QUOTE_AND_USE, (quote_id,)).fetchone()
    return (QUOTES.record(row[:-1]), bool(row[-1])) if row else None


def purge_quotes(tx: Transaction, now: int) -> None:
    """Deletes a few of the quotes that are due and unused, and their clients if nothing else refers to those."""
    for quote_id, client_id, is_used in tx.execute(_FIND_DUE, (now, QUOTES_PER_PURGE)).fetchall():
        if is_used:
            tx.execute("UPDATE quote SET purge_at = NULL WHERE id = ?", (quote_id,))
        else:
            tx.execute("DELETE FROM quote WHERE id = ?", (quote_id,))
            purge_client(tx, client_id, now)
