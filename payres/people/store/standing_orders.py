"""SQL of standing orders and of their runs: what became of each window that was due."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from payres.agenda.store.agenda import DueKind
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY
from payres.core.store.rows import PageBounds, PageQuery, Table, number, select_page
from payres.core.store.work import Transaction

OrderState = Literal["active", "paused", "ended", "cancelled"]
RunState = Literal["waiting", "paid", "missed", "failed"]


class OrderRecord(msgspec.Struct, frozen=True):
    """A row of `standing_order`. Amounts are in minor units; times are microseconds UTC."""

    id: str
    wallet_address_id: int
    payee: str
    payee_name: str | None
    value: int
    fixed: Literal["send", "receive"]
    most: int
    receive_code: str
    receive_scale: int
    note: str
    interval: str
    zone: str
    state: OrderState
    created_at: int
    problem: str | None = None
    next_window: int = 0
    next_at: int | None = None
    not_before: int = 0
    ended_at: int | None = None
    first_window: int = 0
    paused_until: int | None = None

    @property
    def receive_asset(self) -> Asset:
        """The asset of the payee."""
        return Asset(self.receive_code, self.receive_scale)

    @property
    def is_over(self) -> bool:
        """Whether it pays nothing any more."""
        return self.state in {"ended", "cancelled"}


class RunRecord(msgspec.Struct, frozen=True):
    """A row of `standing_order_run`."""

    order_id: str
    window: int
    window_at: int
    state: RunState
    outgoing_payment_id: str | None = None
    problem: str | None = None
    attempts: int = 0
    retry_at: int | None = None


GIVEN_UP: Final = "given_up"  # the problem of a run that an operator has given up
ORDERS: Final = Table(OrderRecord, "standing_order")
RUNS: Final = Table(RunRecord, "standing_order_run", key="window")
LATE: Final = 3 * DAY  # after a window has begun it is no longer paid
# Reasons and codes of errors that do not go away by themselves: the owner must look.
LASTING: Final = ("no_wallet", "own_wallet", "other_currency", "no_address", "invalid_request")
_AT_ANY_TIME: Final = (*LASTING, GIVEN_UP, "stopped", "restored")
# A clock that was ahead has begun windows that are still to come, or given up the last one, which is not over.
_AHEAD: Final = (
    "FROM standing_order_run r JOIN standing_order o ON o.id = r.order_id"
    f" WHERE r.state <> 'paid' AND r.window_at > {{0}} - {LATE} AND o.state <> 'cancelled' AND (r.window_at > {{0}}"
    f" OR r.state <> 'waiting' AND r.problem NOT IN {_AT_ANY_TIME} AND NOT EXISTS (SELECT 1 FROM standing_order_run n"
    " WHERE n.order_id = r.order_id AND n.window > r.window AND n.window_at <= {0}))"
)
# Windows of orders that begin.
WINDOWS: Final = DueKind(
    name="order",
    table="standing_order",
    due="next_at",
    key=("id",),
    party="standing_order.wallet_address_id",
    at_once=16,
    of_party=2,
    longest=None,
    ahead=f"SELECT 1 {_AHEAD.format(':ahead')} LIMIT 1",
)
# Payments of orders.
TRIES: Final = DueKind(
    name="order-payment",
    table="standing_order_run",
    due="retry_at",
    key=("order_id", "window"),
    label="standing_order_run.order_id || ':' || standing_order_run.window",
    source="standing_order_run JOIN standing_order o ON o.id = standing_order_run.order_id",
    party="o.wallet_address_id",
    at_once=16,
    of_party=2,
    longest=DAY,
)


def count_active(tx: Transaction, code: str, receive_code: str | None = None) -> int:
    """How many active orders pay from wallets in a currency, to payees in another one if that is given."""
    orders = "SELECT count(*) FROM standing_order o JOIN wallet_address w ON w.id = o.wallet_address_id"
    assets = f"{orders} JOIN account a ON a.id = w.account_id JOIN asset s ON s.id = a.asset_id"
    given = f"{assets} WHERE o.state = 'active' AND s.code = ? AND o.receive_code = coalesce(?, o.receive_code)"
    return number(tx, given, code, receive_code)


def page_of_orders(
    tx: Transaction, query: PageQuery, wallet_id: int | None, state: OrderState | None
) -> tuple[Sequence[OrderRecord], PageBounds]:
    """A page of all orders, newest first."""
    return select_page(tx, ORDERS, query, {"wallet_address_id = ?": wallet_id, "state = ?": state})


def orders_of(tx: Transaction, wallet_id: int, limit: int) -> Sequence[OrderRecord]:
    """The newest orders of a wallet."""
    return ORDERS.list(tx, "WHERE wallet_address_id = ? ORDER BY id DESC LIMIT ?", wallet_id, limit)


def coming_orders(tx: Transaction, wallet_id: int, limit: int) -> Sequence[OrderRecord]:
    """The orders of a wallet that are due next, the first one first."""
    coming = "WHERE wallet_address_id = ? AND next_at IS NOT NULL ORDER BY next_at LIMIT ?"
    return ORDERS.list(tx, coming, wallet_id, limit)


def orders_in_trouble(tx: Transaction, wallet_id: int, limit: int) -> Sequence[OrderRecord]:
    """The newest orders of a wallet that the server has paused."""
    return ORDERS.list(
        tx, "WHERE wallet_address_id = ? AND problem IS NOT NULL ORDER BY id DESC LIMIT ?", wallet_id, limit
    )


def newest_in_place_of(tx: Transaction, order: OrderRecord) -> OrderRecord:
    """The order that has taken the place of this one, by changes of it; the order itself if none has."""
    changed = "(SELECT wish ->> '$.plan.replaces' FROM quote WHERE quote.id = standing_order.id) = ?"
    where = f"WHERE wallet_address_id = ? AND id > ? AND {changed} ORDER BY id DESC LIMIT 1"
    while found := ORDERS.find(tx, where, order.wallet_address_id, order.id, order.id):
        order = found
    return order


def going_on(tx: Transaction, wallet_id: int) -> int:
    """How many orders of a wallet are not over."""
    return number(tx, "SELECT count(*) FROM standing_order WHERE wallet_address_id = ? AND ended_at IS NULL", wallet_id)


def give_up_run(tx: Transaction, order_id: str, window: int, now: int) -> None:
    """Makes a waiting run due, whose next try ends it."""
    tx.execute(
        "UPDATE standing_order_run SET problem = ?, retry_at = ?"
        " WHERE order_id = ? AND window = ? AND state = 'waiting'",
        (GIVEN_UP, now, order_id, window),
    )


def orders_ahead(tx: Transaction, now: int, limit: int) -> Sequence[OrderRecord]:
    """Orders with unpaid runs of windows that are still to come, or that would not be over by now."""
    return ORDERS.list(tx, f"WHERE id IN (SELECT o.id {_AHEAD.format('?')} LIMIT ?)", *[now] * 3, limit)


def forget_runs(tx: Transaction, order_id: str, now: int) -> int:
    """Deletes these runs of an order, of which there is one. Returns the first window."""
    first = number(tx, f"SELECT min(r.window) {_AHEAD.format('?')} AND o.id = ?", *[now] * 3, order_id)
    unpaid = "DELETE FROM standing_order_run WHERE order_id = ? AND window >= ? AND state <> 'paid'"
    tx.execute(unpaid, (order_id, first))
    return first


def runs_of(tx: Transaction, order_id: str, limit: int) -> Sequence[RunRecord]:
    """The newest runs of an order, newest first."""
    return RUNS.list(tx, "WHERE order_id = ? ORDER BY window DESC LIMIT ?", order_id, limit)


def change_run(tx: Transaction, run: RunRecord) -> None:
    """Stores what became of a run."""
    tx.execute(
        "UPDATE standing_order_run SET state = ?, outgoing_payment_id = ?, problem = ?, attempts = ?, retry_at = ?"
        " WHERE order_id = ? AND window = ?",
        (run.state, run.outgoing_payment_id, run.problem, run.attempts, run.retry_at, run.order_id, run.window),
    )
