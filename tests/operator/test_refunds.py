"""Refunds: what goes back, to whom, and never more than was received."""

from contextlib import closing, suppress
from fractions import Fraction
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.payments import ledger
from payres.core.payments.outgoing import insert
from payres.core.payments.settlement import pay_locally
from payres.core.protocol.amounts import Asset, Terms, format_decimal
from payres.core.protocol.errors import DomainError, InsufficientFunds, InvalidAmount, InvalidRequest, WrongState
from payres.core.store import audit, clients, events, incoming_payments
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.connections import connect_writer
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.interledger.clearing import end_remote, has_sent_all, payment_hold
from payres.interledger.store import outgoing_payments, peers
from payres.operator import assets, wallets
from payres.operator.refunds import PARTS_AT_ONCE, WantedRefund, make, plan, send_back
from payres.operator.upkeep import invariant_checks
from payres.people.store.refunds import refunds_of
from tests.helpers import examples
from tests.works import NOW, InSteps, Killed, add_usd_peer, in_steps, offer_elsewhere, refund, savepoint, work_at

EUR = Asset("EUR", 2)
ASSETS = {"alice": "USD", "bob": "USD", "emma": "EUR"}


@pytest.fixture
def tx(tx: Work) -> Work:
    keep_books(tx)
    return tx


def keep_books(work: Work) -> None:
    """Wallets of two payers in dollars and one in euros, each with 1,000.00, and a shop that takes any amount."""
    for path, code in ASSETS.items():
        wallets.create_wallet(work, path, code, 2, None, None)
        wallets.deposit(work, path, "1000.00")
    shop = wallets.create_wallet(work, "shop", "USD", 2, None, None)
    for code in ("USD", "EUR"):
        assets.deposit_liquidity(work, code, 2, "1000.00")
    client = clients.ensure_client(work, "https://a.example/x", "https://a.example/x", None, NOW)
    INCOMING.insert(work, IncomingRecord("bill", shop.id, client.id, None, 0, None, NOW, NOW + 1, None))


def pay(work: Work, path: str, receive: int, *, debit: int | None = None, fee: int = 0) -> str:
    """Pays the bill from a wallet; the id of the payment."""
    payer, shop = require_wallet(work, path), require_wallet(work, "shop")
    debit = receive + fee if debit is None else debit
    terms = Terms(
        receiver="http://127.0.0.1:8080/incoming-payments/bill",
        incoming_payment_id="bill",
        debit=debit,
        fee=fee,
        receive=receive,
        asset=shop.asset,
    )
    payment = insert(work, payer, 1, terms)
    pay_locally(work, payer, payment, INCOMING.by_id(work, "bill"), shop)
    return payment.id


def balance(work: Work, path: str) -> str:
    wallet = require_wallet(work, path)
    return format_decimal(ACCOUNTS.by_id(work, wallet.account_id).balance, wallet.asset)


def check_books(work: Work) -> None:
    broken = invariant_checks.first_broken(invariant_checks.check(work))
    assert broken is None, broken


def test_exchange_is_undone_at_the_rate_of_the_payment_without_its_fee(tx: Work) -> None:
    pay(tx, "emma", 300, debit=210, fee=10)
    [third] = refund(tx, WantedRefund("bill", "r-1", "1.00"))
    assert (third.amount, third.returned) == (100, 66), "rounded down"
    [rest] = refund(tx, WantedRefund("bill", "r-2"))
    assert (rest.amount, rest.returned) == (200, 134), "with the part of a cent that was left of the first"
    assert (balance(tx, "emma"), balance(tx, "shop")) == ("999.90", "0.00")
    check_books(tx)


@given(
    payers=st.lists(st.tuples(st.integers(1, 3_000), st.integers(1, 3_000)), min_size=1, max_size=3),
    parts=st.lists(st.integers(1, 800), max_size=12),
)
@examples(40)
def test_refunds_in_any_parts_return_what_one_of_their_sum_would(
    payers: list[tuple[int, int]], parts: list[int]
) -> None:
    """At any time, whoever paid at whichever rate. A part of which nothing would arrive is refused."""
    with closing(connect_writer(":memory:")) as connection:
        work = work_at(connection, NOW)
        keep_books(work)
        for receive, net in payers:
            pay(work, "emma", receive, debit=net + 7, fee=7)
        work.execute("SAVEPOINT paid")
        total = 0
        for at, part in enumerate(parts):
            with suppress(InvalidAmount), savepoint(work):
                total += sum(
                    one.amount for one in refund(work, WantedRefund("bill", f"r-{at}", format_decimal(part, EUR)))
                )
        before = balance(work, "emma"), balance(work, "shop")
        work.execute("ROLLBACK TO paid")
        if total:
            refund(work, WantedRefund("bill", "r", format_decimal(total, EUR)))
        assert before == (balance(work, "emma"), balance(work, "shop"))
        check_books(work)


