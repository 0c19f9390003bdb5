"""SQL of payments in both directions, for operators, and of refunds."""

from collections.abc import Sequence
from typing import Any, Final, Literal, cast

import msgspec

from payres.store.rows import PageBounds, PageQuery, Table, select_page
from payres.store.work import Transaction

Direction = Literal["incoming", "outgoing"]
State = Literal["pending", "expired", "sending", "completed", "failed"]


class PaymentRecord(msgspec.Struct, frozen=True):
    """An incoming or an outgoing payment. amount is the incoming amount, or the debit amount; moved is what was
    received, or sent. state is `open` for an incoming payment that was not completed: `expires_at` says whether it
    still accepts money.

    Only outgoing payments have `receiver`.
    """

    id: str
    direction: Direction
    wallet_address_id: int
    client_id: int
    grant_id: str | None
    quote_id: str | None
    state: str
    amount: str | None
    moved: int
    receiver: str | None
    failure: str | None
    metadata: str | None
    created_at: int
    ended_at: int | None
    expires_at: int | None

    def state_at(self, now: int) -> State:
        if self.state == "open":
            return "expired" if self.expires_at is not None and now >= self.expires_at else "pending"
        return cast("State", self.state)


class PaymentFilter(msgspec.Struct, frozen=True, kw_only=True):
    """A filter of payments; None is any. Times are microseconds, amounts are in the minor unit of the wallet.

    A counterpart is a wallet here by its id, or on another server by the beginning of its URLs.
    """

    wallet_id: int | None = None
    direction: Direction | None = None
    state: State | None = None
    created_from: int | None = None
    created_until: int | None = None
    counterpart: int | str | None = None
    least: int | None = None
    most: int | None = None
    failure: str | None = None


# The casts give each column one affinity, without which SQLite would sort all payments for each page.
_BOTH = """(
  SELECT id, 'outgoing' AS direction, wallet_address_id, client_id, grant_id, quote_id, state,
    cast(debit AS text) AS amount, sent AS moved, receiver, incoming_payment_id, failure, metadata, created_at,
    ended_at, cast(NULL AS integer) AS expires_at
  FROM outgoing_payment
  UNION ALL
  SELECT id, 'incoming', wallet_address_id, client_id, cast(NULL AS text), cast(NULL AS text),
    cast(iif(completed_at IS NULL, 'open', 'completed') AS text), incoming_value, received, cast(NULL AS text),
    cast(NULL AS text), cast(NULL AS text), metadata, created_at, completed_at, expires_at
  FROM incoming_payment
) p"""
PAYMENTS = Table(PaymentRecord, _BOTH, prefix="p.")
_COUNTERPART_HERE = """? IN (
  SELECT wallet_address_id FROM incoming_payment WHERE id = p.incoming_payment_id
  UNION ALL SELECT o.wallet_address_id FROM transfer t JOIN outgoing_payment o ON o.id = t.outgoing_payment_id
  WHERE t.incoming_payment_id = p.id
)"""


def page_of_payments(
    tx: Transaction, wanted: PaymentFilter, query: PageQuery, now: int
) -> tuple[Sequence[PaymentRecord], PageBounds]:
    """A page, newest first. An index leads to the payments of a wallet; other filters are applied to each row."""
    conditions: dict[str, Any] = {
        "p.wallet_address_id = ?": wanted.wallet_id,
        "p.direction = ?": wanted.direction,
        "p.created_at >= ?": wanted.created_from,
        "p.created_at < ?": wanted.created_until,
        "instr(p.receiver, ?) = 1" if isinstance(wanted.counterpart, str) else _COUNTERPART_HERE: wanted.counterpart,
        "p.moved >= ?": wanted.least,
        "p.moved <= ?": wanted.most,
        "instr(lower(p.failure), lower(?)) > 0": wanted.failure,
        **_state_conditions(wanted.state, now),
    }
    given = {condition: value for condition, value in conditions.items() if value is not None}
    return select_page(tx, PAYMENTS, query, given)


def payments_in_order(
    tx: Transaction, after: str, before: str, since: int, until: int, wallet_id: int | None, rows: int
) -> Sequence[PaymentRecord]:
    """The first so many with an id between these two, of a time, and of one wallet if it is given; oldest first."""
    where, values = "p.id > ? AND p.id < ? AND p.created_at >= ? AND p.created_at < ?", [after, before, since, until]
    if wallet_id is not None:
        where, values = f"{where} AND p.wallet_address_id = ?", [*values, wallet_id]
    return PAYMENTS.list(tx, f"WHERE {where} ORDER BY p.id LIMIT ?", *values, rows)


def payers_of(tx: Transaction, incoming_payment_id: str) -> Sequence[str]:
    """The ids of the outgoing payments here that paid an incoming payment, oldest first."""
    rows = tx.execute(
        "SELECT DISTINCT outgoing_payment_id FROM transfer"
        " WHERE incoming_payment_id = ? AND outgoing_payment_id IS NOT NULL ORDER BY outgoing_payment_id",
        (incoming_payment_id,),
    )
    return [payment_id for (payment_id,) in rows]


def _state_conditions(state: State | None, now: int) -> dict[str, Any]:
    if state == "pending":
        return {"p.state = 'open' AND p.expires_at > ?": now}
    if state == "expired":
        return {"p.state = 'open' AND p.expires_at <= ?": now}
    return {"p.state = ?": state}


RefundState = Literal["sending", "completed", "failed"]


class RefundRecord(msgspec.Struct, frozen=True):
    """A refund, to the wallet here whose outgoing payment it undoes, or by a return payment to a wallet address.

    `amount` is what shall leave the receiver's wallet. `counted` of it counts as sent back: all while it is on its way,
    in the end what has been sent, or may have been. `returned` has arrived, in the asset of who gets it.
    """

    id: str
    incoming_payment_id: str
    outgoing_payment_id: str | None
    return_payment_id: str | None
    wallet_address: str | None
    amount: int
    counted: int
    returned: int
    reference: str
    state: RefundState
    failure: str | None
    created_at: int
    ended_at: int | None


# What of refund `r` counts as sent back, by its return payment `p`, if it has one.
REFUND_COUNTED: Final = (
    "CASE coalesce(p.state, '') WHEN '' THEN r.amount WHEN 'sending' THEN p.debit ELSE p.sent + p.unresolved_debit END"
)
REFUNDS: Final = Table(
    RefundRecord,
    "refund r LEFT JOIN outgoing_payment p ON p.id = r.return_payment_id",
    prefix="r.",
    counted=REFUND_COUNTED,
    returned="coalesce(r.returned, p.delivered)",
    state="coalesce(p.state, 'completed')",
    failure="p.failure",
    ended_at="iif(p.id IS NULL, r.created_at, p.ended_at)",
)


def refunds_of_incoming(tx: Transaction, payment_id: str) -> Sequence[RefundRecord]:
    """What of an incoming payment was sent back, oldest first."""
    found = REFUNDS.list(tx, "WHERE r.incoming_payment_id = ?", payment_id)
    return sorted(found, key=lambda refund: refund.id)


def refunds_of_outgoing(tx: Transaction, payment_id: str) -> Sequence[RefundRecord]:
    """What came back to the payer of an outgoing payment, oldest first."""
    found = REFUNDS.list(tx, "WHERE r.outgoing_payment_id = ?", payment_id)
    return sorted(found, key=lambda refund: refund.id)


def refund_by_return_payment(tx: Transaction, payment_id: str) -> RefundRecord | None:
    """The refund that an outgoing payment sends, if it does."""
    return REFUNDS.find(tx, "WHERE r.return_payment_id = ?", payment_id)
