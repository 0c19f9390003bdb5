"""A page as people see it: wide and narrow, light and dark, read out loud."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from playwright.async_api import Page, ViewportSize

AXE = Path(__file__).parents[1] / "interop" / "node_modules" / "axe-core" / "axe.min.js"
# Nothing is said of selectors, nor are the style sheets fetched once more, which no rule here reads.
RUN = """async (options) => (await axe.run(document, {
  reporter: 'no-passes', selectors: false, preload: false, ...options
})).violations"""
# What colours and a narrow layout can change: the rest of what axe looks at is the same on all screens.
OF_SCREENS = ["color-contrast", "target-size", "scrollable-region-focusable"]
# The tags and classes of a page, each with those around it: all that decides what it looks like in another light.
SHAPES = """() => {
  const shape = (one) => [one.tagName, one.className, one.type, one.ariaCurrent, one.ariaInvalid].join();
  const all = [...document.body.querySelectorAll("*")];
  return [...new Set(all.map((one) => [one.parentElement.parentElement, one.parentElement, one].map(shape).join(" ")))];
}"""
SEEN: set[str] = set()


async def fits(page: Page, url: str = "", widths: Iterable[int] = (390, 1280, 320)) -> None:
    """That the page there, or the one that is open, is as wide as the window, whatever that is."""
    if url:
        await page.goto(url)
    for width in widths:
        await page.set_viewport_size(ViewportSize(width=width, height=844))
        assert await page.evaluate("document.documentElement.scrollWidth") == width, (page.url, width)


async def check(page: Page, url: str = "") -> None:
    """That it fits all widths, and that axe, which the page has, finds nothing; in the dark too if it has what no page
    before it had."""
    await fits(page, url, (390, 1280))
    assert await breaches(page) == [], page.url
    await fits(page, widths=[320])
    shapes = {*await page.evaluate(SHAPES)}
    if shapes <= SEEN:
        return
    SEEN.update(shapes)
    await page.emulate_media(color_scheme="dark")
    red = int((await page.evaluate("getComputedStyle(document.body).backgroundColor"))[4:].split(",")[0])
    assert red < 128, page.url
    assert await breaches(page, runOnly=OF_SCREENS) == [], page.url
    await page.emulate_media(color_scheme="light")


async def breaches(page: Page, **options: Any) -> list[str]:
    """What axe finds wrong."""
    found = await page.evaluate(RUN, options)
    return [f"{one['id']}: {one['nodes'][0]['html']}" for one in found]
