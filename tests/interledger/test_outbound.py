"""Packets of our own while they wait for their place on a link."""

import asyncio
from contextlib import AsyncExitStack

import msgspec
import pytest

from payres.amounts import Asset
from payres.clock import SECOND
from payres.interledger import outbound as module
from payres.interledger.outbound import ASKED_AT_ONCE_OF_CLIENT, Outbound, WalletPackets
from payres.interledger.packets import Code, Reject, decode_prepare
from tests.interledger.node import FULFILLMENT, OWN, FakePeer, Node, far_prepare, fulfilling, rejecting

USD = Asset("USD", 2)
WALLET = 1
FAR_REJECT = Reject("F99", "test.far.receiver", "Not now", b"sealed")


@pytest.fixture
def outbound(node: Node) -> Outbound:
    return Outbound(node.database, node.carrier, node.link, node.clock, OWN)


async def test_packet_that_waited_has_the_whole_of_its_time_left(node: Node, outbound: Outbound) -> None:
    async with FakePeer(rejecting(FAR_REJECT)) as far:
        peer = await node.peer("far", url=far.url)
        prepare = far_prepare(node, 5, FULFILLMENT)
        async with AsyncExitStack() as places:
            for _ in range(ASKED_AT_ONCE_OF_CLIENT):
                await places.enter_async_context(outbound.probe_slots.slot(peer.id, WALLET))
            asking = asyncio.create_task(WalletPackets(outbound, USD, WALLET).ask(prepare))
            assert await WalletPackets(outbound, USD, WALLET + 1).ask(prepare) == FAR_REJECT  # others go past
            assert len(far.requests) == 1
            node.clock.advance(30)
        assert await asking == FAR_REJECT
        assert decode_prepare(far.requests[1].body).expires_at == node.clock.now() + 20 * SECOND


@pytest.mark.parametrize("other", ["elsewhere", "far"])
async def test_packet_whose_way_changes_while_it_waits_stays(node: Node, outbound: Outbound, other: str) -> None:
    """The route leads elsewhere now, or the peer has come to repeat no answers, so that it has fewer slots."""
    async with FakePeer(fulfilling(FULFILLMENT)) as far:
        known = {name: await node.peer(name, url=far.url) for name in ("far", "elsewhere")}
        packets = WalletPackets(outbound, USD, WALLET, "a payment")
        packets._peer = msgspec.structs.replace(known[other], repeats_answers=1)
        outcome = await packets.pay(far_prepare(node, 5, FULFILLMENT), lambda fulfill: 5)
        assert isinstance(outcome, Reject)
        assert outcome.code == Code.PEER_UNREACHABLE
        assert not far.requests
    assert not await node.under_way()


async def test_stopping_waits_for_packets_that_have_left_and_lets_no_more_leave(outbound: Outbound) -> None:
    async with outbound.departure():
        draining = asyncio.create_task(outbound.drain())
        leaving = asyncio.create_task(outbound.departure().__aenter__())
        for _ in range(10):
            await asyncio.sleep(0)
        assert not draining.done()
    await draining
    assert not leaving.done()
    leaving.cancel()


@pytest.mark.parametrize(("seconds", "in_flight"), [(0.01, True), (float("inf"), False)])
async def test_stopping_waits_for_answers_for_a_while_only_and_for_nothing_when_none_is_missing(
    outbound: Outbound, monkeypatch: pytest.MonkeyPatch, seconds: float, in_flight: bool
) -> None:
    monkeypatch.setattr(module, "DRAIN_SECONDS", seconds)
    async with outbound.departure():
        if in_flight:
            await outbound.drain()
    await outbound.drain()
