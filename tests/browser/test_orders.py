"""The pages of standing orders as people see them, from the first look at one to those that were missed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page

from payres.agenda.store import agenda
from payres.operator import wallets
from tests.browser.conftest import PASSWORD, OpenPage
from tests.browser.screens import AXE, check
from tests.helpers import wait_until
from tests.instance import Instance, run_instance

pytestmark = pytest.mark.asyncio(loop_scope="session")


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    monkeypatch.setattr(agenda, "LOOK_SECONDS", 0.02)
    with run_instance(tmp_path / "payres.db") as found:
        found.create_wallet("dora", name="Dora", deposit="240.18", password=PASSWORD)
        yield found


async def sign_in(page: Page, server: Instance, path: str) -> None:
    await page.goto(f"{server.base_url}{path}?wallet=dora")
    await page.get_by_label("Password").fill(PASSWORD)
    async with page.expect_navigation():
        await page.keyboard.press("Enter")


async def test_pages_fit_and_can_be_read_by_everyone(server: Instance, open_page: OpenPage) -> None:
    page = await open_page(java_script_enabled=True)
    await page.context.add_init_script(path=AXE)
    await sign_in(page, server, "/account/orders")
    await check(page)
    await page.goto(f"{server.base_url}/account/orders/new?to=nobody")
    await check(page)
    for amount in ("1", "200"):
        await page.goto(f"{server.base_url}/account/orders/new?to=bob&amount={amount}&note={'W' * 140}")
        await page.get_by_label("How often").select_option("P1D")
        await page.get_by_role("button", name="Look it over").click()
        await check(page)
        await page.get_by_role("button", name="Set it up").click()
        await check(page)
    server.clock.advance(70 * 86400)  # they missed some, and the second lacks money
    wait_until(lambda: server.balance("dora") in {"39.18", "239.18"})
    server.write(lambda work: wallets.rename(work, "bob", "W" * 60))
    await sign_in(page, server, "/account/orders")
    await check(page)
    rows = [await row.get_attribute("href") for row in await page.locator("a.row").all()]
    assert len(rows) == 2
    for path in rows:
        await check(page, f"{server.base_url}{path}")
    await check(page, f"{server.base_url}/account")
