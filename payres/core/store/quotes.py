"""SQL of quotes."""

import msgspec

from payres.core.protocol.amounts import Terms
from payres.core.protocol.clock import lasts
from payres.core.store.rows import Table
from payres.core.store.terms import TERMS_AS_TEXT
from payres.core.store.work import Transaction


class QuoteRecord(msgspec.Struct, frozen=True):
    """A row of `quote`. purge_at (microseconds) is when to check whether it was used; None once it is known to be used.
    `wish` is the JSON of what the wallet's owner entered, in an owner's quote."""

    id: str
    wallet_address_id: int
    client_id: int
    terms: Terms
    created_at: int
    expires_at: int
    purge_at: int | None
    wish: str | None = None

    def lasts_at(self, now: int) -> bool:
        """Whether it can be used, as far as time goes."""
        return lasts(self.expires_at, now, self.expires_at - self.created_at)


QUOTES = Table(QuoteRecord, "quote", terms=TERMS_AS_TEXT)


_IS_USED = "EXISTS (SELECT 1 FROM outgoing_payment WHERE quote_id = quote.id)"


_FIND_QUOTE_AND_USE = f"SELECT {QUOTES.columns}, {_IS_USED} FROM quote WHERE id = ?"


def find_quote_and_use(tx: Transaction, quote_id: str) -> tuple[QuoteRecord, bool] | None:
    """The quote, and whether a payment has used it."""
    row = tx.execute(_FIND_QUOTE_AND_USE, (quote_id,)).fetchone()
    return (QUOTES.record(row[:-1]), bool(row[-1])) if row else None
