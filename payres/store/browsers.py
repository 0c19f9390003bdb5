"""SQL of the browsers known to accounts: of wallets those of their owners, of operators their own."""

from typing import Final, NamedTuple

from payres.clock import DAY
from payres.limits import KNOWN_BROWSER_DAYS, MAX_KNOWN_BROWSERS
from payres.store.retention import BROWSERS, OPERATOR_BROWSERS, Rule, purge
from payres.store.rows import insert_row, number
from payres.store.work import Transaction

BROWSER_LIFETIME: Final = KNOWN_BROWSER_DAYS * DAY


class Kind(NamedTuple):
    """The table of a kind of account's browsers, with its retention rule, and the column of the account."""

    rule: Rule
    account: str


OF_WALLETS: Final = Kind(BROWSERS, "wallet_address_id")
OF_OPERATORS: Final = Kind(OPERATOR_BROWSERS, "operator_id")


def insert_browser(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int, now: int) -> None:
    """Stores a browser as known to the account; deletes expired ones, and the oldest of too many."""
    table = kind.rule.table
    purge(tx, kind.rule, now)
    insert_row(tx, table, **{"id_hash": id_hash, kind.account: account_id, "expires_at": now + BROWSER_LIFETIME})
    surplus = tx.execute(
        f"SELECT id_hash FROM {table} WHERE {kind.account} = ? ORDER BY expires_at DESC LIMIT -1 OFFSET ?",
        (account_id, MAX_KNOWN_BROWSERS),
    ).fetchall()
    tx.executemany(f"DELETE FROM {table} WHERE id_hash = ?", surplus)


def knows_browser(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int, now: int) -> bool:
    """Whether the account was signed in to with this browser, which is still known."""
    known = f"SELECT 1 FROM {kind.rule.table} WHERE id_hash = ? AND {kind.account} = ? AND expires_at > ?"
    return number(tx, known, id_hash, account_id, now) == 1


def delete_browser(tx: Transaction, kind: Kind, id_hash: bytes, account_id: int) -> None:
    tx.execute(f"DELETE FROM {kind.rule.table} WHERE id_hash = ? AND {kind.account} = ?", (id_hash, account_id))


def delete_browsers(tx: Transaction, kind: Kind, account_id: int) -> None:
    """Forgets all browsers of the account."""
    tx.execute(f"DELETE FROM {kind.rule.table} WHERE {kind.account} = ?", (account_id,))
