"""The check that a payment exceeds no limit of its grant, and the repeating intervals of limits (ISO 8601,
`R11/2026-01-01T00:00:00Z/P1M`) with their time windows.

Every boundary is computed from the anchor, never from its neighbour: a monthly interval from 31 January has boundaries
on 28 February and again on 31 March. Everything is UTC, and takes constant time for any `now`.
"""

import re
from calendar import monthrange
from datetime import date
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple
from urllib.parse import quote

import msgspec
from msgspec import UNSET

from payres.core.grants.access import granted_access
from payres.core.protocol import clock
from payres.core.protocol.amounts import Asset, Terms, describe_amount, parse_value
from payres.core.protocol.errors import InvalidRequest, LimitExceeded
from payres.core.protocol.gnap import Limits, OutgoingPaymentAccess
from payres.core.protocol.limits import MAX_INTERVAL_LENGTH
from payres.core.protocol.urls import canonical
from payres.core.protocol.visible import URL_CHARACTERS
from payres.core.protocol.wire import Amount
from payres.core.store import grants
from payres.core.store.incoming_payments import payment_at
from payres.core.store.work import Transaction, Work

EXAMPLE = "R11/2026-01-01T00:00:00Z/P1M, which is every month, 12 times, from 1 January 2026"

# The Gregorian calendar repeats after 400 years.
CYCLE_MONTHS = 400 * 12
CYCLE_DAYS = 146_097
MEAN_MONTH = CYCLE_DAYS * clock.DAY // CYCLE_MONTHS

_NUMBER = r"([0-9]{1,9}(?:[.,][0-9]{1,9})?)"
_REPETITIONS = re.compile(r"R(?:-1|([0-9]{1,9}))?")
_DURATION = re.compile(
    rf"P(?:{_NUMBER}Y)?(?:{_NUMBER}M)?(?:{_NUMBER}W)?(?:{_NUMBER}D)?"
    rf"(?:T(?=[0-9])(?:{_NUMBER}H)?(?:{_NUMBER}M)?(?:{_NUMBER}S)?)?"
)
_WITHOUT_SECONDS = re.compile(r"([Tt][0-9]{2}:[0-9]{2})(?=[Zz+-])")
_FIXED_UNITS = (7 * clock.DAY, clock.DAY, clock.HOUR, clock.MINUTE, clock.SECOND)
REQUESTED = "access_token.access.limits"  # the member of a grant request
SHORTEST_MONTH = 28 * clock.DAY
NO_INTERVAL = 0  # the window_start of grants whose limits have no interval


class Interval(msgspec.Struct, frozen=True):
    """Consecutive windows without gaps; window k lasts from boundary k until just before boundary k+1.

    Boundary k is k times `months` and `microseconds` after `anchor`, or before it if k is negative. Windows `first` to
    `last` exist; None means no first or no last one.
    """

    anchor: int
    months: int
    microseconds: int
    first: int | None
    last: int | None

    @property
    def windows_total(self) -> int | None:
        """The number of windows; None if endless."""
        return None if self.first is None or self.last is None else self.last - self.first + 1

    @property
    def mean_length(self) -> int:
        """The length of a window in microseconds; the mean if it has months."""
        return self.months * MEAN_MONTH + self.microseconds

    @property
    def start(self) -> int | None:
        """Microseconds UTC; None if there is no first window (`R/P1M/2026-01-01T00:00:00Z`)."""
        return None if self.first is None else self.boundary(self.first)

    @property
    def end(self) -> int | None:
        """Microseconds UTC; None if there is no last window."""
        return None if self.last is None else self.boundary(self.last + 1)

    def window_at(self, now: int) -> int | None:
        """The index of the window that contains `now`, or None outside the first and last ones."""
        index = (now - self.anchor) // self.mean_length
        # Calendar months differ from their mean by less than a week and have at least 28 days, so the estimate is off
        # by at most one window: the two loops take at most one step together.
        while self.boundary(index) > now:
            index -= 1
        while self.boundary(index + 1) <= now:
            index += 1
        if (self.first is not None and index < self.first) or (self.last is not None and index > self.last):
            return None
        return index

    def renews_at(self, now: int) -> int | None:
        """When the window after that of `now` begins; None if `now` is in the last one, or in none."""
        index = self.window_at(now)
        return None if index in {None, self.last} else self.boundary(index + 1)

    def boundary(self, index: int) -> int:
        """The start of window `index` and end of the one before, whether or not they exist."""
        return _add_months(self.anchor, index * self.months) + index * self.microseconds


