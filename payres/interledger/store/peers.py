"""SQL of Interledger peers and their routes."""

from collections.abc import Sequence

import msgspec

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY
from payres.core.protocol.visible import visible_line
from payres.core.store import server_secrets
from payres.core.store.retention import Rule
from payres.core.store.rows import Rows, Table, find_number, insert_row, number
from payres.core.store.work import Transaction

TOKENS_SECRET = "peer_tokens"  # noqa: S105 - the name of the secret that encrypts outgoing tokens


class InboundPeer(msgspec.Struct, frozen=True):
    """The part of an active peer that handling its packets needs."""

    id: int
    name: str
    account_id: int
    asset_id: int
    asset_code: str
    asset_scale: int
    ilp_address: str
    max_packet: int | None

    @property
    def asset(self) -> Asset:
        return Asset(self.asset_code, self.asset_scale)


class PeerRecord(InboundPeer, frozen=True):
    """An active peer with its asset and account. outgoing_token is encrypted, incoming_token_hash its
    SHA-256; floor is minus its credit limit.

    balance is what we owe the peer, or if negative, what it owes us; amounts are in the asset's minor unit.
    repeats_answers is 1 if the peer answers a repeated request as it did at first.
    """

    url: str
    outgoing_token: bytes
    incoming_token_hash: bytes
    packets_received: int
    packets_sent: int
    last_error: str | None
    last_error_at: int | None
    created_at: int
    balance: int
    held: int
    floor: int
    repeats_answers: int
    note: str | None


_SOURCE = "peer p JOIN account a ON a.id = p.account_id JOIN asset s ON s.id = a.asset_id"
_ASSET = {"asset_id": "a.asset_id", "asset_code": "s.code", "asset_scale": "s.scale"}
INBOUND = Table(InboundPeer, _SOURCE, prefix="p.", **_ASSET)
PEERS = Table(PeerRecord, _SOURCE, prefix="p.", balance="a.balance", held="a.held", floor="a.floor", **_ASSET)
ACTIVE = "p.removed_at IS NULL"
ROUTE_TABLE = Rows("peer_route")
ANSWERS = Rule("answered_request", "answered_at", "peer_id, request_id", after=30 * DAY, at_once=32)
REJECTS = Rule("rejected_request", "purge_at", "peer_id, request_id")
_FIND_REQUEST = """
SELECT condition, reply FROM answered_request WHERE peer_id = :peer AND request_id = :request UNION ALL
SELECT NULL, prepare FROM packet WHERE from_peer_id = :peer AND from_request_id = :request AND prepare IS NOT NULL
UNION ALL
SELECT condition, reply FROM rejected_request WHERE peer_id = :peer AND request_id = :request
"""


def add_route(tx: Transaction, peer_id: int, prefix: str) -> None:
    tx.execute("INSERT INTO peer_route (prefix, peer_id) VALUES (?, ?) ON CONFLICT DO NOTHING", (prefix, peer_id))


def routes_of_peer(tx: Transaction, peer_id: int) -> Sequence[str]:
    rows = tx.execute("SELECT prefix FROM peer_route WHERE peer_id = ? ORDER BY prefix", (peer_id,))
    return [row[0] for row in rows]


def peers_towards(tx: Transaction, prefixes: Sequence[str]) -> Sequence[tuple[str, PeerRecord]]:
    """The routes with exactly these prefixes, each with its active peer."""
    marks = ", ".join("?" * len(prefixes))
    rows = tx.execute(
        f"SELECT r.prefix, {PEERS.columns} FROM {PEERS.source} JOIN peer_route r ON r.peer_id = p.id"
        f" WHERE r.prefix IN ({marks}) AND {ACTIVE}",
        prefixes,
    )
    return [(prefix, PEERS.record(row)) for prefix, *row in rows]


def find_peer(tx: Transaction, name: str) -> PeerRecord | None:
    return PEERS.find(tx, f"WHERE p.name = ? AND {ACTIVE}", name)


def peer_by_id(tx: Transaction, peer_id: int) -> PeerRecord | None:
    """The peer, if it is active."""
    return PEERS.find(tx, f"WHERE p.id = ? AND {ACTIVE}", peer_id)


