"""SQL of owners, who have wallets."""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.accounts.store.kinds import Account, Kind, delete_of
from payres.core.protocol.clock import DAY, HOUR, MINUTE, lasts
from payres.core.protocol.visible import visible_name
from payres.core.store.rows import PageBounds, PageQuery, Table, select_page
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Transaction


class OwnerRecord(msgspec.Struct, frozen=True):
    """The owner of a wallet: the first of several, unless another was asked for. `name` is the path of the first;
    `called` has a line for each wallet, its public name or else its path.

    Wrong passwords before unlocked_at no longer count. Until closed_until, only browsers that it knows let it sign in;
    without a password it is when the sign-in was closed, None if there was none yet.
    """

    id: int
    name: str
    wallet_id: int
    password_hash: str | None
    unlocked_at: int | None = None
    closed_until: int | None = None
    called: str = ""

    @property
    def names(self) -> Sequence[str]:
        """What the wallets are called, made safe to show."""
        return [visible_name(one, None) or self.name for one in self.called.split("\n")]

    @property
    def has_several(self) -> bool:
        return "\n" in self.called

    @property
    def actor(self) -> str:
        """The owner as the audit log names the actor."""
        return f"owner:{self.name}"


OWNERS = Table(
    OwnerRecord,
    "owner o JOIN wallet_address w ON w.owner_id = o.id",
    prefix="o.",
    name="(SELECT path FROM wallet_address WHERE owner_id = o.id ORDER BY id LIMIT 1)",
    wallet_id="w.id",
    called="(SELECT group_concat(coalesce(nullif(public_name, ''), path), char(10)) FROM"
    " (SELECT public_name, path FROM wallet_address WHERE owner_id = o.id ORDER BY id))",
)
CLOSED: Final = DAY
OF_OWNERS: Final = Kind("wallet", OWNERS, "owner_id", 15 * MINUTE, 12 * HOUR, HOUR, "payres wallet reset-link")


def page_of_wallets(
    tx: Transaction, query: PageQuery, state: str | None, can_sign_in: bool | None
) -> tuple[Sequence[WalletRecord], PageBounds]:
    """A page of wallets, newest first: in this state, and whose owner has a password or has none."""
    can = "(SELECT password_hash IS NOT NULL FROM owner WHERE id = w.owner_id) = ?"
    return select_page(tx, WALLETS, query, {"w.state = ?": state, can: can_sign_in})


def owner_at(tx: Transaction, path: str) -> OwnerRecord | None:
    """The owner of the wallet with this path, if there is one."""
    return OWNERS.find(tx, "WHERE w.path = ?", path)


def owner_of(tx: Transaction, wallet_id: int) -> OwnerRecord:
    """The owner of a wallet."""
    owner = OWNERS.find(tx, "WHERE w.id = ?", wallet_id)
    assert owner is not None, "every wallet has an owner"
    return owner


def keep_closed(tx: Transaction, owner_id: int, now: int) -> None:
    """Lets nobody sign in to the owner for a day, but in browsers that it knows."""
    OWNERS.update(tx, owner_id, closed_until=now + CLOSED)


def closed_until(tx: Transaction, owner_id: int, now: int) -> int | None:
    """Until when only browsers that the owner knows let it sign in."""
    found = OWNERS.get(tx, owner_id)
    until = found and found.closed_until
    return until if until and lasts(until, now, CLOSED) else None


def wallets_of(tx: Transaction, owner_id: int) -> Sequence[WalletRecord]:
    """The wallets of an owner, oldest first."""
    return WALLETS.list(tx, "WHERE w.owner_id = ? ORDER BY w.id", owner_id)


def account_at(tx: Transaction, kind: Kind, account_id: int, wallet_id: int | None) -> Account | None:
    """The account, of an owner with this wallet looked at; None if there is none, or the wallet is another's."""
    if wallet_id is None:
        return kind.accounts.get(tx, account_id)
    return OWNERS.find(tx, "WHERE o.id = ? AND w.id = ?", account_id, wallet_id)


def take_over(tx: Transaction, owner_id: int, other_id: int) -> None:
    """Gives the wallets of the other, whose access and second factors have ended, to the owner; deletes the other."""
    for table in ("wallet_address", "mail"):  # the mails are for the other's address
        tx.execute(f"UPDATE {table} SET owner_id = ? WHERE owner_id = ?", (owner_id, other_id))
    tx.execute("DELETE FROM wallet_join WHERE owner_id = ? AND joined_at IS NULL", (other_id,))
    tx.execute("UPDATE wallet_join SET owner_id = ? WHERE owner_id = ?", (owner_id, other_id))
    delete_of(tx, OF_OWNERS, other_id, "sign_in", "mail_address", "mail_choice")
    tx.execute("DELETE FROM owner WHERE id = ?", (other_id,))
