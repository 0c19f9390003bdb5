"""SQL of the apps that a wallet's owner has decided about."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from payres.core.store.grants import Decider, GrantRecord
from payres.core.store.rows import Table, find_number, number
from payres.core.store.work import Transaction


class DecidedRecord(GrantRecord, frozen=True):
    """A decided grant, with its client and its total spending."""

    decided_at: int = 0
    decided_by: Decider | None = None
    reason: str | None = None
    client: str = ""
    spent: int = 0
    finish_uri: str | None = None


DECIDED = Table(
    DecidedRecord,
    '"grant" g JOIN interaction i ON i.grant_id = g.id JOIN client c ON c.id = g.client_id',
    prefix="g.",
    decided_at="i.decided_at",
    decided_by="i.decided_by",
    reason="i.reason",
    client="c.identity",
    finish_uri="i.finish_uri",
    spent="coalesce((SELECT sum(debit) FROM grant_spending WHERE grant_id = g.id), 0)",
)


# Excludes grants that the client cancelled before a decision: these are not pending either.
_OF_WALLET: Final = "WHERE g.wallet_address_id = ? AND g.state <> 'pending' AND i.decided_at IS NOT NULL"


def grants_of_wallet(tx: Transaction, wallet_id: int, before: str, limit: int) -> Sequence[DecidedRecord]:
    """Up to `limit` decided grants of a wallet with ids below `before`, newest first."""
    return DECIDED.list(tx, f"{_OF_WALLET} AND g.id < ? ORDER BY g.id DESC LIMIT ?", wallet_id, before, limit)


def decided_grant(tx: Transaction, wallet_id: int, grant_id: str) -> DecidedRecord | None:
    """One decided grant of a wallet."""
    return DECIDED.find(tx, f"{_OF_WALLET} AND g.id = ?", wallet_id, grant_id)


def grants_in_force(tx: Transaction, wallet_id: int) -> Sequence[DecidedRecord]:
    """The approved or issued grants of a wallet, newest first."""
    return DECIDED.list(tx, f"{_OF_WALLET} AND g.state IN ('approved', 'issued') ORDER BY g.id DESC", wallet_id)


class KeyUse(NamedTuple):
    """When a client last requested a grant with a key, or paid from the wallet under one requested with it; the amount
    paid so since a time; and the finish URI of the newest request for consent."""

    last_at: int | None
    spent: int
    finish_uri: str | None


def use_of_key(tx: Transaction, client_id: int, wallet_id: int, kid: str, since: int) -> KeyUse:
    """What a client has done with a key."""
    own, with_key = (client_id, kid, wallet_id), "WHERE g.client_id = ? AND g.kid = ? AND g.wallet_address_id = ?"
    asked = 'SELECT created_at FROM "grant" WHERE client_id = ? AND kid = ? ORDER BY id DESC LIMIT 1'
    newest = "SELECT max(created_at) FROM outgoing_payment WHERE grant_id = g.id"
    paid = f'SELECT max(({newest})) FROM "grant" g {with_key}'
    times = find_number(tx, asked, client_id, kid), find_number(tx, paid, *own)
    payments = f'SELECT sum(o.sent) FROM "grant" g JOIN outgoing_payment o ON o.grant_id = g.id {with_key}'
    finish = f'SELECT i.finish_uri FROM "grant" g JOIN interaction i ON i.grant_id = g.id {with_key}'
    row = tx.execute(f"{finish} ORDER BY g.id DESC LIMIT 1", own).fetchone()
    return KeyUse(
        max((time for time in times if time is not None), default=None),
        number(tx, f"{payments} AND o.created_at >= ?", *own, since),
        row[0] if row else None,
    )
