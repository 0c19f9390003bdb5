"""Pages for everyone: the front page, and that of a wallet address."""

from starlette.requests import Request
from starlette.responses import Response

from payres.pages.html import OLD_STYLE_SHEETS, render
from payres.routes import wallet_addresses


async def front_page(request: Request) -> Response:
    """GET / by a browser: what this server is, and where to go."""
    return render(request, "front.html", {}, style_sheets=OLD_STYLE_SHEETS)


async def wallet_page(request: Request) -> Response:
    """GET {wallet address} by a browser."""
    return await wallet_addresses.read(request)
