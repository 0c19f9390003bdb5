"""Sending money as an owner does it: on a telephone, without scripts, to a wallet on another server."""

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from payres.core.store.outgoing_payments import OUTGOING
from payres.interledger.node import node_of
from payres.operator import assets
from payres.people import payments
from payres.testing.peering import peer
from tests.browser.conftest import PASSWORD, OpenPage
from tests.browser.screens import AXE, check
from tests.helpers import Json
from tests.instance import Instance
from tests.interledger.network import network

pytestmark = pytest.mark.asyncio(loop_scope="session")

ENDS: Sequence[Json] = (
    {"state": "failed", "sent": 0, "delivered": 0, "failure": "W" * 300},
    {"state": "failed", "sent": 53, "delivered": 30, "failure": "the way was closed", "unresolved_debit": 100},
    {"state": "sending", "sent": 0, "delivered": 0, "failure": None, "unresolved_debit": 0, "ended_at": None},
)


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[Sequence[Instance]]:
    """One with Dora's wallet in USD, one with Carol's in EUR."""
    with network(tmp_path, "a", "b") as (a, b):
        peer(a, b)
        for one in (a, b):
            one.write(lambda work: assets.set_rate(work, "USD", "EUR", "0.92"))
        a.create_wallet("dora", name="Dora", deposit="240.18", password=PASSWORD)
        b.create_wallet("carol", "EUR", name="Carol")
        b.write(lambda work: assets.deposit_liquidity(work, "EUR", 2, "1000.00"))
        yield a, b


async def sign_in(page: Page, server: Instance) -> None:
    await page.goto(f"{server.base_url}/account/send?wallet=dora")
    await page.get_by_label("Password").fill(PASSWORD)
    async with page.expect_navigation():
        await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Send money")


async def fill(page: Page, to: str, amount: str, note: str = "Lunch on Friday") -> None:
    await page.get_by_label("To", exact=True).fill(to)
    await page.get_by_label("Amount", exact=True).fill(amount)
    await page.get_by_label("Note").fill(note)
    async with page.expect_navigation():
        await page.keyboard.press("Enter")


async def test_money_goes_to_another_server_once(servers: Sequence[Instance], open_page: OpenPage) -> None:
    a, b = servers
    page = await open_page(viewport={"width": 390, "height": 844})
    await sign_in(page, a)
    await fill(page, b.wallet("carol"), "500,00")
    await expect(page).to_have_title(f"Error: Send money · {a.base_url.partition('//')[2]}")
    await expect(page.get_by_role("alert")).to_have_text("You have USD 240.18. Send that or less.")
    await expect(page.get_by_label("Note")).to_have_value("Lunch on Friday")
    await fill(page, b.wallet("carol"), "5,00")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Send USD 5.00 to Carol?")
    await expect(page.get_by_role("button", name="Send USD 5.00")).to_be_in_viewport()
    other = await page.context.new_page()
    await other.goto(page.url)
    for tab in (page, other):
        await tab.get_by_role("button", name="Send USD 5.00").dblclick(no_wait_after=True)
        # While it is on its way, the page looks again by itself.
        await expect(tab.get_by_role("heading", level=1)).to_have_text("Carol has EUR 4.60")
    assert page.url == other.url
    await page.go_back()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Carol has EUR 4.60")
    assert (a.balance("dora"), b.balance("carol")) == ("235.18", "4.60")


async def test_pages_fit_and_can_be_read_by_everyone(
    servers: Sequence[Instance], open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b = servers
    page = await open_page(java_script_enabled=True)
    await page.context.add_init_script(path=AXE)
    await sign_in(page, a)
    await check(page)
    await fill(page, "nobody", "1")
    await check(page)
    await fill(page, b.wallet("carol"), "1", "W" * 140)
    await expect(page.get_by_role("button", name="Send USD")).to_be_visible()
    await check(page)
    await page.get_by_role("button", name="Send USD").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Carol has EUR 0.92")
    await page.goto(page.url)  # which looks again no more
    await check(page)
    payment_id = page.url.rpartition("/")[2]
    monkeypatch.setattr(payments, "LOOK_SECONDS", 600)  # so that it stands still while it is looked at
    vars(node_of(a.context).payments)["send"] = lambda _: None  # what is made up below is not sent again
    for row in ENDS:
        a.write(partial(OUTGOING.update, row_id=payment_id, **row))
        await page.goto(f"{a.base_url}/account/payments/{payment_id}")
        await check(page)
