"""A page as people see it: wide and narrow, light and dark, read out loud."""

from pathlib import Path
from typing import Any

from playwright.async_api import Page, ViewportSize

AXE = Path(__file__).parents[1] / "interop" / "node_modules" / "axe-core" / "axe.min.js"
RUN = "async (options) => (await axe.run(document, {reporter: 'no-passes', ...options})).violations"
# What colours and a narrow layout can change: the rest of what axe looks at is the same on all screens.
OF_SCREENS = ["color-contrast", "target-size", "scrollable-region-focusable"]


async def check(page: Page, url: str = "", narrow: int = 320) -> None:
    """That the page there, or the one that is open, fits all widths and follows the device's light, and that axe, which
    the page has, finds nothing."""
    if url:
        await page.goto(url)
    for width in (390, 1280, narrow):
        await page.set_viewport_size(ViewportSize(width=width, height=844))
        assert await page.evaluate("document.documentElement.scrollWidth") == width, (page.url, width)
        if width == 1280:
            assert await breaches(page) == [], page.url
    await page.emulate_media(color_scheme="dark")
    red = int((await page.evaluate("getComputedStyle(document.body).backgroundColor"))[4:].split(",")[0])
    assert red < 128, page.url
    assert await breaches(page, runOnly=OF_SCREENS) == [], page.url
    await page.emulate_media(color_scheme="light")


async def breaches(page: Page, **options: Any) -> list[str]:
    """What axe finds wrong."""
    found = await page.evaluate(RUN, options)
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]
