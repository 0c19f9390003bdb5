"""The list of parts: each stands on those before it alone."""

from pathlib import Path

import pytest

from payres.application import PARTS
from payres.core.http.serving import application
from payres.core.process.settings import Settings


@pytest.mark.parametrize("count", range(len(PARTS)))
async def test_parts_open_without_those_that_follow(tmp_path: Path, count: int) -> None:
    settings = Settings(database=str(tmp_path / "payres.db"), base_url="http://127.0.0.1:1")
    app = application(PARTS[:count], settings, is_disposable=True)
    async with app.router.lifespan_context(app):
        assert await app.state.context.database.read(lambda work: work.settings) == settings
