"""The OpenAPI document of the Open Payments endpoints, as a part."""

import asyncio
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.http.responses import ANY_ORIGIN, json_response
from payres.core.http.routing import Route
from payres.core.http.serving import Part

OPENAPI_CACHE: Final = {"Cache-Control": "public, max-age=3600", **ANY_ORIGIN}


async def _read_openapi(request: Request) -> Response:
    """GET /openapi.json. The first request takes a while."""
    document = await asyncio.to_thread(_openapi_document, context_of(request).urls.base)
    return json_response(document, headers=OPENAPI_CACHE)


def _openapi_document(base_url: str) -> msgspec.Raw:
    from payres.openapi.resources import encoded_document

    return encoded_document(base_url)


OPENAPI: Final = Part("openapi", routes=(Route("/openapi.json", {"GET": _read_openapi}),))
