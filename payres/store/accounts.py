"""SQL of ledger accounts, reservations and transfers. Only `payres.ledger` calls what writes here."""

from collections.abc import Sequence

import msgspec

from payres.store.database import Transaction
from payres.store.halts import RowMissing
from payres.store.rows import Table, insert_row


class AccountRecord(msgspec.Struct, frozen=True):
    """A row of `account`. floor is None for the external account."""

    id: int
    kind: str
    asset_id: int
    balance: int
    reserved: int
    floor: int | None


class ReservationRecord(msgspec.Struct, frozen=True):
    """A row of `reservation`: what is held for a payment or a packet."""

    id: int
    account_id: int
    outgoing_payment_id: str | None
    packet_id: str | None
    amount: int
    remaining: int


ACCOUNTS = Table(AccountRecord, "account")
RESERVATIONS = Table(ReservationRecord, "reservation")


def account_by_id(tx: Transaction, account_id: int) -> AccountRecord:
    """Raises RowMissing: whoever has the id has it from a row that refers to the account."""
    account = ACCOUNTS.find(tx, "WHERE id = ?", account_id)
    if account is None:
        raise RowMissing(f"account {account_id} does not exist")
    return account


def find_operator_account(tx: Transaction, asset_id: int, kind: str) -> AccountRecord | None:
    one_of_each = "WHERE asset_id = ? AND kind = ? AND kind IN ('liquidity', 'fees', 'external')"
    return ACCOUNTS.find(tx, one_of_each, asset_id, kind)


def insert_account(tx: Transaction, kind: str, asset_id: int, floor: int | None) -> int:
    return insert_row(tx, "account", kind=kind, asset_id=asset_id, floor=floor)


def change_account(tx: Transaction, account_id: int, balance_change: int, reserved_change: int) -> None:
    tx.execute(
        "UPDATE account SET balance = balance + ?, reserved = reserved + ? WHERE id = ?",
        (balance_change, reserved_change, account_id),
    )


def change_floor(tx: Transaction, account_id: int, floor: int) -> None:
    tx.execute("UPDATE account SET floor = ? WHERE id = ?", (floor, account_id))


def insert_transfer(
    tx: Transaction,
    debit_account_id: int,
    credit_account_id: int,
    amount: int,
    kind: str,
    reservation_id: int | None,
    outgoing_payment_id: str | None,
    incoming_payment_id: str | None,
    now: int,
    packet_id: str | None = None,
) -> int:
    return insert_row(
        tx,
        "transfer",
        debit_account_id=debit_account_id,
        credit_account_id=credit_account_id,
        amount=amount,
        kind=kind,
        reservation_id=reservation_id,
        outgoing_payment_id=outgoing_payment_id,
        incoming_payment_id=incoming_payment_id,
        packet_id=packet_id,
        created_at=now,
    )


def insert_reservation(
    tx: Transaction, account_id: int, outgoing_payment_id: str | None, packet_id: str | None, amount: int, now: int
) -> int:
    return insert_row(
        tx,
        "reservation",
        account_id=account_id,
        outgoing_payment_id=outgoing_payment_id,
        packet_id=packet_id,
        amount=amount,
        remaining=amount,
        created_at=now,
    )


def reservation_by_id(tx: Transaction, reservation_id: int) -> ReservationRecord:
    """Raises RowMissing."""
    reservation = RESERVATIONS.find(tx, "WHERE id = ?", reservation_id)
    if reservation is None:
        raise RowMissing(f"reservation {reservation_id} does not exist")
    return reservation


def reservations_of_payment(tx: Transaction, outgoing_payment_id: str) -> Sequence[ReservationRecord]:
    """In the order in which they were made."""
    return RESERVATIONS.list(tx, "WHERE outgoing_payment_id = ? ORDER BY id", outgoing_payment_id)


def reservations_of_packet(tx: Transaction, packet_id: str) -> Sequence[ReservationRecord]:
    """In the order in which they were made."""
    return RESERVATIONS.list(tx, "WHERE packet_id = ? ORDER BY id", packet_id)


def reduce_reservation(tx: Transaction, reservation_id: int, amount: int) -> None:
    tx.execute("UPDATE reservation SET remaining = remaining - ? WHERE id = ?", (amount, reservation_id))
