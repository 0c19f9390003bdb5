"""The pages of owners, and those for everyone, as people see them: narrow and wide, light and dark, read out loud."""

import base64
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from playwright.async_api import Page, expect

from payres.accounts.totp import STEP, code_at
from payres.core.protocol.amounts import MAX_LEDGER, Asset, format_decimal
from payres.core.protocol.clock import DAY
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Work
from payres.html.language import LANGUAGE_CODES, Language
from payres.operator import keys, wallets
from payres.operator.wallets import create_wallet
from payres.people import money_requests
from tests.browser.conftest import PASSWORD, OpenPage
from tests.browser.screens import AXE, check, fits
from tests.helpers import Json, last_segment, new_jwk, usd
from tests.instance import Instance, run_instance

pytestmark = pytest.mark.asyncio(loop_scope="session")

# `{name}` is what `seeded` has.
FOR_EVERYONE = (
    *("/pay/{open}", "/pay/{free}", "/pay/{part}", "/pay/{paid}", "/pay/{cancelled}", "/pay/{hostile}", "/carol"),
    *("/alice", "/account", "/", "/nothing/here"),
)
FOR_OWNERS = (
    *(
        "/account",
        "/account/activity",
        "/account/activity?show=failed&text=x",
        "/account/request",
        "/account/request/{asked}",
        "/account/request/{ended}",
    ),
    "/account/send?bill={big}",
    *("/account/apps", "/account/apps/{app}", "/account/apps/{looks}", "/account/apps/ended"),
    "/account/security",
    *("/settings", "/settings/password", "/settings/receive", "/settings/developer-keys"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with run_instance(tmp_path_factory.mktemp("account") / "payres.db") as instance:
        instance.create_wallet("carol", name="Carol’s Bookshop & Lessons", deposit="50.00", password=PASSWORD)
        added = {"Carol’s browser": new_jwk("a" * 200), "W" * 60: new_jwk("b")}
        instance.write(lambda work: [keys.add_key(work, "carol", jwk, name) for name, jwk in added.items()])
        yield instance


@pytest.fixture(scope="module")
def seeded(server: Instance) -> dict[str, str]:
    """The ids of bills by what became of them."""
    carol, client = server.wallet("carol"), server.client

    def bill(value: int | None, metadata: Json, paid: int = 0) -> str:
        url = client.create_incoming_payment(carol, usd(value) if value else None, metadata=metadata)["id"]
        if paid:
            client.pay(server.wallet("alice"), url, receiveAmount=usd(paid))
        return last_segment(url)

    def ask(*, cancelled: bool = False) -> str:
        def unit(work: Work) -> str:
            wallet = require_wallet(work, "carol")
            made = money_requests.make_request(work, wallet, 1250, "Your half of the concert on Saturday", DAY)
            if cancelled:
                money_requests.cancel_request(work, wallet, made)
            return made

        return server.write(unit)

    shop = {"description": "Order 2041, two paperbacks", "returnUrl": "https://shop.example/orders/2041"}
    cancelled = bill(500, shop)
    token = client.grant({"type": "incoming-payment", "actions": ["complete"], "identifier": carol})
    assert client.post(f"/incoming-payments/{cancelled}/complete", token=token).status_code == 200
    spends = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": carol}
    monthly = spends | {"limits": {"debitAmount": usd(2000), "interval": "R/2026-01-31T00:00:00Z/P1M"}}
    evil = server.new_client("evil", name="W" * 150)
    server.deny(evil.request_grant(spends).json()["interact"]["redirect"])
    return {
        "app": last_segment(client.obtain_grant(monthly)["continue"]["uri"]),
        "looks": last_segment(evil.obtain_grant(spends | {"actions": ["list-all"]})["continue"]["uri"]),
        "big": client.create_incoming_payment(server.wallet("bob"), usd(2**60), metadata=shop)["id"],
        "open": bill(1250, shop),
        "free": bill(None, {}),
        "part": bill(6000, shop, 2000),
        "paid": bill(1250, shop, 1250),
        "cancelled": cancelled,
        "asked": ask(),
        "ended": ask(cancelled=True),
        "hostile": bill(2**60, {"description": "W" * 900, "returnUrl": f"https://{'shop' * 15}.example/"}),
    }


async def sign_in(page: Page, server: Instance, wallet: str = "carol") -> None:
    await page.goto(f"{server.base_url}/account?wallet={wallet}")
    await expect(page.get_by_label("Password")).to_be_focused()
    await page.keyboard.type(PASSWORD)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Sign out")).to_be_visible()


async def look_in(language: str, page: Page) -> Callable[..., Awaitable[None]]:
    """What looks at pages in a language: only the length of words is another in each, and axe reads those of one."""
    await page.context.set_extra_http_headers({"Accept-Language": language})
    if language != "en":
        return fits
    await page.context.add_init_script(path=AXE)
    return check


async def test_every_page_for_everyone_fits_and_can_be_read(
    server: Instance, seeded: dict[str, str], open_page: OpenPage
) -> None:
    page = await open_page(java_script_enabled=True)
    await page.context.add_init_script(path=AXE)
    for path in FOR_EVERYONE:
        await check(page, server.base_url + path.format(**seeded))


@pytest.mark.parametrize("language", LANGUAGE_CODES)
async def test_every_page_of_owners_fits_and_can_be_read(
    server: Instance, seeded: dict[str, str], open_page: OpenPage, language: str
) -> None:
    page = await open_page(java_script_enabled=True)
    await sign_in(page, server)
    look = await look_in(language, page)
    for path in FOR_OWNERS:
        await look(page, server.base_url + path.format(**seeded))


@pytest.fixture(scope="module")
def several(server: Instance, seeded: dict[str, str]) -> dict[str, str]:
    """Bills for an owner of wallets with long names, much money and none."""
    server.create_wallet("dina", name="Dina", deposit="235.12", password=PASSWORD)
    server.create_wallet("dinas-friend", name="Friend", password=PASSWORD)

    def unit(work: Work) -> None:
        for path, name, deposit in (
            ("household", "Household", "1204.80"),
            ("pottery", "W" * 60, "50000000000.00"),
            ("empty", "Empty", ""),
        ):
            create_wallet(work, path, "USD", 2, name, None, "dina")
            if deposit:
                wallets.deposit(work, path, deposit)
        wallets.deactivate(work, "empty")

    server.write(unit)
    client, carol = server.client, server.wallet("carol")
    return {
        name: client.create_incoming_payment(carol, usd(value))["id"]
        for name, value in (("small", 1250), ("much", 99900))
    }


@pytest.mark.parametrize("language", LANGUAGE_CODES)
async def test_pages_of_several_wallets_fit_and_a_stale_tab_is_told(
    server: Instance, several: dict[str, str], open_page: OpenPage, language: str
) -> None:
    page = await open_page(java_script_enabled=True)
    await sign_in(page, server, "dina")
    look = await look_in(language, page)
    for path in (
        *("/account", "/settings", "/settings/wallets", "/settings/password", "/account/send", "/account/send?all=1"),
        f"/account/send?bill={several['small']}",
        f"/account/send?bill={several['much']}",
        f"/pay/{last_segment(several['small'])}",
    ):
        await look(page, server.base_url + path)
    await page.goto(f"{server.base_url}/account/send")
    other = await page.context.new_page()
    await other.goto(f"{server.base_url}/account")
    await other.locator("button[value=household]").click()
    await expect(other.locator(".who")).to_have_text("Household")
    await page.locator("#to").fill("carol")
    await page.locator("#amount").fill("1.00")
    await page.locator("#amount").press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Dina")
    await look(page)
    await page.locator("button[value=dina]").click()
    await expect(page).to_have_url(f"{server.base_url}/account/send")
    await expect(page.locator(".who")).to_have_text("Dina")


async def test_language_is_chosen_by_keyboard_and_its_quotation_marks_are_of_one_kind(
    server: Instance, seeded: dict[str, str], open_page: OpenPage
) -> None:
    page = await open_page()
    await sign_in(page, server)
    await page.goto(f"{server.base_url}/settings")
    await page.get_by_label("Language of these pages").select_option(label="Español")
    await page.get_by_role("button", name="Use this language").press("Enter")
    await expect(page.get_by_role("status")).to_have_text("Estas páginas están ahora en este idioma.")
    await page.goto(f"{server.base_url}/pay/{seeded['open']}")
    quotes = await page.locator(".claimed").first.evaluate("one => getComputedStyle(one).quotes")
    assert quotes.startswith('"«" "»"')


async def test_request_is_made_shown_and_cancelled_by_keyboard_and_without_scripts(
    server: Instance, open_page: OpenPage
) -> None:
    page = await open_page()
    await sign_in(page, server)
    await page.goto(f"{server.base_url}/account/request")
    await page.get_by_label("Amount").fill("12,50")
    await page.get_by_label("What for").fill("Lunch")
    await page.get_by_label("Open for").select_option(label="1 day")
    await page.get_by_label("What for").press("Enter")
    await expect(page.get_by_role("img", name="QR code of the payment page")).to_be_visible()
    link = await page.get_by_label("Link to the payment page").input_value()
    other = await open_page()
    await other.goto(link)
    await expect(other.get_by_role("heading", level=1)).to_have_text("Carol’s Bookshop & Lessons asks for")
    await page.get_by_role("link", name="Cancel the request…").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Cancel this request?")
    await page.get_by_role("link", name="Keep it").click()
    await page.get_by_role("link", name="Cancel the request…").click()
    await page.get_by_role("button", name="Cancel the request").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("This request was cancelled")
    await other.reload()
    await expect(other.get_by_role("heading", level=1)).to_have_text("This bill was cancelled")


# The amounts whose digits stand on more than one line.
BROKEN = r"""() => [...document.querySelectorAll('.figure, .money, .row b, .sums dd')].flatMap(element => {
  const range = document.createRange(), texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT)
  while (texts.nextNode()) {
    const digits = texts.currentNode.data.match(/[0-9][0-9.,]+/)
    if (!digits) continue
    range.setStart(texts.currentNode, digits.index)
    range.setEnd(texts.currentNode, digits.index + digits[0].length)
    if (range.getClientRects().length > 1) return [element.outerHTML]
  }
  return []
})"""


@pytest.mark.parametrize("scale", [0, 2, 9])
async def test_longest_amounts_never_break_on_a_small_telephone(
    server: Instance, open_page: OpenPage, scale: int
) -> None:
    path, asset = f"rich{scale}", Asset(f"LN{scale}", scale)
    server.create_wallet(path, asset.code, scale, "Rich", format_decimal(MAX_LEDGER, asset), PASSWORD)
    asked = server.write(
        lambda work: money_requests.make_request(work, require_wallet(work, path), MAX_LEDGER, "A ship", DAY)
    )
    page = await open_page(java_script_enabled=True, viewport={"width": 320, "height": 844})
    await sign_in(page, server, path)
    longest = Language("en", 0).grouped(MAX_LEDGER, asset)
    for url in ("/account", "/account/activity", "/account/request", f"/account/request/{asked}", f"/pay/{asked}"):
        await page.goto(server.base_url + url)
        await expect(page.get_by_text(longest).first).to_be_visible()
        assert await page.evaluate(BROKEN) == [], url
        assert await page.evaluate("document.documentElement.scrollWidth") == 320, url


async def test_head_of_a_telephone_has_a_line_for_each_name(tmp_path: Path, open_page: OpenPage) -> None:
    """Cut with an ellipsis, and whole in the title; the end of a host is never cut."""
    name, owner = "Cooperative Bank of the Northern Harbours", "Wolfeschlegelsteinhausenbergerdorff & Sons " * 2
    with run_instance(tmp_path / "payres.db", name=name) as server:
        server.create_wallet("long", name=owner.strip(), password=PASSWORD)
        page = await open_page(java_script_enabled=True, viewport={"width": 320, "height": 844})
        await sign_in(page, server, "long")
        await page.evaluate("document.querySelector('.host bdi').textContent = 'payments.retail.cooperative'.repeat(2)")
        for title, part in ((name, ".brand > span"), (owner.strip(), ".who")):
            assert title in (await page.locator(part).get_attribute("title") or "")
        for part, lines in ((".brand > span", 2), (".brand .host", 1), (".who", 1)):
            box = await page.locator(part).bounding_box()
            assert box
            assert box["height"] < lines * 24, part
        host = await page.locator(".brand .host").bounding_box()
        text = await page.locator(".host bdi").bounding_box()
        assert host
        assert text
        assert text["x"] < host["x"], "its beginning is cut"
        assert await page.evaluate("document.documentElement.scrollWidth") == 320


async def test_second_step_is_set_up_and_asked_for_by_keyboard(server: Instance, open_page: OpenPage) -> None:
    server.create_wallet("dora", name="W" * 100, password=PASSWORD)
    page = await open_page(java_script_enabled=True)
    await page.context.add_init_script(path=AXE)
    await sign_in(page, server, "dora")
    await check(page, f"{server.base_url}/account/security/codes")
    await page.get_by_label("Your password").fill(PASSWORD)
    await page.keyboard.press("Enter")
    secret = base64.b32decode(await page.get_by_label("Or copy this into the app").input_value())
    await check(page)

    async def type_code() -> None:
        await page.keyboard.type(code_at(secret, server.clock.now() // STEP))
        await page.keyboard.press("Enter")

    await expect(page.get_by_label("Code that the app shows now")).to_be_focused()
    await type_code()
    await expect(page.get_by_role("heading", name="Ten new recovery codes")).to_be_visible()
    hide = "one => { one.hidden = true; return getComputedStyle(one).display }"  # as without scripts
    assert await page.get_by_role("button", name="Print").evaluate(hide) == "none"
    await check(page)
    await page.get_by_label("I have them where I can find them").check()
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("button", name="Turn codes off")).to_be_visible()
    for path in ("codes", "recovery-codes", "limit"):
        await check(page, f"{server.base_url}/account/security/{path}")
    await page.context.clear_cookies()  # another browser
    await page.goto(f"{server.base_url}/settings?wallet=dora")
    await expect(page.get_by_label("Password")).to_be_focused()
    await page.keyboard.type(PASSWORD)
    await page.keyboard.press("Enter")
    await expect(page.get_by_label("Code")).to_be_focused()
    await page.keyboard.type("000000")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("alert")).to_have_text(
        "This code is not right, or no longer. Type the one shown now."
    )
    await check(page)
    server.clock.advance(31)
    await expect(page.get_by_label("Code")).to_be_focused()
    await type_code()
    await expect(page).to_have_url(f"{server.base_url}/settings?wallet=dora")
