"""Packets of one peer that are passed on to another, and the money that follows them."""

import asyncio
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any

import msgspec
import pytest

from payres.core.process.rate_limiter import requested_by
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY, SECOND
from payres.core.protocol.errors import Unavailable
from payres.core.store import runs
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.work import Work
from payres.interledger import connector
from payres.interledger.carrier import NoReply
from payres.interledger.clearing import SHORT_THERE
from payres.interledger.limits import MAX_PASSED_ON, MAX_PASSED_ON_OF_PEER, MAX_PROBES_OF_CLIENT
from payres.interledger.oer import decode_prepare
from payres.interledger.outbound import Outbound, WalletPackets
from payres.interledger.packets import Code, Fulfill, Prepare, Reject, Reply
from payres.interledger.part import warn_of_unsure_packets
from payres.interledger.store import peers
from payres.interledger.store.peers import PeerRecord, account_of_peer
from payres.operator import assets
from payres.operator import peers as operator_peers
from payres.operator.assets import set_rate
from payres.operator.peers import require_peer, withdraw
from payres.operator.store import invariants
from payres.operator.unresolved_packets import PACKET, UNRESOLVED_PAYMENT, list_unresolved, list_unresolved_payments
from tests.core.remote.conftest import Request
from tests.helpers import TIMEOUT
from tests.interledger.node import (
    FULFILLMENT,
    LIFETIME,
    OWN,
    START,
    THANKS,
    Behaviour,
    FakePeer,
    Node,
    answered,
    code,
    far_prepare,
    hanging_up,
    replying,
    silent,
    with_status,
)

FAR_REJECT = Reject("F99", "test.far.receiver", "Not now", b"sealed")


def begin_run(work: Work) -> Sequence[str]:
    """As a server does at its start."""
    return warn_of_unsure_packets(work) if runs.begin(work, None) else []


async def pair(node: Node, far: FakePeer, **terms: Any) -> PeerRecord:
    """The peer that packets come from, with the far one as the next."""
    await node.peer("far", url=far.url, **terms)
    return await node.peer("near")


async def test_fulfilled_packet_moves_its_money_from_peer_to_peer_once(node: Node) -> None:
    async with FakePeer(replying(THANKS)) as far:
        near = await pair(node, far)
        prepare = far_prepare(node, 500, FULFILLMENT)
        for seconds in (0, 60, 0):  # the answer stays, and nothing leaves again
            assert await node.send(near, prepare, "number") == THANKS
            node.clock.advance(seconds)
    assert (await node.balance("near"), await node.balance("far")) == (-500, 500)
    [request] = far.requests
    onward = decode_prepare(request.body)
    assert onward == msgspec.structs.replace(prepare, expires_at=prepare.expires_at - SECOND)
    assert request.headers["authorization"] == "Bearer out-far"
    assert request.number not in (None, "number")
    assert not await node.under_way()
    counts = await node.database.read(
        lambda tx: [(one.packets_sent, one.packets_received) for one in peers.list_peers(tx)]
    )
    assert counts == [(1, 0), (0, 1)]


async def test_money_is_reserved_while_the_packet_is_under_way(node: Node) -> None:
    reached, answer = asyncio.Event(), asyncio.Event()

    async def behave(request: Request) -> bytes:
        reached.set()
        await answer.wait()
        return answered(THANKS, request.number)

    async with FakePeer(behave) as far:
        await node.peer("far", url=far.url)
        near = await node.peer("near", credit=500)
        first = asyncio.create_task(node.send(near, far_prepare(node, 400, FULFILLMENT), "first"))
        await reached.wait()
        [packet] = await node.under_way()
        assert (packet.source_amount, packet.amount, packet.from_request_id) == (400, 400, "first")
        assert code(await node.send(near, far_prepare(node, 101, FULFILLMENT))) == "T04"
        assert await node.answer(near, far_prepare(node, 400, FULFILLMENT), "first") is NoReply.OUTCOME_UNKNOWN
        assert await node.answer(near, far_prepare(node, 400, bytes(32)), "first") is NoReply.REQUEST_ID_REUSED
        await node.check_books()
        answer.set()
        assert await first == THANKS
    assert await node.balance("near") == -400


