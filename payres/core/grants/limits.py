"""Limits of outgoing-payment grants: the sums spent in the current window, and whether another payment fits.

The spent amounts are those held or sent under the grant in the window. The unit that creates a payment reads and
updates them, so two payments cannot both use the rest of a limit.
"""

import msgspec
from msgspec import UNSET

from payres.core.grants.intervals import parse_interval
from payres.core.protocol.amounts import Asset, parse_value
from payres.core.protocol.clock import format_time
from payres.core.protocol.errors import InvalidRequest, LimitExceeded
from payres.core.protocol.gnap import Limits
from payres.core.protocol.terms import Terms
from payres.core.protocol.urls import canonical
from payres.core.protocol.wire import Amount
from payres.core.store import grants
from payres.core.store.payments import INCOMING
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Transaction, Work

REQUESTED = "access_token.access.limits"  # the member of a grant request
NO_INTERVAL = 0  # the window_start of grants whose limits have no interval


class Spent(msgspec.Struct, frozen=True):
    """Sums of one window, in the minor units of the sender's asset and of the last receiver's asset."""

    debit: int
    receive: int
    receive_asset: Asset


def check_limits(work: Work, grant_id: str, limits: Limits | None, terms: Terms) -> tuple[int, Spent]:
    """The start of the payment's window, and the sums spent in it. Raises LimitExceeded, which names the limit."""
    limits = limits or Limits()
    if limits.receiver and canonical(limits.receiver) != canonical(terms.receiver):
        raise LimitExceeded("The grant allows payments to another receiver only", reason="receiver")
    window = current_window(limits, work.now)
    if window is None:
        raise LimitExceeded("The grant's interval has no window open now", reason="interval")
    spent = spent_in_window(work, grant_id, window, terms.asset) or Spent(0, 0, terms.asset)
    if limits.debit_amount:
        _check_amount("debitAmount", limits.debit_amount, spent.debit, terms.debit)
    if limits.receive_amount:
        if limits.receive_amount.asset != terms.asset:
            raise LimitExceeded(
                "The grant's receiveAmount is in another asset than the receiver's", reason="receiveAmount"
            )
        _check_amount("receiveAmount", limits.receive_amount, spent.receive, terms.receive)
    return window, spent


def current_window(limits: Limits | None, now: int) -> int | None:
    """The start of the current window; NO_INTERVAL without an interval, None outside the interval's windows."""
    if limits is None or limits.interval is UNSET:
        return NO_INTERVAL
    interval = parse_interval(limits.interval)
    index = interval.window_at(now)
    return None if index is None else interval.boundary(index)


def spent_in_window(tx: Transaction, grant_id: str, window: int, receive_asset: Asset | None = None) -> Spent | None:
    """The sums of a window, or None if nothing was spent, or all was returned. debit includes payments to receivers of
    every asset; receive only those in `receive_asset`, or else in the last receiver's asset."""
    records = grants.spending(tx, grant_id, window)
    if not records:
        return None
    asset = receive_asset or records[0].receive_asset
    received = sum(r.receive for r in records if r.receive_asset == asset)
    return Spent(sum(r.debit for r in records), received, asset)


def _check_amount(field: str, limit: Amount, spent: int, wanted: int) -> None:
    left = parse_value(limit.value) - spent
    if wanted > left:
        left = max(left, 0)
        says = f"The grant has {left} of its {field} limit left and this payment needs {wanted}"
        raise LimitExceeded(says, reason=field, left=str(left), needed=str(wanted))


def check_requested_limits(work: Work, limits: Limits, asset: Asset) -> None:
    """Raises InvalidRequest for limits that are invalid for a wallet in `asset`, or that no payment could meet."""
    if limits.debit_amount and limits.receive_amount:
        raise InvalidRequest("Limit debitAmount or receiveAmount, not both", field=REQUESTED)
    receiver_asset = _receiver_asset(work, limits.receiver) if limits.receiver else None
    if limits.debit_amount:
        _check_requested(limits.debit_amount, asset, "debitAmount")
    if limits.receive_amount:
        _check_requested(limits.receive_amount, receiver_asset, "receiveAmount")
    if limits.interval:
        try:
            end = parse_interval(limits.interval).end
        except ValueError as error:
            raise _invalid("interval", f": {error}") from error
        if end is not None and end <= work.now:
            raise _invalid("interval", f" is past: its last window ended at {format_time(end)}")


def _check_requested(amount: Amount, asset: Asset | None, member: str) -> None:
    try:
        value = parse_value(amount.value)
    except ValueError as error:
        raise _invalid(f"{member}.value", f": {error}") from error
    if value == 0:
        raise InvalidRequest(f"limits.{member} of 0 permits nothing", field=f"{REQUESTED}.{member}.value")
    if asset and amount.asset != asset:
        raise _invalid(member, f" must be in {asset.code} with assetScale {asset.scale}")


def _receiver_asset(work: Work, receiver: str) -> Asset | None:
    """The asset of the receiver in the limits; None if it is on another server."""
    if work.urls.canonical_receiver(receiver) is None:
        raise _invalid("receiver", " must be the URL of an incoming payment")
    if not work.urls.is_ours(receiver):
        return None
    payment_id = work.urls.resource_id("incoming-payments", receiver)
    payment = INCOMING.get(work, payment_id) if payment_id else None
    if payment is None:
        raise _invalid("receiver", " is no incoming payment of this server")
    return WALLETS.by_id(work, payment.wallet_address_id).asset


def _invalid(member: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"limits.{member}{problem}", field=f"{REQUESTED}.{member}")
