"""The ledger: double entry, with holds, and the only place where money moves.

Every function runs in the caller's transaction, checks the accounts before and after, and stores the cause of the
movement: `store.accounts.change_account` checks and changes an account in one statement, `in_order` checks it again. No
account falls below its floor: zero, or for a peer minus its credit limit; the external account has none. At any moment
the balances of all accounts of an asset sum to zero, which `payres.operator.upkeep.invariant_checks` checks.
"""

import sqlite3
from collections.abc import Callable, Sequence
from functools import wraps
from typing import ParamSpec, TypeVar, Unpack

import msgspec

from payres.core.protocol.amounts import MAX_LEDGER
from payres.core.protocol.errors import InvalidAmount
from payres.core.store import accounts
from payres.core.store.accounts import ACCOUNTS, HOLDS, LOW_PART, AccountRecord, Cause
from payres.core.store.work import FailStop, Work

P = ParamSpec("P")
T = TypeVar("T")


class LedgerBroken(FailStop):
    """An invariant of the ledger does not hold: all writing stops until an operator has looked."""

    reason = "its ledger does not balance"


class NotEnough(Exception):
    """The account's free balance is too low. `free` is that balance, in the minor unit."""

    def __init__(self, account: AccountRecord, free: int) -> None:
        super().__init__(f"account {account.id} ({account.kind}) has {free} free")
        self.account = account
        self.free = free


class Moved(msgspec.Struct, frozen=True):
    """The id of a new transfer or hold, and the accounts that it left low, for warnings to operators."""

    id: int
    low: Sequence[AccountRecord]


class Side(msgspec.Struct, frozen=True):
    """One side of an exchange: an account, its asset, and the amount that leaves or arrives."""

    account_id: int
    asset_id: int
    amount: int


def guarded(function: Callable[P, T]) -> Callable[P, T]:
    """Raises LedgerBroken if a movement violates a constraint of the tables, which earlier checks should prevent."""

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except sqlite3.IntegrityError as error:
            raise LedgerBroken(f"a movement violates a constraint: {function.__name__}{args[1:]}: {error}") from error

    return call


def open_account(work: Work, kind: str, asset_id: int, floor: int | None = 0) -> int:
    """Opens an account with a balance of zero. Returns its id. Only the external account has no floor (None)."""
    account_id = accounts.insert_account(work, kind, asset_id, floor)
    if kind == "peer":
        watch(work, account_id)
    return account_id


def operator_account(work: Work, asset_id: int, kind: str) -> int:
    """The id of the asset's `liquidity`, `fees` or `external` account, created on first use."""
    found = accounts.find_operator_account(work, asset_id, kind)
    if found:
        return found.id
    return open_account(work, kind, asset_id, None if kind == "external" else 0)


def free_balance(account: AccountRecord) -> int:
    """The amount that may still leave the account, in the minor unit."""
    assert account.floor is not None, "the external account has no floor"
    return account.balance - account.held - account.floor


def check_free(work: Work, account_id: int, amount: int) -> None:
    """Raises NotEnough if the account cannot give this amount now."""
    account = _sound_account(work, account_id)
    if free_balance(account) < amount:
        raise NotEnough(account, free_balance(account))


def set_floor(work: Work, account_id: int, floor: int) -> None:
    """Sets the floor of the account. Raises NotEnough if it is already below that."""
    account = ACCOUNTS.by_id(work, account_id)
    assert account.floor is not None, "the external account has no floor"
    if account.balance - account.held < floor:
        raise NotEnough(account, free_balance(account))
    accounts.change_floor(work, account_id, floor)
    watch(work, account_id)


