"""The spending limit of a grant as plain numbers: for pages, and for sums over several grants."""

from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

from payres.core.grants.access import granted_access
from payres.core.grants.intervals import MEAN_MONTH, Interval, parse_interval
from payres.core.protocol.amounts import Asset, parse_value
from payres.core.protocol.clock import DAY, HOUR
from payres.core.protocol.gnap import Limits, OutgoingPaymentAccess
from payres.core.protocol.visible import URL_CHARACTERS
from payres.core.protocol.wire import Amount

SHORTEST_MONTH = 28 * DAY


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
