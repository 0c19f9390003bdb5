"""A standing order as an owner sets it up: on a telephone, by keyboard, from a payment that was made."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

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


async def press(page: Page, role: str, name: str) -> None:
    """Goes to a link or button by the keyboard alone, and presses it."""
    await page.get_by_role(role, name=name, exact=True).focus()  # type: ignore[arg-type]
    async with page.expect_navigation():
        await page.keyboard.press("Enter")


async def test_payment_is_sent_again_every_month(server: Instance, open_page: OpenPage) -> None:
    page = await open_page(viewport={"width": 390, "height": 844})
    await sign_in(page, server, "/account/send")
    for label, text in (("To", "bob"), ("Amount", "12.50"), ("Note", "Rent")):
        await page.get_by_label(label, exact=True).fill(text)
    async with page.expect_navigation():
        await page.keyboard.press("Enter")
    await press(page, "button", "Send USD 12.50")
    await press(page, "link", "Send again every month")
    await expect(page.get_by_role("heading", level=1)).to_have_text("New standing order")
    for label, text in (("To", f"{server.base_url}/bob"), ("Amount", "12.50"), ("Note", "Rent")):
        await expect(page.get_by_label(label, exact=True)).to_have_value(text)
    await page.get_by_label("How often").focus()
    await page.keyboard.type("every week")
    await press(page, "button", "Look it over")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Send USD 12.50 to Bob every week?")
    await expect(page.get_by_role("button", name="Set it up")).to_be_in_viewport()
    await press(page, "button", "Set it up")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Standing order to Bob")
    await page.goto(f"{server.base_url}/account")
    await expect(page.get_by_role("heading", name="Coming up")).to_be_visible()
    await press(page, "link", "Standing orders")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Standing orders")


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
