"""Interledger peers, what was settled with them, and unresolved packets."""

from functools import partial

from msgspec.structs import asdict

from payres.admin import representations
from payres.admin.requests import NewMovement, NewOutcome
from payres.admin.wire import Peer, ResolvedPacket, UnresolvedPacket
from payres.operator import peers, unresolved_packets
from payres.operator.movements import Movement, movement
from payres.operator.operations import List
from payres.operator.peers import NewPeer, PeerChange
from payres.representations import page_of
from payres.store.entries import page_of_movements
from payres.store.peers import list_peers
from payres.store.rows import PageQuery
from payres.store.work import Work
from payres.wire import Page


def list_all(work: Work) -> List[Peer]:
    """List all peers with who owes whom."""
    return List(result=[representations.peer(work, record) for record in list_peers(work)])


def add(work: Work, body: NewPeer) -> Peer:
    """Add a peer. It holds for the next packet."""
    return representations.peer(work, peers.add_peer(work, body))


def show(work: Work, name: str) -> Peer:
    """Read a peer: who owes whom, its routes, its limits."""
    return representations.peer(work, peers.require_peer(work, name))


def change(work: Work, name: str, body: PeerChange) -> Peer:
    """Change what was agreed with a peer. It holds for the next packet."""
    return representations.peer(work, peers.change_peer(work, name, body))


def remove(work: Work, name: str) -> Peer:
    """End the peering with a peer, which must be settled."""
    return representations.peer(work, peers.remove_peer(work, name))


def list_settlements(work: Work, name: str, page: PageQuery) -> Page[Movement]:
    """List what was settled with a peer."""
    peer = peers.require_peer(work, name)
    records = page_of_movements(work, peer.account_id, page)
    return page_of(records, partial(movement, work))


def deposit(work: Work, name: str, body: NewMovement) -> Movement:
    """Record what the peer paid us outside of payres."""
    return movement(work, peers.deposit(work, name, body.amount, body.reference))


def withdraw(work: Work, name: str, body: NewMovement) -> Movement:
    """Record what we paid the peer outside of payres."""
    return movement(work, peers.withdraw(work, name, body.amount, body.reference))


def list_unresolved(work: Work, name: str) -> List[UnresolvedPacket]:
    """List the unresolved packets to a peer."""
    return List(result=list(map(representations.unresolved_packet, unresolved_packets.list_unresolved(work, name))))


def resolve(work: Work, id: str, body: NewOutcome) -> ResolvedPacket:
    """Record what became of an unresolved packet."""
    resolved = unresolved_packets.resolve(work, id, delivered=body.outcome == "delivered")
    return ResolvedPacket(**asdict(representations.unresolved_packet(resolved)), outcome=body.outcome)