def test_refund_that_would_bring_nothing_is_refused(tx: Work) -> None:
    pay(tx, "emma", 300, debit=2)
    with pytest.raises(InvalidAmount, match="nothing would arrive"):
        refund(tx, WantedRefund("bill", "r-1", "0.01"))
    for number, (part, returned) in enumerate([("1.50", 1), ("1.50", 1)]):
        [made] = refund(tx, WantedRefund("bill", f"r-{number}", part))
        assert made.returned == returned


def test_refund_of_what_was_spent_is_refused_and_nothing_is_half_done(tx: Work) -> None:
    pay(tx, "alice", 300)
    pay(tx, "bob", 200)
    wallets.withdraw(tx, "shop", "3.00")
    with pytest.raises(InsufficientFunds) as refusal, savepoint(tx):
        refund(tx, WantedRefund("bill", "r-1"))
    assert refusal.value.details["reason"] == "wallet"
    assert not refunds_of(tx, "incoming", "bill", 100)
    refund(tx, WantedRefund("bill", "r-1", "2.00"))
    with pytest.raises(InvalidAmount, match=r"Only USD 3\.00"):
        plan(tx, WantedRefund("bill", "r-2", "3.01"))
    assert balance(tx, "shop") == "0.00"


def test_refund_across_assets_needs_liquidity_and_warns_when_little_is_left(tx: Work) -> None:
    pay(tx, "emma", 300, debit=300)
    assets.withdraw_liquidity(tx, "EUR", 2, "1000.01")
    with pytest.raises(InsufficientFunds) as refusal, savepoint(tx):
        refund(tx, WantedRefund("bill", "r-1"))
    assert refusal.value.details["reason"] == "liquidity"
    assert not refunds_of(tx, "incoming", "bill", 100)
    assets.deposit_liquidity(tx, "EUR", 2, "0.02")
    before = events.last_sequence(tx)
    refund(tx, WantedRefund("bill", "r-1"))
    assert [one.type for one in events.events_after(tx, before, 10)] == ["liquidity.low", "refund.completed"]


def changed_by(work: Work, wanted: WantedRefund, most: int = 1 << 30) -> list[int]:
    """Makes a refund as operators do; the rows that each unit has changed."""
    units = InSteps(lambda unit: unit(work), most)
    made = in_steps(send_back, units, wanted, None)
    assert max([0, *units.statements]) <= 20 * PARTS_AT_ONCE, "however many have paid"
    assert [one.reference for one in made.result] == [wanted.reference] * len(made.result)
    return units.changed


def test_refund_of_a_payment_that_very_many_paid_is_short_units_that_can_be_repeated(tx: Work) -> None:
    """Also after the process has died between two of them. A cent takes one unit, however many have paid."""
    count = 2 * PARTS_AT_ONCE + 3
    for _ in range(count):
        pay(tx, "alice", 100)
    pay_from_remote(tx, 500)
    cent, whole = WantedRefund("bill", "r-0", "0.01"), WantedRefund("bill", "r-1", f"{count - 1}.99")
    tx.execute("SAVEPOINT before")
    cents = InSteps(lambda unit: unit(tx))
    in_steps(send_back, cents, cent, None)
    assert len(cents.statements) == 1
    assert cents.statements[0] < 20, "as if one had paid"
    one_part = max(changed_by(tx, WantedRefund("bill", "r-2", "0.01")))
    tx.execute("ROLLBACK TO before")
    units = changed_by(tx, whole)
    assert len(units) == 3
    assert max(units) <= PARTS_AT_ONCE * one_part
    assert changed_by(tx, whole) == [], "it was done before"
    [entry] = [one for one in audit.AUDIT.list(tx, "") if one.action == "payment.refund"]
    assert entry.details == {"amount": f"{whole.amount} USD", "reference": "r-1"}
    tx.execute("ROLLBACK TO before")
    with pytest.raises(Killed):
        changed_by(tx, whole, most=1)
    assert balance(tx, "shop") == f"{count + 5 - PARTS_AT_ONCE}.00"
    pay(tx, "bob", 100)
    other = msgspec.structs.replace(whole, amount=f"{PARTS_AT_ONCE}.00")
    with pytest.raises(WrongState, match="another refund"):
        changed_by(tx, other)
    assert len(changed_by(tx, msgspec.structs.replace(whole, amount=None))) == 2, "the reference has its amount"
    assert changed_by(tx, whole) == []
    assert balance(tx, "shop") == "6.01"
    assert len([one for one in audit.AUDIT.list(tx, "") if one.action == "payment.refund"]) == 1
    check_books(tx)


