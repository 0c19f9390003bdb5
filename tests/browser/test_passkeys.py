"""Passkeys in Chromium, with an authenticator of its own: the script, which runs nowhere else."""

from collections.abc import Iterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import CDPSession, Page, expect

from payres.html.language import LANGUAGE_CODES, Language, LanguageCode
from tests.browser.conftest import PASSWORD, ClientSite, OpenPage
from tests.browser.screens import AXE, check, fits
from tests.instance import Instance, run_instance

pytestmark = pytest.mark.asyncio(loop_scope="session")
NEW = "/account/security/passkeys/new"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with run_instance(tmp_path_factory.mktemp("passkeys") / "payres.db", base_url="http://localhost:0") as instance:
        yield instance


# Tells which request for a passkey runs: one that waits for autofill, or that of the button.
TELL = """
const get = navigator.credentials.get.bind(navigator.credentials)
navigator.credentials.get = options => {
  document.documentElement.dataset.asked = options.mediation || "button"
  return get(options)
}
"""


class Device:
    """A tab with a virtual authenticator, whose user presents and verifies themselves unless told otherwise."""

    def __init__(self, page: Page, protocol: CDPSession, authenticator: str) -> None:
        self.page = page
        self._protocol = protocol
        self._authenticator = authenticator

    @classmethod
    async def of(cls, page: Page) -> "Device":
        await page.context.add_init_script(TELL)
        protocol = await page.context.new_cdp_session(page)
        await protocol.send("WebAuthn.enable")
        options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
        options |= {"isUserVerified": True, "automaticPresenceSimulation": False}
        added = await protocol.send("WebAuthn.addVirtualAuthenticator", {"options": options})
        return cls(page, protocol, added["authenticatorId"])

    async def use(self, path: str) -> None:
        """Opens a page, and presses its button for a passkey while autofill waits for somebody to choose one."""
        await self.present(present=False)
        await self.page.goto(path)
        await expect(self.page.locator("html")).to_have_attribute("data-asked", "conditional")
        await self.present()
        await self.page.click("text=Sign in with a passkey")

    async def present(self, *, present: bool = True) -> None:
        """The user touches the device whenever it asks, also for what asks already; or not any more."""
        own = {"authenticatorId": self._authenticator, "enabled": present}
        await self._protocol.send("WebAuthn.setAutomaticPresenceSimulation", own)

    async def verified(self, *, verified: bool) -> None:
        own = {"authenticatorId": self._authenticator, "isUserVerified": verified}
        await self._protocol.send("WebAuthn.setUserVerified", own)

    async def credentials(self) -> list[Any]:
        found = await self._protocol.send("WebAuthn.getCredentials", {"authenticatorId": self._authenticator})
        credentials: list[Any] = found["credentials"]
        return credentials


@pytest_asyncio.fixture(loop_scope="session")
async def device(server: Instance, open_page: OpenPage) -> Device:
    return await Device.of(await open_page(java_script_enabled=True, base_url=server.base_url))


async def sign_in(page: Page, wallet: str, path: str = "/account") -> None:
    await page.goto(path)
    await page.fill("#wallet", wallet)
    await page.fill("#password", PASSWORD)
    await page.click("button[value=sign-in]")


async def add(device: Device, server: Instance, wallet: str) -> None:
    """Signs in with the password, adds a passkey, and signs out."""
    server.create_wallet(wallet, password=PASSWORD)
    await sign_in(device.page, wallet, NEW)
    await device.page.fill("#password", PASSWORD)
    await device.page.click("button[value=prove]")
    await device.page.fill("#name", "Pixel 9")
    await device.present()
    await device.page.click("form[name=passkey] button")
    await expect(device.page.locator("h1")).to_have_text("Ten new recovery codes")
    for does in ("Copy", "Print"):
        await expect(device.page.get_by_role("button", name=does)).to_be_visible()
    await device.present(present=False)
    await device.page.click("button[value=sign-out]")


async def test_passkey_is_added_once_on_a_device_and_signs_in(server: Instance, device: Device) -> None:
    await add(device, server, "ann")
    page = device.page
    [credential] = await device.credentials()
    assert (credential["rpId"], credential["isResidentCredential"]) == ("localhost", True)
    await device.use("/settings/receive?x=%C3%A4")
    await expect(page.locator("h1")).to_have_text("Getting paid")
    assert page.url.endswith("/settings/receive?x=%C3%A4")
    await page.goto(NEW)
    await page.fill("#name", "The same one")
    await page.click("form[name=passkey] button")
    await expect(page.locator("[role=alert]")).to_contain_text("This device may have one for this account already.")
    assert len(await device.credentials()) == 1
    await page.add_init_script("PublicKeyCredential.signalAllAcceptedCredentials = async said => { self.told = said }")
    await page.goto("/account/security/passkeys")
    assert len(await page.evaluate("told.allAcceptedCredentialIds")) == 1
    await page.click(".list a")
    await page.click("text=Remove it")
    await expect(page.locator("h1")).to_have_text("Passkeys")
    assert await page.evaluate("[told.rpId, told.allAcceptedCredentialIds.length]") == ["localhost", 0]


