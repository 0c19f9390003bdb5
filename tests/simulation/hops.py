"""Packets by what both ends of a hop have stored of the same packet: their expiry, and what the ends differ about."""

from typing import Final

from tests.simulation.server import Server
from tests.simulation.town import Town
from tests.simulation.world import Violation

HOP: Final = 1_000_000  # microseconds by which a packet has to expire earlier at the next server
FULFILL: Final = "0D"  # the first byte of the answer
SENT: Final = "SELECT k.id, k.expires_at FROM packet k JOIN peer p ON p.id = k.to_peer_id WHERE p.ilp_address = ?"
FORWARDED: Final = (
    "SELECT k.from_request_id, k.expires_at FROM packet k JOIN peer p ON p.id = k.from_peer_id WHERE p.ilp_address = ?"
)
FULFILLED: Final = (
    "SELECT r.request_id, r.answered_at FROM answered_request r JOIN peer p ON p.id = r.peer_id"
    f" WHERE p.ilp_address = ? AND hex(substr(r.reply, 1, 1)) = '{FULFILL}'"
)


STATES: Final = (
    "SELECT k.id, k.state, k.amount, k.outgoing_payment_id FROM packet k JOIN peer p ON p.id = k.to_peer_id"
    " WHERE p.ilp_address = ? AND k.state <> 'doubtful'"
)
LATEST: Final = 5  # packets that are named


async def in_time(town: Town) -> None:
    """A packet expires earlier at each server on its way, and its receiver takes it before it has expired."""
    for one, other in town.links:
        await _check(one, other)
        await _check(other, one)


async def differing(one: Server, other: Server) -> str:
    """The latest packets that one end counts as delivered and the other does not, in words."""
    found = [*await _differing(one, other), *await _differing(other, one)]
    return "; ".join(found[-LATEST:]) or "no packet of which both ends have a record"


async def _differing(sender: Server, receiver: Server) -> list[str]:
    sent = {row[0]: row[1:] for row in await sender.rows(STATES, f"test.{receiver.name}")}
    taken, way = await _found(receiver, FULFILLED, sender), f"from {sender.name} to {receiver.name}"
    known = {id for id, (state, *_) in sent.items() if (state == "fulfilled") != (id in taken)} | taken.keys() - sent
    return [f"packet {id} {way}: {sent.get(id, 'not known')}, taken at {taken.get(id)}" for id in sorted(known)]


async def _check(sender: Server, receiver: Server) -> None:
    sent = await _found(sender, SENT, receiver)
    forwarded, fulfilled = await _found(receiver, FORWARDED, sender), await _found(receiver, FULFILLED, sender)
    for id, expires_at in sent.items():
        if forwarded.get(id, 0) > expires_at - HOP:
            raise Violation(f"packet {id} expires at {expires_at} at {receiver.name}, and {forwarded[id]} after that")
        if id not in forwarded and fulfilled.get(id, 0) >= expires_at:
            raise Violation(f"packet {id} expired at {expires_at}, and was taken by {receiver.name} at {fulfilled[id]}")


async def _found(server: Server, sql: str, peer: Server) -> dict[str, int]:
    return dict(await server.rows(sql, f"test.{peer.name}"))
