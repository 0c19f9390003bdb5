"""A payment with its whole story."""

from functools import partial
from typing import Final

import msgspec
from starlette.responses import Response

from payres.admin import payments
from payres.admin.stories import PaymentStory
from payres.admin.wire import Payment
from payres.grants.wording import visible_text
from payres.pages.story import moments_of
from payres.pages.tables import Cell, Column, cell_of, linked, make_table, page_of
from payres.pages.visit import View, Visit

LIVE_SECONDS: Final = 5

EVENT_COLUMNS: Final = (
    Column("Sequence", lambda one: Cell(str(one[0].sequence), "code")),
    Column("Time (UTC)", lambda one: Cell(one[0].timestamp, "time")),
    Column("Event", lambda one: Cell(one[0].type)),
    Column("Webhook", lambda one: linked("webhooks", one[1] and one[1].webhook, "code")),
    Column("Delivery", lambda one: cell_of(one[1] and one[1].state, "state")),
    Column("Attempts", lambda one: cell_of(one[1] and one[1].attempts, "number")),
    Column("Error", lambda one: cell_of(one[1] and one[1].last_error, "long")),
    Column("Next (UTC)", lambda one: cell_of(one[1] and one[1].next_attempt_at, "time")),
)


@View
async def page(visit: Visit) -> Response:
    """The page of a payment."""
    story = await visit.read(partial(payments.show, id=visit.segments["id"]))
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
        ("Receiver", cell_of(payment.receiver, "code")),
        ("Failure", cell_of(payment.failure)),
        ("Created (UTC)", Cell(payment.created_at, "time")),
        ("Ended (UTC)", cell_of(payment.ended_at, "time")),
        ("Takes money until (UTC)", cell_of(payment.expires_at, "time")),
    ]


def _metadata(payment: Payment) -> str | None:
    if payment.metadata is None:
        return None
    text = msgspec.json.format(bytes(payment.metadata), indent=2).decode()
    return "\n".join(map(visible_text, text.splitlines()))
