"""The state of the server and its money: for the command, the operator's API and the overview."""

import os
from functools import partial
from pathlib import Path
from typing import Final

from payres import __version__
from payres.accounts.store import mail
from payres.core.protocol.amounts import Asset, format_decimal
from payres.core.protocol.clock import DAY, format_time_if_any
from payres.core.protocol.identifiers import first_identifier
from payres.core.protocol.wire import Resource
from payres.core.store import wallets
from payres.core.store.connections import changed_at, free_bytes, is_followed, log_bytes
from payres.core.store.work import Work
from payres.interledger.store import packets, peers
from payres.operator.declared.declarations import operation
from payres.operator.declared.shapes import Cell, Shape, Time, fact, format_size, represent
from payres.operator.store import backups, invariants, status
from payres.operator.store.status import PaymentCounts
from payres.webhooks.store import webhooks

KINDS: Final = {"wallet": "In wallets", "liquidity": "Liquidity", "fees": "Fees"}


class Balance(Resource, frozen=True, kw_only=True):
    """All `accounts` of a kind, `wallet`, `liquidity` or `fees`, in one asset."""

    kind: str
    asset_code: str
    asset_scale: int
    accounts: int
    balance: str


class PeerStatus(Resource, frozen=True, kw_only=True):
    """The last error of a peer; null if there is none."""

    name: str
    last_error: str | None
    last_error_at: Time | None


class WebhookStatus(Resource, frozen=True, kw_only=True):
    """Your webhooks, not those of wallets' owners: how many are `active`, `paused` or `disabled`, and how many
    deliveries have `failed` for good."""

    active: int
    paused: int
    disabled: int
    failed: int
    oldest_pending_at: Time | None


class Status(Resource, frozen=True, kw_only=True):
    """Sizes are in bytes; `running` is whether a server runs on the database; `lastBackupAt` is of backups by payres.

    `lastCheckAt` is when all invariants of the ledger were last found to hold. `followedAt` is when Litestream last
    wrote the file, if it follows another server's database.
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
    waiting_mails: int
    last_backup_at: Time | None
    last_check_at: Time | None
    broken_invariant: str | None
    followed_at: Time | None


@operation("GET /status status:read")
def show_status(work: Work) -> Status:
    """Read the state of the server and its money."""
    return read_status(work, is_running=True)


def read_status(work: Work, *, is_running: bool) -> Status:
    """Reads each account and each payment of the last 24 hours. Raises OSError."""
    path, states = work.settings.database, [one.state for one in webhooks.webhooks_of(work, None)]
    return Status(
        version=__version__,
        base_url=work.urls.base,
        running=is_running,
        database=path,
        database_bytes=os.stat(path).st_size,
        wal_bytes=log_bytes(path),
        free_bytes=free_bytes(Path(path).absolute().parent),
        wallets=wallets.count_wallets(work),
        balances=[
            represent(Balance, one, balance=format_decimal(one.balance, Asset(one.asset_code, one.asset_scale)))
            for one in status.ledger_sums(work)
            if one.kind in KINDS
        ],
        last_day=status.count_payments_since(work, first_identifier(work.now - DAY)),
        sending=status.count_sending(work),
        peers=[represent(PeerStatus, one) for one in peers.list_peers(work)],
        unresolved_packets=packets.count_unresolved(work),
        webhooks=WebhookStatus(
            active=states.count("active"),
            paused=states.count("paused"),
            disabled=states.count("disabled"),
            failed=webhooks.count_failed_deliveries(work),
            oldest_pending_at=format_time_if_any(webhooks.oldest_pending_event(work)),
        ),
        waiting_mails=mail.waiting(work, work.now)[0],
        last_backup_at=format_time_if_any(backups.last_backup(work, work.now)),
        last_check_at=format_time_if_any(invariants.last_check(work)),
        broken_invariant=invariants.broken_invariant(work),
        followed_at=format_time_if_any(changed_at(path)) if is_followed(path) else None,
    )


def _server(found: Status) -> str:
    if found.followed_at is not None:
        changed = f"which Litestream last brought a change at {found.followed_at}"
        return f"payres {found.version}, a read-only standby, {changed}"
    return f"payres {found.version}, {'running' if found.running else 'not running'}"


def _ledger(found: Status) -> str:
    if found.broken_invariant is not None:
        return f"BROKEN: its invariant `{found.broken_invariant}` did not hold in the last check"
    return f"in order at {found.last_check_at}" if found.last_check_at else "not checked yet"


def _amounts(found: Status, kind: str) -> str:
    return ", ".join(f"{one.asset_code} {one.balance}" for one in found.balances if one.kind == kind) or "none"


def _last_day(found: Status) -> str:
    day = found.last_day
    failed = f", of which {day.failed:,} failed" if day.failed else ""
    return f"{_counted(day.incoming_payments, 'incoming')}; {_counted(day.outgoing_payments, 'outgoing')}{failed}"


def _counted(count: int, direction: str) -> str:
    return f"{count:,} {direction} payment{'' if count == 1 else 's'}"


def _peers(found: Status) -> Cell:
    errors = {one.name: f" ({one.last_error_at}: {one.last_error})" if one.last_error else "" for one in found.peers}
    return Cell(", ".join(map("".join, errors.items())) or "none", link="/admin/peers")


def _webhooks(found: Status) -> Cell:
    counts = found.webhooks
    paused = f", {counts.paused} paused" if counts.paused else ""
    return Cell(f"{counts.active} active{paused}, {counts.disabled} disabled", link="/admin/webhooks")


def _waiting(count: int, words: str) -> str:
    """A count that needs the operator's attention; empty if it is zero."""
    return f"{count:,} {words}" if count else ""


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
    *(fact(label, partial(_amounts, kind=kind)) for kind, label in KINDS.items()),
    fact("Last 24 hours", _last_day),
    fact("Being sent", lambda one: f"{one.sending:,} payments to other servers"),
    fact("Peers", _peers),
    fact("Webhooks", _webhooks),
    fact("Not delivered", lambda one: _waiting(one.webhooks.failed, "events: payres webhook deliveries lists them")),
    fact("Mail", lambda one: _waiting(one.waiting_mails, "waiting: payres doctor says why")),
    fact("Unresolved", lambda one: _waiting(one.unresolved_packets, "packets: payres peer unresolved NAME lists them")),
)
