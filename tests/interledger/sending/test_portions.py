"""How plans are cut into packets, and what fulfilled, rejected and lost ones leave."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.amounts import MAX_VALUE
from payres.interledger.sending.failures import Failure, SendingFailed
from payres.interledger.sending.portions import Account, Plan, Portion
from payres.interledger.sending.rates import Path, RateBounds

EXACT = RateBounds(Fraction(1), Fraction(10**12 + 1, 10**12))
PATH = Path(EXACT.low, EXACT.high, MAX_VALUE)
RATE = Fraction(99, 100)


def sending(amount: int, *, unit_forgiven: bool = False) -> Plan:
    return Plan(amount, amount * 99 // 100, RATE, PATH, sends_all=True, unit_forgiven=unit_forgiven)


def delivering(amount: int) -> Plan:
    return Plan(amount * 2, amount, RATE, PATH, sends_all=False)


def take(account: Account, most: int, bounds: RateBounds = EXACT) -> Portion:
    portion = account.next(bounds, most)
    assert portion
    account.take(portion)
    return portion


def test_packets_of_a_plan_that_sends_all() -> None:
    account = Account(sending(1000))
    assert [take(account, 400) for _ in range(3)] == [
        Portion(400, 396, 400, forgiving=False),
        Portion(400, 396, 400, forgiving=False),
        Portion(200, 198, 200, forgiving=True),
    ]
    assert account.next(EXACT, 400) is None


def test_packets_of_a_plan_that_delivers() -> None:
    bounds = RateBounds(Fraction(699, 777), Fraction(700, 777))
    account = Account(Plan(5612, 5000, Fraction(891, 1000), PATH, sends_all=False))
    portions = []
    while account.next(bounds, 777):
        portions.append(take(account, 777, bounds))
        account.fulfilled(portions[-1], portions[-1].amount * 9 // 10)
    assert [portion.amount for portion in portions] == [777] * 7 + [119]
    assert portions[-1] == Portion(119, 106, 107, forgiving=True)
    assert account.complete
    assert (account.sent, account.delivered) == (5558, 5000)


def test_rejected_amount_is_available_again() -> None:
    account = Account(sending(1000))
    portion = take(account, 700)
    assert take(account, 700).amount == 300
    account.rejected(portion)
    assert take(account, 700).amount == 700


def test_lost_amount_is_not_available_again() -> None:
    for plan in (sending(1000), delivering(1000)):
        account = Account(plan)
        account.lost(take(account, 700))
        assert take(account, 700).amount == 300
        assert account.next(EXACT, 700) is None
        assert (account.in_doubt, account.complete) == (700, False)


def test_unit_is_forgiven_once_while_its_packet_is_under_way() -> None:
    account = Account(sending(1000))
    first, last = take(account, 600), take(account, 600)
    assert (first.forgiving, last.forgiving) == (False, True)
    account.rejected(first)
    assert not take(account, 600).forgiving
    account.rejected(last)
    assert take(account, 600).forgiving, "the rejected packet has not used it"


@pytest.mark.parametrize(("arrived", "used"), [(0, True), (1, False)])
def test_unit_is_used_up_by_a_packet_that_needed_it(arrived: int, used: bool) -> None:
    account = Account(sending(1))
    portion = take(account, 1)
    assert (portion.minimum, portion.forgiving) == (0, True)
    account.fulfilled(portion, arrived)
    assert (account.delivered, account.unit_forgiven) == (arrived, used)


def test_claim_below_the_minimum_counts_as_the_minimum() -> None:
    account = Account(sending(1000))
    account.fulfilled(take(account, 1000), 5)
    assert account.delivered == 990


def test_unit_of_a_lost_packet_is_used_up() -> None:
    account = Account(sending(1000))
    account.lost(take(account, 1000))
    assert account.unit_forgiven


def test_unit_of_an_earlier_run_is_not_forgiven_again() -> None:
    assert take(Account(sending(1000, unit_forgiven=True)), 1000) == Portion(1000, 990, 1000, forgiving=False)
    assert take(Account(sending(1)), 1).minimum == 0
    assert take(Account(sending(1, unit_forgiven=True)), 1).minimum == 1


def test_rest_that_no_packet_could_deliver_is_shared_with_the_packet_before() -> None:
    bounds = RateBounds(Fraction(1, 3), Fraction(1, 3) + Fraction(1, 10**6))
    account = Account(Plan(200, 60, Fraction(3, 10), PATH, sends_all=True))
    assert [take(account, 66, bounds).amount for _ in range(4)] == [66, 66, 34, 34]


def test_packet_that_may_just_pass_is_tried() -> None:
    plan = Plan(5, 4, Fraction(99, 100), PATH, sends_all=True, unit_forgiven=True)
    assert take(Account(plan), 5, RateBounds(Fraction(7, 8), Fraction(11, 10))) == Portion(5, 5, 5, forgiving=False)
    with pytest.raises(SendingFailed):
        Account(plan).next(RateBounds(Fraction(7, 8), Fraction(1)), 5)


@pytest.mark.parametrize("plan", [sending(1000), delivering(1000)])
@pytest.mark.parametrize("bounds", [RateBounds(Fraction(0), Fraction(1, 2)), RateBounds(Fraction(9, 10), RATE)])
def test_rate_below_the_minimum(plan: Plan, bounds: RateBounds) -> None:
    with pytest.raises(SendingFailed) as caught:
        Account(plan).next(bounds, 500)
    assert caught.value.reason == Failure.INSUFFICIENT_EXCHANGE_RATE


fates = st.lists(st.tuples(st.sampled_from(("take", "fulfilled", "rejected", "lost")), st.integers(0, 30)), max_size=60)


@given(st.integers(1, 5000), st.integers(1, 700), st.booleans(), fates)
def test_whatever_happens_the_plan_is_kept(
    amount: int, most: int, sends_all: bool, steps: list[tuple[str, int]]
) -> None:
    plan = sending(amount) if sends_all else delivering(amount)
    account, under_way = Account(plan), list[Portion]()
    for step, which in steps:
        if step == "take":
            if portion := account.next(EXACT, most):
                account.take(portion)
                under_way.append(portion)
        elif under_way:
            portion = under_way.pop(which % len(under_way))
            if step == "fulfilled":
                account.fulfilled(portion, portion.amount)
            else:
                (account.rejected if step == "rejected" else account.lost)(portion)
        at_stake = account.sent + account.in_doubt + sum(portion.amount for portion in under_way)
        assert at_stake <= (plan.max_source if sends_all else plan.min_delivery)
        assert sum(portion.forgiving for portion in under_way) <= 1
    assert account.delivered == account.sent
    assert not account.complete or account.delivered == amount
