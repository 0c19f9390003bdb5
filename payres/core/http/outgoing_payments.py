"""Quotes and outgoing payments over HTTP, and the spending of the grant behind a token.

Specification 4.1, 4.3, 4.7 to 4.9.
"""

from collections.abc import Awaitable
from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.core.grants.access import Caller
from payres.core.grants.spending_limits import Spent, current_window, spent_in_window
from payres.core.http import resources
from payres.core.http.authorize import authorize_reading
from payres.core.http.context import Context
from payres.core.http.requests import read_body
from payres.core.http.responses import json_response
from payres.core.payments import outgoing as rules
from payres.core.payments import quotes as quote_rules
from payres.core.payments.remote import Remote
from payres.core.protocol.amounts import Asset, Offer
from payres.core.protocol.gnap import OutgoingPaymentAccess
from payres.core.protocol.wire import GrantSpending, OutgoingPayment, OutgoingPaymentRequest, QuoteRequest
from payres.core.store import outgoing_payments as payments
from payres.core.store import quotes, representations, wallets
from payres.core.store.wallets import active_wallet
from payres.core.store.work import Work


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


def _offer_for_quote(remote: Remote, _: Caller, asked: QuoteRequest) -> Awaitable[Offer | None]:
    quote_rules.check_amounts(asked)
    checked_payer = partial(active_wallet, url=asked.wallet_address)
    return remote.offer(
        checked_payer, asked.receiver, "receiver", asked.debit_amount or None, asked.receive_amount or None
    )


def _offer_for_payment(remote: Remote, caller: Caller, asked: OutgoingPaymentRequest) -> Awaitable[Offer | None] | None:
    """None if there is a quote."""
    if asked.quote_id or not (asked.incoming_payment and asked.debit_amount):
        return None
    checked_payer = partial(rules.checked_payer, caller=caller, asked=asked)
    return remote.offer(checked_payer, asked.incoming_payment, "incomingPayment", asked.debit_amount)


QUOTES = resources.ResourceKind(
    type="quote",
    table=quotes.QUOTES,
    show=representations.quote,
    decoder=msgspec.json.Decoder(QuoteRequest),
    create=quote_rules.create,
    find_offer=_offer_for_quote,
)
OUTGOING_PAYMENTS = resources.ResourceKind(
    type="outgoing-payment",
    table=payments.OUTGOING,
    show=representations.outgoing_payment,
    decoder=msgspec.json.Decoder(OutgoingPaymentRequest),
    create=rules.create,
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
