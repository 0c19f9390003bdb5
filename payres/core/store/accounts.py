"""SQL of ledger accounts, holds and transfers. Only `payres.core.payments.ledger` calls the functions that write."""

from collections.abc import Sequence
from typing import Final, TypedDict

import msgspec

from payres.core.store.rows import Table, insert_row, number
from payres.core.store.work import Transaction


class AccountRecord(msgspec.Struct, frozen=True):
    """A row of `account`. floor is None for the external account, warn_below for no warnings; warned is 0 or 1."""

    id: int
    kind: str
    asset_id: int
    balance: int
    held: int
    floor: int | None
    warn_below: int | None = None
    warned: int = 0


class HoldRecord(msgspec.Struct, frozen=True):
    """A row of `hold`: money held for a payment or a packet."""

    id: int
    account_id: int
    outgoing_payment_id: str | None
    packet_id: str | None
    amount: int
    remaining: int


class Cause(TypedDict, total=False):
    """The columns of a transfer or hold that name its payment, packet or refund."""

    outgoing_payment_id: str | None
    incoming_payment_id: str | None
    packet_id: str | None
    refund_id: str | None


# Operators are warned when less than a tenth of the credit or liquidity is left.
LOW_PART: Final = 10

ACCOUNTS = Table(AccountRecord, "account")
# Refuses accounts that are already broken: a credit must not hide the damage.
_CHANGE_ACCOUNT = """
UPDATE account SET balance = balance + :change, held = held + :held_change
WHERE id = :id AND held >= 0 AND (floor IS NULL OR balance - held - floor >= max(:held_change - :change, 0))
  AND balance + :change BETWEEN -:most AND :most AND held + :held_change BETWEEN 0 AND :most
"""
# The rules of `payres.core.payments.ledger` for an account, in SQL.
_SOUND = "{0}.held >= 0 AND iif({0}.floor IS NULL, {0}.kind = 'external', {0}.balance - {0}.held >= {0}.floor)"
_FREE = "{0}.balance - {0}.held - {0}.floor"
_WARNED_RIGHT = (
    f"({{0}}.warn_below IS NULL OR iif({{0}}.warned, {_FREE} < 2 * {{0}}.warn_below, {_FREE} >= {{0}}.warn_below))"
)
_IN_ORDER = """
SELECT 1 FROM account a JOIN account b ON a.asset_id = b.asset_id WHERE a.id = ? AND b.id = ?
""" + "".join(f"AND {rule.format(one)} " for rule in (_SOUND, _WARNED_RIGHT) for one in "ab")
HOLDS = Table(HoldRecord, "hold")


def find_operator_account(tx: Transaction, asset_id: int, kind: str) -> AccountRecord | None:
    one_of_each = "WHERE asset_id = ? AND kind = ? AND kind IN ('liquidity', 'fees', 'external')"
    return ACCOUNTS.find(tx, one_of_each, asset_id, kind)


def insert_account(tx: Transaction, kind: str, asset_id: int, floor: int | None) -> int:
    return insert_row(tx, "account", kind=kind, asset_id=asset_id, floor=floor)


def change_account(tx: Transaction, account_id: int, balance_change: int, held_change: int, most: int) -> bool:
    """Changes an account. False, with nothing changed, if it does not exist or the result would break its rules.

    `most` is the largest allowed balance or hold.
    """
    values = {"id": account_id, "change": balance_change, "held_change": held_change, "most": most}
    return tx.execute(_CHANGE_ACCOUNT, values).rowcount == 1


def in_order(tx: Transaction, one: int, other: int) -> bool:
    """Whether both accounts (possibly the same) have one asset, satisfy their invariants, and need no change of
    `warned`.

    Done in SQL because reading two accounts takes three times as long as comparing them.
    """
    return tx.execute(_IN_ORDER, (one, other)).fetchone() is not None


def change_floor(tx: Transaction, account_id: int, floor: int) -> None:
    tx.execute("UPDATE account SET floor = ? WHERE id = ?", (floor, account_id))


def insert_transfer(
    tx: Transaction, debit: int, credit: int, amount: int, kind: str, hold_id: int | None, now: int, cause: Cause
) -> int:
    # Binding a None costs a third of a whole statement.
    known = {column: value for column, value in {"hold_id": hold_id, **cause}.items() if value is not None}
    row = {"debit_account_id": debit, "credit_account_id": credit, "amount": amount, "kind": kind, "created_at": now}
    return insert_row(tx, "transfer", **row, **known)


def insert_hold(tx: Transaction, account_id: int, amount: int, now: int, cause: Cause) -> int:
    row = {"account_id": account_id, "amount": amount, "remaining": amount, "created_at": now}
    return insert_row(tx, "hold", **row, **cause)


def holds_of_payment(tx: Transaction, outgoing_payment_id: str) -> Sequence[HoldRecord]:
    """Oldest first."""
    return HOLDS.list(tx, "WHERE outgoing_payment_id = ? ORDER BY id", outgoing_payment_id)


def holds_of_packet(tx: Transaction, packet_id: str) -> Sequence[HoldRecord]:
    """Oldest first."""
    return HOLDS.list(tx, "WHERE packet_id = ? ORDER BY id", packet_id)


def transferred_of_packet(tx: Transaction, outgoing_payment_id: str, packet_id: str) -> int:
    """The amount posted from a payment's hold for one of its packets."""
    of_packet = "SELECT sum(amount) FROM transfer WHERE outgoing_payment_id = ? AND packet_id = ?"
    return number(tx, of_packet, outgoing_payment_id, packet_id)


def reduce_hold(tx: Transaction, hold_id: int, amount: int) -> None:
    tx.execute("UPDATE hold SET remaining = remaining - ? WHERE id = ?", (amount, hold_id))