def watch(work: Work, account_id: int) -> None:
    """From now on, warns when less is free than a tenth of the peer's credit limit, or of the liquidity free now. It
    warns again only after twice as much has been free, or after another call of this function."""
    account = ACCOUNTS.by_id(work, account_id)
    assert account.floor is not None, "the external account has no floor"
    whole = -account.floor if account.kind == "peer" else free_balance(account)
    ACCOUNTS.update(work, account_id, warn_below=whole // LOW_PART or None, warned=0)


@guarded
def transfer(work: Work, debit: int, credit: int, amount: int, kind: str, **cause: Unpack[Cause]) -> Moved:
    """Moves `amount` from account `debit` to account `credit` at once.

    Raises NotEnough, InvalidAmount (beyond 2^63-1).
    """
    _check_amount(amount)
    low = _move(work, debit, credit, amount, 0)
    return Moved(accounts.insert_transfer(work, debit, credit, amount, kind, None, work.now, cause), low)


def exchange(work: Work, payer: Side, payee: Side, **cause: Unpack[Cause]) -> Sequence[AccountRecord]:
    """Moves money from the payer to the payee: directly in one asset, otherwise into the operator's liquidity in the
    payer's asset, and out of that in the payee's. Returns the accounts that became low.

    Raises NotEnough, InvalidAmount (beyond 2^63-1); then the unit must be rolled back.
    """
    if payer.asset_id == payee.asset_id and payer.account_id != payee.account_id:
        assert payer.amount == payee.amount, "amounts in one asset are equal"
        return transfer(work, payer.account_id, payee.account_id, payer.amount, "payment", **cause).low
    # Also if an account pays itself, since a transfer needs two different accounts.
    taken = operator_account(work, payer.asset_id, "liquidity")
    given = operator_account(work, payee.asset_id, "liquidity")
    of_payer = cause.copy()
    if cause.get("outgoing_payment_id"):
        of_payer.pop("incoming_payment_id", None)
    one = transfer(work, payer.account_id, taken, payer.amount, "exchange", **of_payer)
    other = transfer(work, given, payee.account_id, payee.amount, "payment", **cause)
    return [*one.low, *other.low]


@guarded
def hold(work: Work, account_id: int, amount: int, **cause: Unpack[Cause]) -> Moved:
    """Holds `amount` of the account for a payment or a packet.

    Raises NotEnough, InvalidAmount (beyond 2^63-1).
    """
    _check_amount(amount)
    _change(work, account_id, 0, amount)
    low = _check(work, account_id)
    return Moved(accounts.insert_hold(work, account_id, amount, work.now, cause), low)


@guarded
def post(work: Work, hold_id: int, credit: int, amount: int, kind: str, **cause: Unpack[Cause]) -> None:
    """Moves `amount`, part or all of a hold, to account `credit`.

    Raises InvalidAmount (beyond 2^63-1).
    """
    _check_amount(amount)
    held = HOLDS.by_id(work, hold_id)
    if held.remaining < amount:
        raise LedgerBroken(f"hold {hold_id} has {held.remaining} left, {amount} was to be posted")
    _move(work, held.account_id, credit, amount, amount)
    accounts.reduce_hold(work, hold_id, amount)
    both = Cause(outgoing_payment_id=held.outgoing_payment_id, packet_id=held.packet_id)
    both.update(cause)
    accounts.insert_transfer(work, held.account_id, credit, amount, kind, hold_id, work.now, both)


@guarded
def void(work: Work, hold_id: int) -> int:
    """Ends a hold: releases the part that was not posted, and returns it."""
    held = HOLDS.by_id(work, hold_id)
    if held.remaining:
        _change(work, held.account_id, 0, -held.remaining)
        _check(work, held.account_id)
        accounts.reduce_hold(work, hold_id, held.remaining)
    return held.remaining


def _check_amount(amount: int) -> None:
    if not 0 < amount <= MAX_LEDGER:
        raise InvalidAmount(f"The ledger moves amounts from 1 to {MAX_LEDGER} minor units")


def _move(work: Work, debit: int, credit: int, amount: int, from_held: int) -> Sequence[AccountRecord]:
    """Changes both balances. Returns the accounts that became low.

    Raises like `_change`, and LedgerBroken if the accounts have different assets.
    """
    if debit == credit:
        raise LedgerBroken(f"account {debit} cannot be both sides of one transfer")
    _change(work, debit, -amount, -from_held)
    _change(work, credit, amount, 0)
    return _check(work, debit, credit)


def _change(work: Work, account_id: int, balance: int, held: int) -> None:
    """Changes the balance and the held amount; `_check` must follow.

    Raises NotEnough, InvalidAmount (beyond 2^63-1), with nothing changed.
    """
    if not accounts.change_account(work, account_id, balance, held, MAX_LEDGER):
        raise _obstacle(_sound_account(work, account_id), balance, held)


def _check(work: Work, *moved: int) -> Sequence[AccountRecord]:
    """Checks one or two accounts after a movement. Returns those that have just become low. Raises LedgerBroken."""
    if accounts.in_order(work, moved[0], moved[-1]):
        return ()
    found = [_sound_account(work, account_id) for account_id in moved]
    if found[0].asset_id != found[-1].asset_id:
        raise LedgerBroken(f"{_shown(found[0])} and {_shown(found[-1])} have different assets")
    return [account for account in found if _runs_low(work, account)]


def _runs_low(work: Work, account: AccountRecord) -> bool:
    """Whether to warn about the account now; updates `warned`, see `watch`."""
    if account.warn_below is None:
        return False
    free = free_balance(account)
    if account.warned and free >= 2 * account.warn_below:
        ACCOUNTS.update(work, account.id, warned=0)
    elif not account.warned and free < account.warn_below:
        ACCOUNTS.update(work, account.id, warned=1)
        return True
    return False


def _obstacle(account: AccountRecord, balance: int, held: int) -> Exception:
    """Why an account cannot change like this."""
    if account.floor is not None and free_balance(account) < held - balance:
        return NotEnough(account, free_balance(account))
    if account.held + held < 0:
        return LedgerBroken(f"{_shown(account)} lacks the {-held} of a hold")
    return InvalidAmount(f"An account has and holds back at most {MAX_LEDGER} minor units")


def _sound_account(work: Work, account_id: int) -> AccountRecord:
    """The account. Raises LedgerBroken if no movement can have left it in this state."""
    account = ACCOUNTS.by_id(work, account_id)
    floor, free = account.floor, account.balance - account.held
    if account.held < 0 or (free < floor if floor is not None else account.kind != "external"):
        raise LedgerBroken(f"{_shown(account)} is in a state that no movement leaves")
    return account


def _shown(account: AccountRecord) -> str:
    return (
        f"account {account.id} ({account.kind}, balance {account.balance}, held {account.held}, floor {account.floor})"
    )
