"""Movements of money between outside (the external account) and an account here.

A movement may have a reference, the operator's own name for it. An account has only one movement for a reference,
however often it is requested. For ten minutes a movement can be undone: the opposite movement is made, and both stay.
"""

from collections.abc import Mapping
from itertools import count
from typing import Annotated, Final, Literal

from msgspec import UNSET

from payres.core.payments import ledger
from payres.core.payments.idempotency import check_reference
from payres.core.protocol.amounts import describe_amount, format_decimal
from payres.core.protocol.clock import HOUR, MINUTE, format_time, lasts
from payres.core.protocol.errors import DomainError, InsufficientFunds, WrongState, require
from payres.core.protocol.event_types import WalletEvent
from payres.core.protocol.wire import Resource, require_amount
from payres.core.store import audit, representations
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.wallets import find_wallet
from payres.core.store.work import Work
from payres.interledger.clearing import warn_of_low
from payres.interledger.store.peers import peer_with_account
from payres.operator.declared.declarations import OperationForm, operation
from payres.operator.declared.inputs import said
from payres.operator.declared.shapes import Column, Shape, Time, path_of, represent
from payres.operator.store import movements
from payres.operator.store.movements import MOVEMENTS, NAMED_ACCOUNTS, MovementRecord, NamedAccount

MovementKind = Literal["deposit", "withdrawal"]

ACTIONS: Final[Mapping[str, str]] = {"deposit": "deposit", "withdrawal": "withdraw"}
EVENTS: Final[Mapping[str, str]] = {"deposit": "wallet.deposited", "withdrawal": "wallet.withdrawn"}
OPPOSITES: Final[Mapping[str, MovementKind]] = {"deposit": "withdrawal", "withdrawal": "deposit"}
# Accounts in sentences, by kind.
HOLDERS: Final = {
    "wallet": "The wallet {0.name}",
    "peer": "The account of the peer {0.name}, its credit limit included,",
    "liquidity": "The liquidity in {0.asset_code} with scale {0.asset_scale}",
    "fees": "The fees account in {0.asset_code} with scale {0.asset_scale}",
}
SETTLED: Final = {"deposit": "They paid us", "withdrawal": "We paid them"}
UNDO_MINUTES: Final = 10
FORM_REFERENCE: Final = "page "  # before a form's own id, which is the reference of what has none
REMEMBERED: Final = HOUR  # before the same amount is taken for another one
# For people, whom a movement is asked for: programs say by Idempotency-Key or reference what is a repetition.
Again = Annotated[str | None, said("The equal one that was made before, to make it once more.", metavar="ID")]


class MadeBefore(WrongState):
    """Somebody has just made the same movement, or one with the same reference: `first`."""

    def __init__(self, sentence: str, first: MovementRecord) -> None:
        super().__init__(sentence, advice=f"`--again {first.id}` makes it once more", movement=first.id)
        self.first = first


class Movement(Resource, frozen=True, kw_only=True):
    """A deposit from outside, or a withdrawal; `account` is such as `wallet alice`, or `liquidity USD 2`.

    `undoes` is the movement that this one is the opposite of, `undoneBy` the one that is the opposite of this one.
    """

    id: str
    kind: str
    account: str
    amount: str
    asset_code: str
    asset_scale: int
    reference: str | None
    undoes: str | None
    undone_by: str | None
    created_at: Time


def movement(work: Work, record: MovementRecord) -> Movement:
    account = record.account
    amount = format_decimal(record.amount, account.asset)
    return represent(Movement, record, account, account=f"{account.kind} {account.name}", amount=amount)


def _what(one: Movement) -> str:
    kind = SETTLED[one.kind] if one.account.startswith("peer ") else one.kind
    return f"{kind}, undone" if one.undone_by else f"{kind}, undoes another" if one.undoes else kind


def own_reference(one: Movement) -> str | None:
    """The reference that somebody gave; without one, a form's own id is used."""
    return None if (one.reference or "").startswith(FORM_REFERENCE) else one.reference


def require_movement(work: Work, id: str) -> MovementRecord:
    """Raises NotFound."""
    return require(MOVEMENTS.get(work, id), "There is no such movement")


