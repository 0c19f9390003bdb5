"""SQL of the operators who use the admin pages."""

from typing import ClassVar, Final, NamedTuple

import msgspec

from payres.accounts.store.browsers import BROWSER_LIFETIME
from payres.accounts.store.kinds import Kind, delete_of
from payres.accounts.store.sessions import count_sessions
from payres.core.protocol.clock import HOUR, MINUTE
from payres.core.store.rows import Table, find_number, lasting
from payres.core.store.work import Transaction


class Limit(NamedTuple):
    """The most that support sends back of a payment, in the minor unit of the asset; None of who sends nothing back, or
    as much as there is."""

    refund_limit: int | None
    refund_asset_id: int | None


NO_REFUNDS: Final = Limit(None, None)


class OperatorRecord(msgspec.Struct, frozen=True):
    """A row of `operator`, with the columns of its Limit; role is `full`, `support` or `reads`."""

    id: int
    name: str
    role: str
    password_hash: str | None
    unlocked_at: int
    refund_limit: int | None
    refund_asset_id: int | None
    wallet_id: ClassVar[None] = None

    @property
    def limit(self) -> Limit:
        return Limit(self.refund_limit, self.refund_asset_id)

    @property
    def actor(self) -> str:
        return f"page:{self.name}"


OPERATORS = Table(OperatorRecord, "operator")
OF_OPERATORS: Final = Kind("operator", OPERATORS, "operator_id", 12 * HOUR, 12 * HOUR, 15 * MINUTE, "payres admin link")


def who_may_all(tx: Transaction) -> str:
    """The names of some who may do everything and can sign in."""
    found = OPERATORS.list(tx, "WHERE role = 'full' AND password_hash NOTNULL ORDER BY name LIMIT 3")
    return " or ".join(one.name for one in found) or "somebody who may do everything"


def access_of(tx: Transaction, operator_id: int, now: int) -> tuple[int | None, int, int | None]:
    """Until when an operator's link is valid, the number of valid sessions, and the last sign-in."""
    valid, times = lasting("expires_at", now, OF_OPERATORS.link_lifetime)
    link = f"SELECT expires_at FROM password_link WHERE operator_id = ? AND {valid}"
    last = (
        "SELECT coalesce((SELECT max(at) FROM sign_in WHERE operator_id = :id AND way NOT LIKE 'wrong %'),"
        " (SELECT max(expires_at) - :lifetime FROM known_browser WHERE operator_id = :id))"
    )
    row = tx.execute(last, {"id": operator_id, "lifetime": BROWSER_LIFETIME}).fetchone()
    sessions = count_sessions(tx, OF_OPERATORS, operator_id, now)
    return find_number(tx, link, operator_id, *times), sessions, row[0]


def delete_operator(tx: Transaction, operator_id: int) -> None:
    """Deletes an operator with the last sign-ins; access and second factors have ended."""
    delete_of(tx, OF_OPERATORS, operator_id, "sign_in")
    tx.execute("DELETE FROM operator WHERE id = ?", (operator_id,))


def put_operator(
    tx: Transaction, name: str, role: str, password_hash: str | None, now: int, limit: Limit = NO_REFUNDS
) -> None:
    """Gives an operator, who may be new, a role and a password or none; earlier wrong passwords no longer count."""
    found, columns = OPERATORS.find(tx, name=name), {"role": role, "password_hash": password_hash, "unlocked_at": now}
    if found is None:
        OPERATORS.create(tx, name=name, **columns, **limit._asdict())
    else:
        OPERATORS.update(tx, found.id, **columns, **limit._asdict())