UNKNOWN = NoReply.OUTCOME_UNKNOWN
WRONG = Reject(Code.WRONG_CONDITION, OWN)
UNREACHABLE = Reject(Code.PEER_UNREACHABLE, OWN, "The next peer could not be reached")
LOST = Reject(Code.INTERNAL_ERROR, OWN, "The answer of the next peer was lost")
# What the next peer does; what a peer is told that numbers its requests, and one that does not; what is noted.
ANSWERS: dict[str, tuple[Behaviour, Reply | NoReply, Reply, str]] = {
    "reject": (replying(FAR_REJECT), FAR_REJECT, FAR_REJECT, ""),
    "wrong preimage": (
        replying(Fulfill(bytes(32), b"thanks")),
        WRONG,
        WRONG,
        "A fulfillment does not fit its condition",
    ),
    "401": (with_status("401 No"), UNREACHABLE, UNREACHABLE, "The peer answered with HTTP status 401"),
    "429": (with_status("429 Later"), UNREACHABLE, UNREACHABLE, "The peer answered with HTTP status 429"),
    "hangs up": (hanging_up, UNKNOWN, LOST, "127.0.0.1"),
    "gateway": (with_status("504 Late"), UNKNOWN, LOST, "The peer answered with HTTP status 504"),
    "unavailable": (with_status("503 Later"), UNKNOWN, LOST, "The peer answered with HTTP status 503"),
    "garbage": (with_status("200 OK", b"garbage"), UNKNOWN, LOST, "The peer's answer is no ILP packet"),
}


async def test_one_failure_of_a_peer_is_stored_once_a_second(node: Node) -> None:
    async with FakePeer(with_status("401 No")) as far:
        near, noted = await pair(node, far), []
        for later in (0, 0.5, 0.5):
            node.clock.advance(later)
            await node.answer(near, far_prepare(node, 500, FULFILLMENT))
            noted.append((await node.database.read(lambda tx: require_peer(tx, "far"))).last_error_at)
    assert noted == [noted[0], noted[0], node.clock.now()]


@pytest.mark.parametrize(("origin", "noted"), [("test.far", SHORT_THERE), ("test.farther", "")])
async def test_peer_that_refuses_for_lack_of_credit_has_that_as_its_last_error(
    node: Node, origin: str, noted: str
) -> None:
    async with FakePeer(replying(Reject(Code.INSUFFICIENT_LIQUIDITY, origin, "no credit"))) as far:
        near = await pair(node, far)
        for _ in range(3):
            assert code(await node.send(near, far_prepare(node, 500, FULFILLMENT))) == "T04"
    assert await node.last_error() == noted
    await node.write(lambda tx: withdraw(tx, "far", "1.00"))
    assert await node.last_error() == ""


@pytest.mark.parametrize("request_id", ["number", None])
@pytest.mark.parametrize(("behaviour", "numbered", "plain", "noted"), ANSWERS.values(), ids=ANSWERS)
async def test_money_stays_or_is_held_while_the_packet_can_still_be_fulfilled(
    node: Node, behaviour: Behaviour, numbered: Reply | NoReply, plain: Reply, noted: str, request_id: str | None
) -> None:
    async with FakePeer(behaviour) as far:
        near, prepare = await pair(node, far), far_prepare(node, 500, FULFILLMENT)
        assert await node.answer(near, prepare, request_id) == (numbered if request_id else plain)
        in_flight = [packet.amount for packet in await node.under_way()]
        assert in_flight == [500] * (numbered is UNKNOWN)  # test_unanswered.py has when it is released
        assert noted in await node.last_error()
        if request_id and in_flight:
            assert await node.answer(near, prepare, request_id) is UNKNOWN
            node.clock.advance(60)
            assert await node.answer(near, prepare, request_id) is UNKNOWN
            assert len(far.requests) == 1
        elif not in_flight:
            assert await node.send(near, far_prepare(node, 0, FULFILLMENT)) == plain
    assert (await node.balance("near"), await node.balance("far")) == (0, 0)


@pytest.mark.parametrize("amount", [0, 500])
async def test_packet_that_expires_unanswered_has_timed_out(node: Node, amount: int) -> None:
    async def behave(request: Request) -> bytes:
        node.clock.advance(LIFETIME / SECOND)
        return b""

    async with FakePeer(behave) as far:
        near = await pair(node, far)
        assert code(await node.send(near, far_prepare(node, amount, FULFILLMENT))) == "R00"
    assert [packet.amount for packet in await node.under_way()] == [amount] * bool(amount)


async def test_peer_that_says_nothing_is_waited_for_until_the_packet_expires(node: Node) -> None:
    async with FakePeer(silent) as far:
        near, prepare = await pair(node, far), far_prepare(node, 500, FULFILLMENT)
        node.clock.advance((LIFETIME - 2 * SECOND) / SECOND)
        assert await node.answer(near, prepare, "number") is NoReply.OUTCOME_UNKNOWN
    assert (await node.last_error() or "").endswith(" did not answer within 1 seconds")