def parse_interval(text: str) -> Interval:
    """Parses `R[n]/start/duration`, `R[n]/duration/end` or `R[n]/start/end` (ISO 8601).

    `Rn` means n repetitions after the first, so n+1 windows; `R` and `R-1` repeat forever. Start and end are RFC 3339
    date-times, with optional seconds. Raises ValueError with a sentence for the client.
    """
    if len(text) > MAX_INTERVAL_LENGTH:
        raise _invalid_interval(f"may have at most {MAX_INTERVAL_LENGTH} characters")
    parts = text.split("/")
    if len(parts) != 3:
        raise _invalid_interval("needs three parts with a slash between them: repetitions, start, duration")
    match = _REPETITIONS.fullmatch(parts[0])
    if match is None:
        raise _invalid_interval(f"must begin with R, or R and a number of up to nine digits, not with {parts[0]!a}")
    interval = _lay_out(None if match[1] is None else int(match[1]), parts[1], parts[2])
    # Without a first or last window, the one at the anchor is checked instead.
    earliest = interval.boundary(-1 if interval.first is None else interval.first)
    latest = interval.boundary(1 if interval.last is None else interval.last + 1)
    if earliest < clock.EARLIEST or latest > clock.LATEST:  # RFC 3339 ends with the year 9999
        raise _invalid_interval(
            "reaches beyond the years 1 to 9999; write fewer repetitions or a shorter duration, or R to repeat for ever"
        )
    return interval


def _invalid_interval(problem: str) -> ValueError:
    return ValueError(f"The interval {problem}. For example: {EXAMPLE}.")


def _lay_out(repetitions: int | None, left: str, right: str) -> Interval:
    """`repetitions` follow the first window; None for an endless interval."""
    if _is_duration(left) and _is_duration(right):
        raise _invalid_interval("has two durations: one of them must be a start or an end")
    if _is_duration(left):
        # The last window ends at the given end; the others precede it.
        earliest = None if repetitions is None else -1 - repetitions
        return Interval(_parse_instant(right), *_parse_duration(left), first=earliest, last=-1)
    start = _parse_instant(left)
    if _is_duration(right):
        return Interval(start, *_parse_duration(right), first=0, last=repetitions)
    length = _parse_instant(right) - start
    if length <= 0:
        raise _invalid_interval("must end after it starts")
    return Interval(start, 0, length, first=0, last=repetitions)


def _is_duration(text: str) -> bool:
    return text.lstrip("+-")[:1] in ("P", "p")


def _parse_instant(text: str) -> int:
    try:
        return clock.parse_time(_WITHOUT_SECONDS.sub(r"\1:00", text))
    except ValueError as error:
        raise _invalid_interval(f"has the start or end {text!a}, but {error}") from None


def _parse_duration(text: str) -> tuple[int, int]:
    """A duration as calendar months and microseconds, truncated."""
    if "-" in text:
        raise _invalid_interval(f"has the negative duration {text!a}")
    match = _DURATION.fullmatch(text)
    given = [number for number in match.groups() if number] if match else []
    if match is None or not given:
        raise _invalid_interval(f"has a duration that cannot be read, {text!a}; write one like P1M, P2W or P1DT12H")
    if any(not number.isdigit() for number in given[:-1]):
        raise _invalid_interval(f"has the duration {text!a}, in which only the last number may have decimals")
    years, months, *fixed = (Fraction((number or "0").replace(",", ".")) for number in match.groups())
    if years.denominator != 1 or months.denominator != 1:
        raise _invalid_interval(f"has the duration {text!a}, but years and months vary in length and can only be whole")
    microseconds = int(sum(number * unit for number, unit in zip(fixed, _FIXED_UNITS, strict=True)))
    if not years and not months and not microseconds:
        raise _invalid_interval(f"has the duration {text!a}, which is no time at all")
    return int(years * 12 + months), microseconds


def _add_months(moment: int, months: int) -> int:
    """The same day and time of day `months` later, or the last day of a shorter month.

    Counts in cycles of 400 years, so that any number of months stays in the range of `date`.
    """
    if months == 0:
        return moment
    days, time_of_day = divmod(moment, clock.DAY)
    origin = date.fromordinal(days + clock.EPOCH_ORDINAL)
    cycles, month_of_cycle = divmod(origin.year * 12 + origin.month - 1 + months, CYCLE_MONTHS)
    year, month = 400 + month_of_cycle // 12, month_of_cycle % 12 + 1
    target = date(year, month, min(origin.day, monthrange(year, month)[1]))
    return (target.toordinal() + (cycles - 1) * CYCLE_DAYS - clock.EPOCH_ORDINAL) * clock.DAY + time_of_day


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
    def is_for_a_bill(self) -> bool:
        """Whether it is for one bill, once."""
        return self.receiver is not None and self.interval is None

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
        return self.total is None or (self.interval is not None and self.interval.mean_length < clock.HOUR)


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
        has, needs = (describe_amount(one, limit.asset) for one in (left, wanted))
        says = f"The grant has {has} of its {field} limit left and this payment needs {needs}"
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
            raise _invalid("interval", f" is past: its last window ended at {clock.format_time(end)}")


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
    found = payment_at(work, receiver)
    if found is None:
        raise _invalid("receiver", " is no incoming payment of this server")
    return found[1].asset


def _invalid(member: str, problem: str) -> InvalidRequest:
    return InvalidRequest(f"limits.{member}{problem}", field=f"{REQUESTED}.{member}")
