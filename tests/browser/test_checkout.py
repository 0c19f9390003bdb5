"""Bills that are paid from a wallet on another server, in a browser that goes there and comes back."""

from collections.abc import Iterator, Sequence

import pytest
from playwright.async_api import expect

from payres.testing.peering import peer
from tests.browser.conftest import PASSWORD, OpenPage
from tests.browser.screens import AXE, check
from tests.browser.test_consent_pages import press
from tests.helpers import last_segment, receiver_of, wait_until
from tests.instance import Instance
from tests.interledger.network import network

pytestmark = pytest.mark.asyncio(loop_scope="session")

METADATA = {"description": "Order 2041, two paperbacks", "returnUrl": "https://shop.example/orders/2041"}


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[Instance]]:
    """The shop's server, and that of the payer, who is carol."""
    with network(tmp_path_factory.mktemp("checkout"), "shop", "payers") as found:
        peer(found[0], found[1])
        found[1].create_wallet("carol", name="Carol", deposit="50.00", password=PASSWORD)
        yield found


async def test_payer_goes_to_their_wallet_and_comes_back_to_a_receipt(
    servers: Sequence[Instance], open_page: OpenPage
) -> None:
    shop, payers = servers
    url = f"{shop.base_url}/pay/{last_segment(receiver_of(shop, 1250, metadata=METADATA))}"
    page = await open_page()
    await page.goto(url)
    await page.get_by_label("Your wallet address").fill("nobody@nowhere")
    await press(page, "Continue to your wallet")
    await expect(page.get_by_role("alert")).to_contain_text("This is no wallet address")
    await page.get_by_label("Your wallet address").fill(payers.wallet("carol"))
    await page.get_by_label("Your wallet address").press("Enter")
    await page.get_by_label("Password").fill(PASSWORD)
    await press(page, "Sign in")
    await page.get_by_role("button", name="Pay up to USD").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Paid")
    await expect(page.get_by_text("Bob has your USD 12.50.")).to_be_visible()
    assert await page.get_by_role("link", name="Back to shop.example").get_attribute("href") == METADATA["returnUrl"]
    receipt = page.url
    ended = "SELECT state FROM outgoing_payment"
    wait_until(lambda: payers.read(lambda work: work.execute(ended).fetchall()) == [("completed",)])
    await page.go_back()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Paid")
    await expect(page.get_by_text("Nothing more can be taken for it.")).to_be_visible()
    await page.goto(receipt)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Paid")
    assert (shop.balance("bob"), payers.balance("carol")) == ("1012.50", "37.50")
    looking = await open_page(java_script_enabled=True, storage_state=await page.context.storage_state())
    await looking.context.add_init_script(path=AXE)
    await check(looking, receipt)


async def test_payer_who_does_not_allow_it_can_begin_again(servers: Sequence[Instance], open_page: OpenPage) -> None:
    shop, payers = servers
    url = f"{shop.base_url}/pay/{last_segment(receiver_of(shop, None, metadata=METADATA))}"
    page = await open_page()
    await page.goto(url)
    await page.get_by_label("Amount").fill("7,50")
    await page.get_by_label("Your wallet address").fill(payers.wallet("carol"))
    await press(page, "Continue to your wallet")
    await page.get_by_label("Password").fill(PASSWORD)
    await press(page, "Sign in")
    await press(page, "Don’t allow")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Not paid")
    ended = page.url
    await expect(page.get_by_role("link", name="Back to shop.example without paying")).to_be_visible()
    await page.get_by_role("link", name="Begin again").click()
    await expect(page).to_have_url(url)
    elsewhere = await open_page(java_script_enabled=True)
    await elsewhere.context.add_init_script(path=AXE)
    await check(elsewhere, ended)
    await expect(elsewhere.get_by_role("heading", level=1)).to_have_text("This was begun in another browser")
