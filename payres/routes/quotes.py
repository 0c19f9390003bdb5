"""Quotes over HTTP (parts 4.7, 4.8)."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.http.responses import json_response
from payres.payments import quotes as rules
from payres.payments.wallet_lookup import active_wallet
from payres.routes import bodies
from payres.routes.authorize import authorize
from payres.routes.context import context_of
from payres.routes.idempotency import Creation
from payres.routes.messages import read_body, read_json_body
from payres.store import wallets
from payres.store.database import Transaction
from payres.store.quotes import QuoteRecord
from payres.store.wallets import WalletRecord
from payres.wire import QuoteRequest, decode

REQUEST = msgspec.json.Decoder(QuoteRequest)
Found = tuple[WalletRecord, QuoteRecord]


async def create(request: Request) -> Response:
    """POST /quotes: 201."""
    context = context_of(request)
    body = await read_json_body(request)
    permission = await authorize(request, body, "quote", "create")
    creation = Creation(request, body, permission)
    asked = decode(REQUEST, body)
    permission.item_for(asked.wallet_address)
    async with creation:
        earlier = await creation.earlier_answer()
        if earlier is not None:
            return earlier
        offer = await context.remote_quotes.offer_for_quote(asked)
        now = context.clock.now()

        def unit(tx: Transaction) -> Found:
            wallet = active_wallet(tx, context.urls, asked.wallet_address)
            lifetime = context.settings.quote_lifetime
            if offer is not None:
                return wallet, rules.record_offer(
                    tx, wallet, permission.client_id, offer, context.identifiers, lifetime, now
                )
            return wallet, rules.create_quote(
                tx, context.urls, wallet, permission.client_id, asked, context.identifiers, lifetime, now
            )

        _, answer = await creation.create(unit, lambda made: bodies.quote_body(context.urls, *made), now)
    return answer


async def read(request: Request) -> Response:
    """GET /quotes/{id}."""
    context = context_of(request)
    body = await read_body(request)
    permission = await authorize(request, body, "quote", "read")

    def unit(tx: Transaction) -> Found:
        quote = rules.require_quote(tx, request.path_params["id"])
        wallet = wallets.wallet_by_id(tx, quote.wallet_address_id)
        if not permission.reaches(context.urls.wallet(wallet.path), quote.client_id):
            raise rules.no_such_quote()
        return wallet, quote

    wallet, quote = await context.database.read(unit)
    return json_response(bodies.quote_body(context.urls, wallet, quote))
