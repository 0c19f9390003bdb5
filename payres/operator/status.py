"""How the server and its money stand: for the command, the operator's API, the overview and `/metrics`."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from payres import __version__
from payres.amounts import Asset, format_decimal
from payres.clock import DAY, SECOND, format_time, format_time_if_any
from payres.identifiers import first_identifier
from payres.operator.operations import endpoint
from payres.operator.shapes import Cell, Shape, fact, format_size, represent
from payres.store import events, peers, status, wallets
from payres.store.connections import changed_at, free_bytes, is_followed, log_bytes
from payres.store.work import Work
from payres.wire import Resource

KINDS: Final = {"wallet": "In wallets", "liquidity": "Liquidity", "fees": "Fees"}


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


@endpoint("GET /status", "status:read")
def show_status(work: Work) -> Status:
    """Read how the server and its money stand."""
    return read_status(work, is_running=True)


def read_status(work: Work, *, is_running: bool) -> Status:
    """Reads each account and each payment of the last 24 hours. Raises OSError."""
    path, found = work.settings.database, events.list_webhooks(work)
    day = status.count_payments_since(work, first_identifier(work.now - DAY))
    return Status(
        version=__version__,
        base_url=work.urls.base,
        running=is_running,
        database=path,
        database_bytes=os.stat(path).st_size,
        wal_bytes=log_bytes(path),
        free_bytes=_free_bytes(work),
        wallets=wallets.count_wallets(work),
        balances=_balances(work),
        last_day=PaymentCounts(incoming_payments=day.incoming, outgoing_payments=day.outgoing, failed=day.failed),
        sending=status.count_sending(work),
        peers=[represent(PeerStatus, one) for one in peers.list_peers(work)],
        unresolved_packets=status.count_unresolved_packets(work),
        webhooks=WebhookStatus(
            active=sum(one.active for one in found),
            disabled=sum(not one.active for one in found),
            failed=status.count_failed_deliveries(work),
            oldest_pending_at=format_time_if_any(status.oldest_pending_event(work)),
        ),
        last_backup_at=format_time_if_any(status.last_backup(work)),
        last_check_at=format_time_if_any(status.last_check(work)),
        broken_invariant=status.broken_invariant(work),
        followed_at=format_time(changed) if is_followed(path) and (changed := changed_at(path)) is not None else None,
    )


def _free_bytes(work: Work) -> int:
    return free_bytes(Path(work.settings.database).absolute().parent)


def _balances(work: Work) -> list[Balance]:
    return [
        Balance(
            kind=one.kind,
            asset_code=one.code,
            asset_scale=one.scale,
            balance=format_decimal(one.balance, Asset(one.code, one.scale)),
        )
        for one in status.ledger_sums(work)
        if one.kind in KINDS
    ]


def _server(found: Status) -> str:
    if found.followed_at is not None:
        changed = f"which Litestream last brought a change at {found.followed_at}"
        return f"payres {found.version}, a read-only standby, {changed}"
    return f"payres {found.version}, {'running' if found.running else 'not running'}"


def _ledger(found: Status) -> str:
    if found.broken_invariant is not None:
        return f"BROKEN: its invariant `{found.broken_invariant}` did not hold in the last check"
    return f"in order at {found.last_check_at}" if found.last_check_at else "not checked yet"


def _amounts(kind: str) -> Callable[[Status], str]:
    def amounts(found: Status) -> str:
        return ", ".join(f"{one.balance} {one.asset_code}" for one in found.balances if one.kind == kind) or "none"

    return amounts


def _last_day(found: Status) -> str:
    day = found.last_day
    return (
        f"{day.incoming_payments:,} incoming payments, {day.outgoing_payments:,} outgoing payments,"
        f" {day.failed:,} of them failed"
    )


def _peers(found: Status) -> Cell:
    failed = (f" ({one.last_error_at}: {one.last_error})" if one.last_error else "" for one in found.peers)
    named = ", ".join(f"{one.name}{error}" for one, error in zip(found.peers, failed, strict=True))
    return Cell(named or "none", link="/admin/peers")


def _webhooks(found: Status) -> Cell:
    return Cell(f"{found.webhooks.active} active, {found.webhooks.disabled} disabled", link="/admin/webhooks")


def _undelivered(found: Status) -> Cell:
    failed = found.webhooks.failed
    text = f"{failed:,} events: payres webhook deliveries lists them" if failed else ""
    return Cell(text, link="/admin/webhooks/deliveries")


def _unresolved(found: Status) -> Cell:
    count = found.unresolved_packets
    return Cell(f"{count:,} packets: payres peer unresolved NAME lists them" if count else "", link="/admin/peers")


STATUS: Final = Shape(
    lambda work, found: found,
    fact("Server", _server),
    fact("Base URL", "base_url"),
    fact("Database", lambda one: f"{one.database} ({format_size(one.database_bytes)})"),
    fact("Write-ahead log", lambda one: format_size(one.wal_bytes)),
    fact("Free on the disk", lambda one: format_size(one.free_bytes)),
    fact("Last backup", lambda one: one.last_backup_at or "none by payres"),
    fact("Ledger", _ledger),
    fact("Wallets", lambda one: Cell(f"{one.wallets:,}", link="/admin/wallets")),
    *(fact(label, _amounts(kind)) for kind, label in KINDS.items()),
    fact("Last 24 hours", _last_day),
    fact("Being sent", lambda one: f"{one.sending:,} payments to other servers"),
    fact("Peers", _peers),
    fact("Webhooks", _webhooks),
    fact("Not delivered", _undelivered),
    fact("Unresolved", _unresolved),
)


class Gauge(NamedTuple):
    """What the database shows now: its name and meaning in `/metrics`, and its samples by the values of its labels.

    The only sample has no labels; there is none for None.
    """

    name: str
    meaning: str
    read: Callable[[Work], Mapping[tuple[str, ...], float] | float | None]
    labels: Sequence[str] = ()


def _sums(work: Work) -> Mapping[tuple[str, ...], float]:
    return {(one.code, str(one.scale), one.kind): one.balance for one in status.ledger_sums(work)}


def _sizes(work: Work) -> Mapping[tuple[str, ...], float]:
    path = work.settings.database
    return {("database",): os.stat(path).st_size, ("wal",): log_bytes(path)}


def _seconds_since(time: int | None, now: int) -> float | None:
    return None if time is None else max(now - time, 0) / SECOND


def _checked(work: Work) -> float | None:
    checked_at = status.last_check(work)
    return None if checked_at is None else checked_at / SECOND


GAUGES: Final = (
    Gauge("payres_ledger_minor_units", "Balances, in the asset's minor unit.", _sums, ("asset", "scale", "kind")),
    Gauge(
        "payres_backup_age_seconds",
        "Since the last backup by payres.",
        lambda work: _seconds_since(status.last_backup(work), work.now),
    ),
    Gauge(
        "payres_ledger_check_timestamp_seconds",
        "When all invariants of the ledger were last found to hold.",
        _checked,
    ),
    Gauge(
        "payres_webhook_oldest_pending_seconds",
        "Since the oldest event that a webhook did not take and is sent again.",
        lambda work: _seconds_since(status.oldest_pending_event(work), work.now) or 0,
    ),
    Gauge("payres_database_bytes", "Sizes of the database's files.", _sizes, ("file",)),
    Gauge("payres_disk_free_bytes", "What the disk of the database has free.", _free_bytes),
    Gauge(
        "payres_payments_open",
        "Payments that have not ended.",
        lambda work: {("outgoing",): status.count_sending(work)},
        ("direction",),
    ),
    Gauge(
        "payres_ilp_packets_unresolved",
        "Packets whose outcome an operator has to resolve.",
        status.count_unresolved_packets,
    ),
)


def read_gauges(work: Work) -> Sequence[tuple[Gauge, Mapping[tuple[str, ...], float] | float]]:
    """Each gauge that there is, with its samples. Reads each account. Raises OSError."""
    found = [(gauge, gauge.read(work)) for gauge in GAUGES]
    return [(gauge, samples) for gauge, samples in found if samples is not None]
