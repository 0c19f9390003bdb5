"""The operator's name, logo, colours and links on pages."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Final

import msgspec
from markupsafe import Markup

from payres.core.process.settings import ACCENTS, SHIELD, Settings, dark_accent, logo, on_accent
from payres.html.language import marked

LOGO: Final = ".brand img{flex:none;width:1.75rem;height:1.75rem;object-fit:contain}"


class Brand(msgspec.Struct, frozen=True):
    """`name` defaults to the host; `icon` is the path of the `logo`; `links` are in the footer; `style` is CSS."""

    name: str
    has_name: bool
    icon: str
    media_type: str
    logo: Markup
    links: Sequence[tuple[str, str]]
    help_url: str
    style: str


@lru_cache(maxsize=4)
def brand_of(settings: Settings) -> Brand:
    """The brand in the settings."""
    links = [
        (settings.help_url, marked("Help")),
        (settings.terms_url, marked("Terms")),
        (settings.privacy_url, marked("Privacy")),
    ]
    found = logo(settings.logo) if settings.logo else None
    return Brand(
        name=settings.name or settings.base_url.partition("://")[2],
        has_name=bool(settings.name),
        icon=found.path if found else "/favicon.ico",
        media_type=found.media_type if found else "image/svg+xml",
        logo=Markup('<img src="{}" alt="">').format(found.path) if found else Markup(SHIELD),  # noqa: S704 - ours
        links=[(url, label) for url, label in links if url],
        help_url=settings.help_url,
        style=_style(settings.accent, settings.accent_dark) + (LOGO if found else ""),
    )


def _style(light: str, dark: str) -> str:
    """CSS for colours that differ from the style sheet. The dark accent is derived from the light one by default."""
    if not light and not dark:
        return ""
    light = light or ACCENTS[0]
    dark = dark or dark_accent(light)
    return (
        f":root{{--accent:{light};--on-accent:{on_accent(light, dark=False)}}}"
        f"@media(prefers-color-scheme:dark){{:root{{--accent:{dark};--on-accent:{on_accent(dark, dark=True)}}}}}"
    )
