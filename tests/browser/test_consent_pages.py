"""The consent pages as people meet them: in a browser, without scripts, on their way from a client and back to it."""

import base64
import hashlib
import json
from urllib.parse import parse_qs, urlsplit

import playwright.async_api
import pytest
from playwright.async_api import Page, Response, expect

from payres.accounts.sessions import Browser, open_session
from payres.accounts.store.owners import OF_OWNERS, owner_of
from payres.core.protocol.clock import SECOND
from payres.core.store.grants import GRANTS
from payres.core.store.wallets import require_wallet
from payres.operator import grants
from payres.people import consent
from tests.browser.conftest import PASSWORD, ClientSite, OpenPage
from tests.helpers import Json, usd
from tests.instance import Instance

pytestmark = pytest.mark.asyncio(loop_scope="session")

NONCE = "client-nonce"


class Asked:
    """A grant that the shop has asked for, with or without a URI to finish at."""

    def __init__(self, server: Instance, finish: str | None = None, action: str = "create") -> None:
        item: Json = {"type": "outgoing-payment", "actions": [action], "identifier": server.wallet("carol")}
        item["limits"] = {"debitAmount": usd(2000)}
        finishing = {"finish": {"method": "redirect", "uri": finish, "nonce": NONCE}} if finish else {}
        self._answer = server.client.request_grant(item, interact={"start": ["redirect"], **finishing}).json()
        self._server = server
        self.url: str = self._answer["interact"]["redirect"]
        self.grant_id: str = self._answer["continue"]["uri"].rpartition("/")[2]

    def check_finish(self, arrival: str) -> str:
        """The interact_ref that arrived at the client, after comparing the hash."""
        query = parse_qs(urlsplit(arrival).query)
        [reference] = query["interact_ref"]
        text = "\n".join((NONCE, self._answer["interact"]["finish"], reference, f"{self._server.base_url}/"))
        assert query["hash"] == [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()]
        return reference

    def go_on(self, arrival: str) -> int:
        """The status of the answer to the client's continuation with what has arrived."""
        follow_up, body = self._answer["continue"], {"interact_ref": self.check_finish(arrival)}
        return self._server.client.post(follow_up["uri"], body, follow_up["access_token"]["value"]).status_code


async def press(page: Page, button: str) -> Response:
    """Presses a button and waits for the page that follows."""
    async with page.expect_navigation() as navigation:
        await page.get_by_role("button", name=button, exact=True).click()
    response = await navigation.value
    assert response
    return response


async def sign_in(page: Page, asked: Asked, headline: str = "pay up to USD 20.00") -> None:
    await page.goto(asked.url)
    await page.get_by_label("Password").fill(PASSWORD)
    await press(page, "Sign in")
    await expect(page.get_by_role("heading", level=1)).to_contain_text(headline)


