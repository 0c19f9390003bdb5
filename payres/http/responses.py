"""What every JSON answer looks like, errors among them."""

from typing import Any, Final

from starlette.responses import Response

from payres.errors import Refusal
from payres.wire import encode

JSON: Final = "application/json"


def json_response(content: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """An answer with the struct as JSON; it is for the caller alone unless the headers say otherwise."""
    return Response(encode(content), status, {"Cache-Control": "no-store"} | (headers or {}), media_type=JSON)


def refusal_response(refusal: Refusal) -> Response:
    """The answer for an error, as far as no request is needed for it."""
    error = {"code": refusal.code, "description": refusal.description}
    details = {"details": dict(refusal.details)} if refusal.details else {}
    return json_response({"error": error | details}, refusal.status, dict(refusal.headers))