def peer_by_token(tx: Transaction, token_hash: bytes) -> InboundPeer | None:
    return INBOUND.find(tx, f"WHERE p.incoming_token_hash = ? AND {ACTIVE}", token_hash)


def account_of_peer(tx: Transaction, peer_id: int) -> int:
    """The ledger account of a peer, active or removed."""
    return number(tx, "SELECT account_id FROM peer WHERE id = ?", peer_id)


def peer_with_account(tx: Transaction, account_id: int) -> PeerRecord | None:
    return PEERS.find(tx, f"WHERE p.account_id = ? AND {ACTIVE}", account_id)


def list_peers(tx: Transaction) -> Sequence[PeerRecord]:
    return PEERS.list(tx, f"WHERE {ACTIVE} ORDER BY p.name")


def count_received(tx: Transaction, peer_id: int) -> bool:
    """Counts a fulfilled packet from the peer. False, with nothing counted, if the peer was removed."""
    counted = "UPDATE peer SET packets_received = packets_received + 1 WHERE id = ? AND removed_at IS NULL"
    return tx.execute(counted, (peer_id,)).rowcount == 1


def count_sent(tx: Transaction, peer_id: int) -> None:
    """Counts a packet fulfilled by the peer."""
    tx.execute("UPDATE peer SET packets_sent = packets_sent + 1 WHERE id = ?", (peer_id,))


def note_error(tx: Transaction, peer_id: int, error: str, now: int) -> None:
    """Stores the peer's last error, in words without secrets."""
    PEERS.update(tx, peer_id, last_error=visible_line(error), last_error_at=now)


def forget_error(tx: Transaction, peer_id: int, error: str) -> None:
    """Forgets the peer's last error if it is this one."""
    forgotten = "UPDATE peer SET last_error = NULL, last_error_at = NULL WHERE id = ? AND last_error = ?"
    tx.execute(forgotten, (peer_id, error))


def set_repeats_answers(tx: Transaction, peer_id: int, repeats: bool) -> None:
    PEERS.update(tx, peer_id, repeats_answers=repeats)


def outgoing_token(tx: Transaction, peer: PeerRecord) -> str:
    """The decrypted token that we send to the peer."""
    return server_secrets.decrypt(tx, TOKENS_SECRET, peer.outgoing_token)


def find_request(tx: Transaction, peer_id: int, request_id: str) -> tuple[bytes | None, bytes] | None:
    """The condition and reply of an answered request; None and the Prepare of a forwarded one without an outcome."""
    row = tx.execute(_FIND_REQUEST, {"peer": peer_id, "request": request_id}).fetchone()
    return (row[0], row[1]) if row else None


def take_over(tx: Transaction, peer_id: int, ilp_address: str, asset_id: int) -> None:
    """Gives a peer what was known of it before it was removed: the answers that it got, since it may repeat a request
    of then, and whether it repeats its own."""
    earlier = (
        "FROM peer p JOIN account a ON a.id = p.account_id"
        " WHERE p.removed_at NOTNULL AND p.ilp_address = ? AND a.asset_id = ?"
    )
    last = find_number(tx, f"SELECT max(p.id) {earlier}", ilp_address, asset_id)
    if last is not None:
        set_repeats_answers(tx, peer_id, bool(PEERS.by_id(tx, last).repeats_answers))
    for table in (ANSWERS.table, REJECTS.table):
        moved = f"UPDATE OR IGNORE {table} SET peer_id = ? WHERE peer_id IN (SELECT p.id {earlier})"
        tx.execute(moved, (peer_id, ilp_address, asset_id))


def insert_reply(
    tx: Transaction, kept: Rule, peer_id: int, request_id: str, condition: bytes, reply: bytes, at: int
) -> None:
    """Keeps the reply to a request in the table of ANSWERS or REJECTS, with its time there."""
    columns = {"peer_id": peer_id, "request_id": request_id, "condition": condition, "reply": reply, kept.time: at}
    insert_row(tx, kept.table, **columns)
