"""Routing: which peer a packet goes to, by the longest prefix of its destination that a peer has a route for."""

from collections.abc import Sequence

from payres.interledger.addresses import covers
from payres.store import peers
from payres.store.peers import PeerRecord
from payres.store.work import Work


def next_peer(
    tx: Work, destination: str, own_address: str, asset_id: int, inbound_peer_id: int | None = None
) -> PeerRecord | None:
    """The peer towards a destination; None when there is none, or when the destination is our own.

    Never the peer that the packet came from. Among peers with the same prefix, one in the payer's asset goes first.
    """
    longer_than = len(own_address) if covers(own_address, destination) else 0
    prefixes = [prefix for prefix in prefixes_of(destination) if len(prefix) > longer_than]
    found = [(p, peer) for p, peer in peers.peers_towards(tx, prefixes) if peer.id != inbound_peer_id]
    if not found:
        return None
    return min(found, key=lambda route: (-len(route[0]), route[1].asset_id != asset_id, route[1].id))[1]


def prefixes_of(address: str) -> Sequence[str]:
    """The address and every shorter one that covers it, down to the scheme alone."""
    segments = address.split(".")
    return [".".join(segments[:count]) for count in range(len(segments), 0, -1)]
