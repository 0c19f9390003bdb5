"""The consent pages as people meet them: in a browser, without scripts, on their way from a client and back to it."""

import base64
import hashlib
from typing import Any, Protocol
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.async_api import Page, Response, expect

from payres.limits import MAX_WRONG_PASSWORDS
from payres.testing.instance import Instance
from tests.helpers import Json

pytestmark = pytest.mark.asyncio(loop_scope="session")

PASSWORD = "correct horse"
NONCE = "client-nonce"


class ClientSite(Protocol):
    url: str
    arrivals: list[str]
    pages: dict[str, str]


class OpenPage(Protocol):
    async def __call__(self, **options: Any) -> Page: ...


class Asked:
    """A grant that the shop has asked for."""

    def __init__(self, server: Instance, answer: Json) -> None:
        self.url: str = answer["interact"]["redirect"]
        self._server = server
        self._answer = answer

    def check_finish(self, arrival: str) -> str:
        """The interact_ref that arrived at the client, after comparing the hash."""
        query = parse_qs(urlsplit(arrival).query)
        [reference] = query["interact_ref"]
        text = "\n".join((NONCE, self._answer["interact"]["finish"], reference, f"{self._server.base_url}/"))
        assert query["hash"] == [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()]
        return reference

    def go_on(self, reference: str) -> tuple[int, Json]:
        """What the server answers to the client's continuation."""
        follow_up = self._answer["continue"]
        answer = self._server.client.post(
            follow_up["uri"], {"interact_ref": reference}, follow_up["access_token"]["value"]
        )
        return answer.status_code, answer.json()


def ask(server: Instance, finish: str | None) -> Asked:
    limits = {"debitAmount": {"value": "2000", "assetCode": "USD", "assetScale": 2}}
    item = {"type": "outgoing-payment", "actions": ["create"], "identifier": server.wallet("carol"), "limits": limits}
    interact: Json = {"start": ["redirect"]}
    if finish is not None:
        interact["finish"] = {"method": "redirect", "uri": finish, "nonce": NONCE}
    answer = server.client.request_grant(item, interact=interact)
    assert answer.status_code == 200, answer.text
    return Asked(server, answer.json())


async def press(page: Page, button: str) -> Response:
    """Presses a button and waits for the page that follows."""
    async with page.expect_navigation() as navigation:
        await page.get_by_role("button", name=button, exact=True).click()
    response = await navigation.value
    assert response
    return response


async def sign_in(page: Page, asked: Asked) -> None:
    await page.goto(asked.url)
    await page.get_by_label("Password").fill(PASSWORD)
    await press(page, "Sign in")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Do you allow this?")


