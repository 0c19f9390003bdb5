"""QR codes as inline SVG."""

from functools import lru_cache
from typing import Final

from markupsafe import Markup

QUIET: Final = 4  # modules of the quiet zone (ISO/IEC 18004)
# Scanners read every mask. Trying all eight for the best takes four times as long, and anybody can ask for codes; with
# URLs, this one is nearly as good.
MASK: Final = 2


def qr_code(text: str, label: str) -> Markup:
    """The QR code of a text, with a label for screen readers; `{{ qr }}` in a template shows it."""
    start, rest = _drawn(text)
    return start + Markup("<title>{}</title>").format(label) + rest


@lru_cache(maxsize=1024)  # 2 to 4 kB each
def _drawn(text: str) -> tuple[Markup, Markup]:
    """The code before and after its title. Cached, because drawing takes longer than the rest of a page."""
    import segno  # loads slowly

    svg = segno.make_qr(text, error="m", mask=MASK).svg_inline(
        border=QUIET, omitsize=True, svgclass="qr", lineclass=None
    )
    start, _, rest = svg.partition(">")
    return Markup(start.replace("<svg ", '<svg role="img" ', 1) + ">"), Markup(rest)  # noqa: S704 - of figures only
