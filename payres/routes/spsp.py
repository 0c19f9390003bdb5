"""SPSP (RFC 9): how to pay a wallet address itself, for senders that know a payment pointer and no incoming payment."""

import base64
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from payres.routes.accept import takes
from payres.routes.context import context_of
from payres.routes.cross_origin import ANY_ORIGIN
from payres.store.wallets import WalletRecord
from payres.wire import encode

MEDIA_TYPE: Final = "application/spsp4+json"
HEADERS: Final = {"Cache-Control": "no-store", "Vary": "Accept", **ANY_ORIGIN}


def is_asked(request: Request) -> bool:
    """Whether the request asks for payment details; without that, the same URL tells about the wallet address."""
    return takes(request.scope["headers"], MEDIA_TYPE)


def answer(request: Request, wallet: WalletRecord) -> Response:
    """Details for one payment into the wallet: an ILP address and a secret that nobody else was given."""
    made = context_of(request).credentials.for_wallet(wallet.id, wallet.asset)
    secret = base64.urlsafe_b64decode(made.shared_secret + "=")
    body = {"destination_account": made.ilp_address, "shared_secret": base64.b64encode(secret).decode()}
    return Response(encode(body), headers=HEADERS, media_type=MEDIA_TYPE)