@pytest.mark.parametrize(("change", "says"), [("deactivate", "inactive"), ("spend", "does not have")])
def test_refund_to_very_many_that_cannot_be_whole_is_refused_whole(tx: Work, change: str, says: str) -> None:
    pay(tx, "bob", 100)
    for _ in range(PARTS_AT_ONCE):
        pay(tx, "alice", 100)
    if change == "spend":
        wallets.withdraw(tx, "shop", "0.01")
    else:
        wallets.deactivate(tx, "bob")
    with pytest.raises((WrongState, InsufficientFunds), match=says):
        changed_by(tx, WantedRefund("bill", "r-1"))
    assert not refunds_of(tx, "incoming", "bill", 1)


def test_refund_whose_plan_is_no_longer_right_is_refused(tx: Work) -> None:
    """What a command has sent back since the plan was read does not go back again."""
    pay(tx, "alice", 300)
    pay_from_remote(tx, 300)
    for to, offer in ((None, None), (ELSEWHERE, offer_elsewhere(200))):
        wanted = WantedRefund("bill", f"r-1 {to}", "2.00", to)
        plans = [plan(tx, one, 200) for one in (wanted, wanted, msgspec.structs.replace(wanted, reference=f"r-2 {to}"))]
        make(tx, plans[0], 0, offer)
        for late in plans[1:]:
            with pytest.raises(WrongState, match="meanwhile"), savepoint(tx):
                make(tx, late, 0, offer)


def test_refund_that_another_program_goes_on_with_is_made_once(tx: Work) -> None:
    """A command repeats what the server is doing, or sends back meanwhile what that has still to do."""
    for _ in range(PARTS_AT_ONCE + 1):
        pay(tx, "alice", 200)
    pay_from_remote(tx, 500)
    wanted = WantedRefund("bill", "r-1", f"{2 * PARTS_AT_ONCE + 1}.00")
    found = plan(tx, wanted)
    make(tx, found)
    rest = plan(tx, wanted)
    tx.execute("SAVEPOINT half")
    make(tx, found, PARTS_AT_ONCE)
    with pytest.raises(WrongState, match="meanwhile"):
        make(tx, rest)
    assert balance(tx, "shop") == "6.00"
    tx.execute("ROLLBACK TO half")
    refund(tx, WantedRefund("bill", "r-2", "1.50"))
    with pytest.raises(WrongState, match=r"USD 0\.50 went back under another reference"):
        plan(tx, wanted)


def test_wallet_that_paid_itself_gets_its_money_back(tx: Work) -> None:
    wallets.deposit(tx, "shop", "5.00")
    pay(tx, "shop", 500)
    refund(tx, WantedRefund("bill", "r-1"))
    assert balance(tx, "shop") == "5.00"
    with pytest.raises(InvalidAmount, match="Nothing of the payment can still be sent back"):
        plan(tx, WantedRefund("bill", "r-2", "0.01"))
    check_books(tx)


def remote_peer_account(work: Work) -> int:
    """The account of a peer through which money comes and goes."""
    return (peers.find_peer(work, "bank") or add_usd_peer(work, "bank", "1000000.00")).account_id


def pay_from_remote(work: Work, amount: int, path: str = "shop", payment_id: str = "bill") -> None:
    """The incoming payment receives money that no payer here has sent."""
    wallet = require_wallet(work, path)
    ledger.transfer(
        work, remote_peer_account(work), wallet.account_id, amount, "payment", incoming_payment_id=payment_id
    )
    incoming_payments.add_received(work, payment_id, amount)


def test_what_came_from_other_servers_goes_back_by_itself(tx: Work) -> None:
    pay(tx, "alice", 500)
    pay_from_remote(tx, 200)
    with pytest.raises(WrongState, match=r"USD 2\.00 of this came from other servers"), savepoint(tx):
        refund(tx, WantedRefund("bill", "r-1"))
    refund(tx, WantedRefund("bill", "r-2", "5.00"))
    assert balance(tx, "alice") == "1000.00"
    check_books(tx)


