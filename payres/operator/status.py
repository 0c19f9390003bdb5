"""The status of a server, read from the database file alone."""

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from payres.clock import DAY
from payres.identifiers import first_identifier
from payres.store import events, peers, status, wallets
from payres.store.connections import changed_at, free_bytes, is_followed, log_bytes
from payres.store.events import WebhookRecord
from payres.store.peers import PeerRecord
from payres.store.status import LedgerSum, PaymentCounts
from payres.store.work import Work


class Status(msgspec.Struct, frozen=True):
    """Sizes are bytes, `sums` in minor units, times microseconds; the backups are those that payres made.

    `last_check_at` is when all invariants of the ledger were last found to hold, `broken_invariant` the first that did
    not hold in the latest check.
    """

    database: str
    database_bytes: int
    log_bytes: int
    free_bytes: int
    wallets: int
    sums: Sequence[LedgerSum]
    sending: int
    peers: Sequence[PeerRecord]
    unresolved_packets: int
    last_backup_at: int | None
    last_check_at: int | None
    broken_invariant: str | None
    webhooks: Sequence[WebhookRecord]
    failed_deliveries: int
    oldest_pending_at: int | None
    followed_at: int | None


def read_status(work: Work) -> Status:
    """Reads each account. Raises OSError."""
    path = work.settings.database
    return Status(
        database=path,
        database_bytes=os.stat(path).st_size,
        log_bytes=log_bytes(path),
        free_bytes=free_bytes(Path(path).absolute().parent),
        wallets=wallets.count_wallets(work),
        sums=status.ledger_sums(work),
        sending=status.count_sending(work),
        peers=peers.list_peers(work),
        unresolved_packets=status.count_unresolved_packets(work),
        last_backup_at=status.last_backup(work),
        last_check_at=status.last_check(work),
        broken_invariant=status.broken_invariant(work),
        webhooks=events.list_webhooks(work),
        failed_deliveries=status.count_failed_deliveries(work),
        oldest_pending_at=status.oldest_pending_event(work),
        followed_at=changed_at(path) if is_followed(path) else None,
    )


def read_last_day(work: Work) -> PaymentCounts:
    """What was created in the last 24 hours; reads each of these payments."""
    return status.count_payments_since(work, first_identifier(work.now - DAY))
