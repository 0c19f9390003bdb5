"""Readiness: whether payments can be accepted now."""

import asyncio
from pathlib import Path
from typing import Final

from payres.core.protocol.errors import DomainError
from payres.core.store.connections import free_bytes
from payres.core.store.database import Database
from payres.core.store.transactions import touch
from payres.operator.limits import MIN_FREE_BYTES

COMMIT_SECONDS: Final = 2.0  # the timeout of the test commit
CACHE_SECONDS: Final = 1.0  # between test commits


class Readiness:
    """Whether payments can be accepted now, tested by a real commit at most once a second."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking = asyncio.Lock()
        self._asked_at = float("-inf")
        self._problem: str | None = None

    async def problem(self) -> str | None:
        """Why no payments can be accepted, or None."""
        async with self._asking:
            now = asyncio.get_running_loop().time()
            if now >= self._asked_at + CACHE_SECONDS:
                self._problem = self._no_room() or await self._no_commit()
                self._asked_at = now
        return self._database.stopped or self._problem

    def _no_room(self) -> str | None:
        try:
            is_enough = free_bytes(Path(self._database.path).parent) >= MIN_FREE_BYTES
        except OSError:  # the folder is missing; the commit reports it
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
