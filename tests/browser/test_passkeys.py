"""Passkeys in Chromium, with an authenticator of its own: the script, which runs nowhere else."""

from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, CDPSession, Page, expect

from payres.html.language import CODES, Language
from payres.html.store.passkeys import passkeys_of
from payres.html.store.sessions import OF_OWNERS, owner_at
from payres.operator.operators import make_link
from tests.browser.conftest import PASSWORD, OpenPage
from tests.instance import Instance, run_instance

pytestmark = pytest.mark.asyncio(loop_scope="session")
NEW = "/account/security/passkeys/new"
POLICY = "; require-trusted-types-for 'script'; trusted-types 'none'"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    with run_instance(tmp_path_factory.mktemp("passkeys") / "payres.db", host="localhost") as instance:
        yield instance


class Device:
    """A tab with a virtual authenticator, whose user presents and verifies themselves unless told otherwise."""

    def __init__(self, page: Page, protocol: CDPSession, authenticator: str) -> None:
        self.page = page
        self._protocol = protocol
        self._authenticator = authenticator

    @classmethod
    async def of(cls, page: Page) -> "Device":
        protocol = await page.context.new_cdp_session(page)
        await protocol.send("WebAuthn.enable")
        options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
        options |= {"isUserVerified": True, "automaticPresenceSimulation": False}
        added = await protocol.send("WebAuthn.addVirtualAuthenticator", {"options": options})
        return cls(page, protocol, added["authenticatorId"])

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
    await device.present(present=False)
    await device.page.click("button[value=sign-out]")


async def test_passkey_is_added_once_on_a_device_and_signs_in(server: Instance, device: Device) -> None:
    await add(device, server, "ann")
    page = device.page
    [credential] = await device.credentials()
    assert (credential["rpId"], credential["isResidentCredential"]) == ("localhost", True)
    await page.goto("/settings/receive?x=%C3%A4")
    await device.present()
    await page.click("text=Sign in with a passkey")
    await expect(page.locator("h1")).to_have_text("Receive on your site")
    assert page.url.endswith("/settings/receive?x=%C3%A4")
    await page.goto(NEW)
    await page.fill("#name", "The same one")
    await page.click("form[name=passkey] button")
    await expect(page.locator("[role=alert]")).to_contain_text("This device may have one for this account already.")
    assert len(await device.credentials()) == 1