def page_of_account(one: Movement) -> str:
    kind, *names = one.account.split(" ")
    return path_of({"wallet": "wallets", "peer": "peers"}.get(kind, "assets"), *names)


MOVEMENT: Final = Shape(
    movement,
    Column("Time (UTC)", "created_at", "time"),
    Column("What", _what),
    Column("Amount", "amount", "number"),
    Column("Asset", "asset_code", listed="in files"),
    Column("Reference", "reference", "long", listed="in files"),
    Column("Reference", own_reference, "long", listed="on pages"),
    read=require_movement,
    name=lambda one: one.account.partition(" ")[2],
    undo="/movements/{id}/undo",
)


def form(button: str, about: Shape, done: str, title: str = "", path: str = "") -> OperationForm:
    """The form of an operation that moves an amount; `done` goes on after the amount."""
    return OperationForm(button, about, f"{{asset_code}} {{amount:money}} {done}", title, path)


def move(
    work: Work, account_id: int, kind: MovementKind, text: str, reference: str | None = None, again: str | None = None
) -> MovementRecord:
    """Moves an amount such as "100.00" from outside to the account, or from the account to outside. Raises
    InvalidAmount, InvalidRequest for a reference, WrongState for one that another movement has; InsufficientFunds for a
    withdrawal, whose reason is the kind of the account; MadeBefore for people, unless `again` is the id of what was
    made before."""
    account = NAMED_ACCOUNTS.by_id(work, account_id)
    amount = require_amount(text, account.asset)
    found = _find(work, account, kind, amount, reference)
    actor, _, _ = work.actor.partition(":")
    if found is not None and actor != "page":  # where a form is carried out once without a reference
        return found
    before = _made_before(work, account, kind, amount, reference) if actor in {"page", "shell"} else None
    if found is not None and reference is not None:
        numbers = (f"{reference} ({number})" for number in count(2))
        reference = next(
            one for one in numbers if movements.MOVEMENTS.find(work, account_id=account_id, reference=one) is None
        )
        check_reference(reference)
    made = _make(work, account, kind, amount, again if before else None, reference=reference)
    if before is not None and before.first.id != again:  # what is refused in any case is not asked
        raise before
    return made


def _made_before(
    work: Work, account: NamedAccount, kind: MovementKind, amount: int, reference: str | None
) -> MadeBefore | None:
    """The error if somebody, whoever it was, may have made it before. Who gives a reference that no other has means
    another one."""
    is_named = reference is not None and not reference.startswith(FORM_REFERENCE)
    if reference is not None and is_named:
        here = movements.MOVEMENTS.find(work, account_id=account.id, reference=reference)
        first = here or movements.movement_of_reference(work, kind, reference)
    else:
        first = movements.equal_movement(work, account.id, kind, amount, work.now, REMEMBERED)
    if first is None or first.undone_by:
        return None
    sentence = f"The reference {reference!r} is that of" if is_named else "It may have been made before: there is"
    of = first.account
    whose = f"a {first.kind} of {describe_amount(first.amount, of.asset)} of the {of.kind} {of.name}"
    return MadeBefore(f"{sentence} {whose} at {format_time(first.created_at)}", first)


@operation(
    shows=MOVEMENT,
    form=OperationForm(
        "Undo",
        MOVEMENT,
        done="{asset_code} {amount:money} went back; both movements stay",
        will=f"The opposite is made, and both stay: for {UNDO_MINUTES} minutes, and while the money is there.",
        path=MOVEMENT.undo,
        back=page_of_account,
        is_over=lambda one: one.undoes or one.undone_by,
        presses=True,
        unasked="it undoes what was asked for minutes ago",
    ),
    scope="wallets:fund",
    audits=" ".join(f"{kind}.{action}" for kind in HOLDERS for action in ACTIONS.values()),
)
def undo(work: Work, id: str) -> MovementRecord:
    """Make the opposite movement.

    Raises NotFound; WrongState after ten minutes, if it was undone or undoes another, or if the peer was removed;
    InsufficientFunds if the money is no longer free.
    """
    first = require_movement(work, id)
    _check_undoable(work, first)
    return _make(work, first.account, OPPOSITES[first.kind], first.amount, undoes=first.id)