@pytest.mark.parametrize("change", ["debit = 99", "wallet_address_id = 1"])
def test_check_finds_a_refund_that_its_payment_does_not_send(tx: Work, change: str) -> None:
    pay_from_remote(tx, 200)
    [made] = refund(tx, WantedRefund("bill", "r-1", "1.00", ELSEWHERE), offer_elsewhere(100))
    tx.execute(f"UPDATE outgoing_payment SET {change}")
    [found] = [one for one in invariant_checks.check(tx) if one.name == "refunded"]
    assert found.breaches == [f"refund {made.id} is not what outgoing payment {made.return_payment_id} sends"]


@pytest.mark.parametrize("reference", ["", "a\nb", "a" * 101])
def test_reference_that_is_none_is_refused(tx: Work, reference: str) -> None:
    pay(tx, "alice", 500)
    with pytest.raises(InvalidRequest):
        refund(tx, WantedRefund("bill", reference))


def refund_if_possible(work: Work, came: int, reference: str, amount: int | None, to: str | None) -> None:
    text = None if amount is None else f"{amount // 100}.{amount % 100:02}"
    offer = None if to is None else offer_elsewhere(amount or max(came, 1))
    with suppress(DomainError), savepoint(work):
        refund(work, WantedRefund("bill", reference, text, to), offer)


def end_oldest_return(work: Work, share: Fraction, unknown: Fraction) -> None:
    """Ends the oldest payment that sends a refund with a share sent, and of the rest a share of which nobody knows."""
    found = [one for one in refunds_of(work, "incoming", "bill", 100) if one.state == "sending"]
    payment_id = found[0].return_payment_id if found else None
    if payment_id is None:
        return
    sent = int(found[0].amount * share)
    if sent:
        ledger.post(work, payment_hold(work, payment_id).id, remote_peer_account(work), sent, "payment")
        outgoing_payments.add_sent(work, payment_id, sent, sent)
    OUTGOING.update(work, payment_id, unresolved_debit=int((found[0].amount - sent) * unknown))
    payment = OUTGOING.by_id(work, payment_id)
    end_remote(work, payment, None if has_sent_all(payment) else "no more was taken")


ELSEWHERE = "https://other.example/ann"
SHARE = st.fractions(0, 1, max_denominator=7)
PAID = st.lists(st.tuples(st.sampled_from(sorted(ASSETS)), st.integers(1, 5_000), st.integers(0, 9)), max_size=4)
REFUNDS = st.tuples(st.sampled_from("abcd"), st.none() | st.integers(1, 8_000), st.sampled_from([None, ELSEWHERE]))
STEPS = st.lists(REFUNDS | st.tuples(SHARE, SHARE), min_size=1, max_size=8)


@given(paid=PAID, came=st.integers(0, 5_000), spent=st.integers(0, 5_000), steps=STEPS)
@examples(40)
def test_never_more_goes_back_than_came(
    paid: list[tuple[str, int, int]], came: int, spent: int, steps: list[tuple[Any, ...]]
) -> None:
    """Whoever paid, whatever is asked for under whichever reference, and whatever was sent when a payment that sends a
    refund ended."""
    with closing(connect_writer(":memory:")) as connection:
        work = work_at(connection, NOW)
        keep_books(work)
        sent = {pay(work, path, receive, debit=receive + fee, fee=fee): receive for path, receive, fee in paid}
        if came:
            pay_from_remote(work, came)
        with suppress(DomainError):
            wallets.withdraw(work, "shop", format_decimal(spent, require_wallet(work, "shop").asset))
        for step in steps:
            end_oldest_return(work, *step) if len(step) == 2 else refund_if_possible(work, came, *step)
        made = refunds_of(work, "incoming", "bill", 100)
        for payment_id, receive in sent.items():
            assert sum(one.counted for one in made if one.outgoing_payment_id == payment_id) <= receive
        away = [one for one in made if one.return_payment_id]
        assert sum(one.counted for one in away) <= came
        returns = [OUTGOING.by_id(work, one.return_payment_id or "") for one in away]
        assert sum(one.sent + one.unresolved_debit for one in returns) <= came
        assert len({one.reference for one in away}) == len(away)
        assert all(one.returned <= one.amount for one in made)
        check_books(work)
