import asyncio
from pathlib import Path

import pytest

from payres.application import create_app
from payres.core.process.settings import Settings
from payres.core.protocol.clock import SECOND
from payres.core.remote.http import GuardedClient
from payres.core.store import audit
from payres.core.store.database import Database
from payres.core.store.migrations import UnusableDatabase
from payres.core.store.work import Environment, Work
from payres.operator.upkeep import takeover
from payres.operator.upkeep.takeover import PAUSE_SECONDS, OtherServer, find_other, look_once, require_current
from payres.testing.clock import MovableClock
from tests.core.remote.conftest import Answer, Site

RESTORED = 1_767_225_600 * SECOND
EARLIER, SAME, LATER = "2025-12-31T23:59:59.999Z", "2026-01-01T00:00:00.000Z", "2026-01-01T00:00:00.001Z"


def ready(restored_at: str | None, **details: object) -> Answer:
    return Answer({"status": "ok", "details": {"restoredAt": restored_at, **details}})


@pytest.mark.parametrize(
    ("own", "answered", "found"),
    [
        (RESTORED, ready(SAME), None),
        (RESTORED, ready(LATER), OtherServer(LATER, is_later=True)),
        (RESTORED, ready(EARLIER), OtherServer(EARLIER, is_later=False)),
        (RESTORED, ready(None), OtherServer(None, is_later=False)),
        (None, ready(SAME), OtherServer(SAME, is_later=True)),
        (None, ready(None), None),
        (RESTORED, ready(None, readOnly=True), None),
        (RESTORED, ready(LATER, readOnly=True), None),
        (RESTORED, Answer({}), None),
        (RESTORED, Answer(b"Bad Gateway", 502), None),
        (RESTORED, Answer({"status": "unavailable", "details": {}}, 503), OtherServer(None, is_later=False)),
    ],
    ids=[
        *("itself", "later", "earlier", "never restored", "restored after all", "both never"),
        *("standby", "standby of the later", "no payres", "no server", "of an older version"),
    ],
)
async def test_other_server_is_known_by_its_restore(
    site: Site, own: int | None, answered: Answer, found: OtherServer | None
) -> None:
    site.pages["GET /readyz"] = answered
    async with GuardedClient(True) as http:
        assert await find_other(http, site.base, own) == found


async def test_nobody_at_the_address_is_no_other_server() -> None:
    async with GuardedClient(True) as http:
        assert await find_other(http, "http://127.0.0.1:1", None) is None


@pytest.mark.parametrize(
    ("was_restored", "said", "stops"),
    [(True, LATER, True), (True, SAME, False), (True, EARLIER, False), (False, EARLIER, True)],
)
async def test_writing_stops_once_another_server_was_restored_later(
    tmp_path: Path, site: Site, was_restored: bool, said: str, stops: bool
) -> None:
    site.pages["GET /readyz"] = ready(said)
    around = Environment.of(Settings(), MovableClock(RESTORED, frozen=True))
    database = await Database.open(str(tmp_path / "payres.db"), around)

    def restored(work: Work) -> None:
        audit.record(work, "database.restore", "standby.db")

    try:
        if was_restored:
            await database.write(restored)
        async with GuardedClient(True) as http:
            assert await look_once(database, http, site.base) == PAUSE_SECONDS
        expected = "The server takes no more work: another server has taken its place, and an operator must look"
        assert database.stopped == (expected if stops else None)
        if stops:
            with pytest.raises(UnusableDatabase, match="Another server has taken this one's place"):
                await database.read(require_current)
        else:
            await database.read(require_current)
    finally:
        await database.close()


@pytest.mark.parametrize(
    ("base_url", "looks"), [("https://pay.example.com", ["https://pay.example.com"]), ("http://127.0.0.1:8080", [])]
)
async def test_server_looks_where_another_can_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, base_url: str, looks: list[str]
) -> None:
    looked: list[str] = []

    async def find(http: GuardedClient, asked: str, restored_at: int | None) -> None:
        looked.append(asked)

    monkeypatch.setattr(takeover, "find_other", find)
    app = create_app(Settings(database=str(tmp_path / "payres.db"), base_url=base_url))
    async with app.router.lifespan_context(app):
        await app.state.context.database.read(lambda work: None)  # by its end, what workers read first is read too
        await asyncio.sleep(0)
    assert looked == looks
