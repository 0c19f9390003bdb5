"""Incoming payments over HTTP. Specification 4.2, 4.4, 4.5, 4.6."""

from functools import partial
from urllib.parse import quote

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.core.grants.access import Caller
from payres.core.grants.tokens import require_still_valid
from payres.core.http import resources
from payres.core.http.authorize import authorize
from payres.core.http.context import Context, context_of
from payres.core.http.request_head import header
from payres.core.http.requests import read_body, read_json_body
from payres.core.http.responses import is_browser, json_response
from payres.core.payments import incoming as rules
from payres.core.process.rate_limiter import address_of
from payres.core.protocol import wire
from payres.core.store import incoming_payments, representations
from payres.core.store.work import Work

COMPLETION_REQUEST = msgspec.json.Decoder(wire.CompletionRequest)


async def read(request: Request) -> Response:
    """GET /incoming-payments/{id}: the payment with methods; without an Authorization header its public form, or for
    browsers a redirect to its payment page."""
    context = context_of(request)
    if header(request.scope["headers"], b"authorization") is None:
        if is_browser(request.scope["headers"]):
            return _lead_to_page(request)
        return await _read_public(request)
    wallet, payment, headers = await resources.find_visible(request, INCOMING_PAYMENTS)
    shown = representations.incoming_payment(context.urls, wallet, payment)
    is_open = payment.open_at(context.clock.now())
    return json_response(_with_methods(context, shown, is_open=is_open), headers=headers)


async def complete(request: Request) -> Response:
    """POST /incoming-payments/{id}/complete: 200 without methods."""
    context = context_of(request)
    body = await read_json_body(request)
    caller = await authorize(request, body, "incoming-payment", "complete")
    wire.decode(COMPLETION_REQUEST, body or b"{}")
    unit = partial(_complete, caller=caller, payment_id=request.path_params["id"])
    return json_response(await context.database.write(unit))


def _with_methods(context: Context, shown: wire.IncomingPayment, *, is_open: bool) -> wire.IncomingPayment:
    """An incoming payment with its payment methods, none if it accepts no more money."""
    methods: list[wire.PaymentMethod] = []
    if is_open:
        payment_id = shown.id.rpartition("/")[2]
        methods = context.remote.methods(payment_id, shown.received_amount.asset)
    return msgspec.structs.replace(shown, methods=methods)


def _complete(work: Work, caller: Caller, payment_id: str) -> wire.IncomingPayment:
    require_still_valid(work, caller)
    wallet, payment = resources.find(work, INCOMING_PAYMENTS, payment_id, caller)
    return rules.complete(work, wallet, payment)


def _lead_to_page(request: Request) -> Response:
    where = f"/pay/{quote(request.path_params['id'], safe='')}"
    return Response(status_code=303, headers={"Location": where, "Cache-Control": "no-store", "Vary": "Accept"})


async def _read_public(request: Request) -> Response:
    context = context_of(request)
    await read_body(request)  # so that the next message means a disconnect
    unit = partial(resources.find, kind=INCOMING_PAYMENTS, record_id=request.path_params["id"])
    before = await context.database.read(unit)
    who = address_of(request.scope)
    wallet, payment, headers = await resources.find_changed(request, INCOMING_PAYMENTS, who, before, unit)
    received = representations.amount(payment.received, wallet.asset)
    shown = wire.PublicIncomingPayment(received_amount=received, auth_server=context.urls.auth_server)
    return json_response(shown, headers=headers)


INCOMING_PAYMENTS = resources.ResourceKind(
    type="incoming-payment",
    table=incoming_payments.INCOMING,
    show=representations.incoming_payment,
    decoder=msgspec.json.Decoder(wire.IncomingPaymentRequest),
    create=lambda work, caller, asked, _: rules.create(work, caller, asked),
    show_created=partial(_with_methods, is_open=True),
    is_final=lambda payment, now: not payment.open_at(now),
)

create = partial(resources.create, kind=INCOMING_PAYMENTS)  # POST /incoming-payments: with methods
list_page = partial(resources.list_page, kind=INCOMING_PAYMENTS)  # GET /incoming-payments: without methods
