"""Retention: what is needed for a time only, how long it stays, and its deletion a few rows at a time.

Each insert into one of these tables deletes a few expired rows of it, at least twice as many as it adds. So what is
stored is bounded by what comes in that time, and no unit of work is long. Events have a worker that deletes them.
docs/operating.md says the same to operators.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from payres.clock import DAY, HOUR, SECOND
from payres.store.rows import Row
from payres.store.work import Transaction

# Microseconds that a row stays whose `purge_at` says when it may be deleted:
UNUSED_GRANT: Final = DAY  # after its last token expired, or the time to decide on it; until then that can be rotated
DECIDED_GRANT: Final = 30 * DAY  # after it was denied, or approved and not continued
UNUSED_QUOTE: Final = DAY  # after it expired: longer than the response to its creation is cached
UNPAID_CHECKOUT: Final = DAY  # after it was begun
UNUSED_CLIENT: Final = DAY  # after it was first seen; its keys and nonces are good for minutes

EVENT: Final = 30 * DAY  # that an event stays, and longer if it is still to be sent
EVENTS_AT_ONCE: Final = 64  # each with a delivery to each of 16 webhooks at most
ENDED_TOKENS_KEPT: Final = 8  # the newest of a grant that were rotated or revoked; a client may have rotated for years
TOKENS_AT_ONCE: Final = 64


class Rule(msgspec.Struct, frozen=True):
    """Rows of a table are deleted once `after` microseconds have passed since a time in them, so many `at_once`.

    `columns` are the key. `delete` gets them and the time of now, where more is to be done than to delete that row.
    """

    table: str
    time: str
    columns: str
    after: int = 0
    at_once: int = 8
    delete: Callable[[Transaction, Row, int], None] | None = None


def purge(tx: Transaction, rule: Rule, now: int) -> None:
    """Deletes as many of the rows that are due as the rule says, the longest due first."""
    due = f"FROM {rule.table} WHERE {rule.time} <= ?"
    found = tx.execute(f"SELECT {rule.columns} {due} ORDER BY {rule.time} LIMIT ?", (now - rule.after, rule.at_once))
    for row in found.fetchall():
        if rule.delete is not None:
            rule.delete(tx, row, now)
        else:  # row by row, because for a list of pairs SQLite would look at all rows with the first of the two
            tx.execute(f"DELETE FROM {rule.table} WHERE ({rule.columns}) = ({', '.join('?' * len(row))})", row)


def _delete_grant(tx: Transaction, row: Row, now: int) -> None:
    """With its tokens, some of them at once, and its client if nothing else refers to that."""
    grant_id, client_id = row
    tokens = "SELECT id FROM access_token WHERE grant_id = ? LIMIT ?"
    found = tx.execute(tokens, (grant_id, TOKENS_AT_ONCE + 1)).fetchall()
    tx.executemany("DELETE FROM access_token WHERE id = ?", found[:TOKENS_AT_ONCE])
    if len(found) <= TOKENS_AT_ONCE:
        tx.execute("DELETE FROM interaction WHERE grant_id = ?", (grant_id,))
        tx.execute('DELETE FROM "grant" WHERE id = ?', (grant_id,))
        _delete_client(tx, (client_id,), now)


def _delete_quote(tx: Transaction, row: Row, now: int) -> None:
    """Unless a payment has used it; with its client if nothing else refers to that."""
    quote_id, client_id, is_used = row
    if is_used:
        tx.execute("UPDATE quote SET purge_at = NULL WHERE id = ?", (quote_id,))
    else:
        tx.execute("DELETE FROM quote WHERE id = ?", (quote_id,))
        _delete_client(tx, (client_id,), now)


def _delete_client(tx: Transaction, row: Row, now: int) -> None:
    """Unless something refers to it."""
    client = {"client": row[0]}
    if tx.execute(f"SELECT {NEEDS_CLIENT}", client).fetchone()[0]:
        # The purge of the last of its grants and quotes comes here again.
        tx.execute("UPDATE client SET purge_at = NULL WHERE id = :client", client)
    elif tx.execute("SELECT EXISTS (SELECT 1 FROM signature_nonce WHERE client_id = :client)", client).fetchone()[0]:
        # Nobody may replay its signatures while they are valid.
        tx.execute("UPDATE client SET purge_at = :later WHERE id = :client", client | {"later": now + HOUR})
    else:
        tx.execute("DELETE FROM client_key WHERE client_id = :client", client)
        tx.execute("DELETE FROM client WHERE id = :client", client)


NEEDS_CLIENT: Final = " OR ".join(
    f'EXISTS (SELECT 1 FROM "{table}" WHERE client_id = :client)'
    for table in ("grant", "incoming_payment", "quote", "outgoing_payment", "idempotency_key")
)
_QUOTE: Final = "id, client_id, EXISTS (SELECT 1 FROM outgoing_payment WHERE quote_id = quote.id)"

# Grants, quotes and clients that were not used. More clients, because each of these deletes may leave one.
GRANTS = Rule('"grant"', "purge_at", "id, client_id", at_once=2, delete=_delete_grant)
QUOTES = Rule("quote", "purge_at", _QUOTE, at_once=2, delete=_delete_quote)
CLIENTS = Rule("client", "purge_at", "id", at_once=4, delete=_delete_client)
# Longer than a request can wait for other servers and the database before it uses its nonce.
NONCES = Rule("signature_nonce", "expires_at", "client_id, kid, nonce", after=300 * SECOND, at_once=2)
RESPONSES = Rule("idempotency_key", "created_at", "id", after=DAY, at_once=2)
ANSWERS = Rule("answered_request", "answered_at", "peer_id, request_id", after=30 * DAY, at_once=32)
CHECKOUTS = Rule("checkout", "purge_at", "id_hash")
SESSIONS = Rule("session", "expires_at", "id_hash")
BROWSERS = Rule("known_browser", "expires_at", "id_hash")
OPERATOR_SESSIONS = Rule("operator_session", "expires_at", "id_hash")
OPERATOR_BROWSERS = Rule("operator_browser", "expires_at", "id_hash")
FORMS = Rule("operator_form", "used_at", "id", after=DAY)  # longer than a session lasts


def purge_ended_tokens(tx: Transaction, grant_id: str) -> None:
    """Deletes some of the grant's oldest tokens that were rotated or revoked."""
    surplus = tx.execute(
        "SELECT id FROM access_token WHERE grant_id = ? AND revoked_at IS NOT NULL"
        " ORDER BY created_at DESC, id LIMIT ? OFFSET ?",
        (grant_id, TOKENS_AT_ONCE, ENDED_TOKENS_KEPT),
    ).fetchall()
    tx.executemany("DELETE FROM access_token WHERE id = ?", surplus)


