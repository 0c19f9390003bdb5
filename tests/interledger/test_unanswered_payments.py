"""Packets that a peer leaves unanswered and never answers again: no payer pays for what did not arrive.

The peer is a payres behind a link that lets no numbers through, so that it counts as one that does not repeat answers.
"""

import logging
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain, repeat
from pathlib import Path

import msgspec
import pytest

from payres.core.protocol.clock import HOUR, MINUTE, SECOND
from payres.core.remote.connection import FetchFailed
from payres.core.store.work import Work
from payres.interledger import clearing
from payres.interledger.limits import MAX_UNREPEATED, MAX_UNREPEATED_OF_WALLET
from payres.interledger.remote_payments import NOT_IN_FULL
from payres.interledger.remote_receivers import RemoteIncomingPayment, RemoteReceivers
from payres.interledger.store import packets
from payres.interledger.store.packets import PacketRecord
from payres.interledger.unanswered import GIVE_UP_AFTER, UNPROVED
from payres.operator import unresolved_packets
from payres.testing.peering import peer
from tests.helpers import last_segment, wait_until
from tests.instance import Instance
from tests.interledger.lossy_link import Fate, LossyLink, lossy_link
from tests.interledger.network import (
    EUR,
    Json,
    Paid,
    Waits,
    add_liquidity,
    amount,
    bill,
    change,
    ended,
    hurried,
    let_time_pass,
    network,
    peer_of,
    received,
    set_fee,
    set_rate,
    wallet_money,
)
from tests.people.test_sending import Sender

FUNDS = 100_000
FEE = 10


class Road:
    """Two servers, with packets of 100 at most from the first to the second over a link of the test's."""

    def __init__(self, a: Instance, b: Instance, link: LossyLink, waits: Waits) -> None:
        self.a = a
        self.b = b
        self.link = link
        self._waits = waits

    def bill(self, wanted: int | None = 1000) -> str:
        return bill(self.b, self.b.wallet("bob"), wanted)

    def begin(self, receiver: str, *fates: Fate, then: Fate = "answered") -> Json:
        """A payment that asks for its price, and whose packets then have these fates, and all after them another."""
        quote = self.a.client.create_quote(self.a.wallet("alice"), receiver)
        self.link.script = chain(["answered"], fates, () if then == "answered" else repeat(then))
        return self.a.client.create_outgoing_payment(self.a.wallet("alice"), quote["id"])

    def end(self, created: Json, seconds: int = 10) -> Paid:
        """The payment at its end, which is soon: so many seconds pass whenever it only waits."""
        return self._waits.end((self.a, self.b), created, seconds)

    def unresolved(self, created: Json, state: packets.PacketState = "prepared") -> Sequence[PacketRecord]:
        return self.a.read(lambda tx: packets.packets_of_payment(tx, last_segment(created["id"]), state))

    def wait_until_unanswered(self, created: Json) -> None:
        """Returns once the payment only waits for its packets without an answer to expire."""
        wait_until(lambda: self._waits.has(self.a, created))

    def check(self, paid: Paid, receiver: str, arrived: int = 1000) -> None:
        """The payment has taken from the payer, and paid to the peer, what the receiver got and no more."""
        record = paid.record
        assert received(self.b, receiver).received == arrived
        assert (record.sent, record.delivered) == (arrived, arrived)
        assert wallet_money(self.a, "alice") == (FUNDS - arrived, 0)
        assert peer_of(self.a, "b").balance == -peer_of(self.b, "a").balance == arrived
        assert not self.unresolved(paid.created)
        assert not self.unresolved(paid.created, "doubtful")


@pytest.fixture
def road(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Road]:
    """Both ledgers must hold in the end, with nothing in flight."""
    waits = Waits(monkeypatch)  # before servers rest for a second
    with network(tmp_path, "a", "b") as (a, b):
        peer(a, b, max_packet=100)
        hurried(a, first_round=20)
        with lossy_link(f"{b.base_url}/ilp") as link:
            change(a, "b", url=link.url)
            yield Road(a, b, link, waits)
        for server in (a, b):
            server.check_ledger()
            assert not server.read(lambda tx: packets.prepared_packets(tx, 1))


