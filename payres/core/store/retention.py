"""Retention: how long temporary rows of the core are kept, and the deletion of such rows a few at a time.

Each insert into one of these tables deletes a few of its expired rows, at least twice as many as it adds. So storage is
bounded by the inserts of one retention period, and no unit of work is long. A worker deletes events (`events.py`).
The rules of a part's tables stand with those; `kept:` in schema.sql names the rule of each table, and
docs/reference/retention.md has the periods for operators.
"""

import sqlite3
from collections.abc import Callable
from typing import Final

import msgspec

from payres.core.protocol.clock import DAY, HOUR, SECOND
from payres.core.protocol.limits import EMPTY_PAYMENT_DAYS, MAX_ENDED_TOKENS
from payres.core.store.rows import Row
from payres.core.store.work import Transaction

# Microseconds until `purge_at`:
UNUSED_GRANT: Final = DAY  # after its last token expired, which can still be rotated, or after the time to decide
DECIDED_GRANT: Final = 30 * DAY  # after it was denied, or approved and not continued
UNUSED_QUOTE: Final = DAY  # after it expired: longer than the response of its creation is cached
# After it expired: longer than quotes to it, payments begun at its page, and the response of its creation are kept.
EMPTY_PAYMENT: Final = EMPTY_PAYMENT_DAYS * DAY
UNUSED_CLIENT: Final = DAY  # after it was first seen; its keys and nonces are valid for minutes

TOKENS_AT_ONCE: Final = 64
QUOTES_AT_ONCE: Final = 8  # to an incoming payment


class Rule(msgspec.Struct, frozen=True):
    """Deletes rows of a table `after` microseconds past a time in them, up to `at_once` at a time.

    `columns` are the key. If given, `delete` is called with them and the current time instead.
    """

    table: str
    time: str
    columns: str
    after: int = 0
    at_once: int = 8
    delete: Callable[[Transaction, Row, int], None] | None = None


def purge(tx: Transaction, rule: Rule, now: int) -> None:
    """Deletes up to `at_once` due rows, longest due first."""
    due = f"FROM {rule.table} WHERE {rule.time} <= ?"
    found = tx.execute(f"SELECT {rule.columns} {due} ORDER BY {rule.time} LIMIT ?", (now - rule.after, rule.at_once))
    for row in found.fetchall():
        if rule.delete is not None:
            rule.delete(tx, row, now)
        else:  # row by row: for a list of pairs SQLite would scan all rows with the same first value
            tx.execute(f"DELETE FROM {rule.table} WHERE ({rule.columns}) = ({', '.join('?' * len(row))})", row)


def _delete_grant(tx: Transaction, row: Row, now: int) -> None:
    """Deletes a grant with its tokens, a batch at a time, and its client if that is unused."""
    grant_id, client_id = row
    tokens = "SELECT id FROM access_token WHERE grant_id = ? LIMIT ?"
    found = tx.execute(tokens, (grant_id, TOKENS_AT_ONCE + 1)).fetchall()
    tx.executemany("DELETE FROM access_token WHERE id = ?", found[:TOKENS_AT_ONCE])
    if len(found) <= TOKENS_AT_ONCE:
        tx.execute("DELETE FROM interaction WHERE grant_id = ?", (grant_id,))
        tx.execute('DELETE FROM "grant" WHERE id = ?', (grant_id,))
        _delete_client(tx, (client_id,), now)


def _delete_quote(tx: Transaction, row: Row, now: int) -> None:
    """Deletes a quote unless a payment has used it, and its client if that is unused."""
    quote_id, client_id, is_used = row
    if is_used:
        tx.execute("UPDATE quote SET purge_at = NULL WHERE id = ?", (quote_id,))
    else:
        tx.execute("DELETE FROM quote WHERE id = ?", (quote_id,))
        _delete_client(tx, (client_id,), now)


