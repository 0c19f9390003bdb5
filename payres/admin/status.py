"""How the server and its money stand: files, balances, the last 24 hours, peers, webhooks, the last backup."""

from payres import __version__
from payres.admin.representations import represent
from payres.amounts import Asset
from payres.clock import format_time_if_any
from payres.operator.status import read_last_day, read_status
from payres.store.work import Work
from payres.wire import Resource


class Balance(Resource, frozen=True, kw_only=True):
    """All accounts of a kind, `wallet`, `liquidity` or `fees`, in one asset."""

    kind: str
    asset_code: str
    asset_scale: int
    balance: str


class PaymentCounts(Resource, frozen=True, kw_only=True):
    """What was created, and how many of the outgoing payments have failed."""

    incoming_payments: int
    outgoing_payments: int
    failed: int


class PeerStatus(Resource, frozen=True, kw_only=True):
    """What last went wrong with a peer; null where nothing has."""

    name: str
    last_error: str | None
    last_error_at: str | None


class WebhookStatus(Resource, frozen=True, kw_only=True):
    """Of all webhooks: how many are `active`, and how many events are no longer sent again (`failed`)."""

    active: int
    disabled: int
    failed: int
    oldest_pending_at: str | None


class Status(Resource, frozen=True, kw_only=True):
    """Sizes are bytes; `running` is whether a server has the database; `lastBackupAt` is of those that payres made.

    `lastCheckAt` is when all invariants of the ledger were last found to hold.
    `followedAt` is when Litestream last wrote the file, where it follows another server's database into it.
    """

    version: str
    base_url: str
    running: bool
    database: str
    database_bytes: int
    wal_bytes: int
    free_bytes: int
    wallets: int
    balances: list[Balance]
    last_day: PaymentCounts
    sending: int
    peers: list[PeerStatus]
    unresolved_packets: int
    webhooks: WebhookStatus
    last_backup_at: str | None
    last_check_at: str | None
    broken_invariant: str | None
    followed_at: str | None


def show(work: Work) -> Status:
    """Read how the server and its money stand."""
    return read(work, is_running=True)


def read(work: Work, *, is_running: bool) -> Status:
    """The same; `is_running` is whether a server has the database."""
    found, day = read_status(work), read_last_day(work)
    return represent(
        Status,
        found,
        version=__version__,
        base_url=work.urls.base,
        running=is_running,
        wal_bytes=found.log_bytes,
        balances=[
            represent(Balance, one, Asset(one.code, one.scale))
            for one in found.sums
            if one.kind in {"wallet", "liquidity", "fees"}
        ],
        last_day=PaymentCounts(incoming_payments=day.incoming, outgoing_payments=day.outgoing, failed=day.failed),
        peers=[represent(PeerStatus, one) for one in found.peers],
        webhooks=WebhookStatus(
            active=sum(one.active for one in found.webhooks),
            disabled=sum(not one.active for one in found.webhooks),
            failed=found.failed_deliveries,
            oldest_pending_at=format_time_if_any(found.oldest_pending_at),
        ),
    )
