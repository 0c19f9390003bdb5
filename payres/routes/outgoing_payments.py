"""Quotes and outgoing payments over HTTP, and the spending of the grant behind a token.

Specification 4.1, 4.3, 4.7 to 4.9.
"""

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres import representations
from payres.amounts import Asset
from payres.gnap import OutgoingPaymentAccess
from payres.grants.access import Caller
from payres.grants.limits import Spent, current_window, spent_in_window
from payres.http.responses import json_response
from payres.payments import outgoing as rules
from payres.payments import quotes as quote_rules
from payres.payments.remote import Remote
from payres.routes import resources
from payres.routes.authorize import authorize_reading
from payres.routes.context import Context
from payres.routes.requests import read_body
from payres.store import payments, quotes, wallets
from payres.store.work import Work
from payres.terms import Offer
from payres.wire import GrantSpending, OutgoingPayment, OutgoingPaymentRequest, Quote, QuoteRequest


async def read_grant_spending(request: Request) -> Response:
    """GET /outgoing-payment-grant: the sums of the current window; null if nothing was spent or no window is open."""
    body = await read_body(request)
    found = await authorize_reading(request, body, "outgoing-payment", "create", _find_spending)
    if found is None:
        return json_response(GrantSpending(spent_debit_amount=None, spent_receive_amount=None))
    asset, spent = found
    return json_response(
        GrantSpending(
            spent_debit_amount=representations.amount(spent.debit, asset),
            spent_receive_amount=representations.amount(spent.receive, spent.receive_asset),
        )
    )


def _create_quote(work: Work, _: Context, caller: Caller, asked: QuoteRequest, offer: Offer | None) -> Quote:
    wallet, quote = quote_rules.create(work, caller, asked, offer)
    return representations.quote(work.urls, wallet, quote)


async def _offer_for_payment(remote: Remote, caller: Caller, asked: OutgoingPaymentRequest) -> Offer | None:
    return await remote.offer_for_payment(asked, partial(rules.find_payer, caller=caller, asked=asked))


def _begin_sending(context: Context, made: OutgoingPayment) -> None:
    if not context.urls.is_ours(made.receiver):
        context.remote.send(made.id.rpartition("/")[2])


def _find_spending(work: Work, caller: Caller) -> tuple[Asset, Spent] | None:
    item = caller.items[0]
    assert isinstance(item, OutgoingPaymentAccess)
    path = work.urls.wallet_path(item.identifier)
    wallet = wallets.find_wallet(work, path) if path is not None else None
    window = current_window(item.limits or None, work.now)
    if wallet is None or window is None:
        return None
    spent = spent_in_window(work, caller.grant_id, window)
    return (wallet.asset, spent) if spent else None


QUOTES = resources.ResourceKind(
    type="quote",
    table=quotes.QUOTES,
    show=representations.quote,
    decoder=msgspec.json.Decoder(QuoteRequest),
    create=_create_quote,
    find_offer=lambda remote, _, asked: remote.offer_for_quote(asked),
)
OUTGOING_PAYMENTS = resources.ResourceKind(
    type="outgoing-payment",
    table=payments.OUTGOING,
    show=representations.outgoing_payment,
    decoder=msgspec.json.Decoder(OutgoingPaymentRequest),
    create=lambda work, _, caller, asked, offer: rules.create(work, caller, asked, offer),
    find_offer=_offer_for_payment,
    on_created=_begin_sending,
    is_final=lambda payment, _: payment.state != "sending",
)

create_quote = partial(resources.create, kind=QUOTES)  # POST /quotes
read_quote = partial(resources.read, kind=QUOTES)  # GET /quotes/{id}
# POST /outgoing-payments: with the amounts that the grant has spent. A payment to a local receiver has then arrived.
create = partial(resources.create, kind=OUTGOING_PAYMENTS)
read = partial(resources.read, kind=OUTGOING_PAYMENTS)  # GET /outgoing-payments/{id}
list_page = partial(resources.list_page, kind=OUTGOING_PAYMENTS)  # GET /outgoing-payments
