"""Health, for monitoring: whether the server lives, and whether it can take payments."""

from contextlib import suppress
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from payres.clock import format_time_if_any
from payres.errors import DomainError
from payres.http.responses import json_response
from payres.routes.context import context_of
from payres.store.connections import changed_at, log_bytes
from payres.store.database import answers
from payres.store.status import last_restore


async def healthz(request: Request) -> Response:
    """GET /healthz: 200 when the process lives and the database can be read, 503 with the reason when it cannot."""
    try:
        await context_of(request).database.read(answers)
    except DomainError as error:
        return _unavailable(str(error))
    return json_response({"status": "ok"})


async def readyz(request: Request) -> Response:
    """GET /readyz: 200 when payments can be taken, 503 with the reason when they cannot; details in any case."""
    context = context_of(request)
    problem = await context.readiness.problem()
    shown: dict[str, Any] = {"walBytes": log_bytes(context.database.path)}
    with suppress(DomainError):
        shown["restoredAt"] = format_time_if_any(await context.database.read(last_restore))
    if context.settings.read_only:
        shown |= {"readOnly": True, "changedAt": format_time_if_any(changed_at(context.database.path))}
    details = {"details": shown}
    return _unavailable(problem, **details) if problem else json_response({"status": "ok"} | details)


def _unavailable(reason: str, **details: Any) -> Response:
    return json_response({"status": "unavailable", "reason": reason, **details}, 503)
