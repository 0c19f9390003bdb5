"""Rules of incoming payments. Specification 2.3, 3, 4.4 to 4.6."""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.core.grants.access import Caller
from payres.core.process.worker import Worker
from payres.core.protocol.amounts import MAX_LEDGER, describe_amount
from payres.core.protocol.clock import SECOND, format_time, parse_time
from payres.core.protocol.errors import InvalidAmount, InvalidExpiry, InvalidReceiver, WrongState
from payres.core.protocol.identifiers import ID_TIME, first_identifier
from payres.core.protocol.urls import Urls
from payres.core.protocol.wire import IncomingPayment, IncomingPaymentRequest, metadata_text, value_in
from payres.core.store import incoming_payments, representations, retention, wallets
from payres.core.store.database import Database
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.core.store.wallets import WALLETS, WalletRecord, active_wallet
from payres.core.store.work import Work

PARTIAL_EVENT: Final = "incoming_payment.partial_payment_received"
PARTIAL_EVENT_PAUSE: Final = 10 * SECOND  # at least from one of a payment to the next: packets come by the hundred
# The interval of the worker that looks for expired payments; its retry interval; and its batch size.
EXPIRY_SECONDS: Final = 1
EXPIRY_RETRY_SECONDS: Final = 5
EXPIRY_BATCH: Final = 64
PAID_MEANWHILE: Final = "The receiver has been paid meanwhile and takes less than was quoted; quote again"


def create(work: Work, caller: Caller, asked: IncomingPaymentRequest) -> IncomingPayment:
    """A new incoming payment into the wallet address of the request. Specification 4.4.

    Raises InvalidRequest, InvalidAmount, InvalidExpiry.
    """
    wallet = active_wallet(work, caller.wallet_address)
    value = value_in(asked.incoming_amount, wallet.asset, "incomingAmount") if asked.incoming_amount else None
    metadata, expires_at = metadata_text(asked.metadata), _expiry(work, asked.expires_at or None)
    return add(work, wallet, made(work, wallet, caller.client_id, value, metadata, expires_at))


def made(
    work: Work, wallet: WalletRecord, client_id: int, value: int | None, metadata: str | None, expires_at: int
) -> IncomingRecord:
    """A new incoming payment, for `add`; `value` is its incomingAmount, if it has one."""
    return IncomingRecord(
        id=work.new_id(),
        wallet_address_id=wallet.id,
        client_id=client_id,
        incoming_value=None if value is None else str(value),
        received=0,
        metadata=metadata,
        created_at=work.now,
        expires_at=expires_at,
        completed_at=None,
    )


def add(work: Work, wallet: WalletRecord, payment: IncomingRecord) -> IncomingPayment:
    """Inserts a new incoming payment, and writes its event. If it has an incomingAmount, the owner sees it at once."""
    listed = None if payment.incoming_value is None else payment.id
    INCOMING.insert(work, msgspec.structs.replace(payment, listed=listed))
    # Afterwards: it deletes the clients of what it deletes unless something refers to them, and this payment now does.
    retention.purge(work, retention.INCOMING_PAYMENTS, work.now)
    return _emit(work, "incoming_payment.created", wallet, payment)


def unpaid(
    work: Work, wallet: WalletRecord, client_id: int, metadata: str | None = None, expires_at: int | None = None
) -> "LocalReceiver":
    """An incoming payment of any amount for a local payer, not yet inserted."""
    until = _expiry(work, None) if expires_at is None else expires_at
    payment = made(work, wallet, client_id, None, metadata, until)
    return LocalReceiver(work.urls.resource("incoming-payments", payment.id), payment, wallet)


def complete(work: Work, wallet: WalletRecord, payment: IncomingRecord) -> IncomingPayment:
    """Completes the payment, unless it is completed. Specification 4.6.

    Raises WrongState if it has expired.
    """
    if payment.completed:
        return representations.incoming_payment(work.urls, wallet, payment)
    if not payment.open_at(work.now):
        raise WrongState("The incoming payment has expired and can no longer be completed")
    incoming_payments.complete_incoming(work, payment.id, work.now)
    completed = msgspec.structs.replace(payment, completed_at=work.now)
    return _emit(work, "incoming_payment.completed", wallet, completed)


async def report_expired(database: Database) -> None:
    """Writes one event for each expired payment, also of those that expired while the server was down, and for what
    came within the pause after another event. Ends when the database is in fail-stop."""

    def is_due(work: Work) -> bool:
        return bool(_untold(work) or incoming_payments.expired_without_event(work, work.now, 1))

    async def write_events() -> int:
        while await database.read(is_due):
            await database.write(_expire_due)
        return EXPIRY_SECONDS

    await Worker("the search for expired payments", database, write_events, EXPIRY_RETRY_SECONDS).run()


