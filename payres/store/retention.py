"""Retention: purges what unauthenticated clients can create without limit.

A grant without consent with which nothing was created is deleted a day after it could last be used, and one that was
denied, or approved and not continued, 30 days after that. A quote that was not used is deleted a day after it has
expired, and a client when nothing of it is left. Each new grant, quote and client purges a few old ones, more than it
adds, so no unit of work is long, and what comes in a day bounds what is stored. `purge_at` of a row is when to look at
it. Nonces of signatures are purged in `payres.store.nonces`.
"""

from typing import Final

from payres.clock import DAY, HOUR
from payres.store import outgoing
from payres.store.work import Transaction

# Microseconds that a grant stays after its last token has expired, or after the time to decide on it is over: so long
# an expired token can be rotated, and a late client learns what became of its request.
GRANT_RETENTION: Final = DAY
# Microseconds that a grant of which nothing came stays after its owner's decision: they may be asked about it.
DECIDED_GRANT_RETENTION: Final = 30 * DAY
# Microseconds that a quote stays after it has expired: longer than the response to its creation is cached.
QUOTE_RETENTION: Final = DAY
# Microseconds until a client without grants is looked at. Its keys are fresh for minutes, its nonces for a little more.
CLIENT_RETENTION: Final = DAY
# For each new one, so that purging keeps up.
GRANTS_PER_PURGE: Final = 2
QUOTES_PER_PURGE: Final = 2
CLIENTS_PER_PURGE: Final = 4
# Tokens of one grant that were rotated or revoked, of which the newest stay, and how many of the others go at once:
# the client that rotates may have done so for years.
ENDED_TOKENS_KEPT: Final = 8
TOKENS_PER_PURGE: Final = 64

NEEDS_CLIENT = " OR ".join(
    f'EXISTS (SELECT 1 FROM "{table}" WHERE client_id = :client)'
    for table in ("grant", "incoming_payment", "quote", "outgoing_payment", "idempotency_key")
)


def purge_grants(tx: Transaction, now: int) -> None:
    """Deletes a few grants whose time has come, and their clients when that was all there was of them."""
    for grant_id, client_id in tx.execute(
        'SELECT id, client_id FROM "grant" WHERE purge_at <= ? ORDER BY purge_at LIMIT ?', (now, GRANTS_PER_PURGE)
    ).fetchall():
        found = tx.execute(
            "SELECT id FROM access_token WHERE grant_id = ? LIMIT ?", (grant_id, TOKENS_PER_PURGE + 1)
        ).fetchall()
        tx.executemany("DELETE FROM access_token WHERE id = ?", found[:TOKENS_PER_PURGE])
        if len(found) <= TOKENS_PER_PURGE:
            tx.execute("DELETE FROM interaction WHERE grant_id = ?", (grant_id,))
            tx.execute('DELETE FROM "grant" WHERE id = ?', (grant_id,))
            _purge_client(tx, client_id, now)


def purge_quotes(tx: Transaction, now: int) -> None:
    """Looks at a few quotes whose time has come, and deletes those that no payment was made of, and their clients when
    that was all there was of them."""
    for quote_id, client_id in tx.execute(
        "SELECT id, client_id FROM quote WHERE purge_at <= ? ORDER BY purge_at LIMIT ?", (now, QUOTES_PER_PURGE)
    ).fetchall():
        if outgoing.quote_used(tx, quote_id):
            tx.execute("UPDATE quote SET purge_at = NULL WHERE id = ?", (quote_id,))
        else:
            tx.execute("DELETE FROM quote WHERE id = ?", (quote_id,))
            _purge_client(tx, client_id, now)


def purge_clients(tx: Transaction, now: int) -> None:
    """Looks at a few clients whose time has come, and deletes those that have no grants and made nothing."""
    for (client_id,) in tx.execute(
        "SELECT id FROM client WHERE purge_at <= ? ORDER BY purge_at LIMIT ?", (now, CLIENTS_PER_PURGE)
    ).fetchall():
        _purge_client(tx, client_id, now)


def purge_ended_tokens(tx: Transaction, grant_id: str) -> None:
    """Deletes tokens of the grant that were rotated away long ago."""
    surplus = tx.execute(
        "SELECT id FROM access_token WHERE grant_id = ? AND revoked_at IS NOT NULL"
        " ORDER BY created_at DESC, id LIMIT ? OFFSET ?",
        (grant_id, TOKENS_PER_PURGE, ENDED_TOKENS_KEPT),
    ).fetchall()
    tx.executemany("DELETE FROM access_token WHERE id = ?", surplus)


def _purge_client(tx: Transaction, client_id: int, now: int) -> None:
    client = {"client": client_id}
    if tx.execute(f"SELECT {NEEDS_CLIENT}", client).fetchone()[0]:
        # It is looked at again when one of its grants or quotes goes.
        tx.execute("UPDATE client SET purge_at = NULL WHERE id = :client", client)
    elif tx.execute("SELECT EXISTS (SELECT 1 FROM signature_nonce WHERE client_id = :client)", client).fetchone()[0]:
        # Its nonces go by themselves; until then nobody may repeat its signatures.
        tx.execute("UPDATE client SET purge_at = :later WHERE id = :client", client | {"later": now + HOUR})
    else:
        tx.execute("DELETE FROM client_key WHERE client_id = :client", client)
        tx.execute("DELETE FROM client WHERE id = :client", client)
