"""SQL of assets, rates, and of ledger accounts, holds and transfers, which only the ledger writes."""

from collections.abc import Sequence
from typing import Final, TypedDict

import msgspec

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import lasts
from payres.core.store.rows import Table, insert_row, number
from payres.core.store.work import Transaction

OF_PAIR = "WHERE base_code = ? AND counter_code = ?"
# Operators are warned when less than a tenth of the credit or liquidity is left.
LOW_PART: Final = 10
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


class AssetRecord(msgspec.Struct, frozen=True):
    """A row of `asset`. fee_fixed is in the minor unit."""

    id: int
    code: str
    scale: int
    fee_fixed: int
    fee_basis_points: int

    @property
    def asset(self) -> Asset:
        return Asset(self.code, self.scale)


class RateRecord(msgspec.Struct, frozen=True):
    """A row of `exchange_rate`. Only rates of the rates service have an expires_at, not those of the operator."""

    base: str
    counter: str
    rate: str
    set_at: int
    expires_at: int | None = None

    def holds_at(self, now: int) -> bool:
        """Whether the rate has not expired."""
        return self.expires_at is None or lasts(self.expires_at, now, self.expires_at - self.set_at)


ASSETS = Table(AssetRecord, "asset")
RATES = Table(RateRecord, "exchange_rate", base="base_code", counter="counter_code")


def first_asset(tx: Transaction) -> AssetRecord | None:
    """The asset that the server was set up with."""
    return ASSETS.find(tx, "WHERE id > 0 ORDER BY id LIMIT 1")


def ensure_asset(tx: Transaction, code: str, scale: int) -> AssetRecord:
    """The asset, created on first use."""
    tx.execute("INSERT INTO asset (code, scale) VALUES (?, ?) ON CONFLICT DO NOTHING", (code, scale))
    asset = ASSETS.find(tx, code=code, scale=scale)
    assert asset is not None
    return asset


def list_codes(tx: Transaction) -> Sequence[str]:
    """The distinct currency codes in use."""
    return [code for (code,) in tx.execute("SELECT DISTINCT code FROM asset ORDER BY code")]


def list_assets(tx: Transaction) -> Sequence[AssetRecord]:
    return ASSETS.list(tx, "ORDER BY code, scale")


def set_rate(tx: Transaction, base: str, counter: str, rate: str, now: int) -> None:
    """One unit of `base` buys `rate` units of `counter`, an exact decimal text, with no expiry.

    Deletes the opposite rate if it expires, so that the opposite direction uses the inverse of this one.
    """
    RATES.replace(tx, RateRecord(base, counter, rate, now))
    tx.execute(f"DELETE FROM exchange_rate {OF_PAIR} AND expires_at IS NOT NULL", (counter, base))


def refresh_rate(tx: Transaction, rate: RateRecord) -> None:
    """Stores a rate that is valid until its `expires_at`, unless the operator has set one in either direction."""
    known = find_rate(tx, rate.base, rate.counter), find_rate(tx, rate.counter, rate.base)
    if all(one is None or one.expires_at is not None for one in known):
        RATES.replace(tx, rate)


def find_rate(tx: Transaction, base: str, counter: str) -> RateRecord | None:
    return RATES.find(tx, OF_PAIR, base, counter)


def list_rates(tx: Transaction) -> Sequence[RateRecord]:
    return RATES.list(tx, "ORDER BY base_code, counter_code")


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


ACCOUNTS = Table(AccountRecord, "account")
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


def last_transfer(tx: Transaction) -> int:
    """The highest transfer id; 0 if there are none."""
    return number(tx, "SELECT max(id) FROM transfer")


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


def transferred_of_packet(tx: Transaction, outgoing_payment_id: str, packet_id: str) -> int:
    """The amount posted from a payment's hold for one of its packets."""
    of_packet = "SELECT sum(amount) FROM transfer WHERE outgoing_payment_id = ? AND packet_id = ?"
    return number(tx, of_packet, outgoing_payment_id, packet_id)


def reduce_hold(tx: Transaction, hold_id: int, amount: int) -> None:
    tx.execute("UPDATE hold SET remaining = remaining - ? WHERE id = ?", (amount, hold_id))
