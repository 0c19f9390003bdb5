"""The next hop of a packet: the peer that its destination is reached through, and what it carries there."""

import msgspec

from payres.amounts import Asset
from payres.interledger.conversion import converted
from payres.interledger.declined import Declined
from payres.interledger.packets import Code
from payres.interledger.routing import next_peer
from payres.store import assets, peers
from payres.store.database import Transaction
from payres.store.peers import PeerRecord


class Hop(msgspec.Struct, frozen=True):
    """A peer, the token to send with, and the packet's amount in the peer's asset, rounded down."""

    peer: PeerRecord
    token: str
    amount: int


def next_hop(
    tx: Transaction,
    own_address: str,
    destination: str,
    amount: int,
    source: Asset,
    now: int,
    inbound_peer_id: int | None = None,
) -> Hop:
    """Where a packet of `amount` in `source` goes, never back to the peer it came from. Raises Declined."""
    peer = peer_towards(tx, own_address, destination, source, inbound_peer_id)
    onward = converted(tx, amount, source, peer.asset, now) if amount else 0
    return Hop(peer, peers.outgoing_token(tx, peer), onward)


def peer_towards(
    tx: Transaction, own_address: str, destination: str, source: Asset, inbound_peer_id: int | None = None
) -> PeerRecord:
    """The peer alone of the next hop. Raises Declined."""
    known = assets.find_asset(tx, source.code, source.scale)
    peer = next_peer(tx, destination, own_address, known.id if known else 0, inbound_peer_id)
    if peer is None:
        where = destination.rpartition(".")[0]  # the last segment says which payment, and that is long
        raise Declined(Code.UNREACHABLE, f"There is no peer with a route to {where}")
    return peer
