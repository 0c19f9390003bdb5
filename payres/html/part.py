"""What all pages share, as a part: the style sheets, web manifest and icon; and the security contact."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.http.routing import Route
from payres.core.http.serving import Part
from payres.html.brand import ACCENTS, SHIELD, logo
from payres.html.html import read_static
from payres.html.security_contact import CACHED, read_security
from payres.html.settings import PageSettings

# An operator's SVG file may contain scripts and links; opened as a page of its own, it must do nothing.
INERT: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}


async def _icon(request: Request) -> Response:
    """GET /favicon.ico: the logo, or the shield in the accent colour."""
    settings = context_of(request).settings.of(PageSettings)
    if settings.logo:
        found = logo(settings.logo)
        return Response(found.content, headers=CACHED | INERT, media_type=found.media_type)
    accent = settings.accent or ACCENTS[0]
    tick = 'fill="none" stroke="#fff" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"'
    icon = SHIELD.replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" fill="{accent}" ', 1)
    return Response(icon.replace('class="tick"', tick), headers=CACHED, media_type="image/svg+xml")


HTML: Final = Part(
    "html",
    routes=(
        Route("/static/{file}", {"GET": read_static}, is_json=False),
        Route("/favicon.ico", {"GET": _icon}, is_json=False),
        Route("/.well-known/security.txt", {"GET": read_security}, is_json=False),
    ),
)