def _delete_incoming_payment(tx: Transaction, row: Row, now: int) -> None:
    """Deletes an empty incoming payment with the quotes to it, a batch at a time, and its client if that is unused.
    Rows of parts that refer to it go before it."""
    payment_id, client_id, is_needed = row
    if is_needed:  # it was paid after the clock was set back
        tx.execute("UPDATE incoming_payment SET purge_at = NULL WHERE id = ?", (payment_id,))
        return
    to_it = f"SELECT {_QUOTE} FROM quote WHERE incoming_payment_id = ? LIMIT ?"
    quotes = tx.execute(to_it, (payment_id, QUOTES_AT_ONCE + 1)).fetchall()
    for quote in quotes[:QUOTES_AT_ONCE]:
        _delete_quote(tx, quote, now)
    if len(quotes) <= QUOTES_AT_ONCE:
        try:
            tx.execute("DELETE FROM incoming_payment WHERE id = ?", (payment_id,))
        except sqlite3.IntegrityError:  # something still refers to it
            tx.execute("UPDATE incoming_payment SET purge_at = ? WHERE id = ?", (now + HOUR, payment_id))
        else:
            _delete_client(tx, (client_id,), now)


def _delete_client(tx: Transaction, row: Row, now: int) -> None:
    """Deletes a client unless something refers to it."""
    client = {"client": row[0]}
    if tx.execute(f"SELECT {NEEDS_CLIENT}", client).fetchone()[0]:
        # It is tried again when its last grant, quote or incoming payment is purged.
        tx.execute("UPDATE client SET purge_at = NULL WHERE id = :client", client)
    elif tx.execute("SELECT EXISTS (SELECT 1 FROM signature_nonce WHERE client_id = :client)", client).fetchone()[0]:
        # Its signatures must not be replayed while they are valid.
        tx.execute("UPDATE client SET purge_at = :later WHERE id = :client", client | {"later": now + HOUR})
    else:
        tx.execute("DELETE FROM client_key WHERE client_id = :client", client)
        tx.execute("DELETE FROM client WHERE id = :client", client)


NEEDS_CLIENT: Final = " OR ".join(
    f'EXISTS (SELECT 1 FROM "{table}" WHERE client_id = :client)'
    for table in ("grant", "incoming_payment", "quote", "outgoing_payment", "idempotency_key")
)
_QUOTE: Final = "id, client_id, EXISTS (SELECT 1 FROM outgoing_payment WHERE quote_id = quote.id)"
_INCOMING_PAYMENT: Final = (
    "id, client_id, received > 0 OR completed_at IS NOT NULL"
    " OR EXISTS (SELECT 1 FROM outgoing_payment WHERE incoming_payment_id = incoming_payment.id)"
)

# Unused grants, quotes, incoming payments and clients. More clients, because each of the others may leave one.
GRANTS = Rule('"grant"', "purge_at", "id, client_id", at_once=2, delete=_delete_grant)
QUOTES = Rule("quote", "purge_at", _QUOTE, at_once=2, delete=_delete_quote)
INCOMING_PAYMENTS = Rule("incoming_payment", "purge_at", _INCOMING_PAYMENT, at_once=2, delete=_delete_incoming_payment)
CLIENTS = Rule("client", "purge_at", "id", at_once=4, delete=_delete_client)
# Longer than a request can wait for other servers and the database before its nonce is stored.
NONCES = Rule("signature_nonce", "expires_at", "client_id, kid, nonce", after=300 * SECOND, at_once=2)
RESPONSES = Rule("idempotency_key", "created_at", "id", after=DAY, at_once=2)


def purge_ended_tokens(tx: Transaction, grant_id: str) -> None:
    """Deletes the grant's oldest rotated or revoked tokens, a batch at a time, but for one whose rotation can be
    repeated."""
    surplus = tx.execute(
        "SELECT id FROM access_token t WHERE grant_id = ? AND revoked_at IS NOT NULL"
        " AND NOT EXISTS (SELECT 1 FROM access_token WHERE answers = t.id)"
        " ORDER BY created_at DESC, id LIMIT ? OFFSET ?",
        (grant_id, TOKENS_AT_ONCE, MAX_ENDED_TOKENS),
    ).fetchall()
    tx.executemany("DELETE FROM access_token WHERE id = ?", surplus)
