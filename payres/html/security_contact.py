"""The site's security contact."""

from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.protocol.clock import DAY, SECOND, format_time
from payres.core.protocol.errors import nothing_here
from payres.html.settings import PageSettings

CACHED: Final = {"Cache-Control": "public, max-age=86400", "X-Content-Type-Options": "nosniff"}
VALID: Final = 180 * DAY  # RFC 9116 recommends less than a year


async def read_security(request: Request) -> Response:
    """GET /.well-known/security.txt (RFC 9116), if the operator has set a contact."""
    context = context_of(request)
    contact = context.settings.of(PageSettings).security_contact
    if not contact:
        raise nothing_here()
    day = context.clock.now() // DAY * DAY  # constant all day, for caches
    expires = format_time((day + VALID) // SECOND * SECOND)
    url = f"{context.urls.base}/.well-known/security.txt"
    text = f"Contact: {contact}\nExpires: {expires}\nCanonical: {url}\n"
    return Response(text, headers=CACHED, media_type="text/plain")
