"""The operator's pages as people see them: wide and narrow, light and dark, by keyboard, and with a screen reader."""

import re
from collections.abc import Iterator

import pytest
from playwright.async_api import Page, ViewportSize, expect

from payres.core.store.work import Work
from payres.operator import assets, operators, wallets
from tests.browser.conftest import PASSWORD, OpenPage
from tests.browser.screens import AXE, check, fits
from tests.instance import Instance, run_instance
from tests.operator.pages.seed import Seeded, fill

pytestmark = pytest.mark.asyncio(loop_scope="session")

WIDE, NARROW = ViewportSize(width=1280, height=900), ViewportSize(width=390, height=844)
PATHS = (
    *("", "/wallets", "/wallets?state=inactive", "/new-wallet", "/wallets/alice"),
    *("/wallets/savings%2Fof-a-wallet-with-a-long-path", "/wallets/alice/movements", "/wallets/alice/keys/{kid}"),
    *("/wallets/alice/deposit", "/wallets/alice/deactivate", "/payments", "/grants", "/payments/{incoming}"),
    *("/payments/{outgoing}", "/payments/{failed}", "/payments?state=sending", "/payments/{incoming}/refund"),
    *("/grants/{grant}", "/grants/{grant}/revoke", "/grants/{pending}", "/grants/{pending}/decision", "/peers"),
    *("/peers/second", "/peers/second/unresolved-packets", "/assets", "/assets/USD/2", "/rates", "/new-api-key"),
    *("/webhooks/{webhook}", "/new-webhook"),
    *("/packets/{packet}", "/webhooks", "/webhooks/deliveries", "/api-keys", "/api-keys/{api_key}", "/audit-log"),
    *(
        "/search",
        "/search?q=alice",
        "/search?q=script&kind=payments",
        "/search?q=nothing+of+this",
        "/search?q=bob+25.51",
        "/search?q=alice+25.00",
        "/payments?wallet=alice&from=yesterday",
        "/set-rate",
        "/assets/USD/2/set",
        "/exports",
        "/settings",
    ),
    *("/wallets/nobody", "/nonsense", "/operators", "/operators/ann", "/operators/ann/change", "/operators/ann/remove"),
    *("/new-operator", "/backups", "/health", "/health/mail", "/due", "/health/ledger"),
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Instance]:
    folder = tmp_path_factory.mktemp("admin")
    with run_instance(folder / "payres.db", backup_directory=str(folder)) as instance:
        yield instance


@pytest.fixture(scope="module")
def seeded(server: Instance) -> Seeded:
    return fill(server)


async def sign_in(page: Page, server: Instance, name: str) -> None:
    """Follows a new link, by keyboard."""
    made = server.write(lambda work: operators.make_link(work, name))
    await page.goto(made.url)
    await expect(page.get_by_label("Password, at least")).to_be_focused()
    await page.keyboard.type(PASSWORD)
    await page.keyboard.press("Tab")
    await page.keyboard.type(PASSWORD)
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", level=1)).to_have_text("Overview")


async def test_every_page_fits_and_can_be_read_by_everyone(
    server: Instance, seeded: Seeded, open_page: OpenPage
) -> None:
    page = await open_page(java_script_enabled=True)
    await sign_in(page, server, "ann")
    await page.context.add_init_script(path=AXE)
    for path in PATHS:
        await check(page, f"{server.base_url}/admin{path.format(**seeded._asdict())}")
    await page.context.clear_cookies()
    await check(page, f"{server.base_url}/admin")
    made = server.write(lambda work: operators.make_link(work, "ann"))
    await check(page, made.url)


async def test_long_amounts_fit_a_telephone(server: Instance, seeded: Seeded, open_page: OpenPage) -> None:
    def unit(work: Work) -> None:
        wallets.create_wallet(work, "rich", "USD", 2, "Rich", None)
        for number in range(2):
            wallets.deposit(work, "rich", "987654321234.56", f"transfer {number}")
        assets.deposit_liquidity(work, "USD", 2, "987654321234.56")

    server.write(unit)
    page = await open_page()
    await sign_in(page, server, "long")
    for path in ("/wallets/rich", "/wallets/rich/deposit", "/wallets/rich/movements", "/wallets", "/assets/USD/2", ""):
        await fits(page, f"{server.base_url}/admin{path}", (390,))
        for figure in await page.locator("main .number .money, main td.number, main dd.number").all():
            card = await figure.evaluate("one => one.closest('.card').getBoundingClientRect().right")
            assert await figure.evaluate("one => one.getBoundingClientRect().right") < card, (
                path,
                await figure.text_content(),
            )
    await page.goto(f"{server.base_url}/admin/assets/USD/2/deposit")
    await page.locator("[name=amount]").fill("1234567890.00")
    await page.get_by_role("button", name="Look it over").click()
    await fits(page, widths=(390,))


