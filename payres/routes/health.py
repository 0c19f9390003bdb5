"""Health: whether the process lives and its database answers."""

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import Refusal
from payres.routes.context import context_of
from payres.routes.messages import json_response
from payres.store.database import answers


async def healthz(request: Request) -> Response:
    """GET /healthz: 200 when the database answers, 503 with the reason when it does not."""
    try:
        await context_of(request).database.read(answers)
    except Refusal as refusal:
        return json_response({"status": "unavailable", "reason": refusal.description}, 503)
    return json_response({"status": "ok"})
