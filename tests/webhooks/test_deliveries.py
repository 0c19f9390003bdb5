"""Webhooks: every event reaches every endpoint that wants it, signed, and what fails is tried again."""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from email.utils import formatdate
from functools import partial
from itertools import pairwise
from random import Random
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import msgspec
import pytest
from standardwebhooks import WebhookVerificationError

from payres.core.protocol.clock import DAY, HOUR, MINUTE, SECOND, SystemClock, format_time, parse_time
from payres.core.protocol.errors import DomainError
from payres.core.protocol.event_types import EVENT_TYPES
from payres.core.store import audit, events
from payres.core.store.wallets import require_wallet
from payres.core.store.work import ROWS_AT_ONCE, Work
from payres.operator import wallets, webhooks
from payres.operator.deliveries import (
    ATTEMPTS,
    DELIVERY,
    WebhookAttempt,
    deliveries_of,
    list_attempts,
    list_deliveries,
    replay,
    replay_failed,
)
from payres.operator.webhooks import WEBHOOK
from payres.testing.clock import MovableClock
from payres.webhooks import attempts, deliveries, rounds, rules
from payres.webhooks.attempts import RETRY_PAUSES
from payres.webhooks.limits import (
    DELIVERY_SECONDS,
    MAX_DELIVERIES_OF_WEBHOOK,
    MAX_KEPT_ANSWER_BYTES,
    MAX_KEPT_ATTEMPTS,
    MAX_RETRY_AFTER_SECONDS,
    MAX_WEBHOOKS,
    ROTATION_HOURS,
)
from payres.webhooks.patterns import wants
from payres.webhooks.rounds import Queue
from payres.webhooks.sender import Attempt, Sender, WebhookTarget, signed_headers
from payres.webhooks.store import webhooks as store
from payres.webhooks.store.webhooks import DeliveryRecord, Turn, WebhookRecord
from payres.webhooks.turns import READ_AT_ONCE, Turns
from tests.helpers import ROOT, TIMEOUT, Json, usd, wait_until
from tests.instance import Instance, run_instance
from tests.webhooks.conftest import Sample
from tests.webhooks.endpoint import Endpoint, Received, answering
from tests.works import NOW, InSteps, Killed, in_steps, savepoint, work_at

URL = "https://shop.example/hook"
AddEndpoint = Callable[..., tuple[Endpoint, rules.Added]]


