"""SQL of the server's runs: the one that lasts, and the end of each that did not end in order, as after a kill.

A peer that sends no Request-Id cannot repeat a request. If it got no answer to a packet that was taken just before such
an end, it may count the packet as not delivered, and send its money again.
"""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.clock import DAY, SECOND
from payres.store.peers import PeerRecord
from payres.store.rows import first_row_from
from payres.store.work import Transaction

UNSURE: Final = 5 * SECOND  # before the end, in which what was answered may not have arrived
KEPT: Final = 30 * DAY  # no longer, since the Request-Ids of peers are not known any longer

# The last sign of life, whichever of these it was; without what commands write also when no server runs.
_END = """
UPDATE server_run SET killed_after = max(
  coalesce((SELECT created_at FROM transfer WHERE kind IN ('payment', 'exchange') AND refund_id IS NULL
    ORDER BY id DESC LIMIT 1), 0),
  coalesce((SELECT created_at FROM event WHERE type GLOB '*_payment.*' ORDER BY sequence DESC LIMIT 1), 0),
  coalesce((SELECT checked_at FROM ledger_check), 0)
) WHERE killed_after IS NULL
"""
_TAKEN = """
SELECT t.id, t.amount, t.incoming_payment_id, w.path, t.created_at FROM transfer t
LEFT JOIN incoming_payment i ON i.id = t.incoming_payment_id LEFT JOIN wallet_address w ON w.id = i.wallet_address_id
WHERE t.id >= ? AND t.id < ? AND t.debit_account_id = ? AND t.kind IN ('payment', 'exchange') AND NOT EXISTS
  (SELECT 1 FROM answered_request WHERE peer_id = ? AND answered_at = t.created_at)
ORDER BY t.id
"""


class TakenPacket(msgspec.Struct, frozen=True):
    """A packet that came from a peer, with its amount on the link, and whom it paid unless it was passed on."""

    peer: PeerRecord
    amount: int
    incoming_payment_id: str | None
    wallet: str | None
    created_at: int


def begin(tx: Transaction) -> bool:
    """A run begins; whether the last one did not end in order."""
    was_killed = note_kill(tx)
    if not was_killed:
        tx.execute("INSERT INTO server_run DEFAULT VALUES")
    return was_killed


def note_kill(tx: Transaction) -> bool:
    """Notes the last sign of life of a run that did not end in order, and begins another; whether there was one.

    Besides at a start of the server, before something else than the server writes what would be taken for such a sign.
    """
    was_killed = tx.execute(_END).rowcount > 0
    if was_killed:
        tx.execute("INSERT INTO server_run DEFAULT VALUES")
    return was_killed


def end(tx: Transaction) -> None:
    """The run that lasts ends in order."""
    tx.execute("DELETE FROM server_run WHERE killed_after IS NULL")


def unsure_packets(tx: Transaction, peer: PeerRecord, now: int) -> Sequence[TakenPacket]:
    """Packets of the peer without a Request-Id that were taken just before a run did not end in order, oldest first."""
    killed = tx.execute("SELECT killed_after FROM server_run WHERE killed_after > ? ORDER BY id", (now - KEPT,))
    found: dict[int, TakenPacket] = {}  # by transfer: runs may have ended within seconds, or done nothing
    for (moment,) in killed.fetchall():
        first, beyond = (first_row_from(tx, "transfer", "id", at) for at in (moment - UNSURE, moment + 1))
        rows = tx.execute(_TAKEN, (first, beyond, peer.account_id, peer.id))
        found |= {transfer_id: TakenPacket(peer, *row) for transfer_id, *row in rows.fetchall()}
    return [*found.values()]
