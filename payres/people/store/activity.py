"""SQL of a wallet's activity as its owner sees it: payments, deposits, withdrawals and refunds in one list, ordered by
key; and sums over a period.
"""

from collections.abc import Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec

from payres.core.protocol.amounts import MAX_LEDGER
from payres.core.protocol.clock import lasts
from payres.core.store.accounts import AccountRecord
from payres.core.store.rows import first_row_from, halves, number
from payres.core.store.work import Transaction

MOST_APPROVED: Final = 1000  # grants that are looked at for what is usual
Source = Literal["sent", "received", "deposit", "withdrawal", "sent back", "came back"]


class ListedRecord(msgspec.Struct, frozen=True):
    """An item of the list; later items have greater keys. id is the payment's, for a refund that of the refunded
    payment.

    bill is the metadata of the incoming payment here that was paid, other the wallet here at the other end; wish is
    what its owner typed to make an outgoing payment. wanted is what that may take, or an incoming one asks for (decimal
    text); moved is what has been sent or received.
    """

    key: str
    source: Source
    id: str
    grant_id: str | None
    wish: str | None
    receiver: str | None
    bill: str | None
    other: int | None
    wanted: str | None
    moved: int
    state: str
    failure: str | None
    metadata: str | None
    created_at: int
    expires_at: int | None


# Each SELECT has the columns of ListedRecord, with the names of its fields where a column has another. The casts
# give each column one affinity; otherwise SQLite would sort all movements for each page.
_NO_TEXT: Final = "cast(NULL AS text)"
_NO_NUMBER: Final = "cast(NULL AS integer)"
_NO_APP: Final = f"{_NO_TEXT} AS grant_id, {_NO_TEXT} AS wish, {_NO_TEXT} AS receiver, {_NO_TEXT} AS bill"
_DONE: Final = f"cast('completed' AS text) AS state, {_NO_TEXT} AS failure, {_NO_TEXT} AS metadata"
_LISTED: Final = f"""
SELECT id AS key, 'sent' AS source, id,
  grant_id, (SELECT wish FROM quote WHERE quote.id = quote_id) AS wish, receiver,
  cast((SELECT i.metadata FROM incoming_payment i WHERE i.id = incoming_payment_id) AS text) AS bill,
  cast((SELECT i.wallet_address_id FROM incoming_payment i WHERE i.id = incoming_payment_id) AS integer) AS other,
  cast(debit AS text) AS wanted, sent AS moved, state, failure, metadata, created_at, {_NO_NUMBER} AS expires_at
FROM outgoing_payment WHERE wallet_address_id = :wallet AND id < :below
UNION ALL
SELECT listed, 'received', id, {_NO_APP}, {_NO_NUMBER} AS other, incoming_value AS wanted, received AS moved,
  cast(iif(completed_at IS NULL, 'open', 'completed') AS text) AS state, {_NO_TEXT} AS failure,
  metadata, created_at, expires_at
FROM incoming_payment WHERE wallet_address_id = :wallet AND listed < :below AND listed IS NOT NULL
UNION ALL
SELECT m.id, t.kind, m.id, {_NO_APP}, {_NO_NUMBER} AS other, {_NO_TEXT} AS wanted, t.amount AS moved,
  {_DONE}, m.created_at, {_NO_NUMBER} AS expires_at
FROM movement m JOIN transfer t ON t.id = m.transfer_id WHERE m.account_id = :account AND m.id < :below
UNION ALL
SELECT id, 'sent back', incoming_payment_id, {_NO_APP}, to_wallet_id AS other, {_NO_TEXT} AS wanted,
  amount AS moved, {_DONE}, created_at, {_NO_NUMBER} AS expires_at
FROM refund WHERE from_wallet_id = :wallet AND id < :below
UNION ALL
SELECT id, 'came back', outgoing_payment_id, {_NO_APP}, from_wallet_id AS other, {_NO_TEXT} AS wanted,
  returned AS moved, {_DONE}, created_at, {_NO_NUMBER} AS expires_at
FROM refund WHERE to_wallet_id = :wallet AND id < :below
ORDER BY key DESC LIMIT :rows
"""


def listed(tx: Transaction, wallet_id: int, account_id: int, below: str, rows: int) -> Sequence[ListedRecord]:
    """Up to `rows` items of a wallet with keys below `below`, newest first."""
    values = {"wallet": wallet_id, "account": account_id, "below": below, "rows": rows}
    return [ListedRecord(*row) for row in tx.execute(_LISTED, values)]


def being_sent(tx: Transaction, account_id: int, rows: int) -> Sequence[str]:
    """The ids of a wallet's newest outgoing payments in flight, found by their open holds."""
    held = "account_id = ? AND remaining > 0 AND outgoing_payment_id IS NOT NULL"
    found = f"SELECT outgoing_payment_id FROM hold WHERE {held} ORDER BY id DESC LIMIT ?"
    return [payment_id for (payment_id,) in tx.execute(found, (account_id, rows))]


def paid_under(tx: Transaction, grant_id: str, rows: int) -> Sequence[str]:
    """The ids of the newest outgoing payments under a grant."""
    found = "SELECT id FROM outgoing_payment WHERE grant_id = ? ORDER BY created_at DESC LIMIT ?"
    return [payment_id for (payment_id,) in tx.execute(found, (grant_id, rows))]


def reference_of(tx: Transaction, movement_id: str) -> str | None:
    """The operator's reference of a deposit or withdrawal."""
    row = tx.execute("SELECT reference FROM movement WHERE id = ?", (movement_id,)).fetchone()
    return row[0] if row else None