async def test_approve_leads_from_the_client_and_back_to_it(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    asked = ask(wallet_server, f"{client_site.url}/done?order=17")
    client_site.pages["/"] = f'<a href="{asked.url}">Pay</a>'
    page = await open_page()
    await page.goto(client_site.url)
    await page.get_by_role("link", name="Pay").click()
    await expect(page.get_by_label("Password")).to_be_focused()
    await page.get_by_label("Password").fill(PASSWORD)
    await page.get_by_label("Password").press("Enter")
    await expect(page.get_by_text("Send up to USD 20.00 in total")).to_be_visible()
    await expect(page.get_by_text("Example Shop", exact=True)).to_be_visible()

    await press(page, "Approve")

    await expect(page.get_by_role("heading")).to_have_text("Back at the shop")
    [arrival] = client_site.arrivals
    assert arrival.startswith("/done?order=17&")
    status, answer = asked.go_on(asked.check_finish(arrival))
    assert status == 200
    assert answer["access_token"]["value"]


async def test_deny_tells_the_client_no(wallet_server: Instance, client_site: ClientSite, open_page: OpenPage) -> None:
    asked = ask(wallet_server, f"{client_site.url}/done")
    page = await open_page()
    await sign_in(page, asked)

    await press(page, "Deny")

    await expect(page.get_by_role("heading")).to_have_text("Back at the shop")
    assert client_site.arrivals == ["/done?result=grant_rejected"]
    status, answer = asked.go_on("none")
    assert (status, answer["error"]["code"]) == (401, "user_denied")


async def test_approve_survives_a_finish_uri_that_redirects_to_another_origin(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    asked = ask(wallet_server, client_site.url.replace("localhost", "127.0.0.1") + "/hop")
    page = await open_page()
    await sign_in(page, asked)

    await press(page, "Approve")

    await expect(page.get_by_role("heading")).to_have_text("Back at the shop")
    asked.check_finish(client_site.arrivals[0])


@pytest.mark.parametrize("decision", ["Approve", "Deny"])
async def test_decision_leads_into_an_application(wallet_server: Instance, open_page: OpenPage, decision: str) -> None:
    """The browser is sent to the application's own scheme; that none is installed here does not matter."""
    asked = ask(wallet_server, "com.example.app:/done?order=17")
    page = await open_page()
    await sign_in(page, asked)
    await expect(page.get_by_text("Afterwards the app com.example.app opens on your device.")).to_be_visible()

    async with page.expect_request("com.example.app:**") as opened:
        await page.get_by_role("button", name=decision, exact=True).click()

    arrival = (await opened.value).url
    assert arrival.startswith("com.example.app:/done?order=17&")
    if decision == "Deny":
        assert arrival.endswith("&result=grant_rejected")
    else:
        assert asked.go_on(asked.check_finish(arrival))[0] == 200


async def test_approve_without_finish_uri_ends_here(wallet_server: Instance, open_page: OpenPage) -> None:
    page = await open_page()
    await sign_in(page, ask(wallet_server, None))

    await press(page, "Approve")

    await expect(page.get_by_role("heading")).to_have_text("Approved")
    await expect(page.get_by_text("You may close this window.")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("heading")).to_have_text("Approved")


async def test_owner_who_is_signed_in_comes_back_without_a_password(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    page = await open_page()
    await sign_in(page, ask(wallet_server, None))
    client_site.pages["/"] = f'<a href="{ask(wallet_server, None).url}">Pay again</a>'
    await page.goto(client_site.url)

    await page.get_by_role("link", name="Pay again").click()

    await expect(page.get_by_role("heading", level=1)).to_have_text("Do you allow this?")
    await press(page, "Sign out")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Sign in to your wallet")


async def test_wrong_password_says_so_and_can_be_mended(wallet_server: Instance, open_page: OpenPage) -> None:
    page = await open_page()
    await page.goto(ask(wallet_server, None).url)
    await page.get_by_label("Password").fill("wrong")

    answer = await press(page, "Sign in")

    assert answer.status == 401
    await expect(page.get_by_role("alert")).to_have_text("This is not the password of this wallet.")
    await expect(page.get_by_label("Password")).to_be_focused()
    await page.get_by_label("Password").fill(PASSWORD)
    await press(page, "Sign in")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Do you allow this?")


async def test_browser_that_is_known_signs_in_while_others_guess(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    asked = ask(wallet_server, None)
    client_site.pages["/"] = f'<a href="{asked.url}">Pay</a>'
    page, unknown = await open_page(), await open_page()
    await sign_in(page, asked)
    await press(page, "Sign out")
    await unknown.goto(asked.url)
    for _ in range(MAX_WRONG_PASSWORDS):
        await unknown.get_by_label("Password").fill("wrong")
        await press(unknown, "Sign in")
    await unknown.get_by_label("Password").fill(PASSWORD)
    assert (await press(unknown, "Sign in")).status == 429
    await expect(unknown.get_by_role("heading")).to_have_text("Too many attempts")
    await expect(unknown.get_by_role("link", name="Open the request again")).to_be_visible()

    await page.goto(client_site.url)
    await page.get_by_role("link", name="Pay").click()
    await page.get_by_label("Password").fill(PASSWORD)
    await press(page, "Sign in")

    await expect(page.get_by_role("heading", level=1)).to_have_text("Do you allow this?")
    wallet_server.clock.advance(15 * 60)  # the others may be owners too


async def test_double_click_approves_once_and_still_leads_to_the_client(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    asked = ask(wallet_server, f"{client_site.url}/done")
    page = await open_page()
    await sign_in(page, asked)

    await page.get_by_role("button", name="Approve").dblclick(no_wait_after=True)

    # The second click either comes too late to be sent, or its answer takes the place of the first one's.
    arrived = page.get_by_role("heading", name="Back at the shop")
    again = page.get_by_role("link", name="Continue to localhost")
    await expect(arrived.or_(again)).to_be_visible()
    if await again.is_visible():
        await again.click()
    await expect(arrived).to_be_visible()
    assert len({asked.check_finish(arrival) for arrival in client_site.arrivals}) == 1


async def test_second_tab_learns_that_it_was_approved(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    asked = ask(wallet_server, f"{client_site.url}/done")
    first = await open_page()
    await sign_in(first, asked)
    second = await first.context.new_page()
    await second.goto(asked.url)
    await press(first, "Approve")

    answer = await press(second, "Deny")

    assert answer.status == 409
    await expect(second.get_by_role("heading")).to_have_text("Already approved")
    await second.get_by_role("link", name="Continue to localhost").click()
    await expect(second.get_by_role("heading")).to_have_text("Back at the shop")
    assert client_site.arrivals[0] == client_site.arrivals[1]


async def test_back_button_finds_no_form_to_send_again(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    asked = ask(wallet_server, f"{client_site.url}/done")
    page = await open_page()
    await sign_in(page, asked)
    await press(page, "Approve")
    await expect(page.get_by_role("heading")).to_have_text("Back at the shop")

    await page.go_back()

    await expect(page.get_by_role("heading")).to_have_text("Approved")
    await expect(page.get_by_role("button")).to_have_count(0)
    asked.go_on(asked.check_finish(client_site.arrivals[0]))
    await page.reload()
    await expect(page.get_by_role("link")).to_have_count(0)


async def test_request_that_expires_while_it_is_read_is_too_late(wallet_server: Instance, open_page: OpenPage) -> None:
    page = await open_page()
    await sign_in(page, ask(wallet_server, None))
    wallet_server.clock.advance(wallet_server.context.settings.interaction_lifetime)

    answer = await press(page, "Approve")

    assert answer.status == 400
    await expect(page.get_by_role("heading")).to_have_text("Too late")


async def test_form_on_another_site_decides_nothing(
    wallet_server: Instance, client_site: ClientSite, open_page: OpenPage
) -> None:
    asked = ask(wallet_server, None)
    page = await open_page()
    await sign_in(page, asked)
    client_site.pages["/"] = (
        f'<form method="post" action="{asked.url}"><button name="choice" value="approve">Win</button></form>'
    )
    await page.goto(client_site.url)

    answer = await press(page, "Win")

    assert answer.status == 403
    await page.goto(asked.url)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Do you allow this?")


async def test_pages_refuse_to_be_framed(wallet_server: Instance, client_site: ClientSite, open_page: OpenPage) -> None:
    asked = ask(wallet_server, None)
    client_site.pages["/"] = f'<iframe src="{asked.url}"></iframe><p>around it</p>'
    page = await open_page()

    await page.goto(client_site.url)

    await expect(page.get_by_text("around it")).to_be_visible()
    assert "Sign in" not in await page.frames[1].content()


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
    await press(page, "Approve")
    await check()
