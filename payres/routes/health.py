"""Health, for whoever watches the server: whether it lives, and whether it can take payments."""

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import DomainError
from payres.routes.context import context_of
from payres.routes.messages import json_response
from payres.store.database import answers


async def healthz(request: Request) -> Response:
    """GET /healthz: 200 when the process lives and the database can be read, 503 with the reason when it cannot."""
    try:
        await context_of(request).database.read(answers)
    except DomainError as error:
        return _unavailable(str(error))
    return json_response({"status": "ok"})


async def readyz(request: Request) -> Response:
    """GET /readyz: 200 when payments can be taken, 503 with the reason when they cannot."""
    problem = await context_of(request).readiness.problem()
    return _unavailable(problem) if problem else json_response({"status": "ok"})


def _unavailable(reason: str) -> Response:
    return json_response({"status": "unavailable", "reason": reason}, 503)
