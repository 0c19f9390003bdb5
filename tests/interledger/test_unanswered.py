"""What becomes of packets whose answer was lost: by a crash of ours, of the next peer, or on the way."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from fractions import Fraction
from functools import partial
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.protocol.amounts import ProbedPath as Way
from payres.core.protocol.clock import DAY, HOUR, SECOND
from payres.interledger import clearing
from payres.interledger import unanswered as module
from payres.interledger.carrier import NoReply, land_forwarded
from payres.interledger.connector import LONGEST_LIFE
from payres.interledger.packets import Fulfill, PacketRejected, Prepare, Reject
from payres.interledger.remote_receivers import RemoteReceivers
from payres.interledger.store import peers
from payres.interledger.store.packets import PACKETS, PacketRecord
from payres.interledger.store.peers import PeerRecord
from payres.interledger.unanswered import (
    ASKED_AT_ONCE,
    ASKED_AT_ONCE_OF_ONE,
    MAX_SUMS,
    PAGE,
    InFlight,
    UnansweredPackets,
    arrived,
    cost,
)
from tests.core.remote.conftest import Request
from tests.helpers import TIMEOUT, examples
from tests.interledger.node import (
    FULFILLMENT,
    LIFETIME,
    THANKS,
    Behaviour,
    FakePeer,
    Node,
    answered,
    far_prepare,
    hanging_up,
    replying,
    silent,
    with_status,
)

FAR_REJECT = Reject("R00", "test.far")
NO_RECEIVERS = cast(RemoteReceivers, None)  # packets of other peers have none


@pytest.fixture(autouse=True)
def quick_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_SECONDS", 0.01)


async def lose(
    node: Node, far: FakePeer, request_id: str | None = "number"
) -> tuple[PeerRecord, Prepare, PacketRecord]:
    """A packet that left and of which nothing was heard; the far peer repeats answers."""
    target = await node.peer("far", url=far.url)
    await node.write(lambda tx: peers.set_repeats_answers(tx, target.id, True))
    near, prepare = await node.peer("near"), far_prepare(node, 500, FULFILLMENT)
    kept, far.behaviour = far.behaviour, hanging_up
    answer = await node.answer(near, prepare, request_id)
    # Who cannot ask again gets an answer at once; the money is held all the same.
    assert answer is NoReply.OUTCOME_UNKNOWN if request_id else isinstance(answer, Reject)
    far.behaviour = kept
    [packet] = await node.under_way()
    return near, prepare, packet


@asynccontextmanager
async def recovering(node: Node) -> AsyncIterator[None]:
    """Recovery as it begins when a server starts."""
    task = asyncio.create_task(UnansweredPackets(node.carrier, NO_RECEIVERS).run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def state(node: Node, packet: PacketRecord) -> str:
    found = await node.database.read(lambda tx: PACKETS.get(tx, packet.id))
    assert found is not None
    return found.state


async def settled(node: Node, seconds: float = 0) -> None:
    """Waits until no packet is under way; the node's clock goes on by `seconds` at each look."""
    async with asyncio.timeout(TIMEOUT):
        while True:
            if not await node.under_way():
                return
            node.clock.advance(seconds)
            await asyncio.sleep(0.005)


