"""What all pages share, as a part: the style sheets, web manifest and icon."""

import sys
from functools import partial
from importlib import import_module
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.http.routing import Route, load_in_thread
from payres.core.http.serving import Part
from payres.core.http.site import CACHED
from payres.html.brand import ACCENTS, SHIELD, logo

# An operator's SVG file may contain scripts and links; opened as a page of its own, it must do nothing.
INERT: Final = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox"}


async def load_module(name: str) -> Any:
    """The module with this name, loaded in a thread: what pages and their rules import takes long."""
    found = sys.modules.get(name)
    is_loaded = found is not None and not getattr(found.__spec__, "_initializing", False)  # by another thread
    return found if is_loaded else await load_in_thread(partial(import_module, name))


async def _static(request: Request) -> Response:
    pages = await load_module("payres.html.html")
    answer: Response = await pages.read_static(request)
    return answer


async def _icon(request: Request) -> Response:
    """GET /favicon.ico: the logo, or the shield in the accent colour."""
    settings = context_of(request).settings
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
        Route("/static/{file}", {"GET": _static}, is_json=False),
        Route("/favicon.ico", {"GET": _icon}, is_json=False),
    ),
)
