"""SQL of quotes, and the mapping of terms to the columns of quotes and outgoing payments."""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any

import msgspec

from payres.core.protocol.amounts import Asset
from payres.core.protocol.terms import Path, Terms
from payres.core.store.rows import Embedded, Row, Table
from payres.core.store.work import Transaction


class _PathColumn(msgspec.Struct, frozen=True):
    """The JSON in column `path`; rates are "n/d", and all numbers are text because they may be large."""

    low: str
    high: str
    max_packet: str
    sends_all: bool


_PATH = msgspec.json.Decoder(_PathColumn)


def _read(row: Row) -> Terms:
    receiver, incoming_payment_id, debit, fee, receive, code, scale, text = row
    path, sends_all = (None, False) if text is None else _read_path(text)
    return Terms(
        receiver=receiver,
        incoming_payment_id=incoming_payment_id,
        debit=int(debit),
        fee=int(fee),
        receive=int(receive),
        asset=Asset(code, scale),
        path=path,
        sends_all=sends_all,
    )


@lru_cache(maxsize=1024)
def _read_path(text: str) -> tuple[Path, bool]:
    """Cached: parsing fractions costs more than the rest of the row, and every packet reads its payment."""
    column = _PATH.decode(text)
    return Path(Fraction(column.low), Fraction(column.high), int(column.max_packet)), column.sends_all


def _write(terms: Terms) -> tuple[Any, ...]:
    """Amounts are text, which integer columns convert; a quote's may be any unsigned 64-bit integer."""
    path, text = terms.path, None
    if path is not None:
        column = _PathColumn(str(path.low), str(path.high), str(path.max_packet), terms.sends_all)
        text = msgspec.json.encode(column).decode()
    return (
        terms.receiver,
        terms.incoming_payment_id,
        *(str(terms.debit), str(terms.fee), str(terms.receive)),
        terms.asset.code,
        terms.asset.scale,
        text,
    )


def _terms(*amounts: str) -> Embedded:
    return Embedded(
        ("receiver", "incoming_payment_id", *amounts, "receive_code", "receive_scale", "path"), _read, _write
    )


TERMS = _terms("debit", "fee", "receive")  # of payments
_TERMS_AS_TEXT = _terms("debit_value", "fee_value", "receive_value")


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


QUOTES = Table(QuoteRecord, "quote", terms=_TERMS_AS_TEXT)
_IS_USED = "EXISTS (SELECT 1 FROM outgoing_payment WHERE quote_id = quote.id)"
_FIND_QUOTE_AND_USE = f"SELECT {QUOTES.columns}, {_IS_USED} FROM quote WHERE id = ?"


def find_quote_and_use(tx: Transaction, quote_id: str) -> tuple[QuoteRecord, bool] | None:
    """The quote, and whether a payment has used it."""
    row = tx.execute(_FIND_QUOTE_AND_USE, (quote_id,)).fetchone()
    return (QUOTES.record(row[:-1]), bool(row[-1])) if row else None


def payment_of(tx: Transaction, quote_id: str) -> str | None:
    """The id of the payment that used the quote."""
    row = tx.execute("SELECT id FROM outgoing_payment WHERE quote_id = ?", (quote_id,)).fetchone()
    return row[0] if row else None


def last_wishes(tx: Transaction, client_id: int, wallet_id: int, limit: int) -> Sequence[str]:
    """The wishes of the owner's last payments from a wallet, newest first."""
    paid = "SELECT q.wish FROM outgoing_payment o JOIN quote q ON q.id = o.quote_id WHERE q.wish IS NOT NULL"
    of_owner = "o.client_id = ? AND o.wallet_address_id = ? ORDER BY o.id DESC LIMIT ?"
    return [wish for (wish,) in tx.execute(f"{paid} AND {of_owner}", (client_id, wallet_id, limit))]