MIXED: Sequence[Fate] = ("answered", "lost after", "502 before", "answered", "lost before", "502 after")
NINE_ANSWERED: Sequence[Fate] = ("answered",) * 9
LOSSES: dict[str, Sequence[Fate]] = {
    "mixed": MIXED,
    "all of the first": ["lost after"] * 8,
    "last": [*NINE_ANSWERED, "lost after"],
}


@pytest.mark.parametrize("fates", LOSSES.values(), ids=LOSSES.keys())
def test_payment_arrives_whole_whatever_became_of_unanswered_packets(road: Road, fates: Sequence[Fate]) -> None:
    receiver = road.bill()
    paid = road.end(road.begin(receiver, *fates))
    assert (paid.record.state, paid.record.failure) == ("completed", None)
    road.check(paid, receiver)
    assert not peer_of(road.a, "b").repeats_answers


@pytest.mark.parametrize("lost", ["502 before", "502 after"])
def test_packets_stop_when_one_is_unanswered(road: Road, lost: Fate) -> None:
    created = road.begin(road.bill(), "answered", "answered", then=lost)
    road.wait_until_unanswered(created)
    assert road.link.fates[lost] <= MAX_UNREPEATED_OF_WALLET  # those that were in flight by then
    road.link.script = iter(())
    assert road.end(created).record.state == "completed"


@pytest.mark.parametrize(
    ("fates", "then", "failure", "arrived"),
    [(["answered"], "502 before", NOT_IN_FULL, 100), ([], "lost after", None, 1000)],
    ids=["takes nothing", "delivers"],
)
def test_peer_that_answers_nothing_is_paid_what_it_delivered(
    road: Road, fates: Sequence[Fate], then: Fate, failure: str | None, arrived: int
) -> None:
    receiver = road.bill()
    paid = road.end(road.begin(receiver, *fates, then=then))
    assert (paid.record.state, paid.record.failure) == ("failed" if failure else "completed", failure)
    road.check(paid, receiver, arrived)


