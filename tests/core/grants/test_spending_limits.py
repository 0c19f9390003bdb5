"""What grants may spend: long histories against an independent reckoning.

Each refusal over HTTP, and a hundred payments at once, are in test_outgoing.py, 200 requests at once in
tests/attacks/test_money.py; the windows by themselves are in tests/core/grants/test_spending_limits_intervals.py.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from itertools import count, takewhile
from typing import Any, NamedTuple

import pytest
from dateutil.relativedelta import relativedelta
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET

from payres.core.grants.spending_limits import current_window, spent_in_window
from payres.core.payments import incoming, outgoing, quotes
from payres.core.process.settings import Settings
from payres.core.protocol.amounts import Asset
from payres.core.protocol.errors import DomainError
from payres.core.protocol.gnap import IncomingPaymentAccess, Limits, OutgoingPaymentAccess
from payres.core.protocol.wire import (
    Amount,
    IncomingPaymentRequest,
    OutgoingPayment,
    OutgoingPaymentRequest,
    QuoteRequest,
)
from payres.core.store.clients import ensure_client
from payres.core.store.connections import connect_writer
from payres.core.store.grants import GRANTS, GrantRecord
from payres.core.store.outgoing_payments import OUTGOING, OutgoingRecord
from payres.core.store.work import Transaction, Work
from payres.interledger.clearing import end_remote
from payres.operator import wallets
from payres.operator.assets import deposit_liquidity, set_fee, set_rate
from payres.operator.upkeep import invariant_checks
from payres.testing.clock import MovableClock
from tests.helpers import Json, examples, last_segment
from tests.works import caller_of, offer_elsewhere, savepoint, work_at

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
SETTINGS = Settings(base_url="https://pay.example", incoming_payment_lifetime=100 * 366 * 86400)
ALICE = "https://pay.example/alice"
GRANT = "grant"
RICH = "1000000.00"


# An independent reckoning


class Repeats(NamedTuple):
    """An interval by the calendar: windows of one length after `anchor`, or before it; None repeats indefinitely."""

    anchor: datetime
    length: relativedelta
    repetitions: int | None
    backwards: bool

    def boundary(self, index: int) -> datetime:
        return self.anchor + self.length * index

    def window_at(self, now: datetime) -> datetime | None:
        """The start of the window open at `now`, found by walking from the anchor."""
        for gone_by in count() if self.repetitions is None else range(self.repetitions + 1):
            index = -1 - gone_by if self.backwards else gone_by
            start, end = self.boundary(index), self.boundary(index + 1)
            if start <= now < end:
                return start
            if (now >= end) if self.backwards else (now < start):
                return None  # on the other side of the anchor
        return None

    def edge_after(self, now: datetime) -> datetime | None:
        """The next moment at which one window ends and another begins; None after the end of those that go back."""
        if not self.backwards:
            return next(edge for index in count() if (edge := self.boundary(index)) > now)
        until_now = takewhile(lambda edge: edge > now, (self.boundary(-gone_by) for gone_by in count()))
        return min(until_now, default=None)


class Reckoning:
    """What was spent in each window, kept by hand. `kind` is debitAmount, receiveAmount or nothing; `most` is in
    `code`."""

    def __init__(self, kind: str | None, most: int, code: str, receiver: str | None, repeats: Repeats | None) -> None:
        self.kind, self.most, self.code, self.receiver, self.repeats = kind, most, code, receiver, repeats
        self.debit: dict[datetime | None, int] = defaultdict(int)
        self.received: dict[tuple[datetime | None, str], int] = defaultdict(int)

    def window_at(self, now: datetime) -> tuple[bool, datetime | None]:
        """Whether anything may be spent at `now`, and the window it counts in."""
        if self.repeats is None:
            return True, None
        window = self.repeats.window_at(now)
        return window is not None, window

    def refusal(self, now: datetime, receiver: str, debit: int, receive: int, code: str) -> tuple[Any, ...] | None:
        """Why the payment may not be made, None when it may: the reason, and what is left if an amount is short."""
        is_open, window = self.window_at(now)
        if self.receiver not in (None, receiver):
            return ("receiver",)
        if not is_open:
            return ("interval",)
        if self.kind == "debitAmount" and self.debit[window] + debit > self.most:
            return ("debitAmount", max(self.most - self.debit[window], 0))
        if self.kind == "receiveAmount" and code != self.code:
            return ("receiveAmount",)
        if self.kind == "receiveAmount" and self.received[window, code] + receive > self.most:
            return ("receiveAmount", max(self.most - self.received[window, code], 0))
        return None

    def count(self, now: datetime, debit: int, receive: int, code: str) -> datetime | None:
        """Adds a payment to its window, which it returns."""
        window = self.window_at(now)[1]
        self.debit[window] += debit
        self.received[window, code] += receive
        return window

    def give_back(self, window: datetime | None, debit: int, receive: int, code: str) -> None:
        self.debit[window] -= debit
        self.received[window, code] -= receive


FIXED, SHARE, RATE = 3, 1, 92  # a fee of 3 cents and one per cent; a dollar is worth 0.92 euros


def terms(shape: str, value: int, code: str) -> tuple[int, int]:
    """What leaves and what arrives when `value` is sent, or, in the shape `quote to receive`, shall arrive."""
    if shape == "quote to receive":
        price = value if code == "USD" else -(-value * 100 // RATE)
        return price + FIXED + -(-price * SHARE // 100), value
    net = value - FIXED - -(-value * SHARE // 100)
    return value, net if code == "USD" else net * RATE // 100


# The rules themselves, in units on a database in memory


class Books:
    """A wallet with plenty of dollars, a grant, and incoming payments in dollars and euros that take anything; the
    last receiver is on another server."""

    def __init__(self, tx: Transaction, limits: Limits | None, now: int) -> None:
        self.tx, self.limits = tx, limits
        self.clock = MovableClock(now, frozen=True)
        work = self.work
        self.payer = wallets.create_wallet(work, "alice", "USD", 2, None, None)
        wallets.deposit(work, "alice", RICH)
        set_fee(work, "USD", 2, f"0.0{FIXED}", SHARE * 100)
        self.client = ensure_client(work, "https://shop.example", "https://shop.example", None, now).id
        grant = GrantRecord(GRANT, self.client, None, "issued", "[]", None, self.payer.id, b"", now, now, None)
        GRANTS.insert(work, grant)
        for code in ("USD", "EUR"):
            wallets.create_wallet(work, f"taker-of-{code.lower()}", code, 2, None, None)
        set_rate(work, "USD", "EUR", f"0.{RATE}")
        deposit_liquidity(work, "EUR", 2, RICH)
        self.receivers = [(self._receiver(f"taker-of-{code.lower()}"), code) for code in ("USD", "EUR", "USD")]
        self.receivers.append(("https://elsewhere.example/incoming-payments/1", "EUR"))

    @property
    def work(self) -> Work:
        return work_at(self.tx, self.clock.now(), SETTINGS)

    def _receiver(self, path: str) -> str:
        caller = caller_of(self.client, GRANT, IncomingPaymentAccess(actions=["create"]))
        asked = IncomingPaymentRequest(wallet_address=f"https://pay.example/{path}")
        return incoming.create(self.work, caller.about(asked.wallet_address or None, self.work.urls), asked).id

    @property
    def now(self) -> datetime:
        return EPOCH + timedelta(microseconds=self.clock.now())

    def wait(self, repeats: Repeats | None, windows: float) -> None:
        length = repeats.boundary(1) - repeats.anchor if repeats else timedelta(days=1)
        self.clock.advance(length * windows / timedelta(seconds=1))

    def wait_for_edge(self, repeats: Repeats, microseconds: int) -> None:
        """Waits for the next edge between windows, or a microsecond less or more."""
        edge = repeats.edge_after(self.now)
        if edge is not None:
            self.clock.advance(max((edge - self.now) / timedelta(seconds=1) + microseconds / 1_000_000, 0))

    def pay(self, shape: str, receiver: str, value: int, code: str) -> OutgoingPayment:
        """A payment straight from the incoming payment, or from a quote made a moment ago."""
        item = OutgoingPaymentAccess(actions=["create"], identifier=ALICE, limits=self.limits or UNSET)
        caller = caller_of(self.client, GRANT, item, wallet_address=ALICE)
        offer = None
        if not receiver.startswith("https://pay.example/"):
            debit, receive = terms(shape, value, code)
            offer = offer_elsewhere(debit, receive, FIXED, receiver, Asset(code, 2), Fraction("0.92"))
        members: Json = {"incoming_payment": receiver, "debit_amount": sum_of(value)}
        if shape != "direct":
            fixed = {"receive_amount": sum_of(value, code)} if "receive" in shape else {"debit_amount": sum_of(value)}
            asked = QuoteRequest(wallet_address=ALICE, receiver=receiver, method="ilp", **fixed)
            quote = quotes.create(self.work, caller, asked, offer)
            members, offer = {"quote_id": quote.id}, None
        return outgoing.create(self.work, caller, OutgoingPaymentRequest(wallet_address=ALICE, **members), offer)

    def fail(self, payment: OutgoingRecord) -> None:
        """Ends a payment to another server of which nothing arrived."""
        end_remote(self.work, payment, "the receiver went away")

    def spent(self, code: str) -> tuple[int, int] | None:
        """What the rules say was spent in the window of now, None when nothing was."""
        window = current_window(self.limits, self.clock.now())
        found = None if window is None else spent_in_window(self.tx, GRANT, window, Asset(code, 2))
        return None if found is None else (found.debit, found.receive)


def sum_of(value: int, code: str = "USD") -> Amount:
    return Amount(value=str(value), asset_code=code, asset_scale=2)


DURATIONS = {
    "PT90M": relativedelta(minutes=90),
    "PT36H": relativedelta(hours=36),
    "P1D": relativedelta(days=1),
    "P2W": relativedelta(weeks=2),
    "P1M": relativedelta(months=1),
    "P1M1DT6H": relativedelta(months=1, days=1, hours=6),
    "P3M": relativedelta(months=3),
    "P1Y": relativedelta(years=1),
}
ends_of_months = st.sampled_from(["2024-01-31", "2024-02-29", "2025-12-31", "2026-08-30", "2027-01-29T23:59:59.999999"])
anchors = st.one_of(
    ends_of_months.map(datetime.fromisoformat),
    st.datetimes(datetime.fromisoformat("2020-01-01"), datetime.fromisoformat("2030-01-01")),
).map(lambda moment: moment.replace(tzinfo=UTC))
repetitions = st.one_of(st.none(), st.integers(0, 4))


@st.composite
def intervals(draw: st.DrawFn) -> tuple[str, Repeats]:
    """An interval in each of its forms, as a client writes it and as the calendar has it."""
    anchor, (text, length), times = draw(anchors), draw(st.sampled_from(sorted(DURATIONS.items()))), draw(repetitions)
    prefix = draw(st.sampled_from(["R", "R-1"])) if times is None else f"R{times}"
    match draw(st.sampled_from(["start and duration", "duration and end", "start and end"])):
        case "start and duration":
            return f"{prefix}/{anchor.isoformat()}/{text}", Repeats(anchor, length, times, backwards=False)
        case "duration and end":
            return f"{prefix}/{text}/{anchor.isoformat()}", Repeats(anchor, length, times, backwards=True)
    exact = relativedelta(microseconds=((anchor + length) - anchor) // MICROSECOND)
    end = (anchor + exact).isoformat()
    return f"{prefix}/{anchor.isoformat()}/{end}", Repeats(anchor, exact, times, backwards=False)


class Plan(NamedTuple):
    """A grant and what is tried with it."""

    interval: tuple[str, Repeats] | None
    kind: str | None
    most: int
    code: str
    bound_to: int | None  # the receiver that the limits name
    start: float  # windows after the anchor
    steps: list[tuple[Any, ...]]


payments = st.tuples(
    st.just("pay"),
    st.sampled_from(["direct", "quote to send", "quote to receive"]),
    st.sampled_from([0, 0, 0, 1, 2, 3]),
    st.integers(10, 1500),
)
steps = st.lists(
    st.one_of(
        payments,
        payments,
        st.tuples(st.just("edge"), st.sampled_from([-1, 0, 0, 1])),
        st.tuples(st.just("wait"), st.one_of(st.floats(0, 1.5), st.just(1.0))),
        st.tuples(st.just("fail"), st.integers(0, 9)),
    ),
    min_size=1,
    max_size=14,
)
plans = st.builds(
    Plan,
    st.one_of(st.none(), intervals(), intervals(), intervals()),
    st.sampled_from(["debitAmount", "receiveAmount", None]),
    st.integers(0, 4000),
    st.sampled_from(["USD", "USD", "EUR"]),
    st.sampled_from([None, None, None, None, 0, 1]),
    st.one_of(st.floats(-1.5, 3), st.just(0.0)),
    steps,
)


@contextmanager
def books_of(tx: Transaction, plan: Plan) -> Iterator[tuple[Books, Reckoning]]:
    """The rules and the reckoning, both at the plan's beginning; in the end the ledger must agree too."""
    start = datetime(2026, 1, 1, tzinfo=UTC)
    if plan.interval:
        repeats = plan.interval[1]
        start = repeats.anchor + (repeats.boundary(1) - repeats.anchor) * plan.start
    tx.execute("BEGIN")
    try:
        books = Books(tx, None, (start - EPOCH) // MICROSECOND)
        code = "USD" if plan.kind == "debitAmount" else plan.code
        bound = None if plan.bound_to is None else books.receivers[plan.bound_to][0]
        most = sum_of(plan.most, code)
        books.limits = Limits(
            receiver=bound or UNSET,
            interval=plan.interval[0] if plan.interval else UNSET,
            debit_amount=most if plan.kind == "debitAmount" else UNSET,
            receive_amount=most if plan.kind == "receiveAmount" else UNSET,
        )
        yield books, Reckoning(plan.kind, plan.most, code, bound, plan.interval[1] if plan.interval else None)
        broken = invariant_checks.first_broken(invariant_checks.check(tx))
        assert broken is None, broken
    finally:
        tx.execute("ROLLBACK")


@pytest.fixture(scope="module")
def memory() -> Iterator[Transaction]:
    with closing(connect_writer(":memory:")) as connection:
        yield connection


MONTHLY = Repeats(datetime(2026, 1, 31, tzinfo=UTC), relativedelta(months=1), 11, backwards=False)
# Spent up to the end of March, which a window counted on from the end of February would not reach.
ENDS_OF_MONTHS = [("edge", 0), ("pay", "direct", 0, 600), ("edge", -1), ("pay", "direct", 0, 401), ("edge", 1)]

# A payment that fails in the next window makes room in its own, which is over; one that fails at once, where it counts.
GIVEN_BACK = [("pay", "direct", 3, 600), ("edge", 0), ("pay", "direct", 3, 600), ("fail", 0), ("pay", "direct", 0, 401)]
GIVEN_BACK += [("fail", 0), ("pay", "direct", 0, 1000)]


@examples(50)
@example(plan=Plan(("R11/2026-01-31T00:00Z/P1M", MONTHLY), "debitAmount", 1000, "USD", None, 0.0, GIVEN_BACK))
@example(plan=Plan(("R11/2026-01-31T00:00Z/P1M", MONTHLY), "debitAmount", 1000, "USD", None, 0.0, ENDS_OF_MONTHS))
@given(plan=plans)
def test_history_of_a_grant_agrees_with_the_reckoning(memory: Transaction, plan: Plan) -> None:
    """Every payment is allowed or refused, and counted, as one who keeps a calendar and a list by hand would do it."""
    with books_of(memory, plan) as (books, reckoning):
        sending: list[tuple[OutgoingRecord, tuple[Any, ...]]] = []
        for name, *about in plan.steps:
            match name:
                case "pay":
                    shape, index, value = about
                    receiver, code = books.receivers[index]
                    made = try_to_pay(books, reckoning, shape, receiver, value, code)
                    if made and made[0].state == "sending":
                        sending.append(made)
                case "wait":
                    books.wait(reckoning.repeats, about[0])
                case "edge" if reckoning.repeats:
                    books.wait_for_edge(reckoning.repeats, about[0])
                case "fail" if sending:
                    payment, counted = sending.pop(about[0] % len(sending))
                    books.fail(payment)
                    reckoning.give_back(*counted)
            is_open, window_start = reckoning.window_at(books.now)
            for code in ("USD", "EUR"):
                expected = (reckoning.debit[window_start], reckoning.received[window_start, code])
                assert books.spent(code) == (expected if is_open and expected[0] else None)


def try_to_pay(
    books: Books, reckoning: Reckoning, shape: str, receiver: str, value: int, code: str
) -> tuple[OutgoingRecord, tuple[Any, ...]] | None:
    """The payment and how it was counted; None when both sides refuse it."""
    debit, receive = terms(shape, value, code)
    expected = reckoning.refusal(books.now, receiver, debit, receive, code)
    made: OutgoingPayment | DomainError
    try:
        with savepoint(books.tx):  # as in a unit, a refused one leaves nothing
            made = books.pay(shape, receiver, value, code)
    except DomainError as refusal:
        made = refusal
    if isinstance(made, DomainError):
        assert expected is not None, str(made)
        assert (made.status, made.code) == (403, "limit_exceeded")
        needed = {"debitAmount": debit, "receiveAmount": receive}.get(expected[0])
        amounts = {"left": str(expected[1]), "needed": str(needed)} if len(expected) > 1 else {}
        assert made.details == {"reason": expected[0], **amounts}
        return None
    assert expected is None, f"should have been refused for its {expected}"
    window = reckoning.count(books.now, debit, receive, code)
    assert (made.debit_amount, made.receive_amount) == (sum_of(debit), sum_of(receive, code))
    spent = sum_of(reckoning.debit[window]), sum_of(reckoning.received[window, code], code)
    assert (made.grant_spent_debit_amount, made.grant_spent_receive_amount) == spent
    payment = OUTGOING.by_id(books.tx, last_segment(made.id))
    return payment, (window, debit, receive, code)