def undoable_until(work: Work, record: MovementRecord) -> int | None:
    """When `undo` stops taking the movement, in microseconds UTC; None if it does not take it now."""
    try:
        _check_undoable(work, record)
    except DomainError:
        return None
    return record.created_at + UNDO_MINUTES * MINUTE


def _check_undoable(work: Work, first: MovementRecord) -> None:
    account = first.account
    if first.undoes is not None:
        raise WrongState(f"This {first.kind} undoes another one, and cannot be undone itself")
    if first.undone_by is not None:
        raise WrongState(f"This {first.kind} was undone already")
    if not lasts(first.created_at + UNDO_MINUTES * MINUTE, work.now, UNDO_MINUTES * MINUTE):
        sentence = f"A {first.kind} can be undone for {UNDO_MINUTES} minutes, which are over; make a"
        raise WrongState(f"{sentence} {OPPOSITES[first.kind]} instead")
    if account.kind == "peer" and peer_with_account(work, account.id) is None:
        raise WrongState(f"The peer {account.name} was removed, so this {first.kind} cannot be undone")
    if first.kind == "deposit":
        _check_free(work, account, first.amount)


def _check_free(work: Work, account: NamedAccount, amount: int) -> None:
    try:
        ledger.check_free(work, account.id, amount)
    except ledger.NotEnough as lack:
        holder, free = HOLDERS[account.kind].format(account), format_decimal(lack.free, account.asset)
        has, needed = (describe_amount(figure, account.asset) for figure in (lack.free, amount))
        raise InsufficientFunds(
            f"{holder} has {has} free, less than {needed}", reason=account.kind, free=free
        ) from lack


def _find(
    work: Work, account: NamedAccount, kind: MovementKind, amount: int, reference: str | None
) -> MovementRecord | None:
    if reference is None:
        return None
    check_reference(reference)
    found = movements.MOVEMENTS.find(work, account_id=account.id, reference=reference)
    if found is not None and (found.undone_by or (found.kind, found.amount) != (kind, amount)):
        was = describe_amount(found.amount, account.asset)
        over = " that was undone" if found.undone_by else ""
        whose = f"that of a {found.kind} of {was}{over}"
        raise WrongState(
            f"The reference {reference!r} is {whose}; give each movement one of its own", reference=reference
        )
    return found


def _make(
    work: Work, account: NamedAccount, kind: MovementKind, amount: int, again: str | None = None, **about: str | None
) -> MovementRecord:
    """Moves the amount; `about` is the reference, or the movement that this one undoes."""
    external = ledger.operator_account(work, account.asset_id, "external")
    if kind == "withdrawal":
        _check_free(work, account, amount)
    sides = (external, account.id) if kind == "deposit" else (account.id, external)
    moved, movement_id = ledger.transfer(work, *sides, amount, kind), work.new_id()
    warn_of_low(work, moved.low)
    columns = {"account_id": account.id, "transfer_id": moved.id, "created_at": work.now}
    MOVEMENTS.create(work, id=movement_id, **columns, **about)
    shown, action = f"{format_decimal(amount, account.asset)} {account.asset_code}", f"{account.kind}.{ACTIONS[kind]}"
    audit.record(work, action, account.name, amount=shown, **about, again=again)
    if account.kind == "wallet":
        _emit(work, account, kind, amount, about.get("reference"))
    elif account.kind == "liquidity":
        ledger.watch(work, account.id)
    return MOVEMENTS.by_id(work, movement_id)


def _emit(work: Work, account: NamedAccount, kind: MovementKind, amount: int, reference: str | None) -> None:
    balance, asset = ACCOUNTS.by_id(work, account.id).balance, account.asset
    data = WalletEvent(
        wallet_address=work.urls.wallet(account.name),
        amount=representations.amount(amount, asset),
        balance=representations.amount(balance, asset),
        reference=UNSET if reference is None else reference,
    )
    wallet = find_wallet(work, account.name)
    work.emit(EVENTS[kind], None, data, None if wallet is None else wallet.id)
