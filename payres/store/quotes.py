"""SQL of quotes."""

import msgspec

from payres.store.database import Transaction


class QuoteRecord(msgspec.Struct, frozen=True):
    """A row of `quote`. The values are decimal text.

    incoming_payment_id is set when the receiver is here, path (JSON) when it is not.
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


COLUMNS = (
    "id, wallet_address_id, client_id, receiver, incoming_payment_id, debit_value, receive_value, receive_code,"
    " receive_scale, fee_value, created_at, expires_at, path"
)


def insert_quote(tx: Transaction, quote: QuoteRecord) -> None:
    tx.execute(
        f"INSERT INTO quote ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", msgspec.structs.astuple(quote)
    )


def find_quote(tx: Transaction, quote_id: str) -> QuoteRecord | None:
    row = tx.execute(f"SELECT {COLUMNS} FROM quote WHERE id = ?", (quote_id,)).fetchone()
    return QuoteRecord(*row) if row else None
