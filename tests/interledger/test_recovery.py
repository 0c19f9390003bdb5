"""What becomes of packets whose answer was lost: by a crash of ours, of the next peer, or on the way."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec
import pytest

from payres.clock import HOUR, SECOND
from payres.interledger import balances
from payres.interledger import recovery as module
from payres.interledger.packets import Fulfill, Prepare, Reject
from payres.interledger.recovery import ASKED_AT_ONCE, ASKED_AT_ONCE_OF_ONE, Backlog, Waiting
from payres.interledger.responses import NoReply
from payres.operator import peers as operator
from payres.store import peers
from payres.store.packets import PACKETS, PacketRecord
from payres.store.peers import PeerRecord
from tests.helpers import TIMEOUT
from tests.interledger.node import (
    LIFETIME,
    FakePeer,
    Node,
    PeerRequest,
    answered,
    far_prepare,
    fulfilling,
    hanging_up,
    open_node,
    rejecting,
    with_status,
)

FULFILLMENT = bytes(range(32))
THANKS = Fulfill(FULFILLMENT, b"thanks")
FAR_REJECT = Reject("R00", "test.far")


@pytest.fixture
async def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Node]:
    monkeypatch.setattr(module, "TICK_SECONDS", 0.01)
    async with open_node(tmp_path / "node.db") as opened:
        yield opened
        await opened.check_books()


async def lose(
    node: Node, far: FakePeer, request_id: str | None = "number"
) -> tuple[PeerRecord, Prepare, PacketRecord]:
    """A packet that left and of which nothing was heard, as a crash leaves it; the far peer repeats answers."""
    target = await node.peer("far", url=far.url)
    await node.write(lambda tx: peers.set_repeats_answers(tx, target.id, True))
    near, prepare = await node.peer("near"), far_prepare(node, 500, FULFILLMENT)
    kept, far.behaviour = far.behaviour, hanging_up
    if request_id is not None:
        assert await node.answer(near, prepare, request_id) is NoReply.OUTCOME_UNKNOWN
    else:
        await _crash_after_departure(node, near, prepare)
    far.behaviour = kept
    [packet] = await node.under_way()
    return near, prepare, packet


async def _crash_after_departure(node: Node, near: PeerRecord, prepare: Prepare) -> None:
    sending = asyncio.create_task(node.send(near, prepare))
    while True:
        if await node.under_way():
            break
    sending.cancel()
    with suppress(asyncio.CancelledError):
        await sending


@asynccontextmanager
async def recovering(node: Node) -> AsyncIterator[None]:
    """Recovery as it begins when a server starts."""
    fresh = module.Recovery(node.database, node.clock, node.link)
    task = asyncio.create_task(fresh.run())
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


async def test_lost_fulfillment_is_fetched_and_both_peers_are_squared(node: Node) -> None:
    async with FakePeer(fulfilling(FULFILLMENT)) as far:
        near, prepare, packet = await lose(node, far)
        async with recovering(node):
            node.clock.advance(LIFETIME / SECOND + 1)
            await settled(node)
    assert await state(node, packet) == "fulfilled"
    assert (await node.balance("near"), await node.balance("far")) == (-500, 500)
    assert await node.send(near, prepare, "number") == THANKS
    first, again = far.requests
    assert (first.request_id, first.body) == (again.request_id, again.body)


async def test_lost_reject_gives_the_money_back(node: Node) -> None:
    async with FakePeer(rejecting(FAR_REJECT)) as far:
        near, prepare, packet = await lose(node, far)
        async with recovering(node):
            node.clock.advance(LIFETIME / SECOND + 1)
            await settled(node)
    assert await state(node, packet) == "rejected"
    assert (await node.balance("near"), await node.balance("far")) == (0, 0)
    reply = await node.send(near, prepare, "number")
    assert isinstance(reply, Reject)
    assert reply.code == "R00"


async def test_nobody_is_asked_before_the_packet_has_expired_for_a_second(node: Node) -> None:
    async with FakePeer(rejecting(FAR_REJECT)) as far:
        _, _, packet = await lose(node, far)
        node.clock.advance((packet.expires_at - node.clock.now()) / SECOND + 0.999)
        assert (await node.recovery.ask(packet)).outcome == "unknown"
        assert not (await node.recovery.ask(packet)).final
        assert len(far.requests) == 1
        node.clock.advance(0.001)
        assert (await node.recovery.ask(packet)).outcome == "rejected"


async def test_peer_that_never_repeated_an_answer_is_not_asked(node: Node) -> None:
    async with FakePeer(fulfilling(FULFILLMENT)) as far:
        near, prepare, packet = await lose(node, far)
        await node.write(lambda tx: peers.set_repeats_answers(tx, packet.to_peer_id, False))
        async with recovering(node):
            await settled(node)
        assert len(far.requests) == 1
    assert await state(node, packet) == "rejected"
    assert (await node.balance("near"), await node.balance("far")) == (0, 0)
    assert "was released unanswered. The peer does not repeat answers" in await last_error(node)
    node.clock.advance(60)
    assert isinstance(await node.send(near, prepare, "number"), Reject)


async def test_answer_without_the_number_proves_nothing_but_a_fulfillment(node: Node) -> None:
    async with FakePeer(rejecting(FAR_REJECT, numbered=False)) as far:
        _, _, packet = await lose(node, far)
        node.clock.advance(60)
        resolved = await node.recovery.ask(packet)
        assert (resolved.outcome, resolved.final) == ("unknown", True)
        await node.write(lambda tx: peers.set_repeats_answers(tx, packet.to_peer_id, True))
        far.behaviour = fulfilling(FULFILLMENT, numbered=False)
        assert isinstance((await node.recovery.ask(packet)).outcome, Fulfill)
        await node.write(lambda tx: peers.set_repeats_answers(tx, packet.to_peer_id, True))
        far.behaviour = fulfilling(bytes(32))
        assert (await node.recovery.ask(packet)).outcome == "rejected"


async def test_peer_that_is_away_is_asked_again_until_it_is_back(node: Node) -> None:
    tries = 0

    async def behave(request: PeerRequest) -> bytes:
        nonlocal tries
        tries += 1
        if tries < 4:
            return answered(b"", None, ("503 Away", "504 Not yet", "500 Oops")[tries - 1])
        return answered(THANKS, request.request_id)

    async with FakePeer(behave) as far:
        _, _, packet = await lose(node, far)
        async with recovering(node):
            node.clock.advance(LIFETIME / SECOND + 1)
            await settled(node, 1)
    assert tries == 4
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
    assert f"Packet {packet.id} over 500 was released unanswered" in await last_error(node)


async def test_packet_of_a_peer_that_cannot_ask_again_is_released_at_once(node: Node) -> None:
    async with FakePeer(fulfilling(FULFILLMENT)) as far:
        _, _, packet = await lose(node, far, request_id=None)
        async with recovering(node):
            await settled(node)
        assert len(far.requests) <= 1
    assert await state(node, packet) == "rejected"


async def test_removed_peer_is_not_asked(node: Node) -> None:
    async with FakePeer(fulfilling(FULFILLMENT)) as far:
        _, _, packet = await lose(node, far)
        await node.write(lambda tx: peers.PEERS.update(tx, packet.to_peer_id, removed_at=node.clock.now()))
        async with recovering(node):
            await settled(node)
        assert len(far.requests) == 1
    assert await state(node, packet) == "rejected"


async def test_backlog_of_a_peer_that_is_away_takes_few_tasks_and_ends(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packets of one unit each, as many as a peer cares to send while the next one is away."""
    count = 300
    async with FakePeer(rejecting(FAR_REJECT)) as far:
        _, _, packet = await lose(node, far)
        lost = [
            msgspec.structs.replace(packet, id=f"{number:032x}", from_request_id=f"n{number}")
            for number in range(count)
        ]
        peer = await node.database.read(lambda tx: peers.peer_by_id(tx, packet.to_peer_id))
        assert peer is not None
        for one in lost:
            await node.write(partial(balances.prepare, packet=one, peer=peer))
        tasks: list[int] = []  # how many there were each time that the peer was asked, which is away
        all_asked = asyncio.Event()

        async def ask_in_vain(recovery: module.Recovery, asking: PacketRecord) -> module.Resolved:
            tasks.append(len(asyncio.all_tasks()))
            if len(tasks) > count:
                all_asked.set()
            return module.Resolved("unknown", final=False)

        before = len(asyncio.all_tasks())
        with monkeypatch.context() as patch:
            patch.setattr(module.Recovery, "ask", ask_in_vain)
            async with recovering(node):
                node.clock.advance(LIFETIME / SECOND + 1)
                await asyncio.wait_for(all_asked.wait(), TIMEOUT)
        assert max(tasks) - before <= 1 + ASKED_AT_ONCE
        async with recovering(node):
            await settled(node, seconds=60)
    assert {await state(node, one) for one in lost} == {"rejected"}


