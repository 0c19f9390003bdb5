"""The reader's time zone: from a cookie, or else the operator's setting."""

import re
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

COOKIE: Final = "payres_zone"
VALUE: Final = re.compile(rb"(?:^|;)[ \t]*+payres_zone=\"?([A-Za-z_/-]{1,40})\"?(?=[ \t]*+(?:;|$))")
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
    return _zone(chosen(request) or context_of(request).settings.time_zone)


def chosen(request: Request) -> str:
    """The name of the zone that the reader has chosen, or an empty string."""
    match = VALUE.search(b";".join(value for name, value in request.scope["headers"] if name == b"cookie"))
    found = match[1].decode() if match else ""
    return found if found in NAMES else ""


def set_zone(response: Response, name: str, *, secure: bool) -> None:
    """Sets the cookie, or deletes it if the name is not in NAMES."""
    value, age = (name, LIFETIME) if name in NAMES else ("", 0)
    response.set_cookie(COOKIE, value, max_age=age, path="/", secure=secure, httponly=True, samesite="lax")


def clocks(now: int) -> Mapping[str, Sequence[tuple[str, str, str]]]:
    """Zones by region: the name, the place, and the local time."""
    return {region: [_clock(f"{region}/{place}", now) for place in places.split()] for region, places in ZONES.items()}


def _clock(name: str, now: int) -> tuple[str, str, str]:
    place = name.rpartition("/")[2].replace("_", " ")
    return name, place, f"{datetime.fromtimestamp(now // SECOND, _zone(name)):%H:%M}"


@lru_cache
def _zone(name: str) -> tzinfo:
    """UTC if the machine does not know the zone."""
    with suppress(OSError, ValueError, KeyError):
        return ZoneInfo(name)
    return UTC