async def test_approve_leads_from_the_client_and_back_to_it(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    asked = Asked(wallet_server, f"{client_site.url}/done?order=17")
    client_site.pages["/"] = f'<a href="{asked.url}">Pay</a>'
    page = await open_page()
    await page.goto(client_site.url)
    await page.get_by_role("link", name="Pay").click()
    await expect(page.get_by_label("Password")).to_be_focused()
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_label("Password").press("Enter")
    await expect(page.get_by_role("heading", name="pay up to USD 20.00")).to_be_visible()
    await expect(page.get_by_text("Example Shop", exact=True).last).to_be_visible()
    await press(page, "Allow USD 20.00")
    await expect(page.get_by_role("heading")).to_have_text("Back at the shop")
    [arrival] = client_site.arrivals
    assert arrival.startswith("/done?order=17&")
    assert asked.go_on(arrival) == 200


async def test_approve_survives_a_finish_uri_that_redirects_to_another_origin(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    asked = Asked(wallet_server, client_site.url.replace("localhost", "127.0.0.1") + "/hop")
    page = await open_page()
    await sign_in(page, asked)
    await press(page, "Allow USD 20.00")
    await expect(page.get_by_role("heading")).to_have_text("Back at the shop")
    asked.check_finish(client_site.arrivals[0])


@pytest.mark.parametrize("decision", ["Allow USD 20.00", "Don’t allow"])
async def test_decision_leads_into_an_application(wallet_server: Instance, open_page: OpenPage, decision: str) -> None:
    """The browser is sent to the application's own scheme; that none is installed here does not matter."""
    asked = Asked(wallet_server, "com.example.app:/done?order=17")
    page = await open_page()
    await sign_in(page, asked)
    await expect(page.get_by_text("Then the app com.example.app opens on your device.")).to_be_visible()
    async with page.expect_request("com.example.app:**") as opened:
        await page.get_by_role("button", name=decision, exact=True).click()
    arrival = (await opened.value).url
    assert arrival.startswith("com.example.app:/done?order=17&")
    if decision == "Don’t allow":
        assert arrival.endswith("&result=grant_rejected")
    else:
        assert asked.go_on(arrival) == 200


@pytest.mark.parametrize("decision", ["Allow USD 20.00", "Don’t allow"])
async def test_decision_leads_into_an_application_that_the_clients_page_leads_to(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage, decision: str
) -> None:
    asked = Asked(wallet_server, f"{client_site.url}/app")
    page = await open_page()
    await sign_in(page, asked)
    async with page.expect_request("shopapp:**") as opened:
        await page.get_by_role("button", name=decision, exact=True).click()
    asked.check_finish((await opened.value).url) if decision != "Don’t allow" else None


async def test_owner_who_is_signed_in_comes_back_without_a_password(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    page = await open_page()
    await sign_in(page, Asked(wallet_server))
    client_site.pages["/"] = f'<a href="{Asked(wallet_server).url}">Pay again</a>'
    await page.goto(client_site.url)
    await page.get_by_role("link", name="Pay again").click()
    await expect(page.get_by_role("heading", level=1)).to_contain_text("pay up to USD 20.00")
    await press(page, "Sign out")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to your wallet")


async def test_double_click_approves_once_and_still_leads_to_the_client(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    asked = Asked(wallet_server, f"{client_site.url}/done")
    page = await open_page()
    await sign_in(page, asked)
    await page.get_by_role("button", name="Allow USD 20.00").dblclick(no_wait_after=True)
    # The second click either comes too late to be sent, or its answer takes the place of the first one's.
    arrived = page.get_by_role("heading", name="Back at the shop")
    again = page.get_by_role("link", name="Continue to localhost")
    await expect(arrived.or_(again)).to_be_visible()
    if await again.is_visible():
        await again.click()
    await expect(arrived).to_be_visible()
    assert len({asked.check_finish(arrival) for arrival in client_site.arrivals}) == 1


async def test_back_button_finds_no_form_to_send_again(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    asked = Asked(wallet_server, f"{client_site.url}/done")
    page = await open_page()
    await sign_in(page, asked)
    await press(page, "Allow USD 20.00")
    await expect(page.get_by_role("heading")).to_have_text("Back at the shop")
    await page.go_back()
    await expect(page.get_by_role("heading")).to_have_text("Allowed")
    await expect(page.get_by_role("button")).to_have_count(0)
    asked.go_on(client_site.arrivals[0])
    await page.reload()
    await expect(page.get_by_role("main").get_by_role("link", name="Continue")).to_have_count(0)


async def test_form_on_another_site_decides_nothing(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    asked = Asked(wallet_server)
    page = await open_page()
    await sign_in(page, asked)
    client_site.pages["/"] = (
        f'<form method="post" action="{asked.url}"><button name="choice" value="approve">Win</button></form>'
    )
    await page.goto(client_site.url)
    answer = await press(page, "Win")
    assert answer.status == 403
    await page.goto(asked.url)
    await expect(page.get_by_role("heading", level=1)).to_contain_text("pay up to USD 20.00")


@pytest.mark.parametrize(("width", "scheme"), [(320, "light"), (390, "dark")])
async def test_pages_fit_a_phone_in_light_and_dark(
    wallet_server: Instance, open_page: OpenPage, width: int, scheme: str
) -> None:
    page = await open_page(viewport={"width": width, "height": 844}, color_scheme=scheme, java_script_enabled=True)
    client = wallet_server.new_client(f"{'shop' * 20}-{width}-{scheme}", name="W" * 150)
    item = {"type": "outgoing-payment", "actions": ["create", "read-all"], "identifier": wallet_server.wallet("carol")}
    amount = {"value": "18446744073709551615", "assetCode": "M" * 32, "assetScale": 40}
    url = client.request_grant(item | {"limits": {"receiveAmount": amount}}).json()["interact"]["redirect"]

    async def check() -> None:
        assert await page.evaluate("document.documentElement.scrollWidth") == width
        red = int((await page.evaluate("getComputedStyle(document.body).backgroundColor"))[4:].split(",")[0])
        assert (red < 128) == (scheme == "dark")

    await page.goto(url)
    await check()
    await page.get_by_label("Password").fill(PASSWORD)
    await press(page, "Sign in")
    await check()
    for button in await page.get_by_role("button").all():
        box = await button.bounding_box()
        assert box
        assert box["height"] >= 44, "high enough for a thumb"
    wallet_server.deny(url)
    async with page.expect_navigation():
        await page.locator("button.primary").click()
    await check()


@pytest.mark.parametrize("language", ["en-GB", "de-DE", "es-ES"])
async def test_buttons_of_a_budget_without_end_are_on_the_first_screen(
    wallet_server: Instance, open_page: OpenPage, language: str
) -> None:
    """As the Web Monetization extension asks, with a key of the wallet itself, beside another budget."""
    path = f"reader-{language[:2]}"
    program = wallet_server.new_client(path, name="Nora")
    item: Json = {"type": "outgoing-payment", "actions": ["create", "read"], "identifier": program.wallet_address}
    item["limits"] = {"debitAmount": usd(2000), "interval": "R/2026-01-31T00:00:00Z/P1M"}
    wallet_server.client.obtain_grant(item)
    signed_in = wallet_server.write(
        lambda work: open_session(work, OF_OWNERS, owner_of(work, require_wallet(work, path).id), Browser())
    )
    page = await open_page(viewport={"width": 390, "height": 844}, locale=language)
    await page.context.add_cookies(
        [{"name": "payres_session", "value": signed_in.session, "url": wallet_server.base_url}]
    )
    await page.goto(program.request_grant(item).json()["interact"]["redirect"])
    await expect(page.get_by_text("40.00" if language == "en-GB" else "40,00").first).to_be_in_viewport()
    for choice in ("deny", "approve"):
        await expect(page.locator(f"button[value={choice}]")).to_be_in_viewport(ratio=1)


async def test_open_page_goes_on_by_itself_after_the_operators_decision(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consent, "READING_SECONDS", 3)  # time enough to scroll on a busy machine
    asked = Asked(wallet_server, f"{client_site.url}/done?order=17", "read")
    page = await open_page(viewport={"width": 390, "height": 300})
    await sign_in(page, asked, "look into your wallet")
    await page.get_by_role("button", name="Allow", exact=True).scroll_into_view_if_needed()
    async with page.expect_navigation():  # as long as nothing is decided it is the same page again
        pass
    await expect(page.get_by_role("button", name="Allow", exact=True)).to_be_in_viewport()
    wallet_server.write(lambda work: grants.decide(work, asked.grant_id, approve=True))
    await expect(page.get_by_role("heading", level=1)).to_have_text("Back at the shop")
    [arrival] = client_site.arrivals
    assert asked.go_on(arrival) == 200


DESKTOP = {"width": 1280, "height": 800}
A_WHILE = 60_000  # milliseconds, of the page's own clock


async def open_watched(open_page: OpenPage) -> tuple[Page, list[str]]:
    """A page of a browser with scripts whose clock stands still, and the URLs that it loads."""
    page, loaded = await open_page(java_script_enabled=True, viewport=DESKTOP), list[str]()
    await page.clock.install()
    page.on("request", lambda request: loaded.append(request.url) if request.is_navigation_request() else None)
    return page, loaded


@pytest.mark.parametrize("is_signed_in", [True, False])
async def test_open_page_goes_on_by_itself_after_the_operators_approval(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage, is_signed_in: bool
) -> None:
    """As the tab that the Web Monetization extension has opened, which nobody has touched."""
    asked = Asked(wallet_server, f"{client_site.url}/done")
    page, loaded = await open_watched(open_page)
    await page.goto(asked.url)
    if is_signed_in:
        await sign_in(page, asked)
    async with page.expect_navigation():
        await page.clock.fast_forward(5_000)
    assert loaded[-1] == asked.url, "it has looked, and nobody has decided"
    wallet_server.write(lambda work: grants.decide(work, asked.grant_id, approve=True))
    await page.clock.fast_forward(5_000)
    await expect(page.get_by_role("heading")).to_have_text("Back at the shop")
    assert asked.go_on(client_site.arrivals[0]) == 200


@pytest.mark.parametrize("touch", ["password", "password and nothing", "limit", "opened", "key"])
async def test_page_that_was_touched_is_not_loaded_again(
    wallet_server: Instance, open_page: OpenPage, touch: str
) -> None:
    asked = Asked(wallet_server)
    page, loaded = await open_watched(open_page)
    if "password" in touch:
        await page.goto(asked.url)
        await page.get_by_label("Password").press_sequentially("corr")
        if "nothing" in touch:
            await page.get_by_label("Password").fill("")
    else:
        await sign_in(page, asked)
        if touch == "key":
            await page.keyboard.press("Tab")
        else:
            await page.get_by_text("Allow less").click()
        if touch == "limit":
            await page.get_by_label("Your limit").fill("12")
    before = list(loaded)
    await page.clock.run_for(A_WHILE)
    assert loaded == before
    if touch == "password":
        assert await page.get_by_label("Password").input_value() == "corr"
    if touch == "limit":
        assert await page.get_by_label("Your limit").input_value() == "12"
        await expect(page.get_by_role("button", name="Allow USD 20.00")).to_have_count(0)
        await press(page, "Allow up to this limit")
        assert json.loads(wallet_server.read(lambda tx: GRANTS.by_id(tx, asked.grant_id)).access)[0]["limits"] == {
            "debitAmount": usd(1200)
        }


@pytest.mark.parametrize("end", ["denied", "lapsed"])
async def test_page_stops_looking_when_there_is_nothing_left_to_decide(
    wallet_server: Instance, open_page: OpenPage, end: str
) -> None:
    asked = Asked(wallet_server)
    page, loaded = await open_watched(open_page)
    await page.goto(asked.url)
    if end == "denied":
        wallet_server.write(lambda work: grants.decide(work, asked.grant_id, approve=False))
    else:
        lifetime = wallet_server.context.settings.interaction_lifetime
        wallet_server.write(
            lambda work: work.execute(
                "UPDATE interaction SET expires_at = expires_at - ? WHERE grant_id = ?",
                (lifetime * SECOND, asked.grant_id),
            ).fetchall()
        )
    async with page.expect_navigation():
        await page.clock.fast_forward(5_000)
    title = "Already answered" if end == "denied" else "This request has expired"
    await expect(page.get_by_role("heading", level=1)).to_have_text(title)
    before = list(loaded)
    await page.clock.run_for(A_WHILE)
    assert loaded == before


async def test_page_without_scripts_has_a_link_that_looks_again(wallet_server: Instance, open_page: OpenPage) -> None:
    asked = Asked(wallet_server)
    page = await open_page(viewport=DESKTOP)
    await sign_in(page, asked)
    wallet_server.write(lambda work: grants.decide(work, asked.grant_id, approve=True))
    await page.get_by_role("link", name="Load this page again").click()
    await expect(page.get_by_role("heading", level=1)).to_have_text("Allowed")


async def test_no_other_script_runs(wallet_server: Instance, chromium: playwright.async_api.Browser) -> None:
    """With a context of its own: those of `open_page` may break no policy."""
    context = await chromium.new_context()
    page, said = await context.new_page(), list[str]()
    page.on("console", lambda message: said.append(message.text))
    await page.goto(Asked(wallet_server).url)
    with pytest.raises(playwright.async_api.Error, match="requires 'TrustedScript'"):
        await page.evaluate("document.body.append(Object.assign(document.createElement('script'), {text: 'x = 1'}))")
    await page.evaluate("document.body.append(Object.assign(document.createElement('a'), {href: 'javascript:x = 1'}))")
    await page.evaluate("document.body.lastChild.click()")
    assert await page.evaluate("typeof x") == "undefined"
    assert any("script-src" in text for text in said)
    await context.close()
