"""Incoming payments over HTTP. Specification 4.2, 4.4, 4.5, 4.6."""

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.grants.access import Caller
from payres.grants.tokens import require_valid_token
from payres.http.responses import json_response
from payres.payments import incoming as rules
from payres.routes import bodies, creation, reading
from payres.routes.authorize import authorize
from payres.routes.context import Context, context_of
from payres.routes.messages import read_body
from payres.store import incoming
from payres.store.incoming import IncomingRecord
from payres.store.wallets import WalletRecord
from payres.store.work import Work
from payres.terms import Offer
from payres.wire import IncomingPayment, IncomingPaymentRequest, PublicIncomingPayment

KIND = reading.Kind("incoming-payment", "incoming payment", incoming.find_incoming, bodies.incoming_payment)
PAGES = reading.Pages(KIND, incoming.page_of_incoming)


async def create(request: Request) -> Response:
    """POST /incoming-payments: 201 with methods."""
    _, answer = await creation.create(request, CREATION)
    return answer


async def read(request: Request) -> Response:
    """GET /incoming-payments/{id}: the payment with methods; without an Authorization header its public form."""
    context = context_of(request)
    if "authorization" not in request.headers:
        return await _read_public(context, request.path_params["id"])
    wallet, payment = await reading.read(request, KIND)
    return json_response(bodies.payable(context.urls, context.credentials, wallet, payment, context.clock.now()))


async def complete(request: Request) -> Response:
    """POST /incoming-payments/{id}/complete: 200 without methods."""
    context = context_of(request)
    body = await read_body(request)
    caller = await authorize(request, body, KIND.type, "complete")
    unit = partial(_complete, caller=caller, payment_id=request.path_params["id"])
    wallet, payment = await context.database.write(unit)
    return json_response(bodies.incoming_payment(context.urls, wallet, payment))


async def list_page(request: Request) -> Response:
    """GET /incoming-payments: a page of the wallet address's payments, without methods."""
    return await reading.read_page(request, PAGES)


def _create(
    work: Work, context: Context, caller: Caller, asked: IncomingPaymentRequest, _: Offer | None
) -> IncomingPayment:
    wallet, payment = rules.create(work, caller, asked)
    return bodies.payable(work.urls, context.credentials, wallet, payment, work.now)


CREATION = creation.Kind(KIND.type, msgspec.json.Decoder(IncomingPaymentRequest), _create)


def _complete(work: Work, caller: Caller, payment_id: str) -> tuple[WalletRecord, IncomingRecord]:
    require_valid_token(work, caller)
    wallet, payment = reading.find_visible(work, KIND, caller, payment_id)
    return wallet, rules.complete(work, payment)


async def _read_public(context: Context, payment_id: str) -> Response:
    wallet, payment = await context.database.read(partial(reading.find, kind=KIND, record_id=payment_id))
    received = bodies.amount(payment.received, wallet.asset)
    return json_response(PublicIncomingPayment(received_amount=received, auth_server=context.urls.auth_server))