async def test_menu_is_two_rows_on_a_phone_and_search_is_on_lists_only(
    server: Instance, seeded: Seeded, open_page: OpenPage
) -> None:
    page = await open_page(viewport=NARROW)
    await sign_in(page, server, "mia")
    tabs = page.get_by_role("navigation", name="Sections").get_by_role("link")
    boxes = [await tabs.nth(n).bounding_box() for n in range(await tabs.count())]
    assert len({box["y"] for box in boxes if box}) == 2
    assert all(box and box["x"] >= 0 and box["x"] + box["width"] <= NARROW["width"] for box in boxes)
    await expect(page.get_by_role("searchbox")).to_be_visible()
    await page.goto(f"{server.base_url}/admin/wallets/alice")
    await expect(page.get_by_role("searchbox")).to_be_hidden()
    await page.set_viewport_size(WIDE)
    await expect(page.get_by_role("searchbox")).to_be_visible()


async def test_row_of_a_list_is_two_lines_on_a_phone_and_leads_to_its_page(
    server: Instance, seeded: Seeded, open_page: OpenPage
) -> None:
    page = await open_page(viewport=NARROW)
    await sign_in(page, server, "sue")
    await page.goto(f"{server.base_url}/admin/wallets")
    row = page.get_by_role("row").filter(has=page.get_by_role("link", name="Alice"))
    await row.scroll_into_view_if_needed()
    box = await row.bounding_box()
    assert box
    assert box["height"] < 90
    await page.mouse.click(box["x"] + box["width"] - 20, box["y"] + box["height"] - 10)
    await expect(page.get_by_role("heading", level=1)).to_have_text("Alice")


async def test_keyboard_reaches_everything_in_order_and_shows_where_it_is(
    server: Instance, seeded: Seeded, open_page: OpenPage
) -> None:
    page = await open_page(java_script_enabled=True, viewport=WIDE)
    await sign_in(page, server, "kim")
    for path in ("", "/payments", "/wallets/alice", "/wallets/alice/owner", "/packets/{packet}"):
        where = path.format(**seeded._asdict())
        await page.goto(f"{server.base_url}/admin{where}")
        seen = await stops(page, where)
        assert seen == sorted(seen), where
        assert seen[0] == 0, where
        assert len(seen) >= 10, where
        await page.goto(f"{server.base_url}/admin{where}")
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to the page")).to_be_focused()
        await page.keyboard.press("Enter")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.querySelector('main').contains(document.activeElement)"), where


async def stops(page: Page, where: str) -> list[int]:
    """The places, among all that the keyboard can reach, at which it stops in turn, each of which must be seen."""
    reachable = "a[href], button, input:not([type=hidden]), select, summary"
    seen: list[int] = []
    for _ in range(await page.locator(reachable).count()):
        await page.keyboard.press("Tab")
        place, is_visible, is_outlined = await page.evaluate(
            """(all) => {
              const one = document.activeElement, box = one.getBoundingClientRect();
              const seen = box.left >= 0 && box.right <= innerWidth && box.width > 0;
              // Of the link that covers a row, the cover has the outline.
              const styles = [null, "::after"].map((part) => getComputedStyle(one, part).outlineStyle);
              return [[...document.querySelectorAll(all)].indexOf(one), seen, styles.includes("solid")];
            }""",
            reachable,
        )
        if place == -1:
            break
        assert is_visible, where
        assert is_outlined, where
        if place not in seen:  # a date has several stops
            seen.append(place)
    return seen


async def test_backup_is_made_and_downloaded_by_keyboard_alone(server: Instance, open_page: OpenPage) -> None:
    page = await open_page(java_script_enabled=True)
    await page.context.add_init_script(path=AXE)
    await sign_in(page, server, "eve")
    await page.goto(f"{server.base_url}/admin/backups")
    await page.get_by_role("button", name="Make one now").press("Enter")
    made = page.get_by_role("link", name=re.compile(r"payres-\w+Z\.db"))
    await expect(made).to_be_visible()  # the page looks again by itself
    await made.press("Enter")
    await expect(page.get_by_label("Your password, because the file has every secret")).to_be_focused()
    await check(page)
    await page.keyboard.type(PASSWORD)
    async with page.expect_download() as started:
        await page.keyboard.press("Enter")
    download = await started.value
    assert re.fullmatch(r"payres-\w+Z\.db", download.suggested_filename)
    assert (await download.path()).read_bytes().startswith(b"SQLite format 3\0")
