"""The page of one movement: the progress of a payment, then its result."""

from typing import Final

from starlette.responses import Response

from payres.core.protocol.clock import MINUTE
from payres.core.protocol.visible import ShownUrl, visible_url
from payres.core.store.payments import INCOMING
from payres.core.store.work import Work
from payres.people import bills
from payres.people.account.visits import OwnerVisit
from payres.people.rules import payments, requests
from payres.people.rules.activity import Reader
from payres.people.rules.payments import Detail

LOOK_SECONDS: Final = 3
ACTIVITY: Final = "/account/activity"
FRESH: Final = 10 * MINUTE  # after the end, while the page puts the result first


async def show(visit: OwnerVisit) -> Response:
    """GET /account/payments/{payment}."""

    def unit(work: Work) -> tuple[Detail, ShownUrl | None, bool]:
        reader = Reader(work, visit.wallet, visit.language.zone)
        found = payments.find(work, visit.wallet, reader, visit.segments["payment"])
        bill = found.incoming
        is_request = bill is not None and requests.is_request(work, visit.wallet, bill)
        return found, _way_back(work, found), is_request

    found, back, is_request = await visit.read(unit)
    payment, one = found.outgoing, found.shown
    if payment is None:
        return visit.show(
            "payment_in.html", tab=ACTIVITY, found=found, one=one, payment=found.incoming, is_request=is_request
        )
    terms, ended_at = payment.terms, payment.ended_at
    is_fresh = payment.grant_id is None and (ended_at is None or visit.language.now - ended_at < FRESH)
    return visit.show(
        "payment_out.html",
        tab="" if is_fresh else ACTIVITY,
        refresh=LOOK_SECONDS if payment.state == "sending" else None,
        found=found,
        one=one,
        payment=payment,
        terms=terms,
        is_fresh=is_fresh,
        back=back,
        host=visible_url(terms.receiver).host,
        took=None if terms.path is None or ended_at is None else ended_at - payment.created_at,
    )


def _way_back(work: Work, found: Detail) -> ShownUrl | None:
    """The return URL of the local bill that was paid."""
    bill_id = found.outgoing.terms.incoming_payment_id if found.outgoing and found.is_bill else None
    return bills.way_back(INCOMING.by_id(work, bill_id).metadata) if bill_id else None
