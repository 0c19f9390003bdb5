"""SQL of the browsers that an account knows, because somebody has signed in with them."""

from typing import Final

from payres.accounts.limits import KNOWN_BROWSER_DAYS, MAX_KNOWN_BROWSERS
from payres.accounts.store.kinds import Kind, delete_surplus
from payres.core.protocol.clock import DAY, lasts
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import Rows, find_number, insert_row, number
from payres.core.store.work import Transaction

BROWSER_LIFETIME: Final = KNOWN_BROWSER_DAYS * DAY
TRUSTED_LIFETIME: Final = 30 * DAY  # for which a browser is not asked for the second factor
KNOWN_BROWSERS = Rows("known_browser")
BROWSERS = Rule("known_browser", "expires_at", "id_hash")


def insert_browser(
    tx: Transaction, kind: Kind, id_hash: bytes, account_id: int, now: int, trusted_until: int | None = None
) -> None:
    """Stores a browser as known to the account, and until then trusted; deletes expired ones, and the oldest of too
    many."""
    purge(tx, BROWSERS, now)
    values = {"id_hash": id_hash, kind.column: account_id, "expires_at": now + BROWSER_LIFETIME}
    insert_row(tx, "known_browser", **values, trusted_until=trusted_until)
    delete_surplus(tx, "known_browser", kind, account_id, MAX_KNOWN_BROWSERS)


def knows_browser(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int, now: int) -> bool:
    """Whether the account was signed in to with this browser, which is still known."""
    known = f"SELECT 1 FROM known_browser WHERE id_hash = ? AND {kind.column} = ? AND expires_at > ?"
    return number(tx, known, id_hash, account_id, now) == 1


def trusted_until(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int, now: int) -> int | None:
    """Until when a browser is trusted, which is then not asked for the second factor; None if it is not."""
    found = f"SELECT trusted_until FROM known_browser WHERE id_hash = ? AND {kind.column} = ?"
    until = find_number(tx, found, id_hash, account_id)
    return until if until is not None and lasts(until, now, TRUSTED_LIFETIME) else None


def forget_others(tx: Transaction, kind: Kind, account_id: int, own: bytes | None) -> None:
    """Forgets every browser that the account knows but its own."""
    tx.execute(f"DELETE FROM known_browser WHERE {kind.column} = ? AND id_hash IS NOT ?", (account_id, own))
