"""SQL of quotes."""

from collections.abc import Sequence

import msgspec

from payres.amounts import Asset
from payres.store.work import Transaction
from payres.terms import Terms, decode_path, encode_path


class QuoteRecord(msgspec.Struct, frozen=True):
    """A row of `quote`. forget_at (microseconds) is when to see whether it was used; None once that was seen."""

    id: str
    wallet_address_id: int
    client_id: int
    terms: Terms
    created_at: int
    expires_at: int
    forget_at: int | None


COLUMNS = (
    "id, wallet_address_id, client_id, receiver, incoming_payment_id, debit_value, fee_value, receive_value,"
    " receive_code, receive_scale, path, created_at, expires_at, forget_at"
)


def insert_quote(tx: Transaction, quote: QuoteRecord) -> None:
    terms = quote.terms
    values = (
        *(quote.id, quote.wallet_address_id, quote.client_id, terms.receiver, terms.incoming_payment_id),
        *(str(terms.debit), str(terms.fee), str(terms.receive), terms.asset.code, terms.asset.scale),
        *(None if terms.path is None else encode_path(terms.path), quote.created_at, quote.expires_at, quote.forget_at),
    )
    tx.execute(f"INSERT INTO quote ({COLUMNS}) VALUES ({', '.join('?' * len(values))})", values)


def find_quote(tx: Transaction, quote_id: str) -> QuoteRecord | None:
    row = tx.execute(f"SELECT {COLUMNS} FROM quote WHERE id = ?", (quote_id,)).fetchone()
    if row is None:
        return None
    id_, wallet_id, client_id, receiver, incoming_payment_id, debit, fee, receive, code, scale, path, *times = row
    terms = Terms(
        receiver=receiver,
        incoming_payment_id=incoming_payment_id,
        debit=int(debit),
        fee=int(fee),
        receive=int(receive),
        asset=Asset(code, scale),
        path=None if path is None else decode_path(path),
    )
    return QuoteRecord(id_, wallet_id, client_id, terms, *times)


def quotes_to_forget(tx: Transaction, now: int, limit: int) -> Sequence[tuple[str, int]]:
    """The ids of quotes of which it is time to see whether they were used, and of their clients; the earliest first."""
    rows = tx.execute("SELECT id, client_id FROM quote WHERE forget_at <= ? ORDER BY forget_at LIMIT ?", (now, limit))
    return [(quote_id, client_id) for quote_id, client_id in rows]


def keep_quote(tx: Transaction, quote_id: str) -> None:
    """Keeps a quote for good."""
    tx.execute("UPDATE quote SET forget_at = NULL WHERE id = ?", (quote_id,))


def delete_quote(tx: Transaction, quote_id: str) -> None:
    """Deletes a quote that no payment refers to."""
    tx.execute("DELETE FROM quote WHERE id = ?", (quote_id,))