async def test_expiry_shrinks_and_has_whole_milliseconds(node: Node) -> None:
    async with FakePeer(replying(FAR_REJECT)) as far:
        near = await pair(node, far)
        for lifetime, wanted in ((20, 19), (2, 1), (40, 30), (10**6, 30)):
            prepare = far_prepare(node, 1, FULFILLMENT)
            await node.send(near, msgspec.structs.replace(prepare, expires_at=START + lifetime * SECOND))
            assert decode_prepare(far.requests[-1].body).expires_at == START + wanted * SECOND
        node.clock.advance(0.000_999)
        await node.send(near, far_prepare(node, 1, FULFILLMENT))
        assert decode_prepare(far.requests[-1].body).expires_at == START + LIFETIME - SECOND


async def test_packet_without_money_is_passed_on_and_leaves_no_trace(node: Node) -> None:
    async with FakePeer(replying(THANKS)) as far:
        await node.peer("far", url=far.url)
        near = await node.peer("near", credit=0)
        assert await node.send(near, far_prepare(node, 0, FULFILLMENT), "number") == THANKS
        assert await node.send(near, far_prepare(node, 0, FULFILLMENT), "number") == THANKS
    assert [request.number for request in far.requests] == [None, None]
    rows = await node.database.read(lambda tx: tx.execute("SELECT count(*) FROM packet").fetchone()[0])
    assert rows == 0


async def test_packet_below_our_address_goes_to_the_peer_that_lives_there(node: Node) -> None:
    async with FakePeer(replying(THANKS)) as child:
        near = await node.peer("near")
        below = await node.peer("child", url=child.url)
        await node.write(lambda tx: peers.add_route(tx, below.id, f"{OWN}.child"))
        reply = await node.send(near, far_prepare(node, 5, FULFILLMENT, f"{OWN}.child.receiver"))
        assert reply == THANKS
        assert code(await node.send(near, far_prepare(node, 5, FULFILLMENT, f"{OWN}.other"))) == "F06"
    ours = node.sender(await node.payment(await node.wallet()))
    assert isinstance(await node.send(near, ours.prepare(5)), Fulfill)


# Across assets


async def test_packet_crosses_assets_through_liquidity(node: Node) -> None:
    async with FakePeer(replying(THANKS)) as far:
        near = await pair(node, far, code="EUR", scale=4)
        await node.write(lambda tx: set_rate(tx, "USD", "EUR", "0.9"))
        await node.write(lambda tx: assets.deposit_liquidity(tx, "EUR", 4, "9.0000"))
        assert await node.send(near, far_prepare(node, 555, FULFILLMENT)) == THANKS
        assert decode_prepare(far.requests[0].body).amount == 49_950
        assert code(await node.send(near, far_prepare(node, 446, FULFILLMENT))) == "T04"
        assert await node.send(near, far_prepare(node, 445, FULFILLMENT)) == THANKS
    assert (await node.balance("near"), await node.balance("far")) == (-1000, 90_000)


# Storage that fails between the leaving of a packet and the posting of its money


