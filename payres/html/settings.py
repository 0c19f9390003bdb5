"""The settings of all pages, and of the site's security contact."""

from functools import partial
from typing import Annotated, Final

import msgspec

from payres.core.process.settings import NonEmpty, checked_link
from payres.core.protocol.urls import is_http_url
from payres.core.protocol.visible import is_visible
from payres.html.brand import check_accent, check_logo
from payres.html.mail_addresses import mail_address

MAX_NAME_LENGTH: Final = 60


def _name(text: str) -> str:
    if len(text) > MAX_NAME_LENGTH or not is_visible(text):
        raise ValueError(f"must be a name of at most {MAX_NAME_LENGTH} characters")
    return text.strip()


def _time_zone(name: str) -> str:
    from zoneinfo import ZoneInfo

    try:
        return ZoneInfo(name).key if name != "UTC" else name
    except (OSError, ValueError, KeyError) as error:
        raise ValueError("is not a time zone that this machine knows, such as Europe/Berlin") from error


def _contact(text: str) -> str:
    if not text or is_http_url(text):
        return text
    address = mail_address(text.removeprefix("mailto:"))
    if address is None:
        raise ValueError("must be an e-mail address or an https URL")
    return f"mailto:{address}"


PageLink = Annotated[str, checked_link]


class PageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Texts and links are empty by default, and colours and the logo those of payres."""

    time_zone: Annotated[NonEmpty, _time_zone] = "UTC"
    name: Annotated[str, _name] = ""
    logo: Annotated[str, check_logo] = ""
    accent: Annotated[str, check_accent] = ""
    accent_dark: Annotated[str, partial(check_accent, dark=True)] = ""
    help_url: PageLink = ""
    terms_url: PageLink = ""
    privacy_url: PageLink = ""
    security_contact: Annotated[str, _contact] = ""