def _expire_due(work: Work) -> None:
    expired = incoming_payments.expired_without_event(work, work.now, EXPIRY_BATCH)
    for payment in {one.id: one for one in (*_untold(work), *expired) if one.untold_at is not None}.values():
        incoming_payments.INCOMING.update(work, payment.id, partial_event_at=work.now, untold_at=None)
        _emit(work, PARTIAL_EVENT, WALLETS.by_id(work, payment.wallet_address_id), payment)
    for payment in expired:
        incoming_payments.note_expiry(work, payment.id, work.now)
        _emit(work, "incoming_payment.expired", WALLETS.by_id(work, payment.wallet_address_id), payment)


def _untold(work: Work) -> Sequence[IncomingRecord]:
    return incoming_payments.untold(work, work.now, PARTIAL_EVENT_PAUSE)


class LocalReceiver(msgspec.Struct, frozen=True):
    """An open local incoming payment, its canonical URL and its wallet address."""

    url: str
    payment: IncomingRecord
    wallet: WalletRecord


def open_receiver(work: Work, url: str, field: str) -> LocalReceiver:
    """The receiver at `url`. Raises InvalidReceiver if it is unknown or accepts no more money.

    The reasons are those of a receiver on another server.
    """
    canonical = work.urls.canonical_receiver(url)
    if canonical is None:
        raise unpayable(field, "it must be the URL of an incoming payment")
    payment_id = work.urls.resource_id("incoming-payments", canonical)
    if payment_id is None:
        raise unpayable(field, "it is not an incoming payment of this server", "not_found")
    found = wallets.find_with_wallet(work, INCOMING, payment_id)
    if found is None:
        raise unpayable(field, "there is no such incoming payment", "not_found")
    payment, wallet = found
    if payment.completed:
        raise unpayable(field, "the incoming payment is completed", "completed")
    if not payment.open_at(work.now):
        raise unpayable(field, "the incoming payment has expired", "expired")
    if not wallet.active:
        raise unpayable(field, "the receiving wallet address is no longer active")
    return LocalReceiver(canonical, payment, wallet)


def is_remote(urls: Urls, url: str) -> bool:
    """Whether a URL can be an incoming payment of another server."""
    return urls.canonical_receiver(url) is not None and not urls.is_ours(url)


def unpayable(field: str, why: str, reason: str | None = None) -> InvalidReceiver:
    """The error for a receiver, given in member `field`, that cannot be paid."""
    details = {"field": field} if reason is None else {"field": field, "reason": reason}
    return InvalidReceiver(f"{field} cannot be paid: {why}", **details)


def fits(remaining: int | None, amount: int) -> bool:
    """Whether an amount is within the incoming payment's remaining amount: the rule for quotes and local payments.

    `remaining` is None without an incomingAmount. Interledger packets have their own rule, below.
    """
    return remaining is None or amount <= remaining


def credit(work: Work, wallet: WalletRecord, payment: IncomingRecord, amount: int) -> None:
    """Counts an amount that the ledger has credited in this unit, and completes the payment if it has its
    incomingAmount.

    Raises InvalidAmount for a total beyond 2^63-1.
    """
    if payment.received + amount > MAX_LEDGER:
        received, most = (describe_amount(one, wallet.asset) for one in (payment.received, MAX_LEDGER))
        raise InvalidAmount(
            f"The incoming payment has received {received}, and its total may not pass {most}", receiveValue=str(amount)
        )
    reached = payment.remaining is not None and amount >= payment.remaining
    event_at, changed = payment.partial_event_at, dict[str, object]({"completed_at": work.now} if reached else {})
    if not payment.received:
        changed["listed"] = f"{first_identifier(work.now)}{payment.id[ID_TIME:]}"
    if reached or event_at is None or not 0 <= work.now - event_at < PARTIAL_EVENT_PAUSE:
        changed |= {"partial_event_at": work.now} | ({"untold_at": None} if payment.untold_at else {})
        credited = msgspec.structs.replace(payment, received=payment.received + amount, **changed)
        _emit(work, "incoming_payment.completed" if reached else PARTIAL_EVENT, wallet, credited)
    else:
        changed |= {} if payment.untold_at else {"untold_at": event_at + PARTIAL_EVENT_PAUSE}
        work.changed.append(payment.id)
    incoming_payments.add_received(work, payment.id, amount, **changed)


def _emit(work: Work, name: str, wallet: WalletRecord, payment: IncomingRecord) -> IncomingPayment:
    """Writes the event of this name. Returns the payment as shown in it."""
    shown = representations.incoming_payment(work.urls, wallet, payment)
    work.emit(name, payment.id, shown, wallet.id)
    return shown


def _expiry(work: Work, text: str | None) -> int:
    """The payment's expiry: the setting is both default and maximum."""
    latest = work.now + work.settings.incoming_payment_lifetime * SECOND
    if text is None:
        return latest
    try:
        expires_at = parse_time(text)
    except ValueError as error:
        raise InvalidExpiry(f"expiresAt: {error}", field="expiresAt") from error
    if expires_at <= work.now:
        raise InvalidExpiry("expiresAt must lie in the future", field="expiresAt")
    if expires_at > latest:
        raise InvalidExpiry(f"expiresAt may be no later than {format_time(latest)}", field="expiresAt")
    return expires_at
