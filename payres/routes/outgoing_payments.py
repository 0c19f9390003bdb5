"""Outgoing payments over HTTP (parts 4.1, 4.3, 4.9), and what the grant behind a token has spent."""

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.amounts import Asset
from payres.grants.access import Permission
from payres.grants.limits import Spent, current_window, spent_in_window
from payres.http.responses import json_response
from payres.payments import outgoing as rules
from payres.payments.outgoing import Created
from payres.payments.wallet_lookup import active_wallet
from payres.routes import bodies
from payres.routes.authorize import authorize
from payres.routes.context import Context, context_of
from payres.routes.idempotency import Creation
from payres.routes.messages import read_body, read_json_body
from payres.routes.page_query import page_query, wallet_address_of
from payres.store import outgoing, wallets
from payres.store.database import Transaction
from payres.store.outgoing import OutgoingRecord
from payres.store.pages import PageBounds
from payres.store.wallets import WalletRecord
from payres.wire import (
    GrantSpending,
    OutgoingPayment,
    OutgoingPaymentAccess,
    OutgoingPaymentPage,
    OutgoingPaymentRequest,
    decode,
)

REQUEST = msgspec.json.Decoder(OutgoingPaymentRequest)
Found = tuple[WalletRecord, OutgoingRecord]
Made = tuple[WalletRecord, Created]


async def create(request: Request) -> Response:
    """POST /outgoing-payments: 201 with what the grant has now spent. The workers send the money."""
    context = context_of(request)
    body = await read_json_body(request)
    permission = await authorize(request, body, "outgoing-payment", "create")
    creation = Creation(request, body, permission)
    asked = decode(REQUEST, body)
    limits = permission.limits_for(asked.wallet_address)
    async with creation:
        earlier = await creation.earlier_answer()
        if earlier is not None:
            return earlier
        offer = await context.remote_quotes.offer_for_payment(asked)
        now = context.clock.now()

        def unit(tx: Transaction) -> Made:
            wallet = active_wallet(tx, context.urls, asked.wallet_address)
            return wallet, rules.create_outgoing_payment(
                tx,
                context.urls,
                wallet,
                permission.client_id,
                permission.grant_id,
                limits,
                asked,
                context.identifiers,
                now,
                offer,
            )

        made, answer = await creation.create(unit, partial(_show, context), now)
    if made is not None:
        payment = made[1].payment
        (context.settlement if payment.incoming_payment_id else context.remote_payments).wake()
    return answer


async def read(request: Request) -> Response:
    """GET /outgoing-payments/{id}."""
    context = context_of(request)
    body = await read_body(request)
    permission = await authorize(request, body, "outgoing-payment", "read")

    def unit(tx: Transaction) -> Found:
        payment = rules.require_outgoing(tx, request.path_params["id"])
        wallet = wallets.wallet_by_id(tx, payment.wallet_address_id)
        if not permission.reaches(context.urls.wallet(wallet.path), payment.client_id):
            raise rules.no_such_payment()
        return wallet, payment

    wallet, payment = await context.database.read(unit)
    return json_response(bodies.outgoing_payment(context.urls, wallet, payment))


async def list_page(request: Request) -> Response:
    """GET /outgoing-payments: a page of the wallet address's payments."""
    context = context_of(request)
    body = await read_body(request)
    permission = await authorize(request, body, "outgoing-payment", "list")
    query, wallet_address = page_query(request), wallet_address_of(request)

    def unit(tx: Transaction) -> tuple[WalletRecord, list[OutgoingRecord], PageBounds]:
        owner = permission.owner_filter(wallet_address)
        wallet = active_wallet(tx, context.urls, wallet_address, "wallet-address")
        payments, bounds = outgoing.page_of_outgoing(tx, wallet.id, owner, query)
        return wallet, list(payments), bounds

    wallet, payments, bounds = await context.database.read(unit)
    result = [bodies.outgoing_payment(context.urls, wallet, payment) for payment in payments]
    return json_response(OutgoingPaymentPage(pagination=bodies.pagination(payments, bounds), result=result))


async def read_grant_spending(request: Request) -> Response:
    """GET /outgoing-payment-grant: the sums of the current window, null when nothing was spent or none is open."""
    context = context_of(request)
    body = await read_body(request)
    permission = await authorize(request, body, "outgoing-payment", "create")
    found = await context.database.read(lambda tx: _find_spending(tx, context, permission))
    if found is None:
        return json_response(GrantSpending(spent_debit_amount=None, spent_receive_amount=None))
    asset, spent = found
    return json_response(
        GrantSpending(
            spent_debit_amount=bodies.amount(spent.debit, asset),
            spent_receive_amount=bodies.amount(spent.receive, spent.receive_asset),
        )
    )


def _show(context: Context, made: Made) -> OutgoingPayment:
    wallet, created = made
    return bodies.outgoing_payment(context.urls, wallet, created.payment, created.spent)


def _find_spending(tx: Transaction, context: Context, permission: Permission) -> tuple[Asset, Spent] | None:
    item = permission.items[0]
    assert isinstance(item, OutgoingPaymentAccess)
    path = context.urls.wallet_path(item.identifier)
    wallet = wallets.find_wallet(tx, path) if path is not None else None
    window = current_window(item.limits or None, context.clock.now())
    if wallet is None or window is None:
        return None
    spent = spent_in_window(tx, permission.grant_id, window)
    return (bodies.wallet_asset(wallet), spent) if spent else None
