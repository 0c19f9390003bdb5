"""Peers in the databases to measure on, in the one asset that the wallets there have."""

from pathlib import Path

import msgspec

from payres.operator import peers
from payres.operator.peer_terms import NewPeer
from payres.settings import Settings
from payres.store.connections import connect_writer
from payres.store.work import Environment, Work

CREDIT_LIMIT = "10000000000000.00"


class Node(msgspec.Struct, frozen=True):
    """A server as its peers see it. `token` is what it shows them."""

    database: Path
    ilp_address: str
    url: str
    token: str


def add_peer(node: Node, peer: Node) -> None:
    """Puts `peer` in force at `node`, which must not be running."""
    new = NewPeer(
        name=peer.ilp_address,
        ilp_address=peer.ilp_address,
        asset_code="USD",
        asset_scale=2,
        url=peer.url,
        outgoing_token=node.token,
        incoming_token=peer.token,
        credit_limit=CREDIT_LIMIT,
    )
    connection = connect_writer(str(node.database))
    try:
        connection.execute("BEGIN")
        peers.add_peer(Work(connection, Environment.of(Settings(ilp_address=node.ilp_address))), new)
        connection.execute("COMMIT")
    finally:
        connection.close()
