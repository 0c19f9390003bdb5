"""Forgetting: what strangers can ask for without end does not stay without end.

A grant that no owner has approved and with which nothing was created goes a day after nobody could use it any more,
a quote that was not used goes a day after it has expired, and a client goes when nothing of it is left. Each new grant,
quote and client sees to a few old ones, more than it adds, so no unit of work is long and what is kept is bounded by
what comes in a day.
"""

from typing import Final

from payres.clock import DAY, HOUR
from payres.store import clients, grants, outgoing, quotes, tokens
from payres.store.database import Transaction

# Microseconds that a grant stays after its last token has expired, or after the time to decide on it is over: so long
# an expired token can be rotated, and a late client learns what became of its request.
UNUSED_FOR: Final = DAY
# Microseconds that a grant stays after its owner has denied it: they may be asked about it.
DENIED_FOR: Final = 30 * DAY
# Microseconds that a quote stays after it has expired: longer than the answer to its creation is given again.
QUOTE_UNUSED_FOR: Final = DAY
# Microseconds until a client without grants is looked at. Its keys are fresh for minutes, its nonces for a little more.
IDLE_FOR: Final = DAY
# For each new one, so that deleting keeps up.
GRANTS_AT_ONCE: Final = 2
QUOTES_AT_ONCE: Final = 2
CLIENTS_AT_ONCE: Final = 4
# Tokens of one grant that were rotated or revoked, of which the newest are remembered, and how many of the others go at
# once: the client that rotates may have done so for years.
ENDED_TOKENS: Final = 8
TOKENS_AT_ONCE: Final = 64


def forget_grants(tx: Transaction, now: int) -> None:
    """Deletes a few grants whose time has come, and their clients when that was all there was of them."""
    for grant_id, client_id in grants.grants_to_forget(tx, now, GRANTS_AT_ONCE):
        if tokens.delete_tokens_of_grant(tx, grant_id, TOKENS_AT_ONCE):
            grants.delete_grant(tx, grant_id)
            _forget_client(tx, client_id, now)


def forget_quotes(tx: Transaction, now: int) -> None:
    """Looks at a few quotes whose time has come, and deletes those that no payment was made of, and their clients when
    that was all there was of them."""
    for quote_id, client_id in quotes.quotes_to_forget(tx, now, QUOTES_AT_ONCE):
        if outgoing.quote_used(tx, quote_id):
            quotes.keep_quote(tx, quote_id)
        else:
            quotes.delete_quote(tx, quote_id)
            _forget_client(tx, client_id, now)


def forget_clients(tx: Transaction, now: int) -> None:
    """Looks at a few clients whose time has come, and deletes those that have no grants and made nothing."""
    for client_id in clients.clients_to_forget(tx, now, CLIENTS_AT_ONCE):
        _forget_client(tx, client_id, now)


def forget_ended_tokens(tx: Transaction, grant_id: str) -> None:
    """Deletes what was rotated away long ago."""
    tokens.delete_ended_tokens(tx, grant_id, ENDED_TOKENS, TOKENS_AT_ONCE)


def _forget_client(tx: Transaction, client_id: int, now: int) -> None:
    if clients.has_grants_or_resources(tx, client_id):
        clients.set_forget_at(tx, client_id, None)  # it is looked at again when one of its grants or quotes goes
    elif clients.has_nonces(tx, client_id):
        clients.set_forget_at(tx, client_id, now + HOUR)  # they go by themselves
    else:
        clients.delete_client(tx, client_id)
