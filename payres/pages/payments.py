"""Payments in both directions, and the whole story of one."""

from typing import Final

import msgspec
from starlette.responses import Response

from payres.admin import payments
from payres.admin.stories import PaymentStory
from payres.admin.wire import Payment
from payres.grants.wording import visible_text
from payres.pages.listing import Listing, page_for
from payres.pages.story import moments_of
from payres.pages.tables import Cell, Column, linked, long, make_table, number, page_of, state, text, time
from payres.pages.visit import Page, Visit
from payres.store.work import Work

LIVE_SECONDS: Final = 5

COLUMNS: Final = (
    Column("Created (UTC)", time("created_at")),
    Column("Payment", lambda one: linked("payments", one.id, "code")),
    Column("Direction", text("direction")),
    Column("Wallet", lambda one: linked("wallets", one.wallet)),
    Column("Amount", number("amount")),
    Column("Moved", number("moved")),
    Column("Asset", text("asset_code")),
    Column("State", state),
    Column("Receiver", long("receiver")),
    Column("Failure", long("failure")),
)
EVENT_COLUMNS: Final = (
    Column("Sequence", lambda one: Cell(str(one[0].sequence), "code")),
    Column("Time (UTC)", lambda one: Cell(one[0].timestamp, "time")),
    Column("Event", lambda one: Cell(one[0].type)),
    Column("Webhook", lambda one: linked("webhooks", one[1] and one[1].webhook, "code")),
    Column("Delivery", lambda one: Cell(one[1].state if one[1] else "", "state")),
    Column("Attempts", lambda one: Cell(str(one[1].attempts) if one[1] else "", "number")),
    Column("Error", lambda one: Cell((one[1] and one[1].last_error) or "", "long")),
    Column("Next (UTC)", lambda one: _time(one[1] and one[1].next_attempt_at)),
)
LIST: Final = page_for(
    Listing(
        "Payments",
        "payments.list_page",
        COLUMNS,
        "There are no such payments",
        "Moved is what an incoming payment has received, or an outgoing one has sent.",
    )
)


async def _show(visit: Visit) -> Response:
    def unit(work: Work) -> PaymentStory:
        return payments.show(work, visit.segments["id"])

    story = await visit.read(unit)
    payment = story.payment
    is_under_way = payment.state == "sending"
    is_refundable = payment.direction == "incoming" and any(map(str.isdigit, payment.moved.strip("0.")))
    is_live = is_under_way and visit.request.query_params.get("live") == "1"
    return visit.show(
        "payment.html",
        "/payments",
        payment=payment,
        facts=_facts(payment, story),
        metadata=_metadata(payment),
        actions=[("Refund", f"{page_of('payments', payment.id)}/refund")] if is_refundable else [],
        moments=moments_of(story, visit.context.urls),
        story=story,
        events=make_table(
            "Events",
            EVENT_COLUMNS,
            [(event, one) for event in story.events for one in (*event.deliveries,) or (None,)],
            "There are none any more: they are kept 30 days",
        ),
        is_under_way=is_under_way,
        is_live=is_live,
        refresh=LIVE_SECONDS if is_live else None,
    )


def _facts(payment: Payment, story: PaymentStory) -> list[tuple[str, Cell]]:
    def money(amount: str | None) -> Cell:
        return Cell("" if amount is None else f"{payment.asset_code} {amount}")

    is_incoming = payment.direction == "incoming"
    delivered = story.delivered
    refunded = payment.refunded if payment.refunded.strip("0.") else None
    return [
        ("State", Cell(payment.state, "state")),
        ("Wallet", linked("wallets", payment.wallet)),
        ("Wants" if is_incoming else "May debit", money(payment.amount)),
        ("Received" if is_incoming else "Sent", money(payment.moved)),
        ("Delivered", Cell(f"{delivered.asset_code} {delivered.amount}" if delivered else "")),
        ("Sent back" if is_incoming else "Came back", money(refunded)),
        ("Client", Cell(payment.client)),
        ("Refund of", linked("payments", payment.refund_of, "code")),
        ("Grant", linked("grants", payment.grant, "code")),
        ("Receiver", Cell(payment.receiver or "", "code")),
        ("Failure", Cell(payment.failure or "")),
        ("Created (UTC)", Cell(payment.created_at, "time")),
        ("Ended (UTC)", Cell(payment.ended_at or "", "time")),
        ("Takes money until (UTC)", Cell(payment.expires_at or "", "time")),
    ]


def _time(at: str | None) -> Cell:
    return Cell(at or "", "time" if at else "text")


def _metadata(payment: Payment) -> str | None:
    if payment.metadata is None:
        return None
    text = msgspec.json.format(bytes(payment.metadata), indent=2).decode()
    return "\n".join(map(visible_text, text.splitlines()))


PAGE: Final = Page(_show)
