"""Limits of outgoing-payment grants: what was spent in the current window, and whether one more payment fits.

Spent is what was reserved or sent under the grant in the window. It is read and added to in the unit that makes the
payment, so no two payments can both take the last of a limit.
"""

import msgspec
from msgspec import UNSET

from payres.amounts import Asset, parse_value
from payres.errors import LimitExceeded
from payres.grants.intervals import parse_interval
from payres.store import grants
from payres.store.database import Transaction
from payres.urls import normalise
from payres.wire import Amount, Limits

NO_INTERVAL = 0  # the window_start of grants whose limits hold for their whole life


class Spent(msgspec.Struct, frozen=True):
    """Sums of one window, in the minor units of the sender's asset and of the receivers' asset last paid to."""

    debit: int
    receive: int
    receive_asset: Asset


class PaymentTerms(msgspec.Struct, frozen=True):
    """What limits are checked against: amounts in minor units, the receiver's URL and asset."""

    receiver: str
    debit: int
    receive: int
    receive_asset: Asset


def check_limits(tx: Transaction, grant_id: str, limits: Limits | None, payment: PaymentTerms, now: int) -> int:
    """The start of the window that the payment counts in. Refuses with 403 `limit_exceeded`, naming the limit."""
    if limits is None:
        return NO_INTERVAL
    if limits.receiver and normalise(limits.receiver) != normalise(payment.receiver):
        raise _exceeded("receiver", "The grant allows payments to another receiver only")
    window = current_window(limits, now)
    if window is None:
        raise _exceeded("interval", "The grant's interval has no window open now")
    asset = payment.receive_asset
    spent = spent_in_window(tx, grant_id, window, asset)
    if limits.debit_amount:
        _check_amount("debitAmount", limits.debit_amount, spent.debit if spent else 0, payment.debit)
    if limits.receive_amount:
        if (limits.receive_amount.asset_code, limits.receive_amount.asset_scale) != (asset.code, asset.scale):
            raise _exceeded("receiveAmount", "The grant's receiveAmount is in another asset than the receiver's")
        _check_amount("receiveAmount", limits.receive_amount, spent.receive if spent else 0, payment.receive)
    return window


def current_window(limits: Limits | None, now: int) -> int | None:
    """The start of the window open now; NO_INTERVAL without an interval, None when the interval has none open."""
    if limits is None or limits.interval is UNSET:
        return NO_INTERVAL
    window = parse_interval(limits.interval).window_at(now)
    return window.start if window else None


def spent_in_window(tx: Transaction, grant_id: str, window: int, receive_asset: Asset | None = None) -> Spent | None:
    """The sums of a window, or None when nothing was spent. debit counts payments to receivers of every asset;
    receive those in `receive_asset`, or in the asset last paid to."""
    records = grants.spending(tx, grant_id, window)
    if not records:
        return None
    asset = receive_asset or Asset(records[0].receive_code, records[0].receive_scale)
    received = sum(r.receive for r in records if (r.receive_code, r.receive_scale) == (asset.code, asset.scale))
    return Spent(sum(r.debit for r in records), received, asset)


def _check_amount(field: str, limit: Amount, spent: int, wanted: int) -> None:
    left = parse_value(limit.value) - spent
    if wanted > left:
        raise LimitExceeded(
            f"The grant has {max(left, 0)} of its {field} limit left and this payment needs {wanted}",
            reason=field,
            left=str(max(left, 0)),
            needed=str(wanted),
        )


def _exceeded(reason: str, description: str) -> LimitExceeded:
    return LimitExceeded(description, reason=reason)
