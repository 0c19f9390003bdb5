"""The site's icon, and its security contact."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.process.settings import ACCENTS, SHIELD, logo
from payres.core.protocol.clock import DAY, SECOND, format_time
from payres.core.protocol.errors import nothing_here

CACHED: Final = {"Cache-Control": "public, max-age=86400", "X-Content-Type-Options": "nosniff"}
# An operator's SVG file may contain scripts and links; opened as a page of its own, it must do nothing.
INERT: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}
VALID: Final = 180 * DAY  # RFC 9116 recommends less than a year


async def read_icon(request: Request) -> Response:
    """GET /favicon.ico: the logo, or the shield in the accent colour."""
    settings = context_of(request).settings
    if settings.logo:
        found = logo(settings.logo)
        return Response(found.content, headers=CACHED | INERT, media_type=found.media_type)
    accent = settings.accent or ACCENTS[0]
    tick = 'fill="none" stroke="#fff" stroke-width="2" stroke-linecap="round" stroke-linejoin="round"'
    icon = SHIELD.replace("<svg ", f'<svg xmlns="http://www.w3.org/2000/svg" fill="{accent}" ', 1)
    return Response(icon.replace('class="tick"', tick), headers=CACHED, media_type="image/svg+xml")


async def read_security(request: Request) -> Response:
    """GET /.well-known/security.txt (RFC 9116), if the operator has set a contact."""
    context = context_of(request)
    contact = context.settings.security_contact
    if not contact:
        raise nothing_here()
    day = context.clock.now() // DAY * DAY  # constant all day, for caches
    expires = format_time((day + VALID) // SECOND * SECOND)
    url = f"{context.urls.base}/.well-known/security.txt"
    text = f"Contact: {contact}\nExpires: {expires}\nCanonical: {url}\n"
    return Response(text, headers=CACHED, media_type="text/plain")
