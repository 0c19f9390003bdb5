"""Quotes over HTTP. Specification 4.7, 4.8."""

from functools import partial

import msgspec

from payres import representations
from payres.grants.access import Caller
from payres.interledger.quoting import RemoteQuotes
from payres.payments import quotes as rules
from payres.routes import resources
from payres.routes.context import Context
from payres.store import quotes
from payres.store.work import Work
from payres.terms import Offer
from payres.wire import Quote, QuoteRequest


def _create(work: Work, _: Context, caller: Caller, asked: QuoteRequest, offer: Offer | None) -> Quote:
    wallet, quote = rules.create(work, caller, asked, offer)
    return representations.quote(work.urls, wallet, quote)


QUOTES = resources.ResourceKind(
    type="quote",
    table=quotes.QUOTES,
    show=representations.quote,
    decoder=msgspec.json.Decoder(QuoteRequest),
    create=_create,
    find_offer=RemoteQuotes.offer_for_quote,
)

create = partial(resources.create, kind=QUOTES)  # POST /quotes
read = partial(resources.read, kind=QUOTES)  # GET /quotes/{id}
