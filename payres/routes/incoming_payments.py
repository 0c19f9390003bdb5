"""Incoming payments over HTTP (parts 4.2, 4.4, 4.5, 4.6)."""

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.errors import InvalidRequest
from payres.grants.access import Permission
from payres.grants.tokens import require_token_in_force
from payres.payments import incoming as rules
from payres.payments.wallet_lookup import active_wallet
from payres.routes import bodies
from payres.routes.authorize import authorize
from payres.routes.context import Context, context_of
from payres.routes.idempotency import Creation
from payres.routes.messages import json_response, read_body, read_json_body
from payres.routes.page_query import page_query, wallet_address_of
from payres.store import incoming, wallets
from payres.store.database import Transaction
from payres.store.incoming import IncomingRecord
from payres.store.pages import PageBounds, PageQuery
from payres.store.wallets import WalletRecord
from payres.wire import IncomingPayment, IncomingPaymentPage, IncomingPaymentRequest, PublicIncomingPayment, decode

REQUEST = msgspec.json.Decoder(IncomingPaymentRequest)
Found = tuple[WalletRecord, IncomingRecord]


async def create(request: Request) -> Response:
    """POST /incoming-payments: 201 with methods."""
    context = context_of(request)
    body = await read_json_body(request)
    permission = await authorize(request, body, "incoming-payment", "create")
    asked = decode(REQUEST, body)
    wallet_address = asked.wallet_address or permission.identifier()
    if not wallet_address:
        raise InvalidRequest("walletAddress is needed: the grant does not name one", field="walletAddress")
    permission.item_for(wallet_address)
    creation = Creation(request, body, permission, None if asked.wallet_address else wallet_address)
    now = context.clock.now()

    def unit(tx: Transaction) -> Found:
        wallet = active_wallet(tx, context.urls, wallet_address)
        lifetime = context.settings.incoming_payment_lifetime
        return wallet, rules.create_incoming_payment(
            tx, wallet, permission.client_id, asked, context.identifiers, lifetime, now
        )

    def show(made: Found) -> IncomingPayment:
        return bodies.incoming_payment(
            context.urls, *made, methods=bodies.payment_methods(context.credentials, *made, now=now)
        )

    async with creation:
        _, answer = await creation.create(unit, show, now)
    return answer


async def read(request: Request) -> Response:
    """GET /incoming-payments/{id}: the payment with methods; without an Authorization header its public form."""
    context = context_of(request)
    payment_id = request.path_params["id"]
    if "authorization" not in request.headers:
        return await _read_public(context, payment_id)
    body = await read_body(request)
    permission = await authorize(request, body, "incoming-payment", "read")
    unit = partial(_find, context=context, payment_id=payment_id, permission=permission)
    wallet, payment = await context.database.read(unit)
    methods = bodies.payment_methods(context.credentials, wallet, payment, context.clock.now())
    return json_response(bodies.incoming_payment(context.urls, wallet, payment, methods))


async def complete(request: Request) -> Response:
    """POST /incoming-payments/{id}/complete: 200 without methods."""
    context = context_of(request)
    body = await read_body(request)
    permission = await authorize(request, body, "incoming-payment", "complete")
    payment_id = request.path_params["id"]
    now = context.clock.now()

    def unit(tx: Transaction) -> Found:
        require_token_in_force(tx, permission, now)
        wallet, payment = _find(tx, context, payment_id, permission)
        return wallet, rules.complete_incoming_payment(tx, payment, now)

    wallet, payment = await context.database.write(unit)
    return json_response(bodies.incoming_payment(context.urls, wallet, payment))


async def list_page(request: Request) -> Response:
    """GET /incoming-payments: a page of the wallet address's payments, without methods."""
    context = context_of(request)
    body = await read_body(request)
    permission = await authorize(request, body, "incoming-payment", "list")
    query = page_query(request)
    unit = partial(
        _find_page, context=context, wallet_address=wallet_address_of(request), permission=permission, query=query
    )
    wallet, payments, bounds = await context.database.read(unit)
    result = [bodies.incoming_payment(context.urls, wallet, payment) for payment in payments]
    return json_response(IncomingPaymentPage(pagination=bodies.pagination(payments, bounds), result=result))


async def _read_public(context: Context, payment_id: str) -> Response:
    def unit(tx: Transaction) -> Found:
        payment = rules.require_incoming(tx, payment_id)
        return wallets.wallet_by_id(tx, payment.wallet_address_id), payment

    wallet, payment = await context.database.read(unit)
    received = bodies.amount(payment.received, bodies.wallet_asset(wallet))
    return json_response(PublicIncomingPayment(received_amount=received, auth_server=context.urls.auth_server))


def _find(tx: Transaction, context: Context, payment_id: str, permission: Permission) -> Found:
    """The payment, if it exists for the caller."""
    payment = rules.require_incoming(tx, payment_id)
    wallet = wallets.wallet_by_id(tx, payment.wallet_address_id)
    if not permission.reaches(context.urls.wallet(wallet.path), payment.client_id):
        raise rules.no_such_payment()
    return wallet, payment


def _find_page(
    tx: Transaction, context: Context, wallet_address: str, permission: Permission, query: PageQuery
) -> tuple[WalletRecord, list[IncomingRecord], PageBounds]:
    owner = permission.owner_filter(wallet_address)
    wallet = active_wallet(tx, context.urls, wallet_address, "wallet-address")
    payments, bounds = incoming.page_of_incoming(tx, wallet.id, owner, query)
    return wallet, list(payments), bounds