async def test_fulfillment_that_cannot_be_stored_is_not_passed_on_but_kept_for_later(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = node.database.write

    async def failing(unit: Any) -> Any:
        raise Unavailable("The server could not store this")

    async def behave(request: Request) -> bytes:
        monkeypatch.setattr(node.database, "write", failing)
        return answered(THANKS, request.number)

    async with FakePeer(behave) as far:
        near, prepare = await pair(node, far), far_prepare(node, 500, FULFILLMENT)
        assert await node.answer(near, prepare, "number") is NoReply.OUTCOME_UNKNOWN
        monkeypatch.setattr(node.database, "write", write)
        assert await node.answer(near, prepare, "number") is NoReply.OUTCOME_UNKNOWN
    assert len(await node.under_way()) == 1


async def test_packet_that_came_without_a_number_goes_on_without_one(node: Node) -> None:
    """Or the next peer could bring a fulfillment that cannot be passed back any more."""
    async with FakePeer(replying(THANKS)) as far:
        near = await pair(node, far)
        assert await node.send(near, far_prepare(node, 400, FULFILLMENT)) == THANKS
    assert [request.number for request in far.requests] == [None]


# A peer that was removed, whatever was settled


async def test_packet_that_is_decided_after_the_removal_is_not_passed_on(node: Node) -> None:
    async with FakePeer(replying(THANKS)) as far:
        await node.peer("far", url=far.url)
        near = await node.peer("near")
        await node.write(lambda tx: operator_peers.remove_peer(tx, "near"))
        reply = await node.send(near, far_prepare(node, 500, FULFILLMENT), "number")
    assert isinstance(reply, Reject)
    assert not far.requests
    assert (await money_of(node, near.id), await node.balance("far")) == (0, 0)
    assert not await node.under_way()


async def money_of(node: Node, peer_id: int) -> int:
    """What we owe a peer, removed or not."""
    return await node.database.read(lambda tx: ACCOUNTS.by_id(tx, account_of_peer(tx, peer_id)).balance)


# A peer whose packets are held on the other side


class Holding:
    """A far peer's behaviour: it holds the first packets until it is let go, and fulfills."""

    def __init__(self, count: int) -> None:
        self.all_held = asyncio.Event()
        self.let_go = asyncio.Event()
        self._count = count
        self._come = 0

    async def __call__(self, request: Request) -> bytes:
        self._come += 1
        if self._come == self._count:
            self.all_held.set()
        if self._come <= self._count:
            await self.let_go.wait()
        return answered(THANKS, request.number)


def begin(node: Node, peer: PeerRecord, prepare: Prepare) -> list[asyncio.Task[Reply]]:
    """All the packets at once that one peer may have under way to another."""
    return [asyncio.create_task(node.send(peer, prepare, f"{n}")) for n in range(MAX_PASSED_ON_OF_PEER)]


async def test_peer_whose_packets_are_held_leaves_others_places_on_the_next_link(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connector, "SLOT_TIMEOUT_SECONDS", 0.02)
    holding = Holding(MAX_PASSED_ON_OF_PEER)
    async with FakePeer(holding) as far, asyncio.timeout(TIMEOUT):
        near, other = await pair(node, far), await node.peer("other")
        prepare = far_prepare(node, 500, FULFILLMENT)
        held = begin(node, near, prepare)
        await holding.all_held.wait()
        assert code(await node.send(near, prepare, "one more")) == "T03"
        assert code(await node.send(near, far_prepare(node, 0, FULFILLMENT))) == "T03"
        assert len(await node.under_way()) == MAX_PASSED_ON_OF_PEER
        assert await node.send(other, prepare, "number") == THANKS
        holding.let_go.set()
        assert await asyncio.gather(*held) == [THANKS] * MAX_PASSED_ON_OF_PEER
        assert await node.send(near, prepare, "another") == THANKS
    assert await node.balance("near") == -500 * (MAX_PASSED_ON_OF_PEER + 1)


async def test_packets_passed_on_to_one_peer_are_limited(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connector, "SLOT_TIMEOUT_SECONDS", 0.02)
    holding = Holding(MAX_PASSED_ON)
    async with FakePeer(holding) as far, asyncio.timeout(TIMEOUT):
        near, other, third = await pair(node, far), await node.peer("other"), await node.peer("third")
        prepare = far_prepare(node, 500, FULFILLMENT)
        held = [*begin(node, near, prepare), *begin(node, other, prepare)]
        await holding.all_held.wait()
        assert code(await node.send(third, prepare, "number")) == "T03"
        holding.let_go.set()
        assert await asyncio.gather(*held) == [THANKS] * MAX_PASSED_ON
        assert await node.send(third, prepare, "another") == THANKS


# Packets of our own while they wait for their slot on a link


USD = Asset("USD", 2)
WALLET = 1


@pytest.fixture
def outbound(node: Node) -> Outbound:
    return Outbound(node.carrier, node.link)


async def test_packet_that_waited_has_the_whole_of_its_time_left(node: Node, outbound: Outbound) -> None:
    async with FakePeer(replying(FAR_REJECT)) as far:
        peer = await node.peer("far", url=far.url)
        prepare = far_prepare(node, 5, FULFILLMENT)
        async with AsyncExitStack() as places:
            for _ in range(MAX_PROBES_OF_CLIENT):
                await places.enter_async_context(outbound.probe_slots.slot(peer.id, WALLET))
            asking = asyncio.create_task(WalletPackets(outbound, USD, WALLET).ask(prepare))
            assert await WalletPackets(outbound, USD, WALLET + 1).ask(prepare) == FAR_REJECT  # others go past
            assert len(far.requests) == 1
            node.clock.advance(30)
        assert await asking == FAR_REJECT
        assert decode_prepare(far.requests[1].body).expires_at == node.clock.now() + 20 * SECOND


async def test_probes_count_for_the_client_that_asks_whichever_wallet_it_names(node: Node, outbound: Outbound) -> None:
    async with FakePeer(replying(FAR_REJECT)) as far, AsyncExitStack() as places:
        peer = await node.peer("far", url=far.url)
        for _ in range(MAX_PROBES_OF_CLIENT):
            await places.enter_async_context(outbound.probe_slots.slot(peer.id, "client"))
        requested_by.set(("client",))
        prepare = far_prepare(node, 5, FULFILLMENT)
        asking = [asyncio.create_task(WalletPackets(outbound, USD, one).ask(prepare)) for one in range(3)]
        requested_by.set(("another",))
        assert await WalletPackets(outbound, USD, WALLET).ask(prepare) == FAR_REJECT
        assert (len(far.requests), [one.done() for one in asking]) == (1, [False] * 3)
        await places.aclose()
        assert await asyncio.gather(*asking) == [FAR_REJECT] * 3


@pytest.mark.parametrize("other", ["elsewhere", "far"])
async def test_packet_whose_way_changes_while_it_waits_stays(node: Node, outbound: Outbound, other: str) -> None:
    """The route leads elsewhere now, or the peer has come to repeat no answers, so that it has fewer slots."""
    async with FakePeer(replying(THANKS)) as far:
        known = {name: await node.peer(name, url=far.url) for name in ("far", "elsewhere")}
        packets = WalletPackets(outbound, USD, WALLET, "a payment")
        packets._peer = msgspec.structs.replace(known[other], repeats_answers=1)
        outcome = await packets.pay(far_prepare(node, 5, FULFILLMENT), 5, lambda fulfill: 5)
        assert isinstance(outcome, Reject)
        assert outcome.code == Code.PEER_UNREACHABLE
        assert not far.requests
    assert not await node.under_way()


@pytest.mark.parametrize("is_passed_on", [False, True])
@pytest.mark.parametrize(
    ("request_id", "in_order", "lived_on", "asked_after", "warned", "listed"),
    [
        (None, False, 0, 60, True, ["0.30", "0.40"]),
        (None, False, 0, 29 * DAY // SECOND, True, ["0.30", "0.40"]),
        (None, False, 0, 31 * DAY // SECOND, True, []),
        (None, False, 6, 60, False, []),  # the last packet was answered long before
        (None, True, 0, 60, False, []),
        ("id", False, 0, 60, False, []),  # the peer repeats what was not answered
    ],
)
async def test_packets_just_before_a_kill_are_listed_of_a_peer_that_does_not_repeat(
    is_passed_on: bool,
    request_id: str | None,
    in_order: bool,
    lived_on: int,
    asked_after: int,
    warned: bool,
    listed: list[str],
    node: Node,
) -> None:
    assert not await node.write(begin_run)
    async with FakePeer(replying(THANKS)) as far:
        near, payment = await pair(node, far), await node.payment(await node.wallet())
        sender = node.sender(payment)
        for amount in (10, 20, 30, 40):  # the last two within five seconds
            prepare = far_prepare(node, amount, FULFILLMENT) if is_passed_on else sender.prepare(amount)
            assert isinstance(await node.send(near, prepare, request_id and f"{request_id}-{amount}"), Fulfill)
            node.clock.advance(3)
    if lived_on:
        node.clock.advance(lived_on)
        await node.write(lambda tx: invariants.note_check(tx, tx.now))
    if in_order:
        await node.write(runs.end)
    assert ["2 packets from the peer near" in said for said in await node.write(begin_run)] == [True] * warned
    if not in_order:
        await node.write(begin_run)  # the next run has done nothing before it was killed too
    node.clock.advance(asked_after)
    found = await node.database.read(lambda tx: [PACKET.show(tx, one) for one in list_unresolved(tx, "near")])
    assert [one.amount for one in found] == listed
    known = (None, None) if is_passed_on else (payment, "alice")
    assert all((one.payment, one.wallet, one.id, one.expired_at) == (*known, None, None) for one in found)
    grouped = await node.database.read(
        lambda tx: [UNRESOLVED_PAYMENT.show(tx, one) for one in list_unresolved_payments(tx, "near")]
    )
    for group in grouped:
        assert (group.direction, group.payment, group.wallet) == ("incoming", *known)
        assert (group.packets, group.amount, group.first_at < group.last_at) == (2, "0.70", True)
        assert group.forwarded_to == ("far" if is_passed_on else None)
        assert (group.least, group.most) == ((None, None) if is_passed_on else ("0.30", "1.00"))
    assert len(grouped) == bool(listed)
