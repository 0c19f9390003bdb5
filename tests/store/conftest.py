"""A database in a file of its own."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from payres.store.database import Database


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "payres.db")


@pytest.fixture
async def database(path: str) -> AsyncIterator[Database]:
    opened = await Database.open(path)
    yield opened
    await opened.close()
