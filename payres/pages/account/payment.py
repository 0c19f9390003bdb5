"""The page of one movement: while a payment is on its way, where it is; later, what became of it."""

from functools import partial
from typing import Final

from starlette.responses import Response

from payres.clock import MINUTE
from payres.grants.wording import ShownUrl
from payres.owner import payments
from payres.owner.payments import Incoming, Outgoing
from payres.pages import bills
from payres.pages.account.visits import Visit
from payres.store.payments import INCOMING
from payres.store.work import Work

LOOK_SECONDS: Final = 3
ACTIVITY: Final = "/account/activity"  # the tab of what is over
FRESH: Final = 10 * MINUTE  # how long the page of a payment tells the owner how it went, before all else


async def show(visit: Visit) -> Response:
    """GET /account/payments/{payment}."""
    found = await visit.read(partial(payments.find, wallet=visit.wallet, payment_id=visit.segments["payment"]))
    now, asset = visit.language.now, visit.wallet.asset
    if isinstance(found, Outgoing):
        payment, terms = found.payment, found.payment.terms
        back = await visit.read(partial(_way_back, found=found))
        is_fresh = payment.grant_id is None and (payment.ended_at is None or now - payment.ended_at < FRESH)
        return visit.show(
            "payment_out.html",
            tab="" if is_fresh else ACTIVITY,
            refresh=LOOK_SECONDS if payment.state == "sending" else None,
            found=found,
            payment=payment,
            terms=terms,
            is_fresh=is_fresh,
            back=back,
            took=None if terms.path is None or payment.ended_at is None else payment.ended_at - payment.created_at,
            rest=visit.language.decimal(terms.debit - payment.sent, asset),
        )
    if isinstance(found, Incoming):
        return visit.show("payment_in.html", tab=ACTIVITY, found=found, payment=found.payment, asset=asset)
    return visit.show("payment_moved.html", tab=ACTIVITY, found=found)


def _way_back(work: Work, found: Outgoing) -> ShownUrl | None:
    """Where who has paid a bill of a shop here came from."""
    bill_id = found.payment.terms.incoming_payment_id if found.is_bill else None
    return bills.way_back(INCOMING.by_id(work, bill_id).metadata) if bill_id else None
