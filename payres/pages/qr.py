"""QR codes of addresses, as SVG that stands in the page."""

from typing import Final

from markupsafe import Markup

QUIET: Final = 4  # modules of white around it, which readers need (ISO/IEC 18004)


def qr_code(text: str, label: str) -> Markup:
    """The QR code of a text, read out to who cannot see it as the label; `{{ qr }}` in a template shows it."""
    import segno  # loads slowly, and few pages have a code

    svg = segno.make_qr(text, error="m").svg_inline(
        border=QUIET, omitsize=True, svgclass="qr", lineclass=None, title=label
    )
    return Markup(svg.replace("<svg ", '<svg role="img" ', 1))  # noqa: S704 - segno escapes the label
