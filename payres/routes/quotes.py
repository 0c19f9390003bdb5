"""Quotes over HTTP. Specification 4.7, 4.8."""

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.grants.access import Caller
from payres.http.responses import json_response
from payres.payments import quotes as rules
from payres.routes import bodies, creation, reading
from payres.routes.context import Context, context_of
from payres.store import quotes
from payres.store.work import Work
from payres.terms import Offer
from payres.wire import Quote, QuoteRequest

KIND = reading.Kind("quote", "quote", quotes.find_quote, bodies.quote)


async def create(request: Request) -> Response:
    """POST /quotes: 201."""
    _, answer = await creation.create(request, CREATION)
    return answer


async def read(request: Request) -> Response:
    """GET /quotes/{id}."""
    wallet, quote = await reading.read(request, KIND)
    return json_response(bodies.quote(context_of(request).urls, wallet, quote))


def _create(work: Work, _: Context, caller: Caller, asked: QuoteRequest, offer: Offer | None) -> Quote:
    wallet, quote = rules.create(work, caller, asked, offer)
    return bodies.quote(work.urls, wallet, quote)


async def _find_offer(context: Context, asked: QuoteRequest) -> Offer | None:
    return await context.remote_quotes.offer_for_quote(asked)


CREATION = creation.Kind(KIND.type, msgspec.json.Decoder(QuoteRequest), _create, _find_offer)
