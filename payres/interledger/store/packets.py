"""SQL of money packets: those sent to peers, and those of peers whose answers a kill may have prevented.

A peer that sends no Request-Id cannot repeat a request. If a kill prevented the answer to a packet, the peer may
consider it undelivered, and send its money again.
"""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from payres.core.protocol.clock import DAY, SECOND
from payres.core.store.rows import Table, first_row_from, number
from payres.core.store.work import Transaction
from payres.interledger.store.peers import PeerRecord

# A `doubtful` packet is unresolved: its outcome is unknown until an operator records it. The table and the operator's
# API keep the names of earlier versions, `doubtful` and `inDoubt`; elsewhere it is called unresolved.
PacketState = Literal["prepared", "fulfilled", "rejected", "doubtful"]
UNSURE: Final = 5 * SECOND  # before a kill, in which answers may have been lost
KEPT: Final = 30 * DAY  # as long as the Request-Ids of peers
_TAKEN = """
SELECT t.id, t.amount, t.incoming_payment_id, w.path, p.name, t.created_at FROM transfer t
LEFT JOIN incoming_payment i ON i.id = t.incoming_payment_id LEFT JOIN wallet_address w ON w.id = i.wallet_address_id
LEFT JOIN packet k ON k.id = t.packet_id LEFT JOIN peer p ON p.id = k.to_peer_id
WHERE t.id >= ? AND t.id < ? AND t.debit_account_id = ? AND t.kind IN ('payment', 'exchange') AND NOT EXISTS
  (SELECT 1 FROM answered_request WHERE peer_id = ? AND answered_at = t.created_at)
ORDER BY t.id
"""


class PacketRecord(msgspec.Struct, frozen=True):
    """A row of `packet`. source_amount is in the payer's asset, amount in the peer's, and minimum, which the receiver
    of our own payment demands, in the receiver's; prepare is set only in flight."""

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
    minimum: int = 0


PACKETS = Table(PacketRecord, "packet")


def prepared_packets(tx: Transaction, limit: int, after: str = "") -> Sequence[PacketRecord]:
    """Packets in flight with ids after `after`, oldest first."""
    return PACKETS.list(tx, "WHERE state = 'prepared' AND id > ? ORDER BY id LIMIT ?", after, limit)


def limit_expiry(tx: Transaction, ids: Sequence[str], latest: int) -> None:
    """Makes these packets expire at this time at the latest."""
    for one in ids:
        tx.execute("UPDATE packet SET expires_at = min(expires_at, ?) WHERE id = ?", (latest, one))


def packets_of_payment(tx: Transaction, outgoing_payment_id: str, state: PacketState) -> Sequence[PacketRecord]:
    """The payment's packets in one state, oldest first."""
    # The state is no parameter: there are partial indexes by state, so SQLite would prepare the statement each time.
    return PACKETS.list(tx, f"WHERE outgoing_payment_id = ? AND state = '{state}' ORDER BY id", outgoing_payment_id)


def newest_of_payment(tx: Transaction, outgoing_payment_id: str, limit: int) -> Sequence[tuple[PacketRecord, str]]:
    """The payment's newest packets, newest first, each with its peer's name."""
    rows = tx.execute(
        f"SELECT {PACKETS.columns}, (SELECT name FROM peer p WHERE p.id = packet.to_peer_id) FROM packet"
        " WHERE outgoing_payment_id = ? ORDER BY id DESC LIMIT ?",
        (outgoing_payment_id, limit),
    )
    return [(PACKETS.record(row[:-1]), row[-1]) for row in rows]


def in_flight_of_payment(tx: Transaction, outgoing_payment_id: str) -> int:
    """The sum of the payment's packets in flight, in the payer's asset."""
    in_flight = "SELECT sum(source_amount) FROM packet WHERE outgoing_payment_id = ? AND state = 'prepared'"
    return number(tx, in_flight, outgoing_payment_id)


def decide_packet(tx: Transaction, packet_id: str, state: PacketState, before: PacketState = "prepared") -> bool:
    """Sets the outcome of a packet that is in flight, or in the state `before`. False if it is not."""
    decided = "UPDATE packet SET state = ?, prepare = NULL WHERE id = ? AND state = ?"
    return tx.execute(decided, (state, packet_id, before)).rowcount == 1


def unresolved_packets(tx: Transaction, to_peer_id: int) -> Sequence[PacketRecord]:
    """The unresolved packets to a peer, oldest first."""
    return PACKETS.list(tx, "WHERE state = 'doubtful' AND to_peer_id = ? ORDER BY id", to_peer_id)


def count_unresolved(tx: Transaction) -> int:
    """Packets whose outcome an operator must resolve."""
    return number(tx, "SELECT count(*) FROM packet WHERE state = 'doubtful'")


def count_and_sum(tx: Transaction, to_peer_id: int, state: PacketState) -> tuple[int, int]:
    """The number of packets to a peer in one state, and their sum in the peer's asset."""
    of_peer = f"SELECT count(*), coalesce(sum(amount), 0) FROM packet WHERE state = '{state}' AND to_peer_id = ?"
    count, amount = tx.execute(of_peer, (to_peer_id,)).fetchone()
    return count, amount


def delivered_amount(tx: Transaction, outgoing_payment_id: str, to_peer_id: int) -> int:
    """The sum of the payment's fulfilled packets to a peer, in the peer's asset."""
    delivered = (
        "SELECT coalesce(sum(amount), 0) FROM packet"
        " WHERE outgoing_payment_id = ? AND state = 'fulfilled' AND to_peer_id = ?"
    )
    return number(tx, delivered, outgoing_payment_id, to_peer_id)


class TakenPacket(msgspec.Struct, frozen=True):
    """A packet from a peer, its amount on the link, and the payment and wallet that it paid, or the name of the peer
    that it was forwarded to."""

    peer: PeerRecord
    amount: int
    incoming_payment_id: str | None
    wallet: str | None
    forwarded_to: str | None
    created_at: int


def unsure_packets(tx: Transaction, peer: PeerRecord, now: int) -> Sequence[TakenPacket]:
    """Packets of the peer without a Request-Id that were accepted just before a kill, oldest first."""
    killed = tx.execute("SELECT killed_after FROM server_run WHERE killed_after > ? ORDER BY id", (now - KEPT,))
    found: dict[int, TakenPacket] = {}  # by transfer id: the periods of runs may overlap
    for (moment,) in killed.fetchall():
        first, beyond = (first_row_from(tx, "transfer", "id", at) for at in (moment - UNSURE, moment + 1))
        rows = tx.execute(_TAKEN, (first, beyond, peer.account_id, peer.id))
        found |= {transfer_id: TakenPacket(peer, *row) for transfer_id, *row in rows.fetchall()}
    return [*found.values()]


def received_amount(tx: Transaction, peer: PeerRecord, incoming_payment_id: str) -> int:
    """The sum of the packets from the peer that an incoming payment has received, in the peer's asset."""
    received = "SELECT coalesce(sum(amount), 0) FROM transfer WHERE incoming_payment_id = ? AND debit_account_id = ?"
    return number(tx, received, incoming_payment_id, peer.account_id)
