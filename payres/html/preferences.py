"""The language and the time zone that a reader has chosen, kept in cookies."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.protocol.clock import SECOND
from payres.html.cookies import read_cookies, set_cookie
from payres.html.language import LANGUAGE_CODES, LanguageCode
from payres.html.settings import PageSettings

ZONE_COOKIE: Final = "payres_zone"
LANGUAGE_COOKIE: Final = "payres_language"
VALUE: Final = rb"\"?[A-Za-z_/-]{1,40}\"?"
LIFETIME: Final = 400 * 86400  # seconds, the longest that browsers accept
# The zones offered, by region; one for all places whose clocks agree.
ZONES: Final[Mapping[str, str]] = {
    "Africa": "Abidjan Accra Addis_Ababa Algiers Cairo Casablanca Johannesburg Kampala Lagos Nairobi Tunis",
    "America": (
        "Anchorage Argentina/Buenos_Aires Bogota Caracas Chicago Costa_Rica Denver Guatemala Halifax Havana Lima"
        " Los_Angeles Mexico_City Montevideo New_York Panama Phoenix Port-au-Prince Puerto_Rico Santiago"
        " Santo_Domingo Sao_Paulo St_Johns Toronto Vancouver"
    ),
    "Asia": (
        "Almaty Baghdad Bangkok Colombo Dhaka Dubai Ho_Chi_Minh Hong_Kong Jakarta Jerusalem Kabul Karachi Kathmandu"
        " Kolkata Manila Riyadh Seoul Shanghai Singapore Taipei Tashkent Tbilisi Tehran Tokyo Yangon"
    ),
    "Atlantic": "Azores Canary Cape_Verde Reykjavik",
    "Australia": "Adelaide Brisbane Darwin Perth Sydney",
    "Europe": (
        "Amsterdam Athens Belgrade Berlin Brussels Bucharest Budapest Copenhagen Dublin Helsinki Istanbul Kyiv Lisbon"
        " London Madrid Moscow Oslo Paris Prague Rome Sofia Stockholm Vienna Warsaw Zurich"
    ),
    "Pacific": "Auckland Fiji Guam Honolulu Port_Moresby",
}
NAMES: Final = frozenset(f"{region}/{place}" for region, places in ZONES.items() for place in places.split())


def zone_of(request: Request) -> tzinfo:
    """The reader's time zone."""
    return zone_named(chosen_zone(request) or context_of(request).settings.of(PageSettings).time_zone)


def chosen_zone(request: Request) -> str:
    """The name of the zone that the reader has chosen, or an empty string."""
    found = _kept(request, ZONE_COOKIE)
    return found if found in NAMES else ""


def chosen_language(request: Request) -> LanguageCode | None:
    """The language that the reader has chosen, if they have."""
    found = _kept(request, LANGUAGE_COOKIE)
    return next((code for code in LANGUAGE_CODES if code == found), None)


def set_zone(response: Response, name: str, *, secure: bool) -> None:
    """Sets the cookie, or deletes it if the name is not in NAMES."""
    _keep(response, ZONE_COOKIE, name if name in NAMES else "", secure)


def set_language(response: Response, code: str, *, secure: bool) -> None:
    """Sets the cookie, or deletes it if the code is not in LANGUAGE_CODES."""
    _keep(response, LANGUAGE_COOKIE, code if code in LANGUAGE_CODES else "", secure)


def _kept(request: Request, cookie: str) -> str:
    return read_cookies(request, cookie.encode(), VALUE).get(cookie, "").strip('"')


def _keep(response: Response, cookie: str, value: str, secure: bool) -> None:
    set_cookie(response, cookie, value, LIFETIME if value else 0, secure)


def clocks(now: int) -> Mapping[str, Sequence[tuple[str, str, str]]]:
    """Zones by region: the name, the place, and the local time."""
    return {region: [_clock(f"{region}/{place}", now) for place in places.split()] for region, places in ZONES.items()}


def _clock(name: str, now: int) -> tuple[str, str, str]:
    place = name.rpartition("/")[2].replace("_", " ")
    return name, place, f"{datetime.fromtimestamp(now // SECOND, zone_named(name)):%H:%M}"


@lru_cache
def zone_named(name: str) -> tzinfo:
    """UTC if the machine does not know the zone."""
    with suppress(OSError, ValueError, KeyError):
        return ZoneInfo(name)
    return UTC
