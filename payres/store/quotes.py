"""SQL of quotes."""

from collections.abc import Sequence

import msgspec

from payres.store.database import Transaction


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


COLUMNS = (
    "id, wallet_address_id, client_id, receiver, incoming_payment_id, debit_value, receive_value, receive_code,"
    " receive_scale, fee_value, created_at, expires_at, path, forget_at"
)


def insert_quote(tx: Transaction, quote: QuoteRecord) -> None:
    tx.execute(
        f"INSERT INTO quote ({COLUMNS}) VALUES ({', '.join('?' * 14)})",
        msgspec.structs.astuple(quote),
    )


def find_quote(tx: Transaction, quote_id: str) -> QuoteRecord | None:
    row = tx.execute(f"SELECT {COLUMNS} FROM quote WHERE id = ?", (quote_id,)).fetchone()
    return QuoteRecord(*row) if row else None


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
