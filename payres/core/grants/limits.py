"""Limits of outgoing-payment grants: what a client may spend, the sums spent in the current window, and whether another
payment fits.

The spent amounts are those held or sent under the grant in the window. The unit that creates a payment reads and
updates them, so two payments cannot both use the rest of a limit.
"""

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from payres.core.grants.access import granted_access
from payres.core.grants.intervals import MEAN_MONTH, Interval, parse_interval
from payres.core.protocol.amounts import Asset, Terms, parse_value
from payres.core.protocol.clock import DAY, HOUR, format_time
from payres.core.protocol.errors import InvalidRequest, LimitExceeded
from payres.core.protocol.gnap import Limits, OutgoingPaymentAccess
from payres.core.protocol.urls import canonical
from payres.core.protocol.visible import URL_CHARACTERS
from payres.core.protocol.wire import Amount
from payres.core.store import grants
from payres.core.store.payments import INCOMING
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Transaction, Work

REQUESTED = "access_token.access.limits"  # the member of a grant request
SHORTEST_MONTH = 28 * DAY
NO_INTERVAL = 0  # the window_start of grants whose limits have no interval


class Spending(NamedTuple):
    """What a client may spend: at most `value` in each window of the interval, or once without an interval.

    Without a value only the balance is a limit. It is in `asset`; with `fixes_receive` it limits the received amount.
    """

    value: int | None
    asset: Asset | None
    fixes_receive: bool
    receiver: str | None
    interval: Interval | None

    @property
    def times(self) -> int | None:
        """The number of windows; None if endless."""
        return 1 if self.interval is None else self.interval.windows_total

    @property
    def total(self) -> int | None:
        """The sum over all windows; None if unlimited."""
        return None if self.value is None or self.times is None else self.value * self.times

    @property
    def a_month(self) -> int | None:
        """The most that can be spent within a month, rounded up; None without a value."""
        if self.value is None or self.interval is None or self.interval.mean_length >= SHORTEST_MONTH:
            return self.value  # a longer window's value can be spent within a month
        windows = -(-self.value * MEAN_MONTH // self.interval.mean_length)
        return windows if self.total is None else min(windows, self.total)

    @property
    def is_open(self) -> bool:
        """Whether it continues until somebody stops it, or its windows are too short to foresee the total."""
        return self.total is None or (self.interval is not None and self.interval.mean_length < HOUR)


@lru_cache(maxsize=1024)
def spending_of(access: str) -> Spending | None:
    """The spending permitted by this access (JSON text); None if none is."""
    for item in granted_access(access):
        if isinstance(item, OutgoingPaymentAccess) and "create" in item.actions:
            limits = item.limits or Limits()
            amount: Amount | None = limits.debit_amount or limits.receive_amount or None
            return Spending(
                value=parse_value(amount.value) if amount else None,
                # A receiver's asset code was chosen by the client.
                asset=Asset(quote(amount.asset_code, safe=URL_CHARACTERS), amount.asset_scale) if amount else None,
                fixes_receive=bool(limits.receive_amount),
                receiver=limits.receiver or None,
                interval=parse_interval(limits.interval) if limits.interval else None,
            )
    return None


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
