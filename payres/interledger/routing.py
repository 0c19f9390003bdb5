"""Routing: the next peer of a packet, and its amount in that peer's asset.

A packet goes to the peer whose route is the longest prefix of its destination. Addresses are compared by whole
segments, and case-sensitively (RFC 15).
"""

from collections.abc import Sequence
from math import floor

import msgspec

from payres.core.payments.quotes import unit_rate_between
from payres.core.protocol.amounts import MAX_LEDGER, Asset, convert
from payres.core.protocol.errors import NoRate
from payres.core.store.work import Work
from payres.interledger.packets import Code, PacketRejected, Prepare, too_large_data
from payres.interledger.store import peers
from payres.interledger.store.peers import PeerRecord


class Hop(msgspec.Struct, frozen=True):
    """The next hop of a packet: a peer, the token to send with, and the amount in the peer's asset, rounded down."""

    peer: PeerRecord
    token: str
    amount: int


def next_hop(work: Work, own_address: str, prepare: Prepare, source: Asset, inbound_peer_id: int | None = None) -> Hop:
    """The next hop of a packet whose amount is in `source`. Raises PacketRejected."""
    peer = next_peer(work, prepare.destination, own_address, source, inbound_peer_id)
    if peer is not None:
        onward = converted(work, prepare.amount, source, peer.asset) if prepare.amount else 0
        return Hop(peer, peers.outgoing_token(work, peer), onward)
    if inbound_peer_id is not None and covers(own_address, prepare.destination):
        raise PacketRejected(Code.UNREACHABLE if prepare.destination == own_address else Code.UNEXPECTED_PAYMENT)
    where = prepare.destination.rpartition(".")[0]  # without the last segment, the payment's long token
    raise PacketRejected(Code.UNREACHABLE, f"There is no peer with a route to {where}")


def next_peer(
    work: Work, destination: str, own_address: str, source: Asset, inbound_peer_id: int | None = None
) -> PeerRecord | None:
    """The peer with the longest route to a destination; None if there is none, or the destination is our own.

    Never the peer that sent the packet. Among peers with the same route, one in the payer's asset is preferred.
    """
    longer_than = len(own_address) if covers(own_address, destination) else 0
    prefixes = [prefix for prefix in prefixes_of(destination) if len(prefix) > longer_than]
    found = [(p, peer) for p, peer in peers.peers_towards(work, prefixes) if peer.id != inbound_peer_id]
    return min(found, key=lambda route: (-len(route[0]), route[1].asset != source, route[1].id), default=("", None))[1]


def covers(prefix: str, address: str) -> bool:
    """Whether the address equals the prefix or is below it: `g.bank` covers `g.bank.alice`, but not `g.banker`."""
    return address.startswith(prefix) and address[len(prefix) : len(prefix) + 1] in ("", ".")


def prefixes_of(address: str) -> Sequence[str]:
    """The address and every shorter prefix that covers it, down to the scheme."""
    segments = address.split(".")
    return [".".join(segments[:count]) for count in range(len(segments), 0, -1)]


def converted(work: Work, amount: int, source: Asset, target: Asset) -> int:
    """The value of `amount` of `source` in `target`, rounded down; at least 1 and at most what the ledger can move.

    Raises PacketRejected.
    """
    if source == target:
        return amount
    try:
        rate = unit_rate_between(work, source, target)
    except NoRate as error:
        code = Code.CANNOT_RECEIVE if error.details["reason"] == "no_exchange_rate" else Code.INTERNAL_ERROR
        raise PacketRejected(code, f"There is no exchange rate from {source.code} to {target.code}") from error
    result = convert(amount, rate)
    if not result:
        raise PacketRejected(Code.INSUFFICIENT_SOURCE_AMOUNT, "The amount is worth nothing in the next asset")
    if result > MAX_LEDGER:
        raise PacketRejected(Code.AMOUNT_TOO_LARGE, data=too_large_data(amount, floor(MAX_LEDGER / rate)))
    return result