async def test_packets_lost_while_it_runs_are_taken_up_too(node: Node) -> None:
    async with FakePeer(fulfilling(FULFILLMENT)) as far:
        task = asyncio.create_task(node.recovery.run())
        await lose(node, far)
        node.clock.advance(LIFETIME / SECOND + 1)
        await settled(node)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    assert await node.balance("near") == -500


async def test_two_who_find_the_same_answer_move_the_money_once(node: Node) -> None:
    async with FakePeer(fulfilling(FULFILLMENT)) as far:
        _, _, packet = await lose(node, far)
        node.clock.advance(60)
        async with recovering(node), recovering(node):
            await settled(node)
    assert await state(node, packet) == "fulfilled"
    assert await node.balance("near") == -500


async def last_error(node: Node) -> str:
    found = await node.database.read(lambda tx: operator.require_peer(tx, "far"))
    assert found.last_error is not None
    return found.last_error


# Between two nodes: what one forgot, the other has kept


@pytest.mark.parametrize("fate", ["lost on the way there", "lost on the way back", "answered late"])
async def test_two_nodes_agree_after_a_lost_exchange(tmp_path: Path, node: Node, fate: str) -> None:
    async with open_node(tmp_path / "second.db", own="test.second") as second:
        from_first = await second.peer("first")
        payment = await second.payment(await second.wallet(), 1000)
        sender = second.sender(payment)

        async def relay(request: PeerRequest) -> bytes:
            reply = await second.connector.handle(from_first, request.body, request.request_id)
            if reply is NoReply.OUTCOME_UNKNOWN:
                return answered(b"", request.request_id, "504 Not yet")
            assert isinstance(reply, bytes)
            return answered(reply, request.request_id)

        async def losing(request: PeerRequest) -> bytes:
            if fate != "lost on the way there":
                await relay(request)
            if fate == "answered late":
                node.clock.advance(LIFETIME / SECOND)
            return b""

        async with FakePeer(relay) as peer:
            await node.peer("second", url=peer.url)
            near = await node.peer("near")
            assert isinstance(await node.send(near, sender.prepare(100), "before"), Fulfill)
            peer.behaviour = losing
            assert await node.answer(near, sender.prepare(300), "lost") is NoReply.OUTCOME_UNKNOWN
            peer.behaviour = relay
            async with recovering(node):
                for one in (node, second):
                    one.clock.advance(LIFETIME / SECOND + 1)
                await settled(node)
        arrived = 100 if fate == "lost on the way there" else 400
        assert (await second.received(payment)).received == arrived
        assert await node.balance("second") == -await second.balance("first") == -await node.balance("near") == arrived
        await second.check_books()