def has_old_events(tx: Transaction, now: int) -> bool:
    """Whether an event is old enough to be purged."""
    oldest = tx.execute("SELECT created_at FROM event ORDER BY sequence LIMIT 1").fetchone()
    return oldest is not None and oldest[0] < now - EVENT


def purge_events(tx: Transaction, now: int) -> bool:
    """Deletes a few events that are old enough and need not be sent any more; whether there may be more."""
    oldest = tx.execute("SELECT sequence, created_at FROM event ORDER BY sequence LIMIT ?", (EVENTS_AT_ONCE,))
    sent_to_all = tx.execute("SELECT coalesce(min(cursor), ?) FROM webhook WHERE state = 'active'", (1 << 62,))
    (cursor,) = sent_to_all.fetchone()
    old = [(one,) for one, time in oldest.fetchall() if time < now - EVENT and one <= cursor]
    due = (
        "SELECT 1 FROM delivery d JOIN webhook w ON w.id = d.webhook_id"
        " WHERE d.sequence = ? AND d.next_at IS NOT NULL AND w.state = 'active'"
    )
    gone = [one for one in old if tx.execute(due, one).fetchone() is None]
    tx.executemany("DELETE FROM delivery WHERE sequence = ?", gone)
    tx.executemany("DELETE FROM event WHERE sequence = ?", gone)
    return len(gone) == EVENTS_AT_ONCE
