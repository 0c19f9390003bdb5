"""An operator's day from the first link on, as one goes through it: with a finger on a dark telephone, and with nothing
but the keyboard at a desk. Both let her in and move money; of all else that she does each does one half."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from playwright.async_api import Locator, Page, expect

from payres.cli import main
from payres.core.store.work import Work
from payres.operator import wallets
from tests.browser.conftest import PASSWORD, OpenPage
from tests.browser.screens import AXE, breaches
from tests.helpers import last_segment, usd
from tests.instance import Instance, run_instance
from tests.operator.pages.seed import give_up
from tests.webhooks.endpoint import Endpoint, answering

pytestmark = pytest.mark.asyncio(loop_scope="session")

MANY = 500
SCREENS: dict[str, dict[str, Any]] = {
    "a finger on a dark telephone": {
        "viewport": {"width": 390, "height": 844},
        "color_scheme": "dark",
        "locale": "de-DE",
        "has_touch": True,
    },
    "a keyboard at a desk": {"viewport": {"width": 1280, "height": 844}, "color_scheme": "light", "locale": "en-US"},
}
LONG = ("„Café“ <b>O'Hara & Söhne</b> 🦊 " * 6).strip()

# How often the tab key is pressed from where the focus is to a place further down; several answers are one stop.
STOPS = """(one) => {
  const all = [...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, textarea, summary")];
  const at = document.activeElement, isRadio = (some) => some.type === "radio";
  if (at === one || isRadio(at) && isRadio(one) && at.name === one.name) return 0;
  const seen = all.filter((some) => some.checkVisibility() && some.tabIndex >= 0);
  const between = seen.slice(seen.indexOf(at) + 1, seen.indexOf(one)).filter((some) => !isRadio(some));
  return between.length + 1;
}"""


class Operator:
    """Who goes through the pages, by their links, buttons and fields alone."""

    def __init__(self, page: Page, reader: Page, by_keyboard: bool) -> None:
        self.page = page
        self.reader = reader
        self.by_keyboard = by_keyboard

    async def follow(self, name: str | re.Pattern[str], then: str | re.Pattern[str] = "") -> None:
        await self.go(self.page.get_by_role("link", name=name, exact=True), then or name)

    async def press(self, name: str, then: str | re.Pattern[str]) -> None:
        await self.go(self.page.get_by_role("button", name=name, exact=True), then)

    async def go(self, target: Locator, then: str | re.Pattern[str]) -> None:
        """Follows a link or presses a button, to the page with this heading."""
        async with self.page.expect_navigation(wait_until="domcontentloaded"):
            await self.use(target.first)
        await self.is_at(then)

    async def choose(self, answer: str) -> None:
        await self.use(self.page.get_by_role("radio", name=answer))

    async def search(self, text: str) -> None:
        box = self.page.get_by_role("searchbox")
        await (self.reach(box) if self.by_keyboard else box.tap())
        await self.page.keyboard.insert_text(text)
        async with self.page.expect_navigation(wait_until="domcontentloaded"):
            await self.page.keyboard.press("Enter")

    def row(self, text: str) -> Locator:
        """The link of the row with this text."""
        return self.page.get_by_role("row").filter(has_text=text).get_by_role("link")

    async def unfold(self, name: str) -> None:
        await self.use(self.page.locator("summary", has_text=name))

    async def use(self, target: Locator) -> None:
        """Follows a link, presses a button, opens a fold, ticks a box, or chooses one of several answers."""
        if not self.by_keyboard:
            await target.tap()
            return
        await self.reach(target)
        kind = await target.get_attribute("type")
        await self.page.keyboard.press("Space" if kind in {"checkbox", "radio"} else "Enter")
        while kind == "radio" and not await target.is_checked():
            await self.page.keyboard.press("ArrowDown")

    async def reach(self, target: Locator) -> None:
        """Goes there with the tab key, which stops once at several answers."""
        await expect(target).to_be_visible()
        for _ in range(9):
            stops = await target.evaluate(STOPS)
            if stops == 0:
                return
            for _ in range(stops):
                await self.page.keyboard.press("Tab")
        raise AssertionError(f"the keyboard does not come to {target}")

    async def fill(self, **values: str) -> None:
        """Writes into the fields with these names."""
        for name, value in values.items():
            field = self.page.locator(f"main [name='{name}']:not([type=hidden])").first
            kind = await field.evaluate("one => one.type")
            if not self.by_keyboard:
                await (field.select_option(value) if kind == "select-one" else field.fill(value))
                continue
            await self.reach(field)
            if kind == "date":
                year, month, day = value.split("-")
                value = month + day + year
            if kind in {"date", "select-one"}:
                await self.page.keyboard.type(value)
            else:
                await self.page.keyboard.press("Control+A")
                await self.page.keyboard.insert_text(value)

    async def is_at(self, heading: str | re.Pattern[str]) -> None:
        await expect(self.page.get_by_role("heading", level=1)).to_have_text(heading)

    async def look_over(self, *shown: str, then: str | re.Pattern[str]) -> None:
        """Looks at what will be done, which names it all, and gives the password, where the page begins."""
        for one in shown:
            await expect(self.page.locator("main")).to_contain_text(one)
        password = self.page.get_by_label("Your password")
        if await self.page.locator(".note.warn").count():  # it is read first
            await (self.reach(password) if self.by_keyboard else password.tap())
        await expect(password).to_be_focused()
        await self.page.keyboard.insert_text(PASSWORD)
        async with self.page.expect_navigation(wait_until="domcontentloaded"):
            await self.page.keyboard.press("Enter")
        await self.is_at(then)

    async def was_told(self, *sentences: str) -> None:
        """What was done, which is said once."""
        for one in sentences:
            await expect(self.page.get_by_role("status").first).to_contain_text(one)

    async def is_refused(self, sentence: str | re.Pattern[str]) -> None:
        await expect(self.page.get_by_role("alert")).to_contain_text(sentence)

    async def has(self, **values: str) -> None:
        """The fields with these names have what was written there."""
        for name, value in values.items():
            await expect(self.page.locator(f"main [name='{name}']:not([type=hidden])").first).to_have_value(value)

    async def is_fine(self) -> None:
        """That the page fits the screen, and that axe finds nothing."""
        size, url = self.page.viewport_size, self.page.url
        assert size
        assert await self.page.evaluate("document.documentElement.scrollWidth") <= size["width"], url
        # Scripts are off here, and the page may be the answer to a form: axe looks at its copy.
        await open_copy(self.page, self.reader)
        assert await breaches(self.reader) == [], url

    async def copied(self) -> "Operator":
        """In another tab, where the same form can be sent a second time."""
        tab = await self.page.context.new_page()
        await open_copy(self.page, tab)
        return Operator(tab, self.reader, self.by_keyboard)


async def open_copy(page: Page, tab: Page) -> None:
    html = await page.content()
    await tab.route(page.url, lambda route: route.fulfill(body=html, content_type="text/html"))
    await tab.goto(page.url)
    await tab.unroute(page.url)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Instance]:
    """With many wallets, a payment, grants to decide on, and a peer that did not say what became of a packet."""
    folder = tmp_path / "backups"
    folder.mkdir()
    with run_instance(tmp_path / "payres.db", backup_directory=str(folder), allow_private_hosts=False) as instance:

        def unit(work: Work) -> None:
            for number in range(MANY):
                wallets.create_wallet(work, f"branch-{number}", "USD", 2, f"Branch {number}", None)
            give_up(work)

        instance.write(unit)
        asked = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": instance.wallet("alice")}
        assert instance.client.request_grant(asked | {"limits": {"debitAmount": usd(5000)}}).json()["interact"]
        yield instance


@pytest.mark.parametrize("screen", SCREENS)
async def test_operators_day(
    server: Instance, tmp_path: Path, open_page: OpenPage, endpoint: Endpoint, screen: str
) -> None:
    options, by_keyboard = SCREENS[screen], "keyboard" in screen
    reader = await open_page(java_script_enabled=True, bypass_csp=True, **options)
    await reader.context.add_init_script(path=AXE)
    day = Operator(await open_page(**options), reader, by_keyboard)
    await lets_herself_in(day, server, tmp_path)
    await opens_a_wallet(day)
    await moves_money(day, server)
    if by_keyboard:
        await finds_a_payment_and_sends_it_back(day, server)
        await connects_a_program(day, endpoint)
        await makes_a_key(day)
    else:
        await decides_on_a_grant(day)
        await settles_with_a_peer(day)
        await lets_another_in(day, Operator(await open_page(**options), reader, by_keyboard))
        await looks_at_the_settings(day)
    server.check_ledger()


async def lets_herself_in(day: Operator, server: Instance, folder: Path) -> None:
    """By the link that the command prints, on a server where nobody was let in yet."""
    variables = {"PAYRES_DATABASE": str(folder / "payres.db"), "PAYRES_BASE_URL": server.base_url}
    link = CliRunner().invoke(main, ["admin", "link", "--name", "ann"], env=variables).stdout.strip()
    await day.page.goto(link)
    await day.fill(password=PASSWORD, again="another horse")
    await day.press("Set it and sign in", "Set a password")
    await day.fill(password=PASSWORD, again=PASSWORD)
    await day.press("Set it and sign in", "Overview")
    await day.reader.goto(link)
    await expect(day.reader.locator("main")).to_contain_text("This link was used or has expired")


async def opens_a_wallet(day: Operator) -> None:
    await day.follow("Wallets")
    await day.follow("New wallet")
    typed = {"path": "no spaces, please", "asset_code": "EUR", "asset_scale": "2", "public_name": LONG}
    await day.fill(**typed)
    await day.press("Open the wallet", "New wallet")
    await day.is_refused("path")
    await day.has(**typed)
    await day.is_fine()
    await day.follow("Cancel", "Wallets")
    await day.follow("New wallet")
    await day.fill(**typed | {"path": "cafe"})
    await day.press("Open the wallet", "A new currency, “EUR”?")
    await day.is_fine()
    await day.press("Make the currency “EUR”", LONG)
    await day.was_told(f"The wallet {LONG} is open and empty")
    await day.is_fine()


async def moves_money(day: Operator, server: Instance) -> None:
    written = "1,234.50" if day.by_keyboard else "1.234,50"
    await day.follow("Deposit")
    await day.fill(amount="12 beans", reference="till 1")
    await day.press("Look it over", "Deposit")
    await day.is_refused("12 beans")
    await day.has(amount="12 beans", reference="till 1")
    await day.fill(amount=written)
    await day.press("Look it over", "Deposit?")
    await day.is_fine()
    other = await day.copied()
    await day.look_over("EUR 1,234.50", "till 1", "EUR 0.00 EUR 1,234.50", then=LONG)
    await day.was_told("EUR 1,234.50 were deposited", "has EUR 1,234.50")
    await day.is_fine()
    await other.look_over(then="Deposit")
    await other.is_refused("carried out before, and nothing was done again")
    await other.page.close()
    other = await day.copied()
    await day.press("Undo", LONG)
    await day.was_told("EUR 1,234.50 went back; both movements stay")
    await other.press("Undo", "Undo")
    await other.is_refused("undone already")
    await expect(other.page.get_by_role("button", name="Undo")).to_be_hidden()
    await other.page.close()
    assert server.balance("cafe") == "0.00"
    await day.follow("Deposit")
    await day.fill(amount="100")
    await day.press("Look it over", "Deposit?")
    await day.look_over("EUR 100", then=LONG)
    await day.follow("Withdraw")
    await day.fill(amount="500", reference="till 2")
    await day.press("Look it over", "Withdraw")
    await day.is_refused("has EUR 100.00 free")
    await day.fill(amount="20")
    await day.press("Look it over", "Withdraw?")
    await day.follow("Cancel", LONG)
    await day.follow("Withdraw")
    await day.fill(amount="20")
    await day.press("Look it over", "Withdraw?")
    await day.look_over("EUR 20", "EUR 100.00 EUR 80.00", then=LONG)
    await day.was_told("EUR 20.00 were withdrawn", "has EUR 80.00")


async def finds_a_payment_and_sends_it_back(day: Operator, server: Instance) -> None:
    bill = server.client.create_incoming_payment(server.wallet("bob"), usd(2500))["id"]
    server.client.pay(server.wallet("alice"), bill)
    await day.follow("Wallets")
    await day.search("branch-217")
    await day.follow(re.compile("^Branch 217 "), "Branch 217")
    await day.follow("Payments")
    await day.search(last_segment(bill))
    await day.follow(re.compile("^Bob is paid "), "Bob is paid USD 25.00")
    await day.follow("Refund")
    await day.fill(amount="99", reference="broken cup")
    await day.press("Look it over", "Refund")
    await day.is_refused("Only USD 25.00 of the payment can still be sent back")
    await day.has(amount="99", reference="broken cup")
    await day.fill(amount="5")
    await day.press("Look it over", "Send USD 5.00 back?")
    await day.look_over("Bob", "Alice", "broken cup", then="Bob is paid USD 25.00")
    await day.was_told("USD 5.00 of USD 25.00 went back")
    assert server.balance("alice") == "980.00"


async def decides_on_a_grant(day: Operator) -> None:
    await day.follow("Grants")
    await day.search("example shop")
    await day.go(day.page.get_by_role("link").filter(has_text="pending"), re.compile("asks to pay up to USD 50.00"))
    await day.fill(reason="She called")
    await day.press("Approve", "Decide in the owner's name?")
    await day.is_fine()
    await day.look_over("Approve", "She called", then=re.compile("may pay up to USD 50.00"))
    await day.was_told("decided in Alice's name")
    await expect(day.page.locator("main")).to_contain_text("“She called”")
    await day.unfold("Revoke the grant")
    await day.follow("Revoke the grant…", "Revoke the grant?")
    await day.look_over(then=re.compile("could pay"))
    await day.was_told("The grant of Example Shop is revoked")


async def settles_with_a_peer(day: Operator) -> None:
    tokens = {"outgoing_token": "o" * 20, "incoming_token": "i" * 20}
    await day.follow("Peers")
    await day.follow("New peer")
    typed = {"name": "north", "ilp_address": "g.north", "asset_code": "EUR", "asset_scale": "2"}
    typed["url"] = "https://north.example/ilp"
    await day.fill(**typed, **tokens, credit_limit="a lot")
    await day.press("Look it over", "New peer")
    await day.is_refused("'a lot' is not an amount of EUR")
    await day.has(**typed, credit_limit="a lot", outgoing_token="")  # a secret is never shown
    await day.fill(**tokens, credit_limit="10.00")
    await day.press("Look it over", "north may owe EUR 10.00?")
    await day.is_fine()
    await day.look_over("g.north", "all of your liquidity in EUR is 0.00", then="north")
    await day.was_told("north is a peer from now on")
    await day.follow("Change the terms")
    await day.has(url=typed["url"], credit_limit="10.00")
    await day.fill(credit_limit="20")
    await day.press("Look it over", "north may owe EUR 20.00?")
    await day.is_fine()
    await day.look_over("EUR 10.00 EUR 20.00", then="north")
    await day.was_told("The terms of north are changed")
    await day.follow("They paid us")
    await day.fill(amount="15")
    await day.press("Look it over", "They paid us?")
    await day.look_over("EUR 15", "we owe the peer EUR 15.00", then="north")
    await day.was_told("EUR 15.00 came in: we owe the peer EUR 15.00")
    await expect(day.page.get_by_role("table", name="Settlements")).to_contain_text("They paid us")
    await day.follow("Peers")
    await day.follow("second")
    await day.follow("Each packet", "Unresolved packets of second")
    await day.go(day.page.get_by_role("table").get_by_role("link"), "Resolve a packet")
    await day.choose("It did not")
    await day.press("Look it over", "Resolve a packet?")
    await day.look_over("What happened to it?It did not", then="second")
    await day.was_told("The packet of USD 5.00 is recorded as returned")


async def connects_a_program(day: Operator, endpoint: Endpoint) -> None:
    await day.follow("Programs", "Webhooks")
    await day.follow("New webhook")
    typed = {"url": endpoint.url, "name": "Order book", "events": "wallet.*"}
    await day.fill(**typed)
    await day.press("Look it over", "New webhook")
    await day.is_refused("mark it as private")
    await day.has(**typed)
    await day.use(day.page.locator("[name=private]"))
    await day.press("Look it over", "New webhook?")
    await day.look_over(endpoint.url, then="Order book")
    await day.is_fine()
    secret = await day.page.get_by_label("Secret").input_value()
    await day.follow("I have stored it", "Order book")
    endpoint.answer = answering(500, 200)
    await day.press("Send a test", "Order book")
    await expect(day.page.locator("main")).to_contain_text("It was answered with 500")
    await day.press("Send a test", "Order book")
    endpoint.received[1].verified(secret)
    await day.press("Pause", "Order book")
    await day.was_told("Order book is paused")
    await day.press("Resume", "Order book")
    await day.was_told("Order book gets its events again")
    await day.follow("Change")
    await day.has(name="Order book", events="wallet.*")
    await day.fill(name="Books")
    await day.press("Look it over", "Change?")
    await day.look_over("Books", then="Books")
    await day.was_told("Books is changed")
    await day.follow("New secret", "New secret?")
    await day.look_over(then="Books")
    assert await day.page.get_by_label("Secret").input_value() != secret
    await day.follow("I have stored it", "Books")
    await day.unfold("Remove this webhook")
    await day.follow("Remove this webhook…", "Remove this webhook?")
    await day.look_over(then="Webhooks")
    await day.was_told("The webhook Books is removed")


async def makes_a_key(day: Operator) -> None:
    may_read = day.page.get_by_label("payments:read")
    await day.follow("API keys")
    await day.follow("New API key")
    await day.fill(name="Till", expires_at="2020-01-01")
    await day.use(may_read)
    await day.press("Look it over", "New API key")
    await day.is_refused("must be in the future")
    await day.has(name="Till", expires_at="2020-01-01")
    await expect(may_read).to_be_checked()
    await day.fill(expires_at="2100-01-01")
    await day.press("Look it over", "New API key?")
    other = await day.copied()
    await day.look_over("payments:read", then="Till")
    await day.is_fine()
    assert (await day.page.get_by_label("Key").input_value()).startswith("payres_")
    await other.look_over(then="New API key")
    await other.is_refused("carried out before")
    await other.page.close()
    await day.follow("I have stored it", "Till")
    await day.unfold("Revoke the key")
    await day.follow("Revoke the key…", "Revoke the key")
    await day.press("Look it over", "Revoke the key?")
    await day.look_over(then="Till")
    await day.was_told("The key Till is revoked")


async def lets_another_in(day: Operator, bea: Operator) -> None:
    """Who may look at everything, until she may do everything, and is removed while she is at it."""
    await day.follow("Server", "Health")
    await day.follow("Operators")
    await day.fill(name="Bea")
    await day.use(day.page.get_by_label("reads"))
    await day.press("Look it over", "New operator?")
    await day.look_over("Bea", "reads", then="Bea")
    link = await day.page.get_by_label("Link").input_value()
    await day.follow("I have stored it", "Operators")
    await bea.page.goto(link)
    await bea.fill(password=PASSWORD, again=PASSWORD)
    await bea.press("Set it and sign in", "Overview")
    for section in ("Wallets", "Grants", "Peers", "Currencies"):
        await bea.follow(section)
        await expect(bea.page.locator("main a.button.primary, main form[method=post]")).to_have_count(0)
    await bea.follow("Server", "Health")
    await bea.follow("Backups")
    await expect(bea.page.get_by_role("button", name="Make one now")).to_be_hidden()
    await day.follow("Change Bea", "Bea")
    await day.follow("Change the role")
    await day.use(day.page.get_by_label("full"))
    await day.press("Look it over", "Change the role?")
    await day.look_over("full", then="Bea")
    await day.was_told("Bea has the role full now")
    await bea.follow("Wallets")
    await bea.follow("New wallet")
    await day.press("Sign out everywhere", "Bea")
    await day.was_told("Bea is signed out in every browser")
    await day.unfold("Remove this operator")
    await day.follow("Remove this operator…", "Remove this operator?")
    await day.look_over(then="Operators")
    await day.was_told("Bea is no operator any more")
    await bea.fill(path="late", asset_code="EUR", asset_scale="2")
    await bea.press("Open the wallet", "Sign in")


async def looks_at_the_settings(day: Operator) -> None:
    await day.follow("Settings")
    row = day.page.get_by_role("row").filter(has_text="backup_keep")
    await expect(row).to_contain_text("14")
    await expect(row).to_contain_text("default")
    await day.press("Sign out", "Sign in")