async def looked(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """Returns after recovery has looked a few times."""
    looks, enough = 0, asyncio.Event()
    seconds_until = module.seconds_until

    def counted(*arguments: Any) -> float:
        nonlocal looks
        looks += 1
        if looks == 3:
            enough.set()
        return seconds_until(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(module, "seconds_until", counted)
        async with recovering(node), asyncio.timeout(TIMEOUT):
            await enough.wait()


def to_expiry(node: Node, packet: PacketRecord, seconds: float) -> None:
    """Moves the clock to so many seconds after the packet's expiry."""
    node.clock.advance((packet.expires_at - node.clock.now()) / SECOND + seconds)


OUTCOMES: dict[str, tuple[Behaviour, str, bool]] = {  # the answer, what it makes of the packet, whether that is proved
    "fulfilled": (replying(THANKS), "fulfilled", True),
    "rejected": (replying(FAR_REJECT), "rejected", True),
    "fulfilled by a peer that repeats no more": (replying(THANKS, numbered=False), "fulfilled", True),
    "rejected by a peer that repeats no more": (replying(FAR_REJECT, numbered=False), "rejected", False),
    "fulfilled wrongly": (replying(Fulfill(bytes(32), b"thanks")), "rejected", True),
}


@pytest.mark.parametrize(("behaviour", "wanted", "proved"), OUTCOMES.values(), ids=OUTCOMES)
async def test_peer_is_asked_once_after_the_expiry_and_all_are_squared(
    node: Node, behaviour: Behaviour, wanted: str, proved: bool
) -> None:
    async with FakePeer(behaviour) as far:
        near, prepare, packet = await lose(node, far)
        async with recovering(node):
            node.clock.advance(LIFETIME / SECOND + 1)
            await settled(node)
        first, again = far.requests
    assert (first.number, first.body) == (again.number, again.body)
    assert await state(node, packet) == wanted
    moved = 500 if wanted == "fulfilled" else 0
    assert (await node.balance("near"), await node.balance("far")) == (-moved, moved)
    assert ("was released unanswered. The peer does not repeat answers" in await node.last_error()) is not proved
    reply = await node.send(near, prepare, "number")
    assert reply == THANKS if moved else isinstance(reply, Reject)


@pytest.mark.parametrize("request_id", ["number", None])
@pytest.mark.parametrize("repeats", [True, False])
async def test_nothing_is_asked_or_released_before_the_packet_has_expired_for_a_second(
    node: Node, request_id: str | None, repeats: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then the next peer can still fulfill it, whoever waits for that."""
    async with FakePeer(replying(FAR_REJECT)) as far:
        _, _, packet = await lose(node, far, request_id)
        await node.write(lambda tx: peers.set_repeats_answers(tx, packet.to_peer_id, repeats))
        to_expiry(node, packet, 0.999)
        await looked(node, monkeypatch)
        assert await state(node, packet) == "prepared"
        assert len(far.requests) == 1
        node.clock.advance(0.001)
        async with recovering(node):
            await settled(node)
        assert len(far.requests) == (2 if request_id and repeats else 1)
    assert await state(node, packet) == "rejected"


async def test_packet_that_left_while_the_clock_was_ahead_is_asked_for_soon(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakePeer(replying(FAR_REJECT)) as far:
        node.clock.advance(30 * DAY / SECOND)
        _, _, packet = await lose(node, far)
        node.clock.advance(-30 * DAY / SECOND)
        await looked(node, monkeypatch)
        assert await state(node, packet) == "prepared", "the next peer may still fulfill it"
        node.clock.advance(LONGEST_LIFE / SECOND + 1)
        async with recovering(node):
            await settled(node)
    assert await state(node, packet) == "rejected"


async def test_backlog_is_examined_page_by_page_without_a_pause_of_a_second(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PAGE", 2)
    monkeypatch.setattr(module, "TICK_SECONDS", 2 * TIMEOUT)
    async with FakePeer(replying(FAR_REJECT)) as far:
        near, _, _ = await lose(node, far, "0")
        kept, far.behaviour = far.behaviour, hanging_up
        for number in range(1, 5):
            await node.answer(near, far_prepare(node, 1, FULFILLMENT), str(number))
        far.behaviour = kept
        node.clock.advance(LIFETIME / SECOND + 1)
        async with recovering(node):
            await settled(node)


async def test_packet_that_somebody_waits_for_is_left_alone(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    reached = asyncio.Event()

    async def behave(request: Request) -> bytes:
        reached.set()
        return await silent(request)

    async with FakePeer(behave) as far:
        await node.peer("far", url=far.url)
        near = await node.peer("near")
        waiting = asyncio.create_task(node.answer(near, far_prepare(node, 500, FULFILLMENT), "number"))
        await asyncio.wait_for(reached.wait(), TIMEOUT)
        [packet] = await node.under_way()
        to_expiry(node, packet, 60)
        await looked(node, monkeypatch)
        assert await state(node, packet) == "prepared"
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
        async with recovering(node):
            await settled(node)


@pytest.mark.parametrize("change", ["never repeated", "removed", "asked without a number"])
async def test_packet_about_which_nobody_can_be_asked_is_released(node: Node, change: str) -> None:
    async with FakePeer(replying(THANKS)) as far:
        near, prepare, packet = await lose(node, far, None if change == "asked without a number" else "number")
        if change == "never repeated":
            await node.write(lambda tx: peers.set_repeats_answers(tx, packet.to_peer_id, False))
        if change == "removed":
            await node.write(lambda tx: peers.PEERS.update(tx, packet.to_peer_id, removed_at=node.clock.now()))
        to_expiry(node, packet, 1)
        async with recovering(node):
            await settled(node)
        assert len(far.requests) == 1
    assert await state(node, packet) == "rejected"
    if change != "removed":
        assert "was released unanswered" in await node.last_error()
        assert isinstance(await node.send(near, prepare, "number"), Reject)
        assert (await node.balance("near"), await node.balance("far")) == (0, 0)


async def test_peer_that_is_away_is_asked_again_until_it_is_back(node: Node) -> None:
    statuses = ["503 Away", "504 Not yet", "500 Oops"]

    async def behave(request: Request) -> bytes:
        if statuses:
            return answered(b"", None, statuses.pop())
        return answered(THANKS, request.number)

    async with FakePeer(behave) as far:
        _, _, packet = await lose(node, far)
        async with recovering(node):
            node.clock.advance(LIFETIME / SECOND + 1)
            await settled(node, 1)
    assert len(far.requests) == 5
    assert await state(node, packet) == "fulfilled"


async def test_peer_is_asked_more_than_once_by_a_server_that_was_down_or_whose_clock_was_set(node: Node) -> None:
    statuses = ["503 Away"]

    async def behave(request: Request) -> bytes:
        return answered(b"", None, statuses.pop()) if statuses else answered(THANKS, request.number)

    async with FakePeer(behave) as far:
        _, _, packet = await lose(node, far)
        node.clock.advance(2 * HOUR / SECOND)
        async with recovering(node):
            await settled(node, 60)
    assert await state(node, packet) == "fulfilled"


async def test_peer_that_stays_away_is_given_up_after_an_hour(node: Node) -> None:
    async with FakePeer(with_status("503 Away")) as far:
        _, _, packet = await lose(node, far)
        async with recovering(node):
            await settled(node, 60)
        # At growing intervals, of five minutes at most.
        assert 10 <= len(far.requests) <= 25
    assert node.clock.now() >= packet.expires_at + HOUR
    assert await state(node, packet) == "rejected"
    assert f"Packet {packet.id} over 500 was released unanswered" in await node.last_error()


async def test_backlog_of_a_peer_that_is_away_takes_few_requests_at_a_time_and_ends(node: Node) -> None:
    """Packets of several peers, more than one page of rows, while the next peer is away."""
    open_of: Counter[str] = Counter()  # by peer, the packets that are asked about now
    most, everybody_asks, away = Counter[str](), asyncio.Event(), asyncio.Event()

    async def behave(request: Request) -> bytes:
        near = by_id.get(request.number or "", "")
        open_of[near] += 1
        most[near] = max(most[near], open_of[near])
        if open_of.total() == ASKED_AT_ONCE:
            everybody_asks.set()
        await away.wait()
        open_of[near] -= 1
        return answered(FAR_REJECT, request.number)

    async with FakePeer(behave) as far:
        _, _, packet = await lose(node, far)
        nears = [await node.peer(f"near-{number}") for number in range(3)]
        by_id = {f"{number:032x}": nears[number % 3].name for number in range(PAGE + 50)}
        ids = {peer.name: peer.id for peer in nears}
        peer = await node.database.read(lambda tx: peers.peer_by_id(tx, packet.to_peer_id))
        assert peer is not None
        for packet_id, name in by_id.items():
            one = msgspec.structs.replace(packet, id=packet_id, from_peer_id=ids[name], from_request_id=packet_id)
            await node.write(partial(clearing.prepare, packet=one, peer=peer))
        async with recovering(node), asyncio.timeout(TIMEOUT):
            node.clock.advance(LIFETIME / SECOND + 1)
            await everybody_asks.wait()
            assert max(most.values()) <= ASKED_AT_ONCE_OF_ONE
            away.set()
            await settled(node, seconds=1)
        assert len(far.requests) == 1 + 1 + len(by_id)
    assert most.total() >= ASKED_AT_ONCE


@pytest.mark.parametrize("before", ["fulfilled", "rejected"])
async def test_fulfillment_of_a_decided_packet_moves_nothing_and_is_passed_on_if_it_was_paid(
    node: Node, before: str
) -> None:
    async with FakePeer(OUTCOMES[before][0]) as far:
        _, _, packet = await lose(node, far)
        node.clock.advance(60)
        async with recovering(node):
            await settled(node)
    balance = await node.balance("near")
    paid_for = nullcontext() if before == "fulfilled" else pytest.raises(PacketRejected, match="R00")
    with paid_for:
        await node.database.write(lambda work: land_forwarded(work, packet, THANKS))
    assert (await state(node, packet), await node.balance("near")) == (before, balance)


# What a receiver's figure says: no payer is charged for what did not arrive


AMOUNTS = st.lists(st.sampled_from([1, 7, 50, 100, 100, 100]), min_size=1, max_size=8)


def unresolved(amounts: Sequence[int], path: Way | None = None) -> list[InFlight]:
    path = path or Way(Fraction(1), Fraction(1001, 1000), 1000)
    return [
        InFlight(
            PacketRecord(f"{number}", 1, "payment", None, None, amount, amount, b"", 1, "prepared"),
            path.least(amount),
            path.most(amount),
        )
        for number, amount in enumerate(amounts)
    ]


def chosen(some: Sequence[InFlight], which: Sequence[bool]) -> Sequence[InFlight]:
    return [one for one, is_chosen in zip(some, which, strict=False) if is_chosen]


WHICH = st.lists(st.booleans(), min_size=8, max_size=8)


@examples(200)
@given(AMOUNTS, WHICH)
def test_payer_is_charged_exactly_what_arrived(amounts: list[int], which: list[bool]) -> None:
    own = unresolved(amounts)
    increase = cost(chosen(own, which))
    found = arrived(own, increase)
    assert found is not None
    assert cost(found) == increase


@examples(200)
@given(AMOUNTS, st.integers(1, 2000))
def test_figure_that_no_packets_add_up_to_says_nothing(amounts: list[int], increase: int) -> None:
    sums = {0}
    for amount in amounts:
        sums |= {amount + total for total in sums}
    found = arrived(unresolved(amounts), increase)
    assert (found is None) is (increase not in sums)


@examples(200)
@given(AMOUNTS, WHICH, st.fractions(Fraction(1, 3), 40, max_denominator=1000))
def test_payer_is_never_charged_more_than_what_arrived_across_currencies(
    amounts: list[int], which: list[bool], rate: Fraction
) -> None:
    own = unresolved(amounts, Way(rate, rate + Fraction(1, 2000), 1000))
    truly = chosen(own, which)
    for increase in (sum(one.least for one in truly), sum(one.most for one in truly)):
        found = arrived(own, increase)
        assert found is not None
        assert cost(found) <= cost(truly)
        assert sum(one.least for one in found) <= increase <= sum(one.most for one in found)


def test_of_too_many_different_packets_the_figure_says_nothing() -> None:
    packets = unresolved([2**number for number in range(20)])
    assert 2 ** len(packets) > MAX_SUMS
    assert arrived(packets, 0) == []
    assert arrived(packets, cost(packets) - 1) is None
    assert len(arrived(unresolved([100] * 3000), 100 * 2000) or ()) == 2000  # of one size any number
