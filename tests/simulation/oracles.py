"""What must hold in peace, whatever happened before. Each raises Violation with what it found."""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from payres.core.protocol.amounts import Asset
from payres.core.store.payments import INCOMING, OUTGOING
from payres.core.store.rows import number
from payres.core.store.work import Work
from payres.interledger.store import packets, peers
from payres.interledger.store.peers import PeerRecord
from payres.operator import invariant_checks
from tests.simulation.server import Server
from tests.simulation.town import Town
from tests.simulation.world import Violation

Oracle = Callable[[Town], Awaitable[None]]
OVERPAID: Final = 200  # one part in so many: whole packets cannot be split where currencies change
HELD: Final = "SELECT kind, id, held FROM account WHERE held <> 0"
SUMS: Final = (
    "SELECT s.code, s.scale, sum(a.balance) FROM account a JOIN asset s ON s.id = a.asset_id"
    " WHERE a.kind IN ('wallet', 'fees', 'liquidity') GROUP BY s.id"
)
SENDING: Final = "SELECT count(*) FROM outgoing_payment WHERE state = 'sending'"


async def under_way(town: Town) -> str:
    """What has still to come to an end, in words."""

    def busy(work: Work) -> str:
        payments, waiting = number(work, SENDING), len(packets.prepared_packets(work, 100))
        return f"{payments} payments and {waiting} packets" if payments or waiting else ""

    found = [f"{server.name}: {text}" for server in town.servers if (text := await server.read(busy))]
    return "; ".join(found)


async def ledgers(town: Town) -> None:
    """1. Every invariant of every file holds, and no server is in fail-stop."""
    for server in town.servers:
        broken = invariant_checks.first_broken(await server.examine(invariant_checks.check))
        if broken is not None:
            raise Violation(f"ledger of {server.name}: {broken.name}: {broken.breaches}")
        if server.context.database.stopped:
            raise Violation(f"{server.name} is in fail-stop: {server.context.database.stopped}")


async def mirrors(town: Town) -> None:
    """2. What one server owes a peer, the peer has to get, up to what is listed as unresolved."""
    for one, other in town.links:
        (here, doubt), (there, doubt_there) = await _standing(one, other), await _standing(other, one)
        if not -doubt - doubt_there <= here.balance + there.balance <= doubt + doubt_there:
            books = f"{one.name} {here.balance} (unresolved {doubt}), {other.name} {there.balance} ({doubt_there})"
            raise Violation(f"books of peers: {books}")


async def holds(town: Town) -> None:
    """3. Nothing is held when nothing is under way."""
    for server in town.servers:
        held = await server.read(lambda work: work.execute(HELD).fetchall())
        if held:
            raise Violation(f"holds of {server.name} remain: {held}")


async def money(town: Town) -> None:
    """4. Wallets, fees and liquidity of all servers are what came from outside, but for what is unresolved."""
    sums: Counter[Asset] = Counter()
    doubt = 0
    for server in town.servers:
        for code, scale, balance in await server.read(lambda work: work.execute(SUMS).fetchall()):
            sums[Asset(code, scale)] += balance
    for one, other in [*town.links, *((other, one) for one, other in town.links)]:
        doubt += (await _standing(one, other))[1]
    for asset, given in town.given.items():
        if abs(sums[asset] - given) > doubt:
            raise Violation(f"{asset.code}: {given} came from outside, {sums[asset]} are there, unresolved {doubt}")


async def payments(town: Town) -> None:
    """5. and 6. Each bill got what its payers were charged for it, and never more than it asks for."""
    charged = await _charged(town)
    unresolved = any([(await _standing(one, other))[1] for link in town.links for one, other in (link, link[::-1])])
    for bill in town.bills:
        record = await bill.wallet.server.read(lambda work, id=bill.id: INCOMING.get(work, id))  # type: ignore[misc]
        if record is None:
            raise Violation(f"{bill.url} was acknowledged and is gone")
        if bill.value is not None and record.received > bill.value + math.ceil(bill.value / OVERPAID):
            raise Violation(f"{bill.url}: asked {bill.value}, got {record.received}")
        town.world.note("bill", bill.url, record.received)
        if not unresolved and charged.get(bill.url, 0) != record.received:
            raise Violation(f"{bill.url}: delivered {charged.get(bill.url, 0)}, got {record.received}")


async def acknowledged(town: Town) -> None:
    """8. What was acknowledged is there."""
    for sent in town.sent:
        record = await sent.wallet.server.read(lambda work, id=sent.id: OUTGOING.get(work, id))  # type: ignore[misc]
        if record is None:
            raise Violation(f"the payment {sent.id} of {sent.wallet.url} was acknowledged and is gone")
        town.world.counts[f"payments {record.state}"] += 1


async def loops(town: Town) -> None:
    """10. No exception reached a loop."""
    if town.world.trouble:
        raise Violation(f"unhandled: {town.world.trouble[:3]}")


async def rows(town: Town) -> None:
    """Adds every row to the hash of the seed."""
    for server in town.servers:
        found = await server.read(lambda work: list(_rows(work)))
        town.world.note("rows", server.name, found)


ALL: Final[tuple[Oracle, ...]] = (ledgers, mirrors, holds, money, payments, acknowledged, loops, rows)


async def _standing(server: Server, other: Server) -> tuple[PeerRecord, int]:
    """A server's peer, and what is unresolved of the packets to it."""

    def find(work: Work) -> tuple[PeerRecord, int]:
        peer = next(one for one in peers.list_peers(work) if one.ilp_address == f"test.{other.name}")
        return peer, packets.count_and_sum(work, peer.id, "doubtful")[1]

    return await server.read(find)


async def _charged(town: Town) -> Counter[str]:
    """What payers have sent to each bill, in the bill's asset."""
    sums: Counter[str] = Counter()
    for server in town.servers:
        found = await server.read(
            lambda work: work.execute("SELECT receiver, delivered FROM outgoing_payment").fetchall()
        )
        for receiver, delivered in found:
            sums[receiver] += delivered
    return sums


def _rows(work: Work) -> Iterator[str]:
    tables = work.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
    for (table,) in tables:
        for row in work.execute(f'SELECT * FROM "{table}"'):
            yield f"{table} {row!r}"
