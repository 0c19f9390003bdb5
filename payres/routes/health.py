"""Health, for monitoring: whether the server lives, and whether it can take payments."""

import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from payres.clock import format_time_if_any
from payres.errors import DomainError
from payres.http.responses import json_response
from payres.limits import MIN_FREE_BYTES
from payres.routes.context import context_of
from payres.store.database import Database, answers
from payres.store.database_file import changed_at, free_bytes, log_bytes
from payres.store.status import last_restore
from payres.store.transactions import touch

COMMIT_SECONDS: Final = 2.0  # for a commit
CACHE_SECONDS: Final = 1.0  # so that asking often does not make work


async def healthz(request: Request) -> Response:
    """GET /healthz: 200 when the process lives and the database can be read, 503 with the reason when it cannot."""
    try:
        await context_of(request).database.read(answers)
    except DomainError as error:
        return _unavailable(str(error))
    return json_response({"status": "ok"})


async def readyz(request: Request) -> Response:
    """GET /readyz: 200 when payments can be taken, 503 with the reason when they cannot; details in any case."""
    readiness: Readiness = request.scope["app"].state["readiness"]
    problem = await readiness.problem()
    context = context_of(request)
    shown: dict[str, Any] = {"walBytes": log_bytes(context.database.path)}
    with suppress(DomainError):
        shown["restoredAt"] = format_time_if_any(await context.database.read(last_restore))
    if context.settings.read_only:
        shown |= {"readOnly": True, "changedAt": format_time_if_any(changed_at(context.database.path))}
    details = {"details": shown}
    return _unavailable(problem, **details) if problem else json_response({"status": "ok"} | details)


class Readiness:
    """Whether payments can be taken now. Finds out by a real commit, at most once a second."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._problem: str | None = None

    async def problem(self) -> str | None:
        """Why no payments can be taken, or None when they can."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if now >= self._asked_at + CACHE_SECONDS:
                self._problem = self._no_room() or await self._no_commit()
                self._asked_at = now
        return self._database.stopped or self._problem

    def _no_room(self) -> str | None:
        try:
            is_enough = free_bytes(Path(self._database.path).parent) >= MIN_FREE_BYTES
        except OSError:  # the folder has gone, of which the commit says more
            return None
        return None if is_enough else f"The disk of the database has less than {MIN_FREE_BYTES // 1024**2} MiB free"

    async def _no_commit(self) -> str | None:
        try:
            async with asyncio.timeout(COMMIT_SECONDS):
                await self._database.write(touch)
        except DomainError as error:
            return str(error)
        except TimeoutError:
            return f"The database did not take a commit within {COMMIT_SECONDS:g} seconds"
        return None


def _unavailable(reason: str, **details: Any) -> Response:
    return json_response({"status": "unavailable", "reason": reason, **details}, 503)
