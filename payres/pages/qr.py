"""QR codes as inline SVG."""

from typing import Final

from markupsafe import Markup

QUIET: Final = 4  # modules of the quiet zone (ISO/IEC 18004)


def qr_code(text: str, label: str) -> Markup:
    """The QR code of a text, with a label for screen readers; `{{ qr }}` in a template shows it."""
    import segno  # loads slowly

    svg = segno.make_qr(text, error="m").svg_inline(
        border=QUIET, omitsize=True, svgclass="qr", lineclass=None, title=label
    )
    return Markup(svg.replace("<svg ", '<svg role="img" ', 1))  # noqa: S704 - segno escapes the label