async def test_autofill_offers_the_passkey_while_a_name_is_typed(server: Instance, device: Device) -> None:
    await add(device, server, "ben")
    await device.present()
    await device.page.goto("/account/activity?text=x")
    await expect(device.page.locator("h1")).to_have_text("Activity")
    assert device.page.url.endswith("/account/activity?text=x")


async def test_user_who_is_not_verified_is_told_and_can_try_again(server: Instance, device: Device) -> None:
    await add(device, server, "cat")
    page = device.page
    await device.verified(verified=False)
    await device.use("/account")
    await expect(page.locator("[role=alert]")).to_have_text("No passkey was used. Try again, or use your password.")
    await device.present(present=False)  # before it could answer what the page asks for again by itself
    await device.verified(verified=True)
    await page.goto("/account")
    await expect(page.locator("html")).to_have_attribute("data-asked", "conditional")
    await device.present()
    await page.dblclick("text=Sign in with a passkey")
    await expect(page.locator("h1")).to_have_text("cat’s wallet")


async def test_two_tabs_sign_in_one_after_the_other(server: Instance, device: Device) -> None:
    await add(device, server, "dan")
    other = await device.page.context.new_page()
    await other.goto("/account/apps")
    await device.page.bring_to_front()
    await device.use("/account/apps")
    await expect(device.page.locator("h1")).to_have_text("Apps with access to your wallet")
    await other.reload()
    await expect(other.locator("h1")).to_have_text("Apps with access to your wallet")


async def test_without_scripts_the_password_signs_in(server: Instance, open_page: OpenPage) -> None:
    server.create_wallet("eve", password=PASSWORD)
    page = await open_page(base_url=server.base_url)
    await page.goto("/account/apps")
    for said in ("Sign in with a passkey", "or with the password"):
        await expect(page.get_by_text(said)).to_be_hidden()
    await page.fill("#wallet", "eve")
    await page.fill("#password", PASSWORD)
    await page.press("#password", "Enter")
    await expect(page.locator("h1")).to_have_text("Apps with access to your wallet")
    assert page.url.endswith("/account/apps")


@pytest.mark.parametrize("code", LANGUAGE_CODES)
async def test_passkey_signs_in_by_the_keyboard_in_each_language(
    server: Instance, open_page: OpenPage, code: LanguageCode
) -> None:
    device = await Device.of(await open_page(java_script_enabled=True, base_url=server.base_url))
    await add(device, server, f"fay-{code}")
    page, say = device.page, Language(code, 0).say
    await page.set_extra_http_headers({"Accept-Language": code})
    await page.goto("/account/apps")
    for _ in range(9):
        await page.keyboard.press("Tab")
        if await page.evaluate("document.activeElement.form?.name") == "passkey":
            break
    assert await page.evaluate("document.activeElement.innerText") == say("Sign in with a passkey")
    await device.present()
    await page.keyboard.press("Enter")
    await expect(page.locator("h1")).to_have_text(say("Apps with access to your wallet"))


async def test_pages_of_passkeys_fit_and_can_be_read(server: Instance, device: Device) -> None:
    page = device.page
    await add(device, server, "ida")
    await page.context.add_init_script(path=AXE)
    for code in LANGUAGE_CODES:
        await page.set_extra_http_headers({"Accept-Language": code})
        await fits(page, f"{server.base_url}/account")
    await page.set_extra_http_headers({"Accept-Language": "en"})
    await check(page, f"{server.base_url}/account")
    await check(page, f"{server.base_url}/admin")
    await device.use("/account/security/passkeys/new")
    await expect(page.locator("#name")).to_be_visible()
    await check(page, page.url)
    await check(page, f"{server.base_url}/account/security/passkeys")
    await page.click(".list a")
    await check(page)
    server.clock.advance(301)
    await check(page, f"{server.base_url}/settings/password")


async def test_second_step_by_passkey_approves_what_it_was_asked_for(
    server: Instance, device: Device, client_site: ClientSite
) -> None:
    await add(device, server, "gus")
    page, spends = device.page, {"type": "outgoing-payment", "actions": ["create", "read"]}
    finish = {"method": "redirect", "uri": f"{client_site.url}/done", "nonce": "nonce"}
    interact = {"start": ["redirect"], "finish": finish}
    wanted = spends | {"identifier": server.wallet("gus")}
    asked = server.new_client("gus-shop").request_grant(wanted, interact=interact).json()
    await device.use(asked["interact"]["redirect"])
    await expect(page.locator("button[value=any]")).to_be_visible()
    server.clock.advance(6 * 60)
    await page.click("button[value=any]")
    await expect(page.locator("h1")).to_have_text("Confirm that it is you")
    await page.click("text=Use a passkey")
    await page.wait_for_url("**/done?*")
    assert client_site.arrivals
