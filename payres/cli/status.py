"""`payres status`: what an operator looks at first, on one screen."""

from collections.abc import Sequence

import click

from payres.admin.status import Balance, PeerStatus, Status, read
from payres.cli.commands import Command
from payres.cli.session import labelled, reads
from payres.encoding import format_size
from payres.store.connections import is_served
from payres.store.work import Work


def _ledger(found: Status) -> str:
    if found.broken_invariant is not None:
        return f"BROKEN: its invariant `{found.broken_invariant}` did not hold in the last check"
    return f"in order at {found.last_check_at}" if found.last_check_at else "not checked yet"


def _text(found: Status) -> str:
    day, webhooks = found.last_day, found.webhooks
    database, log, free = map(format_size, (found.database_bytes, found.wal_bytes, found.free_bytes))
    rows: list[tuple[str, object]] = [
        ("Server", f"payres {found.version}, {_state(found)}"),
        ("Base URL", found.base_url),
        ("Database", f"{found.database} ({database}, write-ahead log {log}, {free} free on the disk)"),
        ("Last backup", found.last_backup_at or "none by payres"),
        ("Ledger", _ledger(found)),
        ("Wallets", found.wallets),
        *(
            (label, _amounts(found.balances, kind))
            for label, kind in (("In wallets", "wallet"), ("Liquidity", "liquidity"), ("Fees", "fees"))
        ),
        (
            "Last 24 hours",
            f"{day.incoming_payments} incoming payments, {day.outgoing_payments} outgoing payments,"
            f" {day.failed} of them failed",
        ),
        ("Being sent", f"{found.sending} payments to other servers"),
        ("Peers", ", ".join(map(_peer, found.peers)) or "none"),
        ("Webhooks", f"{webhooks.active} active, {webhooks.disabled} disabled"),
    ]
    if webhooks.failed:
        rows.append(("Not delivered", f"{webhooks.failed} events: `payres webhook deliveries` lists them"))
    if found.unresolved_packets:
        rows.append(("Unresolved", f"{found.unresolved_packets} packets: `payres peer unresolved NAME` lists them"))
    return labelled(*rows)


def _state(found: Status) -> str:
    if found.followed_at is not None:
        return f"a read-only standby, which Litestream last brought a change at {found.followed_at}"
    return "running" if found.running else "not running"


def _amounts(balances: Sequence[Balance], kind: str) -> str:
    return ", ".join(f"{one.balance} {one.asset_code}" for one in balances if one.kind == kind) or "none"


def _peer(peer: PeerStatus) -> str:
    return peer.name if peer.last_error is None else f"{peer.name} ({peer.last_error_at}: {peer.last_error})"


@click.command(cls=Command, example="payres status")
@reads(_text)
def status(work: Work) -> Status:
    """It reads the database, and says whether a server has it; it asks no server.

    Balances are those of all wallets, of the liquidity and of the collected fees, by asset. `payres doctor` looks for
    what is wrong.
    """
    return read(work, is_running=is_served(work.settings.database))
