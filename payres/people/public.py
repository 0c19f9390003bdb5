"""Public pages: the front page, and the page of a wallet address."""

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http import wallet_addresses
from payres.core.http.context import context_of
from payres.core.http.responses import asks_for
from payres.html.html import language_of, render
from payres.html.qr import qr_code


async def front_page(request: Request) -> Response:
    """GET / by a browser."""
    return render(request, "front.html", {})


async def wallet_page(request: Request) -> Response:
    """GET {wallet address} by a browser."""
    if asks_for(request.scope["headers"], wallet_addresses.SPSP_TYPE):
        return await wallet_addresses.read(request)
    wallet = await wallet_addresses.find(request)
    urls = context_of(request).urls
    address = urls.wallet(wallet.path)
    values = {
        "wallet": wallet,
        "name": wallet.name,
        "address": address,
        "pointer": urls.pointer(wallet.path) or address,
        "qr": qr_code(address, language_of(request).say("QR code of this wallet address")),
    }
    response = render(request, "wallet.html", values)
    response.headers["Vary"] = "Accept"
    return response
