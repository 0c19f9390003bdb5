"""Packets of which nobody knows whether they arrived: operators compare the books of both peers, and resolve them."""

from typing import Any

from payres.core.protocol.amounts import parse_decimal
from tests.simulation.foreign import Foreign
from tests.simulation.operators import Operator
from tests.simulation.server import Server
from tests.simulation.town import Told, Town
from tests.simulation.world import Violation

ANSWERED = "SELECT 1 FROM answered_request WHERE request_id = ?"


async def resolved(town: Town) -> None:
    """What was unresolved is resolved as the books of the peers tell."""
    for operator in town.operators:
        await operator.node.run(_resolve(operator))


async def _resolve(operator: Operator) -> None:
    foreign = [operator.town.foreign] if operator.town.foreign else []
    peers: list[Server | Foreign] = [*operator.server.neighbours, *foreign]
    for peer in peers:
        status, answer, _ = await operator.ask("GET", f"/peers/test.{peer.name}/unresolved-packets")
        if status != 200:
            raise Violation(f"{operator.server.name} does not say what is unresolved with {peer.name}: {status}")
        about = operator.server, operator.world.microseconds, "peer.packet_unresolved"
        for packet in answer["result"]:
            if (id := packet["id"]) is not None:
                operator.town.told.append(Told(*about, id, facts={"peer": f"test.{peer.name}"}))
                has_arrived = id in peer.taken if isinstance(peer, Foreign) else await peer.rows(ANSWERED, id)
                await _record(operator, peer, packet, "delivered" if has_arrived else "returned")


async def _record(operator: Operator, peer: Server | Foreign, packet: Any, outcome: str) -> None:
    town, path, asked = operator.town, f"/packets/{packet['id']}/outcome", {"outcome": outcome}
    status, _, _ = await operator.ask("PUT", path, asked)
    if status == 403:  # it is paid out of the liquidity
        asset = town.currency_of(operator.server, peer)
        amount = parse_decimal(packet["amount"], asset)
        await operator.move_at(f"/assets/{asset.code}/{asset.scale}/liquidity", asset, "deposit", amount)
        status, _, _ = await operator.ask("PUT", path, asked)
    if status != 200:
        raise Violation(f"{packet} of {operator.server.name} cannot be resolved as {outcome}: {status}")
    town.world.counts[f"packets resolved as {outcome}"] += 1
    if outcome == "delivered":
        town.resolved.add(packet["id"])
    again, _, _ = await operator.ask("PUT", path, {"outcome": "returned" if outcome == "delivered" else "delivered"})
    if again < 400:
        raise Violation(f"{packet} of {operator.server.name} was resolved as {outcome}, and then once more")
