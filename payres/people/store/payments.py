"""SQL of what owners see of payments."""

from collections.abc import Sequence

from payres.core.store.work import Transaction


def last_wishes(tx: Transaction, client_id: int, wallet_id: int, limit: int) -> Sequence[str]:
    """The wishes of the owner's last payments from a wallet, newest first."""
    paid = "SELECT q.wish FROM outgoing_payment o JOIN quote q ON q.id = o.quote_id WHERE q.wish IS NOT NULL"
    of_owner = "o.client_id = ? AND o.wallet_address_id = ? ORDER BY o.id DESC LIMIT ?"
    return [wish for (wish,) in tx.execute(f"{paid} AND {of_owner}", (client_id, wallet_id, limit))]


def state_of_bill(tx: Transaction, grant_id: str) -> str | None:
    """The state of the payment of the bill that a grant is for; "failed" only if nothing was taken. One that has
    completed counts before one that is sent, and that before one that has failed."""
    first = "min(CASE state WHEN 'completed' THEN 0 WHEN 'sending' THEN 1 ELSE 2 END)"
    paid = f"SELECT state, {first} FROM outgoing_payment WHERE grant_id = ? AND (state <> 'failed' OR sent = 0)"
    state: str | None = tx.execute(paid, (grant_id,)).fetchone()[0]
    return state


def last_payer(tx: Transaction, incoming_payment_id: str) -> str | None:
    """The local outgoing payment that last paid an incoming payment; None if the last payer is remote."""
    last = "SELECT outgoing_payment_id FROM transfer WHERE incoming_payment_id = ? ORDER BY id DESC LIMIT 1"
    row = tx.execute(last, (incoming_payment_id,)).fetchone()
    return row[0] if row else None
