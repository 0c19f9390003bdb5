from collections.abc import AsyncIterator, Iterator
from http.server import BaseHTTPRequestHandler
from typing import Any, Protocol

import pytest
import pytest_asyncio
from playwright.async_api import Browser, ConsoleMessage, Page, async_playwright, expect

from tests.helpers import TIMEOUT
from tests.http_server import reply, serving
from tests.instance import Instance, run_instance

ARGUMENTS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--js-flags=--no-opt --no-maglev",  # scripts run once on each page: what compiles them more does not pay
)
TIMEOUT_MS = TIMEOUT * 1000
PASSWORD = "correct horse"


class OpenPage(Protocol):
    async def __call__(self, **options: Any) -> Page: ...


class ClientSite:
    """A client's web server: it remembers the finish redirects that arrive and serves pages that a test sets."""

    def __init__(self) -> None:
        self.url = ""
        self.arrivals: list[str] = []
        self.pages: dict[str, str] = {}

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        path, _, query = handler.path.partition("?")
        if path == "/hop":  # a server that keeps its finish URI and its pages on different origins
            reply(handler, 302, Location=f"{self.url}/done?{query}")
        elif path == "/app":  # one whose pages lead on into its app
            reply(handler, 302, Location=f"shopapp://done?{query}")
        elif path == "/done" or path in self.pages:
            if path == "/done":
                self.arrivals.append(handler.path)
            body = self.pages.get(path, "<h1>Back at the shop</h1>")
            reply(handler, 200, f"<!doctype html><title>Shop</title>{body}".encode(), **{"Content-Type": "text/html"})
        else:
            reply(handler, 404)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def chromium(chromium_path: str) -> AsyncIterator[Browser]:
    """One browser for all tests of a worker."""
    expect.set_options(timeout=TIMEOUT_MS)
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium_path, args=list(ARGUMENTS))
        yield browser
        await browser.close()


@pytest_asyncio.fixture(loop_scope="session")
async def open_page(chromium: Browser) -> AsyncIterator[OpenPage]:
    """Opens a tab of a browser that nobody has used; `options` are those of a browser context.

    Scripts are off unless a test measures with them. The pages may break no policy of theirs.
    """
    broken: list[str] = []
    contexts = []

    def listen(message: ConsoleMessage) -> None:
        if "Content Security Policy" in message.text and "frame-ancestors" not in message.text:
            broken.append(message.text)

    async def open_tab(**options: Any) -> Page:
        context = await chromium.new_context(**{"java_script_enabled": False} | options)
        context.set_default_timeout(TIMEOUT_MS)
        context.on("console", listen)
        contexts.append(context)
        return await context.new_page()

    yield open_tab
    for context in contexts:
        await context.close()
    assert not broken


@pytest.fixture(scope="session")
def wallet_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    """A payres with a wallet carol whose owner can sign in."""
    with run_instance(tmp_path_factory.mktemp("consent") / "payres.db") as instance:
        instance.create_wallet("carol", name="Carol", deposit="50.00", password=PASSWORD)
        yield instance


@pytest.fixture
def client_site() -> Iterator[ClientSite]:
    """The web server of the client that asks for consent."""
    site = ClientSite()
    with serving(site.answer) as port:
        # Its host is another site than that of payres, which a browser reaches as 127.0.0.1.
        site.url = f"http://localhost:{port}"
        yield site
