"""The worker behind payments to other servers: interrupted, exhausted, kept waiting, and let down by storage."""

import asyncio
import itertools
import threading
from collections.abc import Callable, Sequence, Set
from fractions import Fraction
from functools import partial
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from payres.core.payments.incoming import PAID_MEANWHILE
from payres.core.process.slots import Slots
from payres.core.protocol.amounts import Terms
from payres.core.protocol.clock import HOUR
from payres.core.protocol.errors import Unavailable
from payres.core.remote.connection import FetchFailed
from payres.core.store.work import Work
from payres.interledger import clearing, quoting, remote_payments, unanswered
from payres.interledger.carrier import Link
from payres.interledger.node import node_of
from payres.interledger.packets import Code, Reject, Unanswered
from payres.interledger.remote_payments import LONGEST, MAX_ATTEMPTS, Backoff, delivered_by, next_step
from payres.interledger.remote_receivers import RemoteIncomingPayment, RemoteReceivers
from payres.interledger.sending.connection import SendingFailed
from payres.interledger.store import packets
from payres.interledger.unanswered import UNPROVED
from tests.helpers import TIMEOUT, last_segment, wait_until
from tests.instance import Instance
from tests.interledger.network import (
    EUR,
    USD,
    Json,
    Paid,
    Waits,
    add_liquidity,
    amount,
    bill,
    change,
    check_books,
    ended,
    forgetting,
    hurried,
    let_time_pass,
    never,
    received,
    sent,
    set_rate,
    wallet_money,
)
from tests.works import sending_payment

Pair = Sequence[Instance]
FUNDS = 100_000


