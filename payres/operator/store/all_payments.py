"""SQL of incoming and outgoing payments together, as operators see them."""

from collections.abc import Sequence
from typing import Literal

import msgspec

from payres.core.store.rows import PageBounds, PageQuery, Table, select_page
from payres.core.store.work import Transaction
from payres.people.store.refunds import Direction

PaymentState = Literal["pending", "expired", "sending", "completed", "failed"]


class PaymentRecord(msgspec.Struct, frozen=True):
    """An incoming or an outgoing payment. amount is the incoming amount or the debit amount; moved is the amount
    received or sent. state is `open` for an incoming payment that is not completed: `expires_at` decides whether it
    still accepts money. Only outgoing payments have `receiver`."""

    id: str
    direction: Direction
    wallet_address_id: int
    client_id: int
    grant_id: str | None
    quote_id: str | None
    state: Literal["open", "sending", "completed", "failed"]
    amount: str | None
    moved: int
    receiver: str | None
    failure: str | None
    metadata: str | None
    created_at: int
    ended_at: int | None
    expires_at: int | None

    def state_at(self, now: int) -> PaymentState:
        if self.state == "open":
            return "expired" if self.expires_at is not None and now >= self.expires_at else "pending"
        return self.state


# The casts give each column one affinity; otherwise SQLite would sort all payments for each page.
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
# A bill without an amount that received nothing is a price that somebody looked at.
USED = "(p.direction = 'outgoing' OR p.amount IS NOT NULL OR p.moved > 0)"
# Whom an outgoing payment p pays, where that is known, as the payer's form or consent page has shown it, or an operator
# has given it: a JSON array of the name, the wallet address and the purpose.
PAYEE = """coalesce(
  (SELECT json_array(coalesce(wish ->> 'name', ''), wish ->> 'address', coalesce(wish ->> 'purpose', ''))
    FROM quote WHERE id = p.quote_id AND wish NOTNULL),
  (SELECT json_array(coalesce(name, ''), address, purpose) FROM remote_bill WHERE grant_id = p.grant_id),
  (SELECT json_array('', wallet_address, '') FROM refund WHERE return_payment_id = p.id AND wallet_address NOTNULL)
)"""
_COUNTERPART_HERE = """? IN (
  SELECT wallet_address_id FROM incoming_payment WHERE id = p.incoming_payment_id
  UNION ALL SELECT o.wallet_address_id FROM transfer t JOIN outgoing_payment o ON o.id = t.outgoing_payment_id
  WHERE t.incoming_payment_id = p.id
)"""
_COUNTERPART_THERE = f"(instr(p.receiver, ?) = 1 OR instr({PAYEE} ->> 1, ?) = 1)"


def page_of_payments(
    tx: Transaction,
    query: PageQuery,
    now: int,
    *,
    wallet_id: int | None = None,
    grant_id: str | None = None,
    direction: Direction | None = None,
    state: PaymentState | None = None,
    since: int | None = None,
    until: int | None = None,
    counterpart: int | str | None = None,
    least: int | None = None,
    most: int | None = None,
    failure: str | None = None,
    used: bool | None = None,
) -> tuple[Sequence[PaymentRecord], PageBounds]:
    """A page, newest first. There are indexes by wallet and by grant; other filters are applied to each row. None
    matches all. Times are microseconds, amounts are in the wallet's minor unit. A counterpart is the id of a local
    wallet, or the beginning of the URL of a remote payee or bill."""
    conditions: dict[str, object] = {
        "p.wallet_address_id = ?": wallet_id,
        "p.grant_id = ?": grant_id,
        "p.direction = ?": direction,
        "p.created_at >= ?": since,
        "p.created_at < ?": until,
        **_counterpart(counterpart),
        "p.moved >= ?": least,
        "p.moved <= ?": most,
        "instr(lower(p.failure), lower(?)) > 0": failure,
        f"{USED} = ?": used,
        **_state_conditions(state, now),
    }
    return select_page(tx, PAYMENTS, query, conditions)


def payee_of(tx: Transaction, payment: PaymentRecord) -> tuple[str, str, str] | None:
    """Whom an outgoing payment pays; None where that is not known."""
    keys = payment.id, payment.quote_id, payment.grant_id
    [found] = tx.execute(f"SELECT {PAYEE} FROM (SELECT ? AS id, ? AS quote_id, ? AS grant_id) p", keys).fetchone()
    return read_payee(found) if found else None


def read_payee(text: str) -> tuple[str, str, str]:
    """The name, the wallet address and the purpose, as others gave them; "" for none."""
    return msgspec.json.decode(text, type=tuple[str, str, str])


def payments_in_order(
    tx: Transaction, after: str, before: str, since: int, until: int, wallet_id: int | None, rows: int
) -> Sequence[PaymentRecord]:
    """Up to `rows` payments with ids and times in these ranges, of one wallet if given; oldest first."""
    where, values = "p.id > ? AND p.id < ? AND p.created_at >= ? AND p.created_at < ?", [after, before, since, until]
    if wallet_id is not None:
        where, values = f"{where} AND p.wallet_address_id = ?", [*values, wallet_id]
    return PAYMENTS.list(tx, f"WHERE {where} ORDER BY p.id LIMIT ?", *values, rows)


def _counterpart(given: int | str | None) -> dict[str, object]:
    return {_COUNTERPART_THERE: (given, given)} if isinstance(given, str) else {_COUNTERPART_HERE: given}


def _state_conditions(state: PaymentState | None, now: int) -> dict[str, str | int | None]:
    if state == "pending":
        return {"p.state = 'open' AND p.expires_at > ?": now}
    if state == "expired":
        return {"p.state = 'open' AND p.expires_at <= ?": now}
    return {"p.state = ?": state}
