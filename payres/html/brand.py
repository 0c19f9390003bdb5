"""How a server looks: the accent colour and the logo of its operator."""

import hashlib
import re
from functools import lru_cache
from typing import Final, NamedTuple

COLOUR: Final = re.compile(r"#[0-9a-f]{6}")
LEAST_CONTRAST: Final = 4.5  # WCAG 2.2, 1.4.3
ACCENTS: Final = ("#0b6b57", "#57c9a8")  # as in style.css, for light and dark
# The backgrounds of the accent in style.css, for light and dark: page and card.
GROUNDS: Final = (("#f3f5f4", "#ffffff"), ("#101514", "#19201e"))
SHIELD: Final = (
    '<svg viewBox="0 0 24 24" aria-hidden="true"><path d="M12 2 4 5v6c0 5 3.4 9.3 8 11 4.6-1.7 8-6 8-11V5z"/>'
    '<path class="tick" d="m8.2 12 2.7 2.7 5-5.2"/></svg>'
)

MAX_LOGO_BYTES: Final = 128 * 1024
LOGO_TYPES: Final = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
    # After declarations and comments; browsers show no image without the namespace.
    "image/svg+xml": re.compile(rb"[^<]*(?:<[?!][^>]*>[^<]*)*<svg\s[^>]*xmlns=[\"']http://www\.w3\.org/2000/svg[\"']"),
}


class Logo(NamedTuple):
    """An image, and its path, which differs if its content does: browsers keep it for a day."""

    content: bytes
    media_type: str
    path: str


def check_accent(text: str, *, dark: bool = False) -> str:
    """The colour in lower case, or an empty string. Raises ValueError if it is invalid or lacks contrast."""
    colour = text.strip().lower()
    if not colour:
        return ""
    if not COLOUR.fullmatch(colour):
        raise ValueError("must be a colour such as #0b6b57")
    for ground in (*GROUNDS[dark], on_accent(colour, dark=dark)):
        found = contrast(colour, ground)
        if found < LEAST_CONTRAST:
            how = "lighter" if dark else "darker"
            raise ValueError(
                f"cannot be read on {ground}: the contrast is {found:.1f}, and 4.5 is needed; choose a {how} one"
            )
    return colour


def on_accent(accent: str, *, dark: bool) -> str:
    """The colour of text on the accent: white, or nearly black in the dark theme."""
    return mixed(accent, "#000000", 0.86) if dark else "#ffffff"


def dark_accent(accent: str) -> str:
    """The accent, lightened for the dark theme."""
    steps = (mixed(accent, "#ffffff", share / 20) for share in range(21))
    return next(one for one in steps if min(contrast(one, ground) for ground in GROUNDS[1]) >= 1.4 * LEAST_CONTRAST)


def contrast(one: str, other: str) -> float:
    """The contrast of two colours, from 1 to 21 (WCAG 2.2)."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def mixed(one: str, other: str, share: float) -> str:
    """A colour mixed with a share of another, from 0 to 1."""
    parts = zip(_channels(one), _channels(other), strict=True)
    return "#" + "".join(f"{round(a * (1 - share) + b * share):02x}" for a, b in parts)


def check_logo(path: str) -> str:
    """The path. Raises ValueError if it is not a valid logo."""
    if path:
        logo(path)
    return path


@lru_cache(maxsize=2)
def logo(path: str) -> Logo:
    """The image in a file, which is read once: a new one counts from the next start on. Raises ValueError."""
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_LOGO_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise ValueError(f"cannot be read: {error}") from error
    if len(content) > MAX_LOGO_BYTES:
        raise ValueError(f"has more than {MAX_LOGO_BYTES} bytes")
    for media_type, beginning in LOGO_TYPES.items():
        if beginning.match(content):
            return Logo(content, media_type, f"/favicon.ico?{hashlib.sha256(content).hexdigest()[:8]}")
    raise ValueError('is neither PNG nor WebP nor SVG, which begins with <svg xmlns="http://www.w3.org/2000/svg"')


def _channels(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def _luminance(colour: str) -> float:
    parts = [one / 255 for one in _channels(colour)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
