"""SQL of the server's runs: the current one, and the end of each that was killed.

A peer that sends no Request-Id cannot repeat a request. If a kill prevented the answer to a packet, the peer may
consider it undelivered, and send its money again.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.clock import DAY, SECOND
from payres.store.peers import PeerRecord
from payres.store.rows import first_row_from, number
from payres.store.work import Transaction

UNSURE: Final = 5 * SECOND  # before a kill, in which answers may have been lost
KEPT: Final = 30 * DAY  # as long as the Request-Ids of peers

# The last sign of life. Rows that commands write without a server are excluded.
_END = """
UPDATE server_run SET killed_after = max(
  coalesce((SELECT created_at FROM transfer WHERE kind IN ('payment', 'exchange') AND refund_id IS NULL
    ORDER BY id DESC LIMIT 1), 0),
  coalesce((SELECT created_at FROM event WHERE type GLOB '*_payment.*' ORDER BY sequence DESC LIMIT 1), 0),
  coalesce((SELECT checked_at FROM ledger_check), 0)
) WHERE killed_after IS NULL
"""
_TAKEN = """
SELECT t.id, t.amount, t.incoming_payment_id, w.path, p.name, t.created_at FROM transfer t
LEFT JOIN incoming_payment i ON i.id = t.incoming_payment_id LEFT JOIN wallet_address w ON w.id = i.wallet_address_id
LEFT JOIN packet k ON k.id = t.packet_id LEFT JOIN peer p ON p.id = k.to_peer_id
WHERE t.id >= ? AND t.id < ? AND t.debit_account_id = ? AND t.kind IN ('payment', 'exchange') AND NOT EXISTS
  (SELECT 1 FROM answered_request WHERE peer_id = ? AND answered_at = t.created_at)
ORDER BY t.id
"""


class TakenPacket(msgspec.Struct, frozen=True):
    """A packet from a peer, its amount on the link, and the payment and wallet that it paid, or the name of the peer
    that it was forwarded to."""

    peer: PeerRecord
    amount: int
    incoming_payment_id: str | None
    wallet: str | None
    forwarded_to: str | None
    created_at: int


def begin(tx: Transaction, token: str | None) -> bool:
    """Starts a run, with a token for `payres.store.lost_commits`. Whether the last one was killed."""
    was_killed = note_kill(tx)
    if not was_killed:
        tx.execute("INSERT INTO server_run DEFAULT VALUES")
    tx.execute("UPDATE server_run SET token = ? WHERE killed_after IS NULL", (token,))
    return was_killed


def note_kill(tx: Transaction) -> bool:
    """If the last run was killed, stores its last sign of life and starts another. Whether it was.

    Call it at the server's start, and before commands write rows that look like a sign of life.
    """
    was_killed = tx.execute(_END).rowcount > 0
    if was_killed:
        tx.execute("INSERT INTO server_run DEFAULT VALUES")
    return was_killed


def end(tx: Transaction) -> None:
    """Ends the current run cleanly."""
    tx.execute("DELETE FROM server_run WHERE killed_after IS NULL")


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
