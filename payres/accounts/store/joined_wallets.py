"""SQL of wallets that an owner asks for, with the password of the wallet, and of those that came."""

from collections.abc import Sequence
from typing import Final

import msgspec

from payres.accounts.store.sign_ins import Seen
from payres.core.protocol.clock import DAY, lasts
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import Table, insert_row
from payres.core.store.work import Transaction

JOIN_DELAY: Final = DAY  # in which the owner of a wallet can say no to who asks for it
JOIN_LASTS: Final = 7 * DAY  # after that, in which the wallet can be connected
JOINS_KEPT: Final = 30 * DAY
JOINS = Rule("wallet_join", "purge_at", "wallet_address_id")


class JoinRecord(msgspec.Struct, frozen=True):
    """A row of `wallet_join`, with the path of the wallet, and the owner that it has now."""

    wallet_address_id: int
    owner_id: int
    due_at: int
    joined_at: int | None
    email: str | None
    language: str | None
    time_zone: str | None
    address: str | None
    browser: str | None
    path: str
    holder_id: int

    def waits(self, now: int) -> bool:
        """Whether the holder can still say no."""
        return lasts(self.due_at, now, JOIN_DELAY)


_JOIN: Final = "wallet_join j JOIN wallet_address w ON w.id = j.wallet_address_id"
JOIN_TABLE: Final = Table(JoinRecord, _JOIN, "j.", path="w.path", holder_id="w.owner_id")


def open_joins(tx: Transaction, owner_id: int, now: int) -> Sequence[JoinRecord]:
    """What an owner asks for, or is asked for, that is neither done nor over."""
    columns = ("j.owner_id", "w.owner_id")
    found = [one for of in columns for one in JOIN_TABLE.list(tx, f"WHERE {of} = ? AND joined_at IS NULL", owner_id)]
    return [one for one in found if one.waits(now) or lasts(one.due_at + JOIN_LASTS, now, JOIN_LASTS)]


def kept_join(tx: Transaction, wallet_id: int, now: int) -> JoinRecord | None:
    """How a wallet came to the owner of others, in the last 30 days."""
    found = JOIN_TABLE.find(tx, wallet_address_id=wallet_id)
    joined_at = found.joined_at if found else None
    return found if joined_at and lasts(joined_at + JOINS_KEPT, now, JOINS_KEPT) else None


def store_join(tx: Transaction, wallet_id: int, owner_id: int, seen: Seen, now: int, is_done: bool) -> None:
    """Stores that an owner asks for a wallet, or that it came, in place of an earlier row; deletes a few old ones.
    Where notices went before is kept from the one to the other, and from that to the next."""
    purge(tx, JOINS, now)
    last = JOIN_TABLE.find(tx, wallet_address_id=wallet_id)
    of_now = "SELECT email, language, time_zone FROM mail_address WHERE owner_id = (SELECT owner_id FROM wallet_address"
    notices = tx.execute(f"{of_now} WHERE id = ?)", (wallet_id,)).fetchone() or (None, None, None)
    if last is not None and (is_done or last.joined_at):
        notices = last.email, last.language, last.time_zone
    JOIN_TABLE.delete(tx, wallet_address_id=wallet_id)
    values = {"wallet_address_id": wallet_id, "owner_id": owner_id, "due_at": now + JOIN_DELAY}
    values |= {"purge_at": now + JOINS_KEPT} | ({"joined_at": now} if is_done else {})
    more = dict(zip(("email", "language", "time_zone"), notices, strict=True))
    insert_row(tx, "wallet_join", **values, **seen._asdict(), **more)
