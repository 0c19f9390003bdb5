"""SQL of the server's runs: the current one, and the end of each that was killed."""

from payres.core.store.work import Transaction

# The last sign of life. Rows that commands write without a server are excluded.
_END = """
UPDATE server_run SET killed_after = max(
  coalesce((SELECT created_at FROM transfer WHERE kind IN ('payment', 'exchange') AND refund_id IS NULL
    ORDER BY id DESC LIMIT 1), 0),
  coalesce((SELECT created_at FROM event WHERE type GLOB '*_payment.*' ORDER BY sequence DESC LIMIT 1), 0),
  coalesce((SELECT checked_at FROM ledger_check), 0)
) WHERE killed_after IS NULL
"""


def begin(tx: Transaction, token: str | None) -> bool:
    """Starts a run, with a token for `payres.core.store.lost_commits`. Whether the last one was killed."""
    was_killed = note_kill(tx)
    if not was_killed:
        tx.execute("INSERT INTO server_run DEFAULT VALUES")
    tx.execute("UPDATE server_run SET token = ? WHERE killed_after IS NULL", (token,))
    return was_killed


def note_kill(tx: Transaction) -> bool:
    """If the last run was killed, stores its last sign of life and starts another. Whether it was.

    Call it at the server's start, and before commands write rows that look like a sign of life.
    """
    was_killed = tx.execute(_END).rowcount > 0
    if was_killed:
        tx.execute("INSERT INTO server_run DEFAULT VALUES")
    return was_killed


def end(tx: Transaction) -> None:
    """Ends the current run cleanly."""
    tx.execute("DELETE FROM server_run WHERE killed_after IS NULL")
