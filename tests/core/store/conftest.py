"""A database in its own file."""

import sqlite3
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from payres.core.store import connections
from payres.core.store.database import Database


@pytest.fixture(scope="module")
def made_anew(ready_made: Callable[..., sqlite3.Connection]) -> Iterator[None]:
    """Databases are created by schema.sql, as by a server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(connections, "_connect", ready_made)
        yield


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "payres.db")


@pytest.fixture
async def database(path: str) -> AsyncIterator[Database]:
    opened = await Database.open(path)
    yield opened
    await opened.close()