def waiting_packet(number: int, due: int = 0, to_peer: int = 1, from_peer: int = 2) -> Waiting:
    return Waiting(due, f"{number:04}", 1, to_peer, from_peer)


def test_what_is_due_comes_in_order_and_once() -> None:
    backlog = Backlog()
    for number, due in enumerate((30, 10, 20, 40)):
        backlog.add(waiting_packet(number, due))
    assert [packet.due for packet in backlog.take_due(9)] == []
    assert [packet.due for packet in backlog.take_due(30)] == [10, 20, 30]
    assert [packet.due for packet in backlog.take_due(30)] == []
    assert backlog
    assert [packet.due for packet in backlog.take_due(40)] == [40]
    assert not backlog


def test_slots_of_each_pair_of_peers_are_limited() -> None:
    backlog = Backlog()
    for number in range(1000):
        backlog.add(waiting_packet(number))
    taken = list(backlog.take_due(0))
    assert len(taken) == ASKED_AT_ONCE_OF_ONE
    for from_peer in (3, 4):
        for number in range(ASKED_AT_ONCE_OF_ONE):
            backlog.add(waiting_packet(number, from_peer=from_peer))
    backlog.add(waiting_packet(1, to_peer=5))
    others = list(backlog.take_due(0))
    assert [packet.from_peer_id for packet in others if packet.to_peer_id == 1] == [3] * (
        ASKED_AT_ONCE - ASKED_AT_ONCE_OF_ONE
    )
    assert len(others) == ASKED_AT_ONCE - ASKED_AT_ONCE_OF_ONE + 1
    backlog.release(taken[0])
    assert len(list(backlog.take_due(0))) == 1
