"""The OpenAPI document of the Open Payments endpoints over HTTP. `payres/routes/openapi_operations.py` makes it."""

import asyncio
from functools import cache
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.http.cross_origin import ANY_ORIGIN
from payres.http.responses import json_response

CACHE: Final = {"Cache-Control": "public, max-age=3600", **ANY_ORIGIN}


async def read(_: Request) -> Response:
    """GET /openapi.json."""
    return json_response(await asyncio.to_thread(_document), headers=CACHE)


@cache
def _document() -> msgspec.Raw:
    """Made once, on a thread of its own: that takes a while."""
    from payres.openapi import as_text
    from payres.routes.openapi_operations import public_document

    return msgspec.Raw(as_text(public_document()).encode())
