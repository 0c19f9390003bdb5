"""`payres status`: what an operator looks at first, on one screen."""

from typing import Any

import click

from payres import __version__
from payres.amounts import Asset, format_decimal
from payres.cli.session import Session, labelled, with_session
from payres.clock import format_time
from payres.operator.status import Status, read_last_day, read_status
from payres.store.database_file import is_served
from payres.store.peers import PeerRecord
from payres.store.status import LedgerSum, PaymentCounts

MEBIBYTE = 1024 * 1024


@click.command()
@with_session
def status(session: Session) -> None:
    """It reads the database, and says whether a server has it; it asks no server.

    Balances are those of all wallets, of the liquidity and of the collected fees, by asset. `payres doctor` looks for
    what is wrong.

    \b
    Example: payres status
    """
    found, day = session.read(lambda work: (read_status(work), read_last_day(work)))
    resource = _describe(session, found, day)
    session.show(resource, _text(resource, found))


def _describe(session: Session, found: Status, day: PaymentCounts) -> dict[str, Any]:
    return {
        "version": __version__,
        "baseUrl": session.settings.base_url,
        "running": is_served(found.database),
        "database": found.database,
        "databaseBytes": found.database_bytes,
        "walBytes": found.log_bytes,
        "freeBytes": found.free_bytes,
        "wallets": found.wallets,
        "balances": [_balance(one) for one in found.sums if one.kind in {"wallet", "liquidity", "fees"}],
        "lastDay": {
            "incomingPayments": day.incoming,
            "outgoingPayments": day.outgoing,
            "failed": day.failed,
        },
        "sending": found.sending,
        "peers": [_peer(peer) for peer in found.peers],
        "unresolvedPackets": found.unresolved_packets,
    }


def _balance(one: LedgerSum) -> dict[str, Any]:
    return {
        "assetCode": one.code,
        "assetScale": one.scale,
        "kind": one.kind,
        "balance": format_decimal(one.balance, Asset(one.code, one.scale)),
    }


def _peer(peer: PeerRecord) -> dict[str, Any]:
    last_error = None if peer.last_error_at is None else format_time(peer.last_error_at)
    return {"name": peer.name, "lastError": peer.last_error, "lastErrorAt": last_error}


def _text(resource: dict[str, Any], found: Status) -> str:
    day = resource["lastDay"]
    sizes = (
        f"{_size(found.database_bytes)}, write-ahead log {_size(found.log_bytes)}, {_size(found.free_bytes)} free on"
        " the disk"
    )
    rows: list[tuple[str, object]] = [
        ("Server", f"payres {__version__}, {'running' if resource['running'] else 'not running'}"),
        ("Base URL", resource["baseUrl"]),
        ("Database", f"{found.database} ({sizes})"),
        ("Wallets", found.wallets),
        *(
            (label, _amounts(resource["balances"], kind))
            for label, kind in (("In wallets", "wallet"), ("Liquidity", "liquidity"), ("Fees", "fees"))
        ),
        (
            "Last 24 hours",
            f"{day['incomingPayments']} incoming payments, {day['outgoingPayments']} outgoing payments,"
            f" {day['failed']} of them failed",
        ),
        ("Being sent", f"{found.sending} payments to other servers"),
        ("Peers", ", ".join(map(_peer_text, resource["peers"])) or "none"),
    ]
    if found.unresolved_packets:
        rows.append(("Unresolved", f"{found.unresolved_packets} packets: `payres peer doubts NAME` lists them"))
    return labelled(*rows)


def _amounts(balances: list[dict[str, Any]], kind: str) -> str:
    return ", ".join(f"{one['balance']} {one['assetCode']}" for one in balances if one["kind"] == kind) or "none"


def _peer_text(peer: dict[str, Any]) -> str:
    return peer["name"] if peer["lastError"] is None else f"{peer['name']} ({peer['lastErrorAt']}: {peer['lastError']})"


def _size(count: int) -> str:
    return f"{count / MEBIBYTE:,.1f} MiB"
