"""Packets of which nobody knows whether they arrived: operators compare the books of both peers, and resolve them."""

import math
from collections.abc import Sequence
from typing import Any

from payres.core.protocol.amounts import Asset, parse_decimal
from payres.core.store.rows import number
from tests.simulation.currencies import GRAINS, LOWEST, converted
from tests.simulation.foreign import Foreign
from tests.simulation.operators import Operator
from tests.simulation.server import Server
from tests.simulation.town import Told, Town
from tests.simulation.world import Violation


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
        found = [one for one in answer["result"] if one["id"] is not None]
        about = operator.server, operator.world.microseconds, "peer.packet_unresolved"
        operator.town.told += [Told(*about, one["id"], facts={"peer": f"test.{peer.name}"}) for one in found]
        payments: dict[tuple[str, Asset], list[Any]] = {}
        for packet in found:
            payments.setdefault(await _receiver(operator.server, packet["payment"]), []).append(packet)
        for (receiver, target), some in payments.items():
            asset = operator.town.currency_of(operator.server, peer)
            amounts = [parse_decimal(packet["amount"], asset) for packet in some]
            for packet, amount, arrived in zip(
                some, amounts, await _arrived(operator, peer, receiver, some, amounts), strict=True
            ):
                await _record(operator, packet["id"], asset, amount, "delivered" if arrived else "returned")
                if arrived and not operator.town.is_abroad(receiver):
                    arrives = converted(amount, asset, target), GRAINS[target.code]
                    operator.town.resolved.setdefault(receiver, []).append(arrives)


async def _arrived(
    operator: Operator, peer: Server | Foreign, receiver: str, some: Sequence[Any], amounts: Sequence[int]
) -> Sequence[bool]:
    """Which of the packets have arrived: by the peer's answers, or by what it has counted for the receiver."""
    if isinstance(peer, Foreign):
        return [one["id"] in peer.taken for one in some]
    if not peer.is_forgetful:
        answered = "SELECT count(*) FROM answered_request WHERE request_id = ?"
        return [await peer.read(lambda work, id=one["id"]: number(work, answered, id) > 0) for one in some]  # type: ignore[misc]
    here, payment = operator.server.name, receiver.rpartition("/")[2]
    sent = await operator.server.read(lambda work: number(work, SENT, receiver, f"test.{peer.name}"))
    difference = await peer.read(lambda work: number(work, RECEIVED, payment, f"test.{here}")) - sent
    chosen = _summing(amounts, max(difference, 0))  # less is for `mistaken`
    if chosen is None:
        raise Violation(f"{receiver}: {peer.name} counts {difference} more than {here}, unresolved are {amounts}")
    return chosen


SENT = (
    "SELECT coalesce(sum(k.amount), 0) FROM packet k JOIN outgoing_payment o ON o.id = k.outgoing_payment_id"
    " JOIN peer p ON p.id = k.to_peer_id WHERE o.receiver = ? AND p.ilp_address = ? AND k.state = 'fulfilled'"
)
RECEIVED = (
    "SELECT coalesce(sum(t.amount), 0) FROM transfer t JOIN peer p ON p.account_id = t.debit_account_id"
    " WHERE t.incoming_payment_id = ? AND p.ilp_address = ?"
)


RECEIVERS = "SELECT DISTINCT receiver FROM outgoing_payment WHERE sent > 0 AND receiver LIKE ?"
OTHERS = (
    "SELECT coalesce(sum(t.amount), 0) FROM transfer t JOIN account d ON d.id = t.debit_account_id"
    " LEFT JOIN peer p ON p.account_id = d.id WHERE t.incoming_payment_id = ? AND d.kind IN ('wallet', 'peer')"
    " AND p.ilp_address IS NOT ?"
)


async def mistaken(payer: Server, payee: Server) -> dict[str, int]:
    """By bill, what the payer's server wrongly counts as arrived: if a server repeats no answers, as much from others
    is taken for the lost packets (docs/peering.md, Unresolved packets)."""
    found = dict[str, int]()
    for (receiver,) in await payer.rows(RECEIVERS, f"{payee.base_url}/%") if payee.is_forgetful else ():
        from_payer = receiver.rpartition("/")[2], f"test.{payer.name}"
        [(sent,)] = await payer.rows(SENT, receiver, f"test.{payee.name}")
        [(received,)], [(others,)] = await payee.rows(RECEIVED, *from_payer), await payee.rows(OTHERS, *from_payer)
        if 0 < sent - received <= math.ceil(others / LOWEST):
            found[receiver] = sent - received
    return found


def _summing(amounts: Sequence[int], total: int) -> Sequence[bool] | None:
    """Which of the amounts have this sum; None if none have."""
    sums: dict[int, list[bool]] = {0: []}
    for amount in amounts:
        grown = {done: [*chosen, False] for done, chosen in sums.items()}
        for done, chosen in sums.items():
            grown.setdefault(done + amount, [*chosen, True])
        sums = grown
    return sums.get(total)


async def _receiver(server: Server, payment: str) -> tuple[str, Asset]:
    [(receiver, *asset)] = await server.rows(
        "SELECT receiver, receive_code, receive_scale FROM outgoing_payment WHERE id = ?", payment
    )
    return receiver, Asset(*asset)


async def _record(operator: Operator, packet: str, asset: Asset, amount: int, outcome: str) -> None:
    status, _, _ = await operator.ask("PUT", f"/packets/{packet}/outcome", {"outcome": outcome})
    if status == 403:  # it is paid out of the liquidity
        await operator.move_at(f"/assets/{asset.code}/{asset.scale}/liquidity", asset, "deposit", amount)
        status, _, _ = await operator.ask("PUT", f"/packets/{packet}/outcome", {"outcome": outcome})
    if status != 200:
        raise Violation(f"the packet {packet} of {operator.server.name} cannot be resolved as {outcome}: {status}")
    operator.town.world.counts[f"packets resolved as {outcome}"] += 1
    other = "returned" if outcome == "delivered" else "delivered"
    again, _, _ = await operator.ask("PUT", f"/packets/{packet}/outcome", {"outcome": other})
    if again < 400:
        raise Violation(f"the packet {packet} of {operator.server.name} was resolved as {outcome}, and then once more")
