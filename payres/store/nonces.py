"""SQL of signature nonces, which prevent the replay of signed requests: using one, and purging old ones."""

from typing import Final

from payres.clock import SECOND
from payres.store.work import Transaction

# Microseconds that a nonce stays after its signature is no longer fresh: longer than a request can wait for other
# servers and the database before it uses its nonce.
NONCE_RETENTION: Final = 300 * SECOND


def use_nonce(tx: Transaction, client_id: int, kid: str, nonce: str, expires_at: int, now: int) -> bool:
    """Whether the nonce was not used before with this key in a signature that could still be fresh at `now`.

    `now` is when the request came: waiting since then, for example for the client's keys, changes nothing. `expires_at`
    is when its signature is no longer fresh. Deletes the nonces of signatures that can no longer be.
    """
    tx.execute("DELETE FROM signature_nonce WHERE expires_at < ?", (now - NONCE_RETENTION,))
    cursor = tx.execute(
        "INSERT INTO signature_nonce (client_id, kid, nonce, expires_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT (client_id, kid, nonce) DO UPDATE SET expires_at = excluded.expires_at"
        " WHERE signature_nonce.expires_at < ?",
        (client_id, kid, nonce, expires_at, now),
    )
    return cursor.rowcount == 1
