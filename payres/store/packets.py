"""SQL of packets with money that went to a peer."""

from collections.abc import Sequence

import msgspec

from payres.store.database import Transaction


class PacketRecord(msgspec.Struct, frozen=True):
    """A row of `packet`. source_amount is in the payer's asset, amount in the peer's; prepare only while under way."""

    id: str
    to_peer_id: int
    outgoing_payment_id: str | None
    from_peer_id: int | None
    from_request_id: str | None
    source_amount: int
    amount: int
    prepare: bytes | None
    expires_at: int
    state: str


COLUMNS = (
    "id, to_peer_id, outgoing_payment_id, from_peer_id, from_request_id, source_amount, amount, prepare, expires_at,"
    " state"
)


def insert_packet(tx: Transaction, packet: PacketRecord) -> None:
    tx.execute(f"INSERT INTO packet ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", msgspec.structs.astuple(packet))


def find_packet(tx: Transaction, packet_id: str) -> PacketRecord | None:
    row = tx.execute(f"SELECT {COLUMNS} FROM packet WHERE id = ?", (packet_id,)).fetchone()
    return PacketRecord(*row) if row else None


def packet_of_request(tx: Transaction, from_peer_id: int, from_request_id: str) -> PacketRecord | None:
    """The newest packet that a peer's request was passed on with."""
    row = tx.execute(
        f"SELECT {COLUMNS} FROM packet WHERE from_peer_id = ? AND from_request_id = ? ORDER BY id DESC LIMIT 1",
        (from_peer_id, from_request_id),
    ).fetchone()
    return PacketRecord(*row) if row else None


def prepared_packets(tx: Transaction, limit: int, after: str = "") -> Sequence[PacketRecord]:
    """Packets whose outcome is not known, oldest first, from the one that follows id `after`."""
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM packet WHERE state = 'prepared' AND id > ? ORDER BY id LIMIT ?", (after, limit)
    )
    return [PacketRecord(*row) for row in rows]


def packets_of_payment(tx: Transaction, outgoing_payment_id: str, state: str) -> Sequence[PacketRecord]:
    """The payment's packets in one state, oldest first."""
    rows = tx.execute(
        f"SELECT {COLUMNS} FROM packet WHERE outgoing_payment_id = ? AND state = ? ORDER BY id",
        (outgoing_payment_id, state),
    )
    return [PacketRecord(*row) for row in rows]


def under_way(tx: Transaction, outgoing_payment_id: str) -> int:
    """What the payment's packets without a known outcome would take from it, in the payer's asset."""
    row = tx.execute(
        "SELECT coalesce(sum(source_amount), 0) FROM packet WHERE outgoing_payment_id = ? AND state = 'prepared'",
        (outgoing_payment_id,),
    ).fetchone()
    total: int = row[0]
    return total


def decide_packet(tx: Transaction, packet_id: str, state: str) -> bool:
    """Ends a packet under way as fulfilled, rejected or doubtful; False when it has ended before."""
    return (
        tx.execute(
            "UPDATE packet SET state = ?, prepare = NULL WHERE id = ? AND state = 'prepared'", (state, packet_id)
        ).rowcount
        == 1
    )


def in_doubt(tx: Transaction, to_peer_id: int) -> tuple[int, int]:
    """How many of our packets a peer never answered, and what they carried together, in the peer's asset."""
    row = tx.execute(
        "SELECT count(*), coalesce(sum(amount), 0) FROM packet WHERE state = 'doubtful' AND to_peer_id = ?",
        (to_peer_id,),
    ).fetchone()
    return row[0], row[1]


def in_flight(tx: Transaction, to_peer_id: int) -> tuple[int, int]:
    """How many packets are under way to a peer, and what they carry together."""
    row = tx.execute(
        "SELECT count(*), coalesce(sum(amount), 0) FROM packet WHERE state = 'prepared' AND to_peer_id = ?",
        (to_peer_id,),
    ).fetchone()
    return row[0], row[1]
