"""QR codes of addresses, as SVG that stands in the page."""

from itertools import groupby
from typing import Final

from markupsafe import Markup

QUIET: Final = 4  # modules of white around it, which readers need (ISO/IEC 18004)


def qr_code(text: str, label: str) -> Markup:
    """The QR code of a text, read out to who cannot see it as the label; `{{ qr }}` in a template shows it."""
    import segno  # loads slowly, and few pages have a code

    rows = [bytes(row) for row in segno.make_qr(text, error="m").matrix]
    side = len(rows) + 2 * QUIET
    lines = "".join(_line(row, QUIET + y) for y, row in enumerate(rows))
    return Markup(
        '<svg class="qr" viewBox="0 0 {side} {side}" role="img" aria-label="{label}">'
        '<path stroke="#000" d="{lines}"/></svg>'
    ).format(side=side, label=label, lines=lines)


def _line(row: bytes, y: int) -> str:
    """One stroke for each run of dark modules."""
    path, x = "", QUIET
    for is_dark, run in groupby(row):
        length = len(list(run))
        path += f"M{x} {y}.5h{length}" if is_dark else ""
        x += length
    return path
