"""A request that was answered once is answered so again: what was rejected is never fulfilled, as the peer's payer has
the money back."""

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from payres.core.process.rate_limiter import RateLimiter
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import Unavailable
from payres.core.store.rows import number
from payres.interledger import connector
from payres.interledger.carrier import NoReply
from payres.interledger.limits import MAX_PACKETS_IN_FLIGHT, MAX_PASSED_ON_OF_PEER, MAX_REJECT_SECONDS
from payres.interledger.packets import Code, Fulfill, Prepare, Reject, Reply
from payres.interledger.store import peers
from payres.interledger.store.peers import PeerRecord
from payres.operator import assets, wallets
from payres.operator.assets import set_rate
from payres.operator.peers import change_peer
from tests.core.remote.conftest import Request
from tests.interledger.node import (
    FULFILLMENT,
    LIFETIME,
    START,
    THANKS,
    FakePeer,
    Node,
    answered,
    code,
    far_prepare,
    open_node,
    replying,
)
from tests.traces import break_commit

FAR_REJECT = Reject("T04", "test.far", "Not now", b"sealed")


def break_commits(node: Node, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Makes the next commits of the node fail."""
    write, left = node.database.write, [None] * count

    def broken(work: Any, unit: Any) -> Any:
        result = unit(work)
        break_commit(work)
        return result

    async def failing(unit: Any) -> Any:
        if not left:
            return await write(unit)
        left.pop()
        return await write(lambda work: broken(work, unit))

    monkeypatch.setattr(node.database, "write", failing)


async def begun(node: Node, **terms: Any) -> tuple[PeerRecord, Prepare]:
    """A peer, and a packet from it for a wallet here."""
    peer, payment = await node.peer("near", **terms), await node.payment(await node.wallet())
    return peer, node.sender(payment).prepare(500)


async def stored(node: Node) -> int:
    return await node.database.read(lambda tx: number(tx, "SELECT count(*) FROM rejected_request"))


# Each rejects the packet now, for a reason that `pass_by` ends.

Case = tuple[PeerRecord, Prepare, Callable[[], Awaitable[object]]]


async def failing_commit(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    peer, prepare = await begun(node)
    break_commits(node, monkeypatch, 1)
    return peer, prepare, nothing


async def failing_read(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    near, prepare, _ = await passed_on(node, far, THANKS)

    async def read(_: object) -> Any:
        raise Unavailable("The server could not read its database")

    patch = pytest.MonkeyPatch()
    patch.setattr(node.database, "read", read)
    return near, prepare, as_step(patch.undo)


async def fault(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    peer, prepare = await begun(node)
    patch = pytest.MonkeyPatch()
    patch.setattr(node.credentials, "open", lambda _: 1 / 0)
    return peer, prepare, as_step(patch.undo)


async def too_many(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    peer, prepare = await begun(node)
    slots = node.connector._in_flight
    assert all(slots.try_take(peer.id) for _ in range(MAX_PACKETS_IN_FLIGHT))
    return peer, prepare, as_step(lambda: slots.release(peer.id))


async def too_fast(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    peer, prepare = await begun(node)
    limiter = RateLimiter(1, node.clock)
    monkeypatch.setattr(node.connector, "_rate_limiter", limiter)
    while not limiter.take(peer.id):
        pass
    return peer, prepare, as_step(lambda: node.clock.advance(5))


async def no_credit(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    peer, prepare = await begun(node, credit=0)
    return peer, prepare, lambda: node.write(lambda tx: change_peer(tx, "near", credit_limit="10.00"))


async def closed_wallet(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    peer, prepare = await begun(node)
    await node.write(lambda tx: wallets.deactivate(tx, "alice"))
    return peer, prepare, lambda: node.write(lambda tx: wallets.activate(tx, "alice"))


async def no_rate(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    peer, payment = await node.peer("near"), await node.payment(await node.wallet("erika", "EUR"))
    await node.write(lambda tx: assets.deposit_liquidity(tx, "EUR", 2, "10.00"))
    prepare = node.sender(payment, Asset("EUR", 2)).prepare(500)
    return peer, prepare, lambda: node.write(lambda tx: set_rate(tx, "USD", "EUR", "0.9"))


async def low_rate(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    peer, payment = await node.peer("near"), await node.payment(await node.wallet("erika", "EUR"))
    await node.write(lambda tx: set_rate(tx, "USD", "EUR", "0.8"))
    await node.write(lambda tx: assets.deposit_liquidity(tx, "EUR", 2, "10.00"))
    prepare = node.sender(payment, Asset("EUR", 2)).prepare(500, 450)
    return peer, prepare, lambda: node.write(lambda tx: set_rate(tx, "USD", "EUR", "0.9"))


async def no_liquidity(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    peer, payment = await node.peer("near"), await node.payment(await node.wallet("erika", "EUR"))
    await node.write(lambda tx: set_rate(tx, "USD", "EUR", "0.9"))
    prepare = node.sender(payment, Asset("EUR", 2)).prepare(500)
    return peer, prepare, lambda: node.write(lambda tx: assets.deposit_liquidity(tx, "EUR", 2, "10.00"))


async def passed_on(node: Node, far: FakePeer, *replies: Reply, url: str | None = None) -> Case:
    """A packet for the far peer, whose first answers are given and the others fulfill."""
    left = list(replies)

    async def behave(request: Request) -> bytes:
        return answered(left.pop(0) if left else THANKS, request.number)

    far.behaviour = behave
    await node.peer("far", url=url or far.url)
    return await node.peer("near"), far_prepare(node, 500, FULFILLMENT), nothing


async def rejected_further_on(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    return await passed_on(node, far, FAR_REJECT)


async def unreachable(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    near, prepare, _ = await passed_on(node, far, url="http://127.0.0.1:9/")
    return near, prepare, lambda: node.write(lambda tx: tx.execute("UPDATE peer SET url = ?", (far.url,)).rowcount)


async def no_route(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    near = await node.peer("near")
    return near, far_prepare(node, 500, FULFILLMENT), lambda: node.peer("far", url=far.url)


async def busy_link(node: Node, monkeypatch: pytest.MonkeyPatch, far: FakePeer) -> Case:
    near, prepare, _ = await passed_on(node, far)
    monkeypatch.setattr(connector, "SLOT_TIMEOUT_SECONDS", 0.01)
    onward, slots = await node.database.read(lambda tx: peers.find_peer(tx, "far")), node.connector._next_links
    assert onward is not None
    key = onward.id, near.id
    assert all(slots.try_take(*key) for _ in range(MAX_PASSED_ON_OF_PEER))
    return near, prepare, as_step(lambda: slots.release(*key))


async def nothing() -> None:
    pass


def as_step(do: Callable[[], object]) -> Callable[[], Awaitable[object]]:
    async def step() -> None:
        do()

    return step


CASES: dict[str, Any] = {
    "T00": failing_commit,
    "T00 read": failing_read,
    "T00 fault": fault,
    "T03": too_many,
    "T05": too_fast,
    "T04": no_credit,
    "F02": closed_wallet,
    "F07": no_rate,
    "F99": low_rate,
    "T04 exchange": no_liquidity,
    "T04 of the next": rejected_further_on,
    "T01": unreachable,
    "F02 route": no_route,
    "T03 link": busy_link,
}


@pytest.mark.parametrize(("wanted", "prepared"), CASES.items(), ids=CASES)
async def test_rejected_packet_stays_rejected_when_its_reason_has_passed(
    node: Node, monkeypatch: pytest.MonkeyPatch, wanted: str, prepared: Any
) -> None:
    async with FakePeer(replying(THANKS)) as far:
        peer, prepare, pass_by = await prepared(node, monkeypatch, far)
        reject = await node.send(peer, prepare, "number")
        assert code(reject) == wanted[:3]
        sent = len(far.requests)
        await pass_by()
        assert await node.send(peer, prepare, "number") == reject
        assert (await node.balance("near"), len(far.requests)) == (0, sent)
        assert isinstance(await node.send(peer, prepare, "another"), Fulfill)  # nothing else stands in its way
        assert await node.balance("near") == -500


async def test_request_id_of_a_reject_is_taken(node: Node) -> None:
    peer, prepare = await begun(node, credit=0)
    assert code(await node.send(peer, prepare, "number")) == "T04"
    assert await node.answer(peer, far_prepare(node, 5, FULFILLMENT), "number") is NoReply.REQUEST_ID_REUSED
    other = await node.peer("other")
    assert isinstance(await node.send(other, prepare, "number"), Fulfill)  # each peer has its own


async def test_reject_that_cannot_be_stored_is_not_answered(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """So the payer holds the money until the packet has expired, and asks again."""
    peer, prepare = await begun(node)
    break_commits(node, monkeypatch, 2)
    assert await node.answer(peer, prepare, "number") is NoReply.OUTCOME_UNKNOWN
    fulfilled = await node.send(peer, prepare, "number")
    assert isinstance(fulfilled, Fulfill)
    node.clock.advance(LIFETIME / SECOND)
    assert await node.send(peer, prepare, "number") == fulfilled


@pytest.mark.parametrize("at", range(4))
async def test_copies_that_come_while_the_first_is_in_progress_get_its_answer(
    node: Node, monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    """The second comes before the failing commit, before the Reject is stored, or after that."""
    peer, prepare = await begun(node)
    break_commits(node, monkeypatch, 1)
    write, copies = node.database.write, list[asyncio.Task[Reply]]()
    writes = 0

    async def counted(unit: Any) -> Any:
        nonlocal writes
        writes += 1
        if writes == at:
            copies.append(asyncio.create_task(node.send(peer, prepare, "number")))
            if at == 2:  # answered before the first has stored its Reject
                await copies[0]
        return await write(unit)

    monkeypatch.setattr(node.database, "write", counted)
    first = await node.send(peer, prepare, "number")
    answers = {first, await node.send(peer, prepare, "number"), *await asyncio.gather(*copies)}
    assert answers == {first}
    assert code(first) == ("FULFILL" if at == 2 else "T00")
    assert await node.balance("near") == (-500 if at == 2 else 0)


async def test_reject_is_on_the_disk_before_it_is_answered(node: Node, tmp_path: Path) -> None:
    peer, prepare = await begun(node, credit=0)
    reject = await node.send(peer, prepare, "number")
    await node.write(lambda tx: change_peer(tx, "near", credit_limit="10.00"))
    for suffix in ("", "-wal"):
        shutil.copy(f"{node.database.path}{suffix}", tmp_path / f"killed.db{suffix}")
    async with open_node(tmp_path / "killed.db") as again:
        assert await again.send(peer, prepare, "number") == reject
        assert isinstance(await again.send(peer, prepare, "another"), Fulfill)


async def test_reject_is_deleted_once_its_packet_has_expired(node: Node) -> None:
    """Or after ten minutes, whatever expiry a peer gives: storage is bounded by the packets of that time."""
    peer, prepare = await begun(node, credit=0)
    lasting = Prepare(5, START + 10**6 * SECOND, prepare.condition, prepare.destination, prepare.data)
    for at in range(20):
        await node.send(peer, prepare, f"short-{at}")
        await node.send(peer, lasting, f"long-{at}")
    assert await stored(node) == 40
    node.clock.advance(LIFETIME / SECOND)
    assert code(await node.send(peer, prepare, "short-0")) == "T04"
    assert code(await node.send(peer, prepare, "expired")) == Code.TRANSFER_TIMED_OUT
    assert await stored(node) == 40  # what has expired is rejected without it
    for at, left in enumerate((33, 26, 23, 24)):
        await node.send(peer, lasting, f"later-{at}")
        assert await stored(node) == left
    node.clock.advance(MAX_REJECT_SECONDS)
    for at, left in enumerate((17, 10, 3, 4)):
        await node.send(peer, lasting, f"last-{at}")
        assert await stored(node) == left


async def test_reject_without_money_or_request_id_stores_nothing(node: Node) -> None:
    peer = await node.peer("near")
    await node.send(peer, far_prepare(node, 0, FULFILLMENT), "number")
    await node.send(peer, far_prepare(node, 5, FULFILLMENT))
    assert await stored(node) == 0