def payer_wallets(tx: Transaction, incoming_payment_id: str) -> Sequence[int]:
    """The local wallets that paid an incoming payment first and last; one if they are the same, none if remote."""
    paid = (
        "SELECT o.wallet_address_id FROM transfer t JOIN outgoing_payment o ON o.id = t.outgoing_payment_id"
        " WHERE t.incoming_payment_id = ? ORDER BY t.id"
    )
    return _ends(tx, paid, incoming_payment_id)


def received_between(
    tx: Transaction, account_id: int, incoming_payment_id: str, since: int, after: int, upto: int
) -> int:
    """What the account of a wallet got for an incoming payment by the transfers after one, up to another; where there
    is none before, since a time. Transfers to liquidity are in another currency."""
    amounts = (
        "SELECT amount FROM transfer WHERE incoming_payment_id = ? AND credit_account_id = ? AND id > ? AND id <= ?"
        " AND (? > 0 OR created_at > ?)"
    )
    found = tx.execute(amounts, (incoming_payment_id, account_id, after, upto, after, since))
    return sum(amount for (amount,) in found)


def receiving_between(
    tx: Transaction, wallet_id: int, account_id: int, since: int, after: int, upto: int, rows: int
) -> Sequence[str]:
    """The newest incoming payments of a wallet for which `received_between` finds something."""
    found = (  # CROSS: begins with the transfers, of which there are fewer than of all the wallet's incoming payments
        "SELECT i.id FROM transfer t CROSS JOIN incoming_payment i ON i.id = t.incoming_payment_id"
        " WHERE i.wallet_address_id = ? AND t.credit_account_id = ? AND t.id > ? AND t.id <= ?"
        " AND (? > 0 OR t.created_at > ?) GROUP BY i.id ORDER BY max(t.id) DESC LIMIT ?"
    )
    return [id for (id,) in tx.execute(found, (wallet_id, account_id, after, upto, after, since, rows))]


def open_requests(tx: Transaction, client_id: int, wallet_id: int, now: int, rows: int) -> Sequence[str]:
    """The ids of a client's newest incoming payments that accept money. Only its newest 10,000 are searched."""
    newest = (
        "SELECT id, completed_at, expires_at FROM incoming_payment WHERE client_id = ? AND wallet_address_id = ?"
        " ORDER BY id DESC LIMIT 10000"
    )
    found = f"SELECT id FROM ({newest}) WHERE completed_at IS NULL AND expires_at > ? LIMIT ?"
    return [payment_id for (payment_id,) in tx.execute(found, (client_id, wallet_id, now, rows))]


def remote_payers(tx: Transaction, incoming_payment_id: str) -> Sequence[str]:
    """Up to two wallet addresses on other servers that have paid an incoming payment on its payment page."""
    paid = "SELECT payer FROM checkout WHERE incoming_payment_id = ? AND state = 'paid' ORDER BY payer"
    return _ends(tx, paid, incoming_payment_id)


def _ends(tx: Transaction, ordered: str, value: str) -> Sequence[Any]:
    """The first and last value of a query that ends with its ORDER BY; one value if they are the same."""
    rows = [tx.execute(f"{ordered}{way} LIMIT 1", (value,)).fetchone() for way in ("", " DESC")]
    return list(dict.fromkeys(row[0] for row in rows if row))


class Statement(NamedTuple):
    """What an account held at the beginning of a time, what came and left, and what it held at the end or holds now."""

    opening: int
    credits: int
    debits: int
    closing: int


def statement(tx: Transaction, account: AccountRecord, since: int, until: int) -> Statement:
    """That of a time which has begun. What is held counts as not yet gone. It walks the account's transfers from
    `since` on."""
    first, end = (first_row_from(tx, "transfer", "id", moment) for moment in (since, until))
    (credited, debited), (more, less) = (
        [_sum(tx, side, account.id, *ids) for side in ("credit", "debit")] for ids in ((first, end), (end, MAX_LEDGER))
    )
    closing = account.balance - more + less
    return Statement(closing - credited + debited, credited, debited, closing)


def _sum(tx: Transaction, side: str, account_id: int, first: int, end: int) -> int:
    """The sum of an account's transfers on one side, with ids from `first` until just before `end`."""
    of_side = f"FROM transfer WHERE id >= ? AND id < ? AND {side}_account_id = ?"
    upper, lower = tx.execute(f"SELECT {', '.join(halves('amount'))} {of_side}", (first, end, account_id)).fetchone()
    return int((upper << 32) + lower)


def access_approved(tx: Transaction, wallet_id: int, now: int, time: int) -> Sequence[str]:
    """The access (JSON text) of the last grants, those that the owner has approved in so long a time until now."""
    decided = "SELECT decided_at FROM interaction WHERE grant_id = g.id AND decided_by = 'owner'"
    found = tx.execute(
        f'SELECT access, ({decided}) FROM "grant" g WHERE wallet_address_id = ?'
        " AND state <> 'pending' AND state <> 'denied' ORDER BY id DESC LIMIT ?",
        (wallet_id, MOST_APPROVED),
    )
    return [access for access, decided_at in found if decided_at is not None and lasts(decided_at + time, now, time)]


def asked_above(tx: Transaction, wallet_id: int) -> int:
    """The limit up to which the owner approves access without a second factor, in the minor unit; 0 if none was set."""
    return number(tx, "SELECT asked_above FROM wallet_address WHERE id = ?", wallet_id)