@pytest.fixture(autouse=True)
def _hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packets in flight are looked at again and again: tests move the clock that they expire by."""
    monkeypatch.setattr(unanswered, "TICK_SECONDS", 0.03)


@pytest.fixture
def pair(pair: Pair) -> Pair:
    """The two peers take packets of 100 at most."""
    for server, other in zip(pair, "ba", strict=True):
        change(server, other, max_packet=100)
    return pair


@pytest.fixture
def receiver(pair: Pair) -> str:
    """Wants 10.00 dollars, which are ten packets."""
    return bill(pair[1], pair[1].wallet("bob"), 1000)


@pytest.mark.parametrize(
    ("changes", "retryable", "in_flight", "step"),
    [
        ({}, None, False, "attempt"),
        ({}, True, False, "wait"),
        ({}, False, False, "end"),
        ({}, False, True, "resolve"),
        ({"sent": 1000, "delivered": 1000}, None, False, "end"),
        ({"sent": 1000, "delivered": 1000}, None, True, "resolve"),
        ({"delivered": 990}, True, False, "end"),
        ({"delivered": 989}, None, False, "attempt"),
        ({"attempts": MAX_ATTEMPTS - 1}, True, False, "wait"),
        ({"attempts": MAX_ATTEMPTS}, True, False, "end"),
        ({"attempts": MAX_ATTEMPTS}, None, True, "resolve"),
        ({"created_at": -LONGEST}, None, False, "end"),
        ({"delivered": 990, "estimated": 1}, None, False, "compare"),
        ({"delivered": 990, "estimated": 1}, None, True, "resolve"),
        ({"delivered": 990, "estimated": 1}, True, False, "wait"),
        ({"delivered": 990, "estimated": 1}, False, False, "end"),
        ({"delivered": 990, "estimated": 1, "attempts": MAX_ATTEMPTS}, True, False, "end"),
        ({"delivered": 500, "estimated": 1}, None, False, "compare"),
    ],
)
def test_next_step(changes: Json, retryable: bool | None, in_flight: bool, step: str) -> None:
    terms = Terms(receiver="", incoming_payment_id=None, debit=1000, fee=0, receive=990, asset=USD)
    payment = msgspec.structs.replace(sending_payment("1", 1, 1, 0, terms), **changes)
    failure = None if retryable is None else SendingFailed("why", retryable=retryable)
    assert next_step(payment, failure, in_flight=in_flight, now=0) == step


@pytest.mark.parametrize(
    ("arrived", "later"),
    [(False, 22), (True, 22), (True, 86_400)],
    ids=["before they left", "after they arrived", "a day later, when its quote has expired"],
)
def test_packets_in_flight_at_an_interruption_are_asked_about(
    pair: Pair, receiver: str, monkeypatch: pytest.MonkeyPatch, arrived: bool, later: int
) -> None:
    a, b = pair
    post = forgetting(Link.post) if arrived else never
    created = begin_and_interrupt(
        a, receiver, post, monkeypatch, lambda: (received(b, receiver).received > 0) == arrived
    )
    assert sent(a, created).sent == 0
    let_time_pass(pair, later)
    goes_on_to_the_end(pair, created, receiver)


def test_interruptions_while_something_arrives_do_not_use_up_the_attempts(
    pair: Pair, receiver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    hurried(a, largest_round=1)
    times = 1
    with monkeypatch.context() as patch:
        patch.setattr(Link, "post", holding(Link.post, lambda: received(b, receiver).received >= 100 * times))
        created = begin(a, receiver)
        for times in range(1, MAX_ATTEMPTS + 2):
            wait_until(partial(lambda least: received(b, receiver).received >= least, 100 * times))
            interrupt(a, created)
            assert sent(a, created).state == "sending"
            let_time_pass(pair, 22)
            node_of(a.context).payments.wake()
    goes_on_to_the_end(pair, created, receiver)


def test_payment_that_shall_send_all_does_so_after_an_interruption_too(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    monkeypatch.setattr(quoting, "SLIPPAGE", Fraction(1, 2))
    hurried(a, largest_round=1)
    receiver = bill(b, b.wallet("bob"))
    with monkeypatch.context() as patch:
        patch.setattr(Link, "post", holding(Link.post, lambda: received(b, receiver).received >= 500))
        created = a.client.pay(a.wallet("alice"), receiver, debitAmount=amount(1000))
        assert created["receiveAmount"] == amount(500)
        wait_until(lambda: sent(a, created).delivered >= 500)
        interrupt(a, created)
    assert sent(a, created).sent < 1000
    let_time_pass(pair, 22)
    goes_on_to_the_end(pair, created, receiver)


def test_payment_of_which_a_part_has_arrived_waits_for_credit(
    pair: Pair, receiver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that has not begun is given up soon, as its payer can send less."""
    created = begin_and_interrupt_after(pair, receiver, 500, monkeypatch)
    let_time_pass(pair, 22)
    hurried(pair[0], short_timeout=0)
    post, refusals = Link.post, iter([Reject(Code.INSUFFICIENT_LIQUIDITY)] * 3)

    async def without_credit(*arguments: Any) -> Any:
        refusal = next(refusals, None)
        return (refusal, True) if refusal else await post(*arguments)

    monkeypatch.setattr(Link, "post", only_money(post, without_credit))  # when it asks for its price again
    goes_on_to_the_end(pair, created, receiver)
    assert next(refusals, None) is None