def test_bill_made_for_a_payment_outlasts_an_outage_in_the_middle_of_it(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For as long as payres asks its server what became of the packets."""
    a, fetch = road.a, RemoteReceivers.fetch
    with Sender(a, "1000.00") as sender:
        price = sender.price(road.b.wallet("bob"), "10.00", "send")
        road.link.script = chain(["answered"], repeat("lost before"))
        created = {"id": sender.pay(price)}
        road.wait_until_unanswered(created)
        until = a.clock.now() + GIVE_UP_AFTER - 5 * MINUTE

        async def away(self: RemoteReceivers, url: str, seconds: float | None = None) -> RemoteIncomingPayment:
            if a.clock.now() < until:
                raise FetchFailed("It is away")
            return await fetch(self, url, seconds)

        monkeypatch.setattr(RemoteReceivers, "fetch", away)
        let_time_pass((a, road.b), (until - a.clock.now()) // SECOND - 60)
        road.link.script = iter(())
        assert road.end(created, seconds=60).record.state == "completed"


def test_packets_in_flight_to_a_peer_that_does_not_repeat_answers_are_few(road: Road) -> None:
    a, b = road.a, road.b
    a.create_wallet("carla", deposit="100.00")
    change(b, "a", max_packet=10)
    debit = {"debitAmount": amount(500)}
    quotes = [
        (one, a.client.create_quote(a.wallet(one), road.bill(None), **debit)) for one in ("alice", "bob", "carla")
    ]
    road.link.gate.clear()
    made = []
    for (path, quote), open_then in zip(
        quotes, (MAX_UNREPEATED_OF_WALLET, MAX_UNREPEATED, MAX_UNREPEATED), strict=True
    ):
        made.append(a.client.create_outgoing_payment(a.wallet(path), quote["id"]))
        wait_until(partial(lambda wanted: road.link.open == wanted, open_then))
    assert [len(road.unresolved(one)) for one in made] == [MAX_UNREPEATED_OF_WALLET, MAX_UNREPEATED_OF_WALLET, 0]
    road.link.gate.set()
    for one in made:
        assert ended(a, one).record.state == "completed"


def test_money_of_others_proves_nothing_and_the_payer_has_the_unproven_part_back(
    road: Road, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = road.a, road.b
    set_fee(a, "0.10", 0)
    receiver = road.bill(None)
    created = pay_all(road, receiver, 500 + FEE, "answered", "answered", "lost after", "502 before", "answered")
    road.wait_until_unanswered(created)
    b.client.pay(b.wallet("alice"), receiver, debitAmount=amount(1234))
    paid = road.end(created)
    unresolved = road.unresolved(created, "doubtful")
    known = sum(packet.source_amount for packet in road.unresolved(created, "fulfilled"))
    assert (paid.record.state, paid.record.failure) == ("failed", UNPROVED)
    assert paid.ended["failed"] is True
    assert paid.record.delivered == known
    fee = -(-FEE * known // 500)
    assert wallet_money(a, "alice") == (FUNDS - known - fee, 0)
    assert paid.ended["sentAmount"] == amount(known + fee)
    assert sum(packet.source_amount for packet in unresolved) == paid.record.unresolved_debit > 0
    assert peer_of(a, "b").balance == known
    assert peer_of(a, "b").last_error == f"Packet {unresolved[-1].id} over 100 is unresolved"
    wait_until(lambda: "from wallet alice: " in caplog.text)  # logged after the commit
    assert "nothing proves what arrived, the payer has it back" in caplog.text


def test_what_was_there_before_the_payment_does_not_count_as_arrived(road: Road) -> None:
    receiver = road.bill(None)
    road.b.client.pay(road.b.wallet("alice"), receiver, debitAmount=amount(100))
    paid = road.end(pay_all(road, receiver, 300, "lost before", "answered", "lost after"))
    assert (paid.record.state, paid.record.sent) == ("completed", 300)
    assert received(road.b, receiver).received == 400


@pytest.mark.parametrize("back_after", ["minutes", "hours"])
def test_receiver_that_cannot_be_read_is_asked_for_an_hour(
    road: Road, back_after: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "payres.interledger")
    receiver = road.bill()
    created = road.begin(receiver, "answered", "lost after")
    road.wait_until_unanswered(created)
    asked = 0
    fetch = RemoteReceivers.fetch

    async def away(self: RemoteReceivers, url: str, seconds: float | None = None) -> RemoteIncomingPayment:
        nonlocal asked
        asked += 1
        if back_after == "minutes" and asked > 5:
            return await fetch(self, url)
        raise FetchFailed("It is away")

    monkeypatch.setattr(RemoteReceivers, "fetch", away)
    began = road.a.clock.now()
    paid = road.end(created, seconds=60)
    assert "waits for what its receiver has received: It is away" in caplog.text
    if back_after == "minutes":
        assert paid.record.state == "completed"
        road.check(paid, receiver)
        return
    assert HOUR <= road.a.clock.now() - began <= 2 * HOUR
    assert asked <= 30
    assert (paid.record.state, paid.record.failure) == ("failed", UNPROVED)
    assert wallet_money(road.a, "alice") == (FUNDS - paid.record.sent, 0)
    assert paid.record.sent == paid.record.delivered < received(road.b, receiver).received


def test_receiver_that_says_less_than_it_said_before_is_asked_again(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    receiver = road.bill()
    created = road.begin(receiver, "answered", "lost after")
    road.wait_until_unanswered(created)
    figures = iter([0, 0])
    fetch = RemoteReceivers.fetch

    async def behind(self: RemoteReceivers, url: str, seconds: float | None = None) -> RemoteIncomingPayment:
        found = await fetch(self, url)
        return msgspec.structs.replace(found, received=next(figures, found.received))

    monkeypatch.setattr(RemoteReceivers, "fetch", behind)
    paid = road.end(created)
    assert next(figures, None) is None
    assert paid.record.state == "completed"
    road.check(paid, receiver)


def test_figure_says_nothing_of_a_packet_that_left_while_it_was_read(
    road: Road, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a packet that was on its way then would count as lost, whatever became of it."""
    receiver = road.bill()
    created = road.begin(receiver, "answered", "lost before")
    road.wait_until_unanswered(created)
    left: list[str] = []
    states: list[str] = []
    link = peer_of(road.a, "b")
    fetch = RemoteReceivers.fetch

    def send_another(work: Work) -> None:
        [lost, *_] = packets.packets_of_payment(work, last_segment(created["id"]), "prepared")
        assert clearing.reject(work, lost.id)
        another = msgspec.structs.replace(lost, id=work.new_id())
        clearing.prepare(work, another, link)
        left.append(another.id)

    async def read_slowly(self: RemoteReceivers, url: str, seconds: float | None = None) -> RemoteIncomingPayment:
        found = await fetch(self, url)
        database = road.a.context.database
        if not left:
            await database.write(send_another)
        else:
            states.append((await database.read(lambda work: packets.PACKETS.by_id(work, left[0]))).state)
        return found

    monkeypatch.setattr(RemoteReceivers, "fetch", read_slowly)
    paid = road.end(created)
    assert states[0] == "prepared", "it was asked again before the packet had an outcome"
    assert paid.record.state == "completed"
    road.check(paid, receiver)


@pytest.mark.parametrize(("fate", "lie", "got"), [("lost after", -100, 400), ("lost before", 100, 200)])
def test_receiver_that_lies_costs_the_payer_no_more_than_was_promised(
    road: Road, fate: Fate, lie: int, got: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it denies it gets again; what it claims it has acknowledged."""
    fetch = RemoteReceivers.fetch

    async def lying(self: RemoteReceivers, url: str, seconds: float | None = None) -> RemoteIncomingPayment:
        found = await fetch(self, url)
        return msgspec.structs.replace(found, received=found.received + lie)

    receiver = road.bill(None)
    created = pay_all(road, receiver, 300, "answered", "answered", fate)
    road.wait_until_unanswered(created)
    monkeypatch.setattr(RemoteReceivers, "fetch", lying)
    paid = road.end(created)
    assert (paid.record.state, paid.record.sent) == ("completed", 300)
    assert wallet_money(road.a, "alice") == (FUNDS - 300, 0)
    assert received(road.b, receiver).received == got


@pytest.mark.parametrize(
    ("fates", "back"),
    [((), 0), (("lost after",), 0), ((), 2), ((), 120)],
    ids=["answered", "unanswered too", "clock set back", "clock set back far"],
)
def test_figure_proves_nothing_while_another_payment_to_the_receiver_overlaps(
    road: Road, fates: Sequence[Fate], back: int
) -> None:
    receiver = road.bill(None)
    lost = pay_all(road, receiver, 90, "lost before")
    road.wait_until_unanswered(lost)
    for server in (road.a, road.b):
        server.clock.advance(-back)
    other = pay_all(road, receiver, 90, *fates)
    if not fates:
        assert ended(road.a, other).record.state == "completed"
    else:
        road.wait_until_unanswered(other)
    assert road.end(lost).record.failure == UNPROVED
    assert [packet.amount for packet in road.unresolved(lost, "doubtful")] == [90]
    if fates:
        assert road.end(other).record.failure == UNPROVED
    assert received(road.b, receiver).received == 90
    assert wallet_money(road.a, "alice") == (FUNDS - (0 if fates else 90), 0)


def test_payment_across_currencies_arrives_whole(road: Road) -> None:
    a, b = road.a, road.b
    set_rate("USD", "EUR", "0.9137", a, b)
    add_liquidity(b, EUR)
    b.create_wallet("carla", asset="EUR", deposit=None)
    receiver = bill(b, b.wallet("carla"), 900, EUR)
    paid = road.end(road.begin(receiver, *MIXED))
    assert (paid.record.state, paid.record.failure) == ("completed", None)
    arrived = received(b, receiver).received
    assert paid.record.delivered == arrived >= 900
    assert wallet_money(a, "alice") == (FUNDS - paid.record.sent, 0)
    assert peer_of(a, "b").balance == -peer_of(b, "a").balance == paid.record.sent <= paid.record.terms.debit


@pytest.mark.parametrize(("max_packet", "rate", "spent"), [(100, "0.95", 1999), (500, "0.897", 2020)])
def test_rate_that_has_moved_since_the_quote_is_learnt_from_what_arrived(
    road: Road, max_packet: int, rate: str, spent: int
) -> None:
    """When it has fallen, each lost packet would have delivered more, by the quote, than the receiver says."""
    a, b = road.a, road.b
    set_rate("USD", "EUR", "0.9", a, b)
    add_liquidity(b, EUR)
    change(b, "a", max_packet=max_packet)
    b.create_wallet("carla", asset="EUR")
    receiver = bill(b, b.wallet("carla"), 1800, EUR)
    quote = a.client.create_quote(a.wallet("alice"), receiver)
    set_rate("USD", "EUR", rate, b)
    hurried(a, largest_round=1)
    road.link.script = iter(["answered", "lost after", "answered", "502 before", "lost after"])
    paid = road.end(a.client.create_outgoing_payment(a.wallet("alice"), quote["id"]))
    assert paid.record.state == "completed"
    assert paid.record.delivered == received(b, receiver).received >= 1800
    assert peer_of(a, "b").balance == -peer_of(b, "a").balance == paid.record.sent <= spent


def test_each_unit_that_has_arrived_counts_for_one_of_the_lost_packets(road: Road) -> None:
    """By the quote these have delivered 92 or more, by the rate of those before 95 or less, and in fact 93 each."""
    a, b = road.a, road.b
    set_rate("USD", "EUR", "0.92", a, b)
    add_liquidity(b, EUR)
    b.create_wallet("carla", asset="EUR")
    receiver = bill(b, b.wallet("carla"), 1800, EUR)
    quote = a.client.create_quote(a.wallet("alice"), receiver)
    hurried(a, first_round=1, largest_round=2)

    pairs: dict[str, Fate] = {"0.95": "answered", "0.93": "lost after"}

    def fates() -> Iterator[Fate]:
        yield "answered"  # the price, for which it asks
        for rate, fate in pairs.items():
            set_rate("USD", "EUR", rate, b)
            yield from (fate, fate)

    road.link.script = fates()
    paid = road.end(a.client.create_outgoing_payment(a.wallet("alice"), quote["id"]))
    assert paid.record.state == "completed"
    assert paid.record.delivered == received(b, receiver).received >= 1800


def test_limit_of_a_grant_counts_what_may_have_arrived(road: Road) -> None:
    """Every answer is lost, and others pay in, so that nothing shows what the payments, a packet each, delivered."""
    a, b = road.a, road.b
    change(b, "a", max_packet=300)
    item = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": a.wallet("alice")}
    token = a.client.grant(item | {"limits": {"receiveAmount": amount(1000)}})
    receiver = road.bill(None)
    statuses = []
    for _ in range(5):
        quote = a.client.create_quote(a.wallet("alice"), receiver, receiveAmount=amount(300))
        road.link.script = repeat("lost after")
        body = {"walletAddress": a.wallet("alice"), "quoteId": quote["id"]}
        answer = a.client.post("/outgoing-payments", body, token)
        statuses.append(answer.status_code)
        if answer.status_code == 201:
            road.wait_until_unanswered(answer.json())
            b.client.pay(b.wallet("alice"), receiver, debitAmount=amount(1))
            assert road.end(answer.json()).record.failure == UNPROVED
        road.link.script = iter(())
    assert statuses == [201, 201, 201, 403, 403]
    arrived = received(b, receiver).received - 3
    spent = a.client.get("/outgoing-payment-grant", token).json()
    assert int(spent["spentReceiveAmount"]["value"]) >= arrived > 0
    assert arrived <= 1000
    assert int(spent["spentDebitAmount"]["value"]) >= arrived
    assert wallet_money(a, "alice") == (FUNDS, 0)
    to_peer_id = peer_of(a, "b").id
    for packet in a.read(lambda tx: packets.unresolved_packets(tx, to_peer_id)):
        a.write(partial(unresolved_packets.resolve, id=packet.id, outcome="returned"))
    quote = a.client.create_quote(a.wallet("alice"), receiver, receiveAmount=amount(1000))
    body = {"walletAddress": a.wallet("alice"), "quoteId": quote["id"]}
    assert ended(a, a.client.post("/outgoing-payments", body, token).json()).record.state == "completed"


def pay_all(road: Road, receiver: str, value: int, *fates: Fate) -> Json:
    """A payment of so much from alice, whose packets have these fates."""
    quote = road.a.client.create_quote(road.a.wallet("alice"), receiver, debitAmount=amount(value))
    road.link.script = iter(fates)
    return road.a.client.create_outgoing_payment(road.a.wallet("alice"), quote["id"])
