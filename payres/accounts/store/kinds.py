"""Accounts with a password, of two kinds: owners and operators.

A row of an account has one column set, that of its kind, so a secret of one kind finds nothing of the other.
"""

from typing import NamedTuple, Protocol

from payres.core.store.rows import Rows
from payres.core.store.work import Transaction


class Account(Protocol):
    """An account with a password, and the wallet that an owner sees first. The audit log calls it by its name, and as
    an actor. Wrong passwords from before `unlocked_at` do not count."""

    @property
    def id(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def actor(self) -> str: ...
    @property
    def wallet_id(self) -> int | None: ...
    @property
    def password_hash(self) -> str | None: ...
    @property
    def unlocked_at(self) -> int | None: ...


class Accounts(Protocol):
    """The accounts of a kind."""

    def get(self, tx: Transaction, row_id: int, /) -> Account | None: ...
    def by_id(self, tx: Transaction, row_id: int, /) -> Account: ...


class Kind(NamedTuple):
    """A kind of account with a password: what sentences call it, where the accounts are, the column that names one, for
    how long a session lasts (without being used, and in use) and a link, and the command that makes a link."""

    noun: str
    accounts: Accounts
    column: str
    lifetime: int
    longest: int
    link_lifetime: int
    link_command: str


def delete_of(tx: Transaction, kind: Kind, account_id: int, *tables: str) -> None:
    """Deletes all rows of an account in these tables."""
    for table in tables:
        Rows(table).delete(tx, **{kind.column: account_id})


def delete_surplus(tx: Transaction, table: str, kind: Kind, account_id: int, most: int) -> None:
    """Deletes those of an account that were unused for longest, of more than so many."""
    kept = f"SELECT id_hash FROM {table} WHERE {kind.column} = ? ORDER BY expires_at DESC LIMIT -1 OFFSET ?"
    surplus = tx.execute(kept, (account_id, most)).fetchall()
    tx.executemany(f"DELETE FROM {table} WHERE id_hash = ?", surplus)
