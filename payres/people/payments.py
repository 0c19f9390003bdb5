"""The details of one movement of a wallet, for its owner."""

from collections.abc import Sequence
from datetime import tzinfo
from functools import partial
from typing import Final

import msgspec
from starlette.responses import Response

from payres.core.grants.spending_limits import spending_of
from payres.core.protocol.clock import MINUTE
from payres.core.protocol.errors import require
from payres.core.protocol.visible import ShownUrl, note_of, visible_url
from payres.core.store.grants import GRANTS, GrantRecord
from payres.core.store.incoming_payments import INCOMING, IncomingRecord
from payres.core.store.outgoing_payments import OUTGOING, OutgoingRecord
from payres.core.store.quotes import QUOTES
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Work
from payres.html.sentences import is_short, is_silent
from payres.people import bills
from payres.people.activity import Reader, WalletMovement
from payres.people.money_requests import is_request
from payres.people.own_wallets import spendable
from payres.people.sending import kept_wish
from payres.people.sign_in import OwnerVisit
from payres.people.store.activity import reference_of
from payres.people.store.payments import last_payer
from payres.people.store.refunds import RefundRecord, refunds_of
from payres.people.store.remote_bills import BILL
from payres.people.store.standing_orders import RUNS

REFUNDS: Final = 20
LOOK_SECONDS: Final = 3
ACTIVITY: Final = "/account/activity"
FRESH: Final = 10 * MINUTE  # after the end, while the page puts the result first


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """A movement and its payment. `again` is the quote id of a payment that the owner made (`is_bill`: of an incoming
    payment), `order` the standing order that made it; `to` is the other party's address, if it can be paid again.
    `back` is the return URL of the local bill that was paid; `is_request`, that the owner asked for this money; `free`
    is the wallet's free balance. A deposit or withdrawal may have a `reference`. `allowed` is the grant under which it
    was made, if that is for this one bill."""

    shown: WalletMovement
    note: str
    outgoing: OutgoingRecord | None
    incoming: IncomingRecord | None
    reference: str | None
    to: str
    again: str | None
    is_bill: bool
    back: ShownUrl | None
    is_request: bool
    order: str | None
    refunds: Sequence[RefundRecord]
    free: int
    allowed: GrantRecord | None


def find(work: Work, wallet: WalletRecord, zone: tzinfo, payment_id: str) -> Detail:
    """The details of a movement of the wallet. Raises NotFound."""
    shown = require(Reader(work, wallet, zone).find(payment_id), "There is nothing at this address")
    outgoing, incoming = OUTGOING.get(work, payment_id), INCOMING.get(work, payment_id)
    quote = QUOTES.get(work, outgoing.quote_id) if outgoing and outgoing.quote_id else None
    wish = kept_wish(quote.wish) if quote and quote.wish else None
    there, note = shown.counterpart, shown.note
    is_known = there.address is not None and (incoming or wish or there.wallet_id) and BILL not in there.address.text
    if incoming is not None and not note:
        note = payers_note(work, payment_id)
    grant = GRANTS.by_id(work, outgoing.grant_id) if outgoing and outgoing.grant_id else None
    spending = spending_of(grant.access) if grant else None
    is_bill, run = bool(wish and wish.is_bill), RUNS.find(work, outgoing_payment_id=payment_id)
    paid_id = outgoing.terms.incoming_payment_id if outgoing and is_bill else None
    return Detail(
        shown=shown,
        note=note,
        outgoing=outgoing,
        incoming=incoming,
        reference=reference_of(work, payment_id),
        to=there.address.text if there.address and is_known else "",
        again=quote.id if quote and wish else None,
        is_bill=is_bill,
        back=bills.way_back(INCOMING.by_id(work, paid_id).metadata) if paid_id else None,
        is_request=incoming is not None and is_request(work, wallet, incoming),
        order=run.order_id if run else None,
        refunds=refunds_of(work, "outgoing" if outgoing else "incoming", payment_id, REFUNDS),
        free=spendable(work, wallet),
        allowed=grant if spending and spending.is_for_a_bill else None,
    )


def payers_note(work: Work, payment_id: str) -> str:
    """What the last local payer of an incoming payment wrote themselves; metadata that an app wrote is not shown."""
    payer_id = last_payer(work, payment_id)
    payer = OUTGOING.by_id(work, payer_id) if payer_id else None
    return note_of(payer.metadata) if payer and payer.grant_id is None else ""


async def show(visit: OwnerVisit) -> Response:
    """GET /account/payments/{payment}."""
    payment_id, zone = visit.segments["payment"], visit.language.zone
    visit, found = await visit.found(partial(find, zone=zone, payment_id=payment_id))
    payment, one = found.outgoing, found.shown
    if payment is None:
        return visit.show("payment_in.html", tab=ACTIVITY, found=found, one=one, payment=found.incoming)
    terms, ended_at = payment.terms, payment.ended_at
    is_fresh = payment.grant_id is None and (ended_at is None or visit.language.now - ended_at < FRESH)
    # Who asked for the payment of a bill, and stops asking once that has failed, has not yet learnt so.
    is_ending = (
        payment.state == "failed"
        and found.allowed is not None
        and found.allowed.ended_at is None
        and (ended_at is not None and visit.language.now - ended_at < MINUTE)
    )
    return visit.show(
        "payment_out.html",
        tab="" if is_fresh else ACTIVITY,
        refresh=LOOK_SECONDS if payment.state == "sending" or is_ending else None,
        found=found,
        one=one,
        payment=payment,
        terms=terms,
        is_fresh=is_fresh,
        is_short=is_short(payment.failure),
        is_silent=is_silent(payment.failure),
        host=visible_url(terms.receiver).host,
        took=None if terms.path is None or ended_at is None else ended_at - payment.created_at,
    )