@pytest.fixture(scope="module", autouse=True)
def _quick() -> Iterator[None]:
    """What another process has written, and what is due by a moved clock, is found at once, and as the table says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(deliveries, "LOOK_SECONDS", 0.02)
        patch.setattr(attempts, "CHANCE", SimpleNamespace(random=lambda: 0.0))
        yield


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory, _quick: None) -> Iterator[Instance]:
    """One that asks no private addresses but those of private webhooks, and whose pauses chance does not lengthen."""
    with run_instance(tmp_path_factory.mktemp("hooks") / "payres.db", allow_private_hosts=False) as running:
        yield running


@pytest.fixture
def add(instance: Instance) -> Iterator[AddEndpoint]:
    """Adds endpoints to the instance, which are removed in the end."""
    with ExitStack() as stack:

        def added(*patterns: str, to: Instance = instance) -> tuple[Endpoint, rules.Added]:
            endpoint = stack.enter_context(Endpoint().running())
            made = to.write(lambda work: webhooks.add(work, endpoint.url, events=patterns, private=True))
            return endpoint, made

        yield added
        for one in instance.read(store.WEBHOOKS.list):
            in_steps(webhooks.remove, InSteps(instance.write), one.id)


def deposit(instance: Instance, times: int = 1) -> None:
    """So many events of one commit."""
    instance.write(lambda work: [wallets.deposit(work, "alice", "1.00") for _ in range(times)])


def states(instance: Instance) -> list[tuple[str, int]]:
    """The state of each delivery and its attempts, the newest event first."""
    return [
        (one.state, one.attempts)
        for one in instance.read(lambda work: [DELIVERY.show(work, one) for one in list_deliveries(work)])
    ]


def settled(instance: Instance, added: rules.Added) -> None:
    """Waits until all events were sent for the first time."""

    wait_until(lambda: cursor_of(instance, added) >= instance.read(events.last_sequence))


def cursor_of(instance: Instance, added: rules.Added) -> int:
    """The last event up to which each was attempted once, or is not wanted."""
    return instance.read(lambda work: rules.require_webhook(work, added.webhook.id)).cursor


def test_event_is_sent_as_standard_webhooks_says(instance: Instance, add: AddEndpoint) -> None:
    endpoint, added = add()
    deposit(instance)
    [received] = endpoint.wait_for(1)
    event = received.verified(added.secret)
    assert event.keys() == {"id", "type", "timestamp", "sequence", "data"}
    assert event["type"] == "wallet.deposited"
    assert event["data"]["amount"] == usd(100)
    assert event["id"] == received.headers["webhook-id"]
    assert UUID(event["id"].removeprefix("evt_")).version == 7
    assert abs(parse_time(event["timestamp"]) - instance.clock.now()) < 60 * SECOND
    assert (received.path, received.headers["content-type"]) == ("/hook", "application/json")
    assert added.secret.startswith("whsec_")
    with pytest.raises(WebhookVerificationError):
        received._replace(body=received.body.replace(b"deposited", b"withdrawn")).verified(added.secret)
    settled(instance, added)
    assert states(instance) == [], "what is taken at once needs no row"


def test_events_come_in_their_order_and_only_those_that_are_wanted(instance: Instance, add: AddEndpoint) -> None:
    deposits, _ = add("wallet.deposited,grant.*")
    everything, _ = add()
    bills, _ = add("incoming_payment.*", "liquidity.low")
    deposit(instance, 3)
    instance.client.create_incoming_payment(instance.wallet("bob"))
    assert [one.event["type"] for one in deposits.wait_for(3)] == ["wallet.deposited"] * 3
    assert [one.event["type"] for one in bills.wait_for(1)] == ["incoming_payment.created"]
    sequences = sorted(one.event["sequence"] for one in everything.wait_for(4))
    assert sequences == list(range(sequences[0], sequences[0] + 4))
    deposit(instance)
    deposits.wait_for(4)
    assert len(bills.received) == 1


def is_pending(instance: Instance, attempts: int) -> bool:
    return states(instance) == [("pending", attempts)]


def test_webhook_that_wants_little_comes_through_the_others(instance: Instance, add: AddEndpoint) -> None:
    endpoint, added = add("grant.*")

    def unit(work: Work) -> None:
        for number in range(READ_AT_ONCE):
            work.emit("wallet.deposited", None, Sample(number))

    instance.write(unit)
    wait_until(lambda: cursor_of(instance, added) == added.webhook.cursor + READ_AT_ONCE)
    instance.write(lambda work: work.emit("grant.denied", None, Sample(1)))
    assert endpoint.wait_for(1)[0].event["data"] == {"number": 1}


def test_what_fails_is_tried_again_with_the_same_id_and_a_new_time(instance: Instance, add: AddEndpoint) -> None:
    endpoint, added = add()
    endpoint.answer = answering(500, 302, 200)
    deposit(instance)
    endpoint.wait_for(1)
    begun = set()
    for number, pause in enumerate(RETRY_PAUSES[:2], start=1):
        wait_until(partial(is_pending, instance, number))
        begun.add(instance.read(partial(store.oldest_pending_event, webhook_id=added.webhook.id)))
        assert len(endpoint.received) == number
        instance.clock.advance(pause / SECOND + 1)
        endpoint.wait_for(number + 1)
    wait_until(lambda: states(instance) == [("delivered", 3)])
    assert len(begun - {None}) == 1, "since when it fails is not when it was tried last"
    first, *others = endpoint.received
    for other in others:
        assert other.body == first.body
        assert other.headers["webhook-id"] == first.headers["webhook-id"]
    times = [int(one.headers["webhook-timestamp"]) for one in endpoint.received]
    assert all(later - earlier >= pause for (earlier, later), pause in zip(pairwise(times), (5, 300), strict=True))
    shown = instance.read(lambda work: WEBHOOK.find(work, id=added.webhook.id))
    assert (shown.last_status, shown.last_error, shown.behind) == (200, None, 0)


def send_round(work: Work, webhook: WebhookRecord, queue: Queue, most: int, *answers: Attempt) -> list[int]:
    """One round of a queue, with attempts on its first events, all if none is given. Returns what it was to send."""
    found = rounds.find(work, webhook.id, queue)
    assert found is not None
    queue.add(found)
    due = rounds.find_round(work, webhook, queue.take(most))
    attempts = answers or [Attempt(work.now, 200, None)] * len(due.to_send)
    queue.put_back(due.to_send[len(attempts) :])
    rounds.store_round(work, due, attempts, queue.cursor)
    return [one.event.sequence for one in due.to_send]


def attempts_of(tx: Work, attempt: Attempt, times: int) -> list[tuple[str, int | None]]:
    """The state of a delivery after each of so many such attempts, and the seconds to the next one."""
    found: list[tuple[str, int | None]] = []
    added = webhooks.add(tx, URL)
    tx.emit("wallet.deposited", None, Sample(1))
    for _ in range(times):
        send_round(tx, added.webhook, Queue(), MAX_DELIVERIES_OF_WEBHOOK, attempt)
        [delivery] = store.DELIVERIES.list(tx, "")
        found.append((delivery.state, None if delivery.next_at is None else (delivery.next_at - NOW) // SECOND))
        store.DELIVERIES.replace(tx, msgspec.structs.replace(delivery, next_at=delivery.next_at and NOW))
    return found


def emit(work: Work, wallet_id: int | None, times: int = 1) -> list[int]:
    """So many events of a wallet; returns their sequences."""
    for number in range(times):
        work.emit("wallet.deposited", None, Sample(number), wallet_id)
    last = events.last_sequence(work)
    return list(range(last - times + 1, last + 1))


def open_wallets(work: Work) -> Sequence[int]:
    return [wallets.create_wallet(work, path, "USD", 2, None, None).id for path in ("alice", "bob")]


def turns_of(work: Work) -> list[tuple[int, int]]:
    return work.execute("SELECT wallet_address_id, cursor FROM webhook_turn ORDER BY 1").fetchall()


@pytest.mark.parametrize("seed", range(20))
def test_first_event_that_waits_is_known_whatever_was_taken(seed: int) -> None:
    chance, turns, waiting = Random(seed), Turns(), set[int]()
    for sequence in range(1, 400):
        if chance.random() < 0.6:
            turns.add(Turn(sequence, chance.randrange(9)))
            waiting.add(sequence)
        else:
            taken = turns.take(chance.randrange(1, 8))
            back = taken[chance.randrange(len(taken) + 1) :] if chance.random() < 0.5 else []
            turns.put_back(back)
            waiting = waiting.difference(one.sequence for one in taken) | {one.sequence for one in back}
        assert turns.first() == min(waiting, default=None)


def test_wallets_take_turns_and_a_restart_sends_nothing_twice(tx: Work) -> None:
    webhook, (alice, bob) = webhooks.add(tx, URL).webhook, open_wallets(tx)
    storm = emit(tx, alice, 10)
    [other], [of_none], later = emit(tx, bob), emit(tx, None), emit(tx, bob, 2)
    queue = Queue()
    assert send_round(tx, webhook, queue, 4) == [storm[0], other, of_none, storm[1]]
    found = rules.require_webhook(tx, webhook.id)
    assert (found.cursor, turns_of(tx)) == (storm[1], [(0, of_none), (bob, other)])
    assert WEBHOOK.show(tx, found).behind == len(storm) - 2 + len(later)
    stored = [events.OUTBOX.by_id(tx, sequence) for sequence in (storm[1], storm[2], other, later[0])]
    assert [deliveries_of(tx, one)[0].state for one in stored] == ["delivered", "pending"] * 2
    assert send_round(tx, webhook, Queue(), 4) == [storm[2], later[0], storm[3], later[1]], "after a restart"
    assert send_round(tx, webhook, Queue(), 10) == storm[4:]
    assert rules.require_webhook(tx, webhook.id).cursor == later[1]
    assert turns_of(tx) == []
    assert rounds.is_all_sent(tx)


def test_events_that_a_round_could_not_begin_to_send_come_next(tx: Work) -> None:
    webhook, (alice, bob) = webhooks.add(tx, URL).webhook, open_wallets(tx)
    storm, [other] = emit(tx, alice, 4), emit(tx, bob)
    queue, failed = Queue(), Attempt(NOW, 500, "no")
    assert send_round(tx, webhook, queue, 4, failed) == [storm[0], other, storm[1], storm[2]]
    assert [(one.sequence, one.attempts) for one in store.DELIVERIES.list(tx, "")] == [(storm[0], 1)]
    assert (rules.require_webhook(tx, webhook.id).cursor, turns_of(tx)) == (storm[0], [])
    assert send_round(tx, webhook, queue, 4) == [other, *storm[1:]]


def test_retries_take_turns_too_and_leave_half_of_a_round_to_new_events(tx: Work) -> None:
    webhook, (alice, bob) = webhooks.add(tx, URL).webhook, open_wallets(tx)
    failed = emit(tx, alice, 10) + emit(tx, bob)
    queue = Queue()
    send_round(tx, webhook, queue, 20, *[Attempt(NOW, 500, "no")] * 11)
    later = work_at(tx, NOW + 6 * SECOND)
    new = emit(later, alice, 4)
    assert send_round(later, webhook, queue, 4) == [failed[0], new[0], failed[-1], new[1]]
    assert send_round(later, webhook, queue, 4) == [failed[1], new[2], failed[2], new[3]]
    assert send_round(later, webhook, queue, 20) == failed[3:-1], "each once, although they are looked for each time"
    assert send_round(later, webhook, queue, 20) == []


def test_what_failed_or_was_replayed_while_the_clock_was_ahead_is_sent_again_at_once(tx: Work) -> None:
    webhook, ahead = webhooks.add(tx, URL).webhook, work_at(tx, NOW + 30 * DAY)
    failed, replayed, later = emit(tx, None, 3)
    send_round(ahead, webhook, Queue(), 8, *[Attempt(ahead.now, 500, "no")] * 2)
    in_steps(replay, ahead, events.OUTBOX.by_id(tx, replayed).id, webhook.id)
    assert send_round(tx, webhook, Queue(), 8, *[Attempt(NOW, 500, "no")] * 3) == [failed, later, replayed]
    queue = Queue()
    assert send_round(tx, webhook, queue, 8) == [], "now they wait for the usual pause"
    assert send_round(work_at(tx, NOW + 6 * SECOND), webhook, queue, 8) == [replayed, later]
    assert send_round(work_at(tx, NOW + 330 * SECOND), webhook, queue, 8) == [failed]


def test_owners_webhook_is_due_until_all_that_failed_while_the_clock_was_ahead_is_sent_again(tx: Work) -> None:
    """A round ends after a tenth of a second."""
    alice, _ = open_wallets(tx)
    webhook, ahead = rules.add_of_wallet(tx, require_wallet(tx, "alice"), URL).webhook, work_at(tx, NOW + 30 * DAY)
    wanted = [store.OfWallet(one, "wallet.deposited", webhook.id) for one in emit(tx, alice, 3)]
    deliveries.make_due(ahead, wanted, wanted[-1].sequence)
    send_round(ahead, webhook, Queue(), 8, *[Attempt(ahead.now, 500, "no")] * 3)
    left = [3, 2, 1]
    while left:
        assert len(send_round(tx, webhook, Queue(), 8, Attempt(NOW, 200, None))) == left.pop(0)
        assert store.WEBHOOKS.by_id(tx, webhook.id).due_at == (NOW if left else None)


def test_event_that_is_replayed_before_its_turn_is_sent_once_and_skips_none(tx: Work) -> None:
    webhook, (alice, _) = webhooks.add(tx, URL).webhook, open_wallets(tx)
    first, second, third = emit(tx, alice, 3)
    in_steps(replay, tx, events.OUTBOX.by_id(tx, third).id, webhook.id)
    sent = send_round(tx, webhook, Queue(), 2)
    assert sent == [third, first]
    assert send_round(tx, webhook, Queue(), 4) == [second], "after a restart"


def test_event_that_is_replayed_before_its_turn_is_once_in_a_round(tx: Work) -> None:
    webhook = webhooks.add(tx, URL).webhook
    first, second = emit(tx, None, 2)
    in_steps(replay, tx, events.OUTBOX.by_id(tx, second).id, webhook.id)
    assert send_round(tx, webhook, Queue(), 8) == [second, first]


def test_no_more_events_are_examined_than_may_wait(tx: Work, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MAX_EVENTS_IN_TURNS", 6)
    webhook, (alice, bob) = webhooks.add(tx, URL).webhook, open_wallets(tx)
    storm, [other] = emit(tx, alice, 10), emit(tx, bob)
    queue = Queue()
    assert send_round(tx, webhook, queue, 4) == storm[:4]
    assert (queue.seen, queue.room) == (storm[5], 4)
    assert send_round(tx, webhook, queue, 4) == storm[4:8]
    assert send_round(tx, webhook, queue, 4) == [storm[8], other, storm[9]]


def test_storm_of_one_wallet_delays_no_event_of_another(instance: Instance, add: AddEndpoint) -> None:
    endpoint, _ = add()
    goes_on = threading.Event()
    endpoint.answer = lambda _: (200 if goes_on.wait() else 500, {})
    storm = 4 * READ_AT_ONCE
    deposit(instance, storm)
    endpoint.wait_for(MAX_DELIVERIES_OF_WEBHOOK)
    instance.write(lambda work: wallets.deposit(work, "bob", "1.00"))
    goes_on.set()
    of_bob = [one.event["data"]["walletAddress"] == instance.wallet("bob") for one in endpoint.wait_for(storm + 1)]
    # What is examined in a round may be so much, and the round before has as many events as are sent at once.
    assert of_bob.index(True) < 6 * deliveries.SENT_AT_ONCE < storm
    assert len({one.headers["webhook-id"] for one in endpoint.received}) == storm + 1


PAUSES = [5, 300, 1800, *(hours * 3600 for hours in (2, 5, 10, 14, 20, 24))]


@pytest.mark.parametrize(
    ("attempt", "chance", "expected"),
    [
        (Attempt(NOW, 500, "no"), 0.0, [*(("pending", pause) for pause in PAUSES), ("failed", None)]),
        (Attempt(NOW, None, "no"), 1.0, [("pending", 5), ("pending", 330)]),
        (Attempt(NOW, 503, "no", 1000 * SECOND), 0.0, [("pending", pause) for pause in (1000, 1000, 1800)]),
    ],
    ids=["to the end", "with chance", "as the endpoint asks"],
)
def test_attempts_follow_the_table(
    tx: Work, monkeypatch: pytest.MonkeyPatch, attempt: Attempt, chance: float, expected: list[tuple[str, int | None]]
) -> None:
    monkeypatch.setattr(attempts, "CHANCE", SimpleNamespace(random=lambda: chance))
    assert attempts_of(tx, attempt, len(expected)) == expected


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("120", 120), ("9999999", MAX_RETRY_AFTER_SECONDS), ("-5", 0), ("soon", 0), (formatdate(NOW / SECOND + 60), 60)],
)
async def test_retry_after_is_read_and_bounded(text: str, seconds: int) -> None:
    endpoint = Endpoint()
    endpoint.answer = answering(429, retry_after=text)
    with endpoint.running():
        attempt = await send(endpoint.url, MovableClock(NOW, frozen=True))
    assert (attempt.status, attempt.retry_after // SECOND) == (429, seconds)


async def send(url: str, clock: MovableClock, is_private: bool = True, **members: Any) -> Attempt:
    """One attempt to send an event to a URL."""
    sender = Sender(clock, allow_private_hosts=False)
    webhook = WebhookRecord("1", url, "*", int(is_private), "active", b"", None, None, 0, NOW)
    event = events.EventRecord(1, "wallet.deposited", None, members.get("data", b"{}"), NOW)
    try:
        return await sender.send(WebhookTarget(webhook, ("whsec_AAAA",)), event)
    finally:
        await sender.aclose()


async def test_redirect_is_not_followed_and_no_success() -> None:
    with Endpoint().running() as endpoint, Endpoint().running() as other:
        endpoint.answer = answering(307, location=other.url)
        attempt = await send(endpoint.url, MovableClock(NOW))
    assert (attempt.status, attempt.error) == (307, "It was answered with 307")
    assert other.received == []


@pytest.mark.parametrize(
    ("url", "is_private", "says"),
    [
        ("http://127.0.0.1:9/", False, "https://"),
        ("https://127.0.0.1:9/", False, "public address"),
        ("https://[::1]:9/", False, "public address"),
        ("https://10.0.0.1/", False, "public address"),
        ("http://169.254.169.254/latest/meta-data", True, "never asked"),
    ],
)
async def test_only_private_webhooks_reach_private_addresses_and_none_link_local_ones(
    url: str, is_private: bool, says: str
) -> None:
    attempt = await send(url, MovableClock(NOW), is_private)
    assert attempt.status is None
    assert says in str(attempt.error)


async def test_event_that_cannot_be_built_fails_alone(caplog: pytest.LogCaptureFixture) -> None:
    attempt = await send("http://127.0.0.1:9/", MovableClock(NOW), data=b"{")
    assert attempt.error == "payres failed to send it: DecodeError"
    assert "could not be sent" in caplog.text


async def test_endpoint_that_does_not_answer_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DELIVERY_SECONDS == 15
    asked: list[float] = []
    timeout = asyncio.timeout

    def short(seconds: float) -> asyncio.Timeout:
        asked.append(seconds)
        return timeout(0.05 if seconds == DELIVERY_SECONDS else seconds)

    monkeypatch.setattr(asyncio, "timeout", short)
    endpoint, goes_on = Endpoint(), threading.Event()
    endpoint.answer = lambda _: ((goes_on.wait() and 200) or 500, {})
    with endpoint.running():
        attempt = await send(endpoint.url, MovableClock(NOW))
        goes_on.set()
    assert DELIVERY_SECONDS in asked
    assert "did not answer within 15 seconds" in str(attempt.error)


def test_slow_endpoint_delays_no_other(instance: Instance, add: AddEndpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    timeout = asyncio.timeout  # a busy machine may take longer than an endpoint may
    monkeypatch.setattr(asyncio, "timeout", lambda delay: timeout(TIMEOUT if delay == DELIVERY_SECONDS else delay))
    slow, _ = add()
    quick, _ = add()
    goes_on = threading.Event()
    slow.answer = lambda _: (200 if goes_on.wait() else 500, {})
    deposit(instance, 20)
    quick.wait_for(20)
    assert len(slow.wait_for(MAX_DELIVERIES_OF_WEBHOOK)) == MAX_DELIVERIES_OF_WEBHOOK, "so many at a time"
    goes_on.set()
    slow.wait_for(20)


def test_event_that_fails_delays_no_later_one(instance: Instance, add: AddEndpoint) -> None:
    endpoint, added = add()
    refused: set[str] = set()

    def answer(received: Received) -> tuple[int, Json]:
        refused.add(min(refused, default=received.headers["webhook-id"]))
        return (500 if received.headers["webhook-id"] in refused else 200), {}

    endpoint.answer = answer
    deposit(instance)
    endpoint.wait_for(1)
    deposit(instance, 20)
    endpoint.wait_for(21)
    settled(instance, added)
    assert states(instance) == [("pending", 1)]


def test_endpoint_that_is_gone_gets_nothing_more_and_others_get_an_event(instance: Instance, add: AddEndpoint) -> None:
    gone, added = add("wallet.*")
    other, _ = add("webhook.*")
    gone.answer = answering(410)
    deposit(instance)
    [told] = other.wait_for(1)
    assert told.event["type"] == "webhook.disabled"
    assert told.event["data"] == {"webhook": added.webhook.id, "url": gone.url}
    assert states(instance) == [("failed", 1)]
    deposit(instance)
    other.answer = answering(200)
    assert instance.read(lambda work: rules.require_webhook(work, added.webhook.id)).state == "disabled"
    gone.answer = answering(200)
    record_test(instance.write, added.webhook.id)
    gone.wait_for(2)


def record_test(write: Callable[..., Any], webhook_id: str) -> None:
    """A test that succeeds, as if it had been sent."""
    event, _ = write(partial(rules.make_test, id=webhook_id))
    write(partial(rules.record_test, id=webhook_id, event=event, attempt=Attempt(NOW, 200, None)))


def test_events_wait_for_a_webhook_that_is_paused(instance: Instance, add: AddEndpoint) -> None:
    endpoint, added = add()
    endpoint.answer = answering(500, 200)
    deposit(instance)
    wait_until(partial(is_pending, instance, 1))
    instance.write(partial(webhooks.pause, id=added.webhook.id))
    other, _ = add()
    instance.clock.advance(RETRY_PAUSES[0] / SECOND + 1)
    deposit(instance)
    other.wait_for(1)
    record_test(instance.write, added.webhook.id)
    found = instance.read(lambda work: WEBHOOK.find(work, id=added.webhook.id))
    assert (found.state, found.behind, found.last_status) == ("paused", 2, 200), "the retry, and the event since"
    assert len(endpoint.received) == 1
    instance.write(partial(webhooks.resume, id=added.webhook.id))
    assert len({one.event["id"] for one in endpoint.wait_for(3)}) == 2, "the retry, and the event since"


def test_webhook_is_paused_and_resumed_unless_it_is_disabled(tx: Work) -> None:
    webhook_id = webhooks.add(tx, URL).webhook.id
    for _ in range(2):
        assert webhooks.pause(tx, webhook_id).state == "paused"
    with pytest.raises(DomainError, match="is paused"):
        in_steps(replay, tx, None, webhook_id, failed=True)
    assert webhooks.resume(tx, webhook_id).state == "active"
    webhooks.pause(tx, webhook_id)
    store.WEBHOOKS.update(tx, webhook_id, state="disabled")
    for turn in (webhooks.pause, webhooks.resume):
        with pytest.raises(DomainError, match="answered 410"):
            turn(tx, webhook_id)
    webhooks.pause(tx, other := webhooks.add(tx, URL).webhook.id)
    assert in_steps(webhooks.remove, tx, other).state == "paused"


def test_old_events_do_not_wait_for_a_webhook_that_is_paused(tx: Work) -> None:
    webhooks.pause(tx, webhooks.add(tx, URL).webhook.id)
    tx.emit("wallet.deposited", None, Sample(1))
    events.delete_old_events(tx, NOW + 32 * DAY, [store.release_events])
    assert events.events_after(tx, 0, 10) == []


def test_webhook_has_a_name_and_other_events_from_a_change_on(tx: Work) -> None:
    webhook = webhooks.add(tx, URL, events=("grant.*",), name="Order book").webhook
    assert webhook.name == "Order book"
    emit(tx, None)
    named = webhooks.change(tx, webhook.id, "Books", ("wallet.*", "grant.*"))
    assert (named.name, named.events, named.url) == ("Books", "wallet.*,grant.*", URL)
    assert WEBHOOK.show(tx, named).behind == 1
    assert webhooks.change(tx, webhook.id) == named
    assert webhooks.change(tx, webhook.id, None).name is None
    assert webhooks.change(tx, webhook.id, events=()).events == "*"
    for wrong in ({"name": "a\u202eb"}, {"name": " "}, {"events": ("wallet.stolen",)}):
        with pytest.raises(DomainError, match=r"printable|neither an event"):
            webhooks.change(tx, webhook.id, **wrong)
    with pytest.raises(DomainError, match="printable"):
        webhooks.add(tx, URL, name="x" * 201)
    entries = [one.details for one in audit.AUDIT.list(tx, "") if one.action == "webhook.change"]
    assert entries == [{"name": "Books", "events": "wallet.*,grant.*"}, {"name": ""}, {"events": "*"}]


def test_last_attempts_are_kept_with_what_was_answered(tx: Work) -> None:
    webhook, other = webhooks.add(tx, URL).webhook, webhooks.add(tx, URL).webhook
    sent = emit(tx, None, MAX_KEPT_ATTEMPTS + 2)
    attempts = [Attempt(NOW + number, 200, None) for number in range(len(sent))]
    send_round(tx, webhook, Queue(), len(sent), *attempts)
    failed = Attempt(NOW, 500, "It was answered with 500", 0, "no\r\nÄ\x1b[2J".encode() + b"\xc3", 1234)
    send_round(tx, other, Queue(), 1, failed)

    def shown(webhook_id: str) -> list[WebhookAttempt]:
        return [ATTEMPTS.show(tx, one) for one in list_attempts(tx, webhook_id)]

    assert [one.sequence for one in shown(webhook.id)] == sent[:1:-1], "the latest first"
    [first] = shown(other.id)
    assert first == WebhookAttempt(
        event=events.OUTBOX.by_id(tx, sent[0]).id,
        type="wallet.deposited",
        sequence=sent[0],
        attempt=1,
        at=format_time(NOW),
        milliseconds=1234,
        status=500,
        error="It was answered with 500",
        answer="no\nÄ[2J\ufffd",
    )
    later = work_at(tx, NOW + 6 * SECOND)
    send_round(later, other, Queue(), 2, Attempt(later.now, 200, None), Attempt(later.now, 200, None))
    assert [(one.sequence, one.attempt) for one in shown(other.id)] == [(sent[1], 1), (sent[0], 2), (sent[0], 1)]
    event, _ = rules.make_test(tx, webhook.id)
    rules.record_test(tx, webhook.id, event, Attempt(NOW, None, "No answer"))
    assert [one.type for one in shown(webhook.id)] == ["webhook.test"] + ["wallet.deposited"] * (MAX_KEPT_ATTEMPTS - 1)
    in_steps(webhooks.remove, tx, webhook.id)
    assert store.list_attempts(tx, webhook.id) == []
    with pytest.raises(DomainError, match="no webhook"):
        rules.record_test(tx, webhook.id, event, Attempt(NOW, 200, None))


async def test_no_more_of_an_answer_is_kept_than_its_beginning() -> None:
    endpoint = Endpoint()
    endpoint.body = b"x" * 2 * MAX_KEPT_ANSWER_BYTES
    with endpoint.running():
        attempt = await send(endpoint.url, MovableClock(NOW, frozen=True))
    assert (attempt.status, attempt.answer) == (200, endpoint.body[:MAX_KEPT_ANSWER_BYTES])


def test_two_secrets_sign_for_a_day_after_a_rotation(instance: Instance, add: AddEndpoint) -> None:
    assert ROTATION_HOURS == 24
    endpoint, old = add()
    new = instance.write(lambda work: webhooks.rotate(work, old.webhook.id))
    assert new.secret != old.secret
    deposit(instance)
    [received] = endpoint.wait_for(1)
    assert received.verified(old.secret) == received.verified(new.secret)
    assert len(received.headers["webhook-signature"].split()) == 2
    instance.clock.advance(ROTATION_HOURS * 3600)
    deposit(instance)
    assert len(endpoint.wait_for(2)[1].headers["webhook-signature"].split()) == 1


def test_secret_is_stored_encrypted_and_not_shown(instance: Instance, add: AddEndpoint) -> None:
    _, added = add()
    found = instance.read(lambda work: rules.require_webhook(work, added.webhook.id))
    assert added.secret.encode() not in found.secret
    assert added.secret not in repr(WebhookTarget(found, (added.secret,)))


def test_replay_sends_again(instance: Instance, add: AddEndpoint) -> None:
    endpoint, _ = add()
    other, _ = add("grant.*")
    deposit(instance)
    [first] = endpoint.wait_for(1)
    event_id = first.event["id"]
    assert in_steps(replay, InSteps(instance.write), event_id).deliveries == 1
    assert endpoint.wait_for(2)[1].body == first.body
    wait_until(lambda: states(instance) == [("delivered", 1)])
    [other_webhook] = instance.read(lambda work: [one for one in store.WEBHOOKS.list(work) if one.url == other.url])
    in_steps(replay, InSteps(instance.write), event_id, other_webhook.id)
    assert other.wait_for(1)[0].event["id"] == event_id


def test_removed_webhook_gets_nothing_and_leaves_nothing(instance: Instance, add: AddEndpoint) -> None:
    endpoint, added = add()
    endpoint.answer = answering(500)
    deposit(instance)
    wait_until(lambda: states(instance) == [("pending", 1)])
    in_steps(webhooks.remove, InSteps(instance.write), added.webhook.id)
    assert states(instance) == []
    other, _ = add()
    deposit(instance)
    other.wait_for(1)
    assert len(endpoint.received) == 1


def test_old_events_are_purged_but_none_that_is_still_to_be_sent(tx: Work) -> None:
    def at(days: int) -> Work:
        return work_at(tx, NOW + days * DAY)

    added, faster = webhooks.add(at(0), URL), webhooks.add(at(0), URL)
    for day in range(4):
        at(day).emit("wallet.deposited", None, Sample(day))
    first = events.events_after(at(0), 0, 1)[0]

    def left(now: Work) -> list[int]:
        events.delete_old_events(now, now.now, [store.release_events])
        return [event.sequence for event in events.events_after(now, 0, 10)]

    assert not events.has_old_events(at(30), NOW + 30 * DAY)
    store.WEBHOOKS.update(at(0), faster.webhook.id, cursor=4)
    assert left(at(32)) == [1, 2, 3, 4], "the slower webhook has not been sent them"
    store.WEBHOOKS.update(at(0), added.webhook.id, cursor=4)
    in_steps(replay, at(0), first.id, added.webhook.id)
    assert left(at(32)) == [1, 3, 4], "the first is due again"
    store.WEBHOOKS.update(at(0), added.webhook.id, state="disabled")
    assert left(at(32)) == [3, 4]
    assert left(at(40)) == []
    assert store.DELIVERIES.list(at(0), "") == []


@pytest.mark.parametrize(
    ("url", "patterns", "says"),
    [
        ("http://shop.example/hook", (), "https://"),
        ("ftp://shop.example/hook", (), "absolute http or https URL"),
        ("https://localhost/hook", (), "as private"),
        ("https://[::1]/hook", (), "as private"),
        ("https://10.0.0.1/hook", (), "as private"),
        ("https://169.254.169.254/hook", (), "as private"),
        ("https://2130706433/hook", (), "as private"),  # the system resolves these to 127.0.0.1
        ("https://0x7F.1/hook", (), "as private"),
        ("https://0177.0.0.1./../hook", (), "as private"),
        ("https://[::FFFF:7F00:1]/hook", (), "as private"),
        ("https://localhost./hook", (), "as private"),
        ("https://user:word@shop.example/hook", (), "user information"),
        ("https://shop.example/hook#a", (), "fragment"),
        ("https://shop.example/hook", ("wallet.stolen",), "wallet.deposited"),
        ("https://shop.example/hook", ("wallet.*d",), "neither an event nor"),
        ("https://shop.example/hook", ("incoming_payment.created, ",), "neither an event nor"),
    ],
)
def test_webhook_that_makes_no_sense_is_refused(tx: Work, url: str, patterns: tuple[str, ...], says: str) -> None:
    with pytest.raises(DomainError, match=says):
        webhooks.add(tx, url, events=patterns)


def test_disabled_webhook_is_sent_nothing_again(tx: Work) -> None:
    added = webhooks.add(tx, URL)
    tx.emit("wallet.deposited", None, Sample(1))
    [event] = events.events_after(tx, 0, 1)
    failed = DeliveryRecord(event.sequence, added.webhook.id, "failed", 1, None, NOW, 410, "Gone")
    store.DELIVERIES.replace(tx, failed)
    store.WEBHOOKS.update(tx, added.webhook.id, state="disabled")
    for again in (
        partial(in_steps, replay, tx, event.id, added.webhook.id),
        partial(in_steps, replay_failed, tx, added.webhook.id),
    ):
        with pytest.raises(DomainError, match="a test that it accepts"):
            again()
    assert in_steps(replay, tx, failed=True).deliveries == 0
    assert [one.state for one in store.DELIVERIES.list(tx, "")] == ["failed"]
    store.WEBHOOKS.update(tx, added.webhook.id, state="active")
    later, then = (format_time(time) for time in (NOW + SECOND, NOW))
    replayed = [in_steps(replay, tx, failed=True, since=since).deliveries for since in (later, then, then)]
    assert replayed == [0, 1, 0]
    assert [one.state for one in store.DELIVERIES.list(tx, "")] == ["pending"]


def add_failed(work: Work, count: int) -> str:
    """A webhook which has failed to take so many events."""
    added = webhooks.add(work, URL)
    for number in range(count):
        work.emit("wallet.deposited", None, Sample(number))
        sequence = events.last_sequence(work)
        store.DELIVERIES.insert(
            work, DeliveryRecord(sequence, added.webhook.id, "failed", 10, None, NOW, 500, "It was answered with 500")
        )
    return added.webhook.id


LONG = 2 * ROWS_AT_ONCE + 7
ACTIONS = {"webhook.replay": {"deliveries": LONG}, "webhook.remove": {"url": URL}}


@pytest.mark.parametrize("action", ACTIONS)
def test_replay_and_removal_are_short_units_that_can_be_repeated(tx: Work, action: str) -> None:
    """Also after the process has died between two of them. The audit log has each as one change."""
    webhook_id, other = add_failed(tx, LONG), add_failed(tx, 1)
    operation: Callable[..., Any] = partial(webhooks.remove, id=webhook_id)
    if action == "webhook.replay":
        operation = partial(replay, webhook=webhook_id, failed=True)
    with savepoint(tx):
        units = InSteps(lambda unit: unit(tx))
        answer = in_steps(operation, units)
        assert len(units.changed) == 3 + (action == "webhook.remove")
        check_all_done(tx, action, answer, webhook_id, other)
        [entry] = [one for one in audit.AUDIT.list(tx, "") if one.action == action]
        assert entry.details == ACTIONS[action]
        assert max(units.changed) <= ROWS_AT_ONCE + 3
        tx.execute("ROLLBACK TO part")
    with pytest.raises(Killed):
        in_steps(operation, InSteps(lambda unit: unit(tx), most=1 + (action == "webhook.remove")))
    left = [one for one in store.DELIVERIES.list(tx, "") if one.webhook_id == webhook_id and one.state == "failed"]
    assert len(left) == LONG - ROWS_AT_ONCE
    again = in_steps(operation, tx)
    if action == "webhook.replay":
        assert again.deliveries == len(left)
    check_all_done(tx, action, answer, webhook_id, other)


def check_all_done(work: Work, action: str, answer: Any, webhook_id: str, other: str) -> None:
    found = [(one.webhook_id, one.state) for one in store.DELIVERIES.list(work, "ORDER BY sequence")]
    assert found.pop() == (other, "failed")
    if action == "webhook.remove":
        assert (answer.id, answer.state, found) == (webhook_id, "active", [])
        assert store.WEBHOOKS.get(work, webhook_id) is None
    else:
        assert (answer.deliveries, found) == (LONG, [(webhook_id, "pending")] * LONG)


def test_webhooks_are_limited(tx: Work) -> None:
    for _ in range(MAX_WEBHOOKS):
        webhooks.add(tx, URL)
    with pytest.raises(DomainError, match="16 webhooks already"):
        webhooks.add(tx, URL)


@pytest.mark.parametrize("name", sorted(EVENT_TYPES))
def test_patterns_name_events(tx: Work, name: str) -> None:
    def is_wanted(*patterns: str) -> bool:
        return wants(webhooks.add(tx, URL, events=patterns).webhook, name)

    assert {is_wanted(), is_wanted(name), is_wanted(name.partition(".")[0] + ".*"), is_wanted("*")} == {
        name != "webhook.test"
    }
    assert not is_wanted("grant.issued" if name != "grant.issued" else "grant.denied")


# What docs/events.md shows


TEXT = (ROOT / "docs" / "events.md").read_text(encoding="utf-8")
UNITS = {"seconds": SECOND, "minutes": MINUTE, "hours": HOUR}


def test_pauses_are_those_of_the_table() -> None:
    rows = re.findall(r"^\| (\d+) \| (\d+) (\w+) \|$", TEXT, re.M)
    assert [int(number) for number, _, _ in rows] == list(range(2, len(RETRY_PAUSES) + 2))
    assert [int(count) * UNITS[unit] for _, count, unit in rows] == list(RETRY_PAUSES)


def test_shown_receiver_verifies_and_acts(monkeypatch: pytest.MonkeyPatch) -> None:
    [code] = re.findall(r"^```python\n(.*?)^```$", TEXT, re.M | re.S)
    [body] = re.findall(r"^```json\n(\{\n  \"id\": \"evt_.*?)^```$", TEXT, re.M | re.S)
    sent = body.encode()
    secret = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"
    shipped: list[str] = []
    headers = signed_headers("evt_1", 1_800_000_000, sent, [secret])
    names: dict[str, Any] = {"SECRET": secret, "ship": shipped.append}
    exec(code, names)
    monkeypatch.setattr(SystemClock, "now", lambda _: 1_800_000_000 * SECOND)
    names["receive"](sent, dict(headers))
    assert shipped == ["INV-4711"]