def test_payment_ends_within_two_hours_although_neither_its_peer_nor_its_receiver_answers(
    pair: Pair, receiver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many packets are in flight."""
    a, _ = pair

    def is_sent() -> bool:
        return len(a.read(lambda tx: packets.prepared_packets(tx, 20))) == 4

    async def away(*_: object) -> Any:
        raise FetchFailed("It is away")

    async def unanswered_post(*_: object) -> Any:
        return Unanswered("It is away"), True

    created = begin_and_interrupt(a, receiver, never, monkeypatch, is_sent)
    monkeypatch.setattr(RemoteReceivers, "fetch", away)
    monkeypatch.setattr(Link, "post", unanswered_post)
    waits, began = Waits(monkeypatch), a.clock.now()
    node_of(a.context).payments.wake()
    paid = waits.end(pair, created, 60)
    assert (paid.record.state, paid.record.failure) == ("failed", UNPROVED)
    assert HOUR <= a.clock.now() - began <= 2 * HOUR


def test_payment_that_finds_no_slot_to_read_its_receiver_uses_up_no_attempt(
    pair: Pair, receiver: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = pair
    quote = a.client.create_quote(a.wallet("alice"), receiver)
    http = node_of(a.context).receivers._http
    monkeypatch.setattr(http, "_bounds", msgspec.structs.replace(http._bounds, queue_seconds=0))
    slots = Slots(None, 1)
    monkeypatch.setattr(http, "_slots", slots)
    assert slots.try_take("own")
    with caplog.at_level("INFO", "payres.remote_payments"):
        created = a.client.create_outgoing_payment(a.wallet("alice"), quote["id"])
        busy = f"is tried again: {urlsplit(b.base_url).netloc} was not asked"
        wait_until(lambda: caplog.text.count(busy) > MAX_ATTEMPTS)
    slots.release("own")
    paid = ended(a, created)
    assert (paid.record.state, paid.record.attempts, received(b, receiver).received) == ("completed", 1, 1000)


@pytest.mark.parametrize("amounts", [{}, {"debitAmount": amount(1000)}], ids=["delivers", "sends all"])
@pytest.mark.parametrize("too_much", [0, 1])
def test_receiver_that_was_paid_meanwhile_gets_all_or_nothing(
    too_much: int, amounts: Json, pair: Pair, receiver: str
) -> None:
    """What was promised may exceed what is missing by the overpay tolerance: 5 of 1000."""
    a, b = pair
    quote = a.client.create_quote(a.wallet("alice"), receiver, **amounts)
    room = 1000 - (int(quote["receiveAmount"]["value"]) - 5)
    pay_at_home(b, receiver, room + too_much)
    before = node_of(b.context).packets.total()
    paid = ended(a, a.client.create_outgoing_payment(a.wallet("alice"), quote["id"]))
    if not too_much:
        assert paid.record.delivered >= 900
        return
    assert (paid.record.state, paid.record.sent, paid.record.attempts) == ("failed", 0, 1)
    assert paid.record.failure == PAID_MEANWHILE
    assert node_of(b.context).packets.total() == before
    assert wallet_money(a, "alice") == (FUNDS, 0)


def test_receiver_that_was_paid_after_a_part_has_arrived_gets_what_it_takes(
    pair: Pair, receiver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = pair
    hurried(a, largest_round=1)
    created = begin_and_interrupt_after(pair, receiver, 500, monkeypatch)
    pay_at_home(b, receiver, 250)
    let_time_pass(pair, 22)
    node_of(a.context).payments.wake()
    paid = ended(a, created)
    assert (paid.record.state, paid.record.sent) == ("failed", 700)
    assert received(b, receiver).received == 950


def test_part_is_not_the_whole_once_the_receiver_is_completed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """More cents have left than were to arrive, but each is worth half a cent of the receiver's currency."""
    a, b = pair
    set_rate("USD", "EUR", "0.5", a, b)
    add_liquidity(b, EUR)
    hurried(a, largest_round=1)
    receiver = bill(b, b.create_wallet("carla", asset="EUR"), 500, EUR)
    created = begin_and_interrupt_after(pair, receiver, 300, monkeypatch)
    completer = b.client.grant({"type": "incoming-payment", "actions": ["complete"]})
    assert b.client.post(f"{receiver}/complete", None, completer).status_code == 200
    let_time_pass(pair, 22)
    node_of(a.context).payments.wake()
    record = ended(a, created).record
    assert (record.state, record.failure, record.delivered) == ("failed", "The incoming payment is completed", 300)


@pytest.mark.parametrize("rate", ["0.991", "1.005", "1.2"])
@pytest.mark.parametrize("lost", [{0}, {1, 2}, {3}, {0, 1, 2, 3}], ids=str)
@pytest.mark.parametrize("largest_round", [1, 20])
def test_rate_that_has_moved_since_the_quote_is_learnt_from_the_receiver_if_an_answer_was_lost(
    pair: Pair, lost: Set[int], rate: str, largest_round: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the rate of the quote, the lost answers would have said other amounts."""
    a, _ = pair
    waits = Waits(monkeypatch)
    receiver, quote = quoted_before_the_rate_moved(pair, rate)
    hurried(a, first_round=largest_round, largest_round=largest_round)
    monkeypatch.setattr(Link, "post", losing(Link.post, lost))
    paid = waits.end(pair, a.client.create_outgoing_payment(a.wallet("alice"), quote["id"]), 22)
    arrives_whole(pair, paid, receiver)
    assert paid.record.sent <= 3560 / float(rate) + 5  # a unit is lost in each packet


def test_receiver_that_denies_what_it_had_to_get_is_sent_no_more(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair
    waits = Waits(monkeypatch)
    _, quote = quoted_before_the_rate_moved(pair, "1.2", max_packet=10_000)
    fetch = RemoteReceivers.fetch

    async def denied(self: RemoteReceivers, url: str, seconds: float | None = None) -> RemoteIncomingPayment:
        return msgspec.structs.replace(await fetch(self, url, seconds), received=0, completed=False)

    monkeypatch.setattr(RemoteReceivers, "fetch", denied)
    monkeypatch.setattr(Link, "post", losing(Link.post, {0}))
    paid = waits.end(pair, a.client.create_outgoing_payment(a.wallet("alice"), quote["id"]), 22)
    assert (paid.record.state, paid.record.sent, paid.record.delivered) == ("completed", 2967, 3560)
    check_books(a, b)


@pytest.mark.parametrize(("rate", "failure"), [("1", None), ("1.2", "It is away")])
def test_receiver_that_cannot_be_read_does_not_keep_a_payment_from_its_end(
    pair: Pair, rate: str, failure: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the lost answers would have said stays an estimate, which suffices if it is less than the slippage."""
    a, b = pair
    receiver, quote = quoted_before_the_rate_moved(pair, rate)
    waits = Waits(monkeypatch)
    hurried(a, largest_round=1)
    node_of(a.context).payments.backoff = Backoff(after_failure=0)
    asked = 0
    fetch = RemoteReceivers.fetch

    async def away(self: RemoteReceivers, url: str, seconds: float | None = None) -> RemoteIncomingPayment:
        nonlocal asked
        if received(b, receiver).received < 3560:
            return await fetch(self, url, seconds)
        asked += 1
        raise FetchFailed("It is away")

    monkeypatch.setattr(RemoteReceivers, "fetch", away)
    monkeypatch.setattr(Link, "post", losing(Link.post, {0, 1}))
    paid = waits.end(pair, a.client.create_outgoing_payment(a.wallet("alice"), quote["id"]), 22)
    assert asked == MAX_ATTEMPTS - 1
    assert (paid.record.state, paid.record.failure) == ("failed" if failure else "completed", failure)
    assert (paid.record.sent, paid.record.delivered) == (round(3560 / float(rate)), 3560)
    check_books(a, b)


@pytest.mark.parametrize("at", [1, 3])
@pytest.mark.parametrize("rate", ["0.991", "1.005"])
def test_answer_that_is_fetched_while_an_attempt_still_sends_is_compared_too(
    pair: Pair, rate: str, at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = pair
    waits = Waits(monkeypatch)
    receiver, quote = quoted_before_the_rate_moved(pair, rate)
    hurried(a, first_round=1, largest_round=1)
    outbound = node_of(a.context).payments.outbound
    carry, numbers = outbound.carry, itertools.count()

    async def late(*arguments: Any) -> Any:
        """Carries, but one packet so late that those before it have expired and been asked about."""
        if next(numbers) == at:
            let_time_pass(pair, 22)
            while await outbound.database.read(lambda work: packets.prepared_packets(work, 1)):  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        return await carry(*arguments)

    outbound.carry = late
    monkeypatch.setattr(Link, "post", losing(Link.post, {0}))
    arrives_whole(pair, waits.end(pair, a.client.create_outgoing_payment(a.wallet("alice"), quote["id"]), 22), receiver)


def test_money_of_others_is_not_counted_after_an_interruption(
    pair: Pair, receiver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has arrived is known to the unit, if no answer was lost."""
    a, b = pair
    change(b, "a", max_packet=83)  # 12 times 83 are 996
    hurried(a, first_round=1, largest_round=1)
    created = begin_and_interrupt_after(pair, receiver, 996, monkeypatch)
    pay_at_home(b, receiver, 4)
    let_time_pass(pair, 22)
    node_of(a.context).payments.wake()
    record = ended(a, created).record
    assert (record.state, record.sent, record.delivered) == ("failed", 996, 996)


@pytest.mark.parametrize(
    ("before", "now", "wanted", "estimated", "delivered"),
    [
        (None, 0, None, 950, 950),
        (100, 1050, None, 950, 950),
        (100, 1049, None, 950, 949),
        (100, 2000, None, 950, 950),  # from others
        (100, 0, None, 20, 930),  # what the payment's packets must have delivered
        (100, 0, None, 0, 950),
        (0, 2**63 - 1, None, 950, 950),
        (0, 953, 953, 950, 953),  # complete
        (0, 990, 990, 950, 954),  # others have completed it
        (0, 990, 990, 20, 951),
        (0, 990, 990, 0, 950),
        (0, 953, 954, 950, 950),
        (0, 2**63 - 1, 1, 950, 954),
    ],
)
def test_estimate_is_corrected_by_what_the_receiver_has_got(
    before: int | None, now: int, wanted: int | None, estimated: int, delivered: int
) -> None:
    terms = Terms(receiver="", incoming_payment_id=None, debit=1110, fee=10, receive=990, asset=USD)
    payment = msgspec.structs.replace(
        sending_payment("1", 1, 1, 0, terms), sent=1000, delivered=950, received_before=before, estimated=estimated
    )
    receiver = RemoteIncomingPayment(
        url="",
        wallet_address="",
        asset=USD,
        incoming_value=wanted,
        received=now,
        expires_at=None,
        completed=False,
        method=None,
    )
    assert delivered_by(payment, receiver) == delivered
    assert delivered_by(payment, msgspec.structs.replace(receiver, asset=EUR)) == 950


@pytest.mark.parametrize("blocked", ["route", "slot"])
def test_attempt_counts_although_no_packet_has_left(
    blocked: str, pair: Pair, receiver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, _ = pair
    quote = a.client.create_quote(a.wallet("alice"), receiver)
    if blocked == "route":
        a.write(lambda tx: tx.execute("DELETE FROM peer_route").rowcount)
    else:
        monkeypatch.setattr(remote_payments, "LONGEST_ATTEMPT", 0.01)
        taken = Slots(None, 1, 1)
        assert taken.try_take(1, 0)  # all there are to the only peer
        monkeypatch.setattr(node_of(a.context).payments.outbound, "slots_to", lambda peer: taken)
    created = a.client.create_outgoing_payment(a.wallet("alice"), quote["id"])
    paid = ended(a, created)
    assert (paid.record.state, paid.record.sent, paid.record.attempts) == ("failed", 0, MAX_ATTEMPTS)


def test_outcomes_that_storage_did_not_take_are_asked_for_again(
    pair: Pair, receiver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = Waits(monkeypatch)
    a, _ = pair
    hurried(a, first_round=20)
    refusals = iter(range(2))
    all_refused = threading.Event()

    def failing(work: Work, packet_id: str, delivered: int) -> bool:
        if (number := next(refusals, None)) is not None:
            if number == 1:
                all_refused.set()
            raise Unavailable("The disk is full")
        return fulfil(work, packet_id, delivered)

    fulfil = clearing.fulfil
    monkeypatch.setattr(clearing, "fulfil", failing)
    created = begin(a, receiver)
    assert all_refused.wait(TIMEOUT)
    wait_until(lambda: waits.has(a, created))  # before time passes: packets live 20 s from when they leave
    let_time_pass(pair, 22)
    goes_on_to_the_end(pair, created, receiver)


def begin(instance: Instance, receiver: str) -> Json:
    """A payment from alice's wallet that has just been made."""
    return instance.client.pay(instance.wallet("alice"), receiver)


def begin_and_interrupt(
    instance: Instance,
    receiver: str,
    post: Any,
    monkeypatch: pytest.MonkeyPatch,
    ready: Callable[[], bool] = lambda: True,
) -> Json:
    """A payment whose packets were handed to `post`, and that was interrupted, once `ready`, without any outcome."""
    quoted = instance.client.create_quote(instance.wallet("alice"), receiver)
    with monkeypatch.context() as patch:
        patch.setattr(Link, "post", only_money(post))
        created = instance.client.create_outgoing_payment(instance.wallet("alice"), quoted["id"])
        wait_until(ready)
        interrupt(instance, created)
    return created


def begin_and_interrupt_after(pair: Pair, receiver: str, delivered: int, monkeypatch: pytest.MonkeyPatch) -> Json:
    """A payment that was interrupted once it had delivered so much."""
    a, b = pair
    with monkeypatch.context() as patch:
        patch.setattr(Link, "post", holding(Link.post, lambda: received(b, receiver).received >= delivered))
        created = begin(a, receiver)
        wait_until(lambda: sent(a, created).delivered >= delivered)
        interrupt(a, created)
    return created


def losing(post: Any, lost: Set[int]) -> Any:
    """Posts, and does not hear the first answers to the requests with these numbers, counted from 0."""
    asked: list[str] = []

    async def post_and_lose(*arguments: Any) -> Any:
        answer, request_id = await post(*arguments), arguments[4]
        if request_id in asked:
            return answer
        asked.append(request_id)
        return (Unanswered("It was lost"), True) if len(asked) - 1 in lost else answer

    return only_money(post_and_lose)


def only_money(post: Any, otherwise: Any = Link.post) -> Any:
    """Posts recorded packets in this way, and others as ever."""

    async def post_either(link: Link, peer: Any, token: str, prepare: bytes, request_id: str, seconds: float) -> Any:
        is_recorded = await link._database.read(lambda work: packets.PACKETS.get(work, request_id)) is not None
        return await (post if is_recorded else otherwise)(link, peer, token, prepare, request_id, seconds)

    return post_either


def holding(post: Any, is_held: Callable[[], bool]) -> Any:
    """Posts, but not while `is_held`."""

    async def post_afterwards(*arguments: Any) -> Any:
        while is_held():  # noqa: ASYNC110 - no event tells
            await asyncio.sleep(0.005)
        return await post(*arguments)

    return post_afterwards


def interrupt(instance: Instance, created: Json) -> None:
    """Stops the payment where it stands, as the end of the process does: what is in the rows is all that is left."""
    payments, payment_id = node_of(instance.context).payments, last_segment(created["id"])

    def packets_in(state: packets.PacketState) -> int:
        return len(instance.read(lambda tx: packets.packets_of_payment(tx, payment_id, state)))

    wait_until(lambda: packets_in("prepared") + packets_in("fulfilled") > 0)
    task = payments._sending[payment_id]
    task.get_loop().call_soon_threadsafe(task.cancel)
    wait_until(lambda: payment_id not in payments._sending)


def pay_at_home(instance: Instance, receiver: str, value: int) -> None:
    """Somebody else pays into the incoming payment, from a wallet of its own server."""
    instance.client.pay(instance.wallet("alice"), receiver, receiveAmount=amount(value))


def quoted_before_the_rate_moved(pair: Pair, rate: str, max_packet: int = 1000) -> tuple[str, Json]:
    """A receiver that wants 35.60 euros, and a quote in dollars for it, from before this rate."""
    a, b = pair
    change(b, "a", max_packet=max_packet)
    set_rate("USD", "EUR", "1", a, b)
    add_liquidity(b, EUR)
    receiver = bill(b, b.create_wallet("carla", asset="EUR"), 3560, EUR)
    quote = a.client.create_quote(a.wallet("alice"), receiver)
    set_rate("USD", "EUR", rate, b)
    return receiver, quote


def arrives_whole(pair: Pair, paid: Paid, receiver: str) -> None:
    """The payment knows no more of what has arrived than the receiver, and little less."""
    got = received(pair[1], receiver)
    assert (paid.record.state, paid.record.failure) == ("completed", None)
    assert got.received >= 3560
    assert got.completed_at
    assert 3560 <= paid.record.delivered <= got.received
    check_books(*pair)


def goes_on_to_the_end(pair: Pair, created: Json, receiver: str, spent: int = 1000) -> None:
    """The payment arrives whole, and once."""
    a, b = pair
    node_of(a.context).payments.wake()
    paid = ended(a, created)
    assert (paid.record.state, paid.record.sent, paid.record.delivered) == ("completed", 1000, 1000)
    assert received(b, receiver).received == 1000
    assert wallet_money(a, "alice") == (FUNDS - spent, 0)
