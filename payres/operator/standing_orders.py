"""Standing orders, as operators see them; owners set them up and end them on their pages."""

from collections.abc import Sequence
from typing import Annotated, Final

from msgspec import UNSET, UnsetType

from payres.core.grants.spending_limits import parse_interval
from payres.core.protocol.errors import require
from payres.core.protocol.visible import visible_url
from payres.core.protocol.wire import Resource
from payres.core.store.rows import PageBounds, PageQuery
from payres.core.store.wallets import WALLETS, require_wallet
from payres.core.store.work import Work
from payres.html.language import Language
from payres.html.sentences import length_words
from payres.operator.declared.declarations import CommandLine, Listing, operation
from payres.operator.declared.inputs import Name, said
from payres.operator.declared.shapes import Column, Shape, Time, decimals, fact, represent
from payres.operator.wallets import named_wallet
from payres.people.standing_orders import paused_until
from payres.people.store import standing_orders as store
from payres.people.store.standing_orders import ORDERS, OrderRecord, OrderState, RunState

RUNS_SHOWN: Final = 12
ENGLISH: Final = Language("en", 0)


class StandingOrderRun(Resource, frozen=True, kw_only=True):
    """A date of an order: `paymentId` is the payment that was made, `problem` why none was, or none yet."""

    window: int
    due_at: Time
    state: RunState
    payment_id: str | None
    problem: str | None
    attempts: int
    retry_at: Time | None


class StandingOrder(Resource, frozen=True, kw_only=True):
    """`amount` is what leaves the wallet if `fixed` is `send`, or what arrives; `most` is what a payment takes from the
    wallet at most. `interval` is on the clocks of `timeZone`. `problem` is why the server paused it; dates before
    `pausedUntil` are left out, because the owner wanted that. `runs` are the latest ones, newest first."""

    id: str
    wallet: str
    payee: str
    payee_name: str | None
    amount: str
    fixed: str
    asset_code: str
    most: str
    note: str
    interval: str
    time_zone: str
    state: OrderState
    problem: str | None
    paused_until: Time | None
    next_at: Time | None
    created_at: Time
    ended_at: Time | None
    runs: list[StandingOrderRun]


def standing_order(work: Work, record: OrderRecord) -> StandingOrder:
    wallet = WALLETS.by_id(work, record.wallet_address_id)
    asset = wallet.asset if record.fixed == "send" else record.receive_asset
    runs = [
        represent(StandingOrderRun, run, due_at=run.window_at, payment_id=run.outgoing_payment_id)
        for run in store.runs_of(work, record.id, RUNS_SHOWN)
    ]
    return represent(
        StandingOrder,
        record,
        wallet=wallet.path,
        **decimals(asset, amount=record.value),
        asset_code=asset.code,
        **decimals(wallet.asset, most=record.most),
        time_zone=record.zone,
        paused_until=paused_until(work, record),
        runs=runs,
    )


def require_order(work: Work, id: str) -> OrderRecord:
    """Raises NotFound."""
    return require(ORDERS.get(work, id), f"There is no standing order {id}", "`payres order list` shows all")


def _last(one: StandingOrder) -> str | None:
    """What became of the latest date."""
    if not one.runs:
        return None
    run = one.runs[0]
    return f"{run.due_at[:10]} {run.state}{f', {run.problem}' if run.problem else ''}"


ORDER: Final = Shape(
    standing_order,
    Column("Since (UTC)", "created_at", "time"),
    Column("Standing order", "id", "code", listed="in files"),
    Column("Wallet", "wallet", "long", "wallets"),
    Column("To", lambda one: one.payee_name or visible_url(one.payee).text, "long", listed="on pages"),
    Column("To", "payee", "long", listed="in files"),
    Column("Amount", "amount", "number"),
    Column("How often", lambda one: length_words(ENGLISH, parse_interval(one.interval)), listed="on pages"),
    Column("Interval", "interval", "code", listed="in files"),
    Column("State", "state", "state"),
    Column("Next (UTC)", "next_at", "time"),
    Column("Last", _last, "long"),
    fact("Amount is what", lambda one: "is sent" if one.fixed == "send" else "arrives"),
    fact("At most", "most", "number"),
    fact("Note", "note", "long"),
    fact("Time zone", "time_zone"),
    fact("Paused because", "problem"),
    fact("Paused until (UTC)", "paused_until", "time"),
    fact("Ended (UTC)", "ended_at", "time"),
)


@operation(
    "GET /orders payments:read",
    ORDER,
    command=CommandLine("order list", "--state paused"),
    listing=Listing(
        *("orders", "There are no such standing orders", "Standing orders"),
        menu="Payments",
        none_yet="No standing order yet",
        about="Owners set them up, pause and end them on their pages.",
        views={"All": "", "Active": "state=active", "Paused": "state=paused"},
    ),
    noun="orders",
)
def list_orders(
    work: Work,
    page: PageQuery,
    wallet: Annotated[Name | UnsetType, said("Only of this wallet.", metavar="PATH", typed=named_wallet)] = UNSET,
    state: Annotated[OrderState | UnsetType, said("Only in this state.")] = UNSET,
) -> tuple[Sequence[OrderRecord], PageBounds]:
    """List standing orders of owners, newest first."""
    owner = require_wallet(work, wallet).id if wallet else None
    return store.page_of_orders(work, page, owner, state or None)


@operation("GET /orders/{id} payments:read", ORDER, command=CommandLine("order show ID"), noun="orders")
def show_order(work: Work, id: str) -> OrderRecord:
    """Show a standing order with its latest runs."""
    return require_order(work, id)
