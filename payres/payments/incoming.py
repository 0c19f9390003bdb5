"""Rules of incoming payments (parts 2.3, 3, 4.4 to 4.6)."""

from payres.amounts import MAX_LEDGER, Asset
from payres.clock import format_time, parse_time
from payres.errors import InvalidAmount, InvalidExpiry, NotFound, WrongState
from payres.identifiers import Identifiers
from payres.ledger import SUMMED, check_sum
from payres.payments.exchange import value_in
from payres.store import incoming
from payres.store.database import Transaction
from payres.store.incoming import IncomingRecord
from payres.store.wallets import WalletRecord
from payres.wire import IncomingPaymentRequest, metadata_text

MICROSECONDS = 1_000_000


def create_incoming_payment(
    tx: Transaction,
    wallet: WalletRecord,
    client_id: int,
    request: IncomingPaymentRequest,
    identifiers: Identifiers,
    lifetime: int,
    now: int,
) -> IncomingRecord:
    """A new incoming payment into `wallet`. `lifetime` (seconds) is the default expiry and the longest.

    Refuses with 400 `invalid_amount` or `invalid_expiry`. Part 4.4.
    """
    value = None
    if request.incoming_amount:
        asset = Asset(wallet.asset_code, wallet.asset_scale)
        value = str(value_in(request.incoming_amount, asset, "incomingAmount"))
    payment = IncomingRecord(
        id=identifiers.resource(),
        wallet_address_id=wallet.id,
        client_id=client_id,
        incoming_value=value,
        received=0,
        metadata=metadata_text(request.metadata),
        created_at=now,
        expires_at=_expiry(request.expires_at or None, lifetime * MICROSECONDS, now),
        completed_at=None,
    )
    incoming.insert_incoming(tx, payment)
    return payment


def complete_incoming_payment(tx: Transaction, payment: IncomingRecord, now: int) -> IncomingRecord:
    """The payment, completed; a completed one stays as it is. Refuses an expired one with 409. Part 4.6."""
    if payment.completed:
        return payment
    if not payment.open_at(now):
        raise WrongState("The incoming payment has expired and can no longer be completed")
    incoming.complete_incoming(tx, payment.id, now)
    return require_incoming(tx, payment.id)


def require_incoming(tx: Transaction, payment_id: str) -> IncomingRecord:
    """The payment with this id; 404 when there is none."""
    payment = incoming.find_incoming(tx, payment_id)
    if payment is None:
        raise no_such_payment()
    return payment


def no_such_payment() -> NotFound:
    """The same answer whether it does not exist or is another client's."""
    return NotFound("There is no such incoming payment, or it is not this client's")


def check_countable(payment: IncomingRecord, amount: int) -> None:
    """Refuses with 400 `invalid_amount` what would take the payment's total past what one figure holds."""
    if payment.received + amount > MAX_LEDGER:
        raise InvalidAmount(
            f"The incoming payment has received {payment.received}, and its total may not pass {MAX_LEDGER}",
            receiveValue=str(amount),
        )


def credit(tx: Transaction, payment: IncomingRecord, amount: int, now: int) -> None:
    """Counts an amount that the ledger has credited in this same unit, and completes a payment that has all it wants.

    Raises InvalidAmount (a total past 2^63-1), LedgerBroken when the total is not what was transferred.
    """
    check_countable(payment, amount)
    credited = incoming.first_received(tx, payment, SUMMED)
    total = payment.received + amount
    check_sum(f"the received of incoming payment {payment.id}", total, credited, len(credited) < SUMMED)
    remaining = payment.remaining
    reached = remaining is not None and amount >= remaining
    incoming.add_received(tx, payment.id, amount, now if reached else None)


def _expiry(text: str | None, longest: int, now: int) -> int:
    if text is None:
        return now + longest
    try:
        expires_at = parse_time(text)
    except ValueError as error:
        raise InvalidExpiry(f"expiresAt: {error}", field="expiresAt") from error
    if expires_at <= now:
        raise InvalidExpiry("expiresAt must lie in the future", field="expiresAt")
    if expires_at > now + longest:
        latest = format_time(now + longest)
        raise InvalidExpiry(f"expiresAt may be no later than {latest}", field="expiresAt")
    return expires_at
