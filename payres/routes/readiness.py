"""Whether the server can take payments."""

import asyncio
from pathlib import Path
from typing import Final

from payres.errors import DomainError
from payres.limits import MIN_FREE_BYTES
from payres.store.connections import free_bytes
from payres.store.database import Database
from payres.store.transactions import touch

COMMIT_SECONDS: Final = 2.0  # for a commit
CACHE_SECONDS: Final = 1.0  # so that asking often does not make work


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
