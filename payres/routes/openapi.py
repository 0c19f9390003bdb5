"""The OpenAPI document of the Open Payments endpoints over HTTP. `payres/routes/openapi_operations.py` makes it."""

from functools import cache
from pathlib import Path
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.http.cross_origin import ANY_ORIGIN
from payres.http.responses import json_response

CACHE: Final = {"Cache-Control": "public, max-age=3600", **ANY_ORIGIN}


async def read(_: Request) -> Response:
    """GET /openapi.json."""
    return json_response(_document(), headers=CACHE)


@cache
def _document() -> msgspec.Raw:
    return msgspec.Raw(Path(__file__).with_name("openapi.json").read_bytes())
