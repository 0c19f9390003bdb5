"""The reader's language: sentences, amounts and times.

Code and templates pass English sentences to `say` and `count`. `templates/sentences.toml` has the translations; a test
finds missing ones. Sentences are HTML; values are escaped.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Final, Literal
from zoneinfo import ZoneInfo

import msgspec
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.protocol.amounts import MAX_DECIMAL_LENGTH, MAX_LEDGER, Asset, format_decimal
from payres.core.protocol.clock import DAY, HOUR, LATEST, MINUTE, SECOND, parse_time
from payres.core.protocol.errors import InvalidAmount

LanguageCode = Literal["en", "de", "es"]
TRANSLATED: Final[tuple[LanguageCode, ...]] = ("de", "es")  # the columns of the catalogue
CODES: Final[tuple[LanguageCode, ...]] = ("en", *TRANSLATED)
MAX_UNBROKEN: Final = 24  # characters of an amount that fit a line
WEIGHTED: Final = re.compile(
    r"\s*([a-z]{1,8})(?:-[a-z]{4})?(?:-([a-z]{2}|[0-9]{3}))?(?:-[a-z0-9-]+)?\s*(?:;\s*q=([01](?:\.[0-9]{0,3})?))?\s*"
)
# The marks for thousands and decimals by language, and the regions that write numbers in another way (Unicode CLDR).
MARKS: Final[Mapping[LanguageCode, str]] = {"en": ",.", "de": ".,", "es": ".,"}
REGIONS: Final[Mapping[LanguageCode, tuple[str, frozenset[str]]]] = {
    "de": ("’.", frozenset({"ch", "li"})),
    "es": (",.", frozenset({"419", "bz", "cu", "do", "gt", "hn", "mx", "ni", "pa", "pe", "pr", "sv", "us"})),
}


class Language(msgspec.Struct, frozen=True):
    """A language with the reader's time zone and region, in lower case or empty; `now` is in microseconds UTC."""

    code: LanguageCode
    now: int
    zone: tzinfo = UTC
    region: str = ""

    def say(self, sentence: str, /, **values: object) -> Markup:
        """The translated sentence, formatted with the values."""
        found = sentence if self.code == "en" else sentences()[self.code].get(sentence, sentence)
        return Markup(found).format(**values)  # noqa: S704 - sentences are ours; format escapes the values

    def count(self, number: int, one: str, many: str, /, **values: object) -> Markup:
        """The sentence `one` for 1, `many` for any other `{number}`."""
        return self.say(one if number == 1 else many, number=f"{number:,}".replace(",", self.thousands), **values)

    @property
    def thousands(self) -> str:
        """The thousands separator."""
        return self._marks[0]

    @property
    def point(self) -> str:
        """The decimal mark."""
        return self._marks[1]

    @property
    def _marks(self) -> str:
        marks, regions = REGIONS.get(self.code, ("", frozenset()))
        return marks if self.region in regions else MARKS[self.code]

    def decimal(self, value: int, asset: Asset) -> str:
        """An amount in minor units as a decimal without currency, for form fields: `12.50`, or `12,50`."""
        return format_decimal(value, asset).replace(".", self.point)

    def grouped(self, value: int, asset: Asset) -> str:
        """An amount in minor units with thousands separators: `1,204.50`."""
        whole, point, decimals = format_decimal(value, asset).partition(".")
        return f"{int(whole):,}".replace(",", self.thousands) + point.replace(".", self.point) + decimals

    def money(self, value: int, asset: Asset) -> Markup:
        """An amount with its currency, which breaks only where it is longer than a line."""
        text = f"{asset.code} {self.grouped(value, asset)}"
        length = " long" if len(text) > MAX_UNBROKEN else ""
        return Markup('<span class="money{}">{}</span>').format(length, text)

    def signed(self, value: int, asset: Asset) -> str:
        """An amount with a plus or minus sign: `+20.00`."""
        return f"{'−' if value < 0 else '+'}{self.grouped(abs(value), asset)}"

    def clock(self, moment: int) -> str:
        """The time of day: `14:02`."""
        return f"{self._local(moment):%H:%M}"

    def sortable(self, moment: int) -> str:
        """`2026-11-20 14:02`, for tables."""
        return f"{self._local(moment):%Y-%m-%d %H:%M}"

    def day(self, moment: int) -> str:
        """`today`, `yesterday`, `tomorrow`, or `20 Nov`, with the year if it is not this one."""
        there, here = self._local(moment), self._local(self.now)
        near = {0: marked("today"), 1: marked("yesterday"), -1: marked("tomorrow")}.get(self.days_ago(moment))
        if near:
            return self.say(near)
        short = self.say("{day} {month}", day=there.day, month=self._months()[there.month - 1])
        return short if there.year == here.year else f"{short} {there.year}"

    def short_date(self, moment: int) -> str:
        """`20 Nov`, of a day that begins at this moment in UTC."""
        there = datetime.fromtimestamp(moment // SECOND, UTC)
        return self.say("{day} {month}", day=there.day, month=self._months()[there.month - 1])

    def date(self, moment: int) -> str:
        """`20 November 2026`."""
        there = self._local(moment)
        return self.say("{day} {month} {year}", day=there.day, month=self._month(there), year=there.year)

    def month(self, moment: int) -> str:
        """`November 2026`."""
        there = self._local(moment)
        return self.say("{month} {year}", month=self._month(there), year=there.year)

    def weekday(self, moment: int) -> str:
        """`Friday 20 November`."""
        there = self._local(moment)
        name = self.say("Monday Tuesday Wednesday Thursday Friday Saturday Sunday").split()[there.weekday()]
        return self.say("{weekday} {day} {month}", weekday=name, day=there.day, month=self._month(there))

    def days_ago(self, moment: int) -> int:
        """The number of calendar days since the moment, in the reader's zone; negative for the future."""
        return (self._local(self.now).date() - self._local(moment).date()).days

    def when(self, moment: int) -> str:
        """The time if it is today, else the day: `14:02`, or `Yesterday`."""
        day = self.day(moment)
        return f"{day[:1].upper()}{day[1:]}" if self.days_ago(moment) else self.clock(moment)

    def moment(self, moment: int) -> str:
        """`today, 14:02`."""
        return f"{self.day(moment)}, {self.clock(moment)}"

    def stamp(self, text: str, *, seconds: bool = False) -> str:
        """An RFC 3339 time as `Today 14:02`, `Tomorrow 00:10` or `20 Nov`; with `seconds`, `20 Nov 14:02:31`."""
        moment = parse_time(text)
        day, clock = self.day(moment), f"{self._local(moment):%H:%M:%S}" if seconds else self.clock(moment)
        return (
            f"{day[:1].upper()}{day[1:]} {clock}" if seconds or self.days_ago(moment) in {0, -1} else self.when(moment)
        )

    def clock_at(self, text: str) -> str:
        """An RFC 3339 time as ` at 14:02`, or ` on 20 Nov` if that was another day; in English sentences."""
        moment = parse_time(text)
        return f" on {self.day(moment)}" if self.days_ago(moment) else f" at {self.clock(moment)}"

    @property
    def place(self) -> str:
        """Whose times these are: `UTC`, or `those of Berlin`."""
        region, _, city = str(self.zone).rpartition("/")
        return f"those of {city.replace('_', ' ')}" if region else city

    def span(self, microseconds: int) -> str:
        """A duration in its largest unit, rounded down: `10 minutes`; at least `1 second`."""
        if microseconds >= 2 * DAY:
            return self.count(microseconds // DAY, "{number} day", "{number} days")
        if microseconds >= HOUR:
            return self.count(microseconds // HOUR, "{number} hour", "{number} hours")
        if microseconds >= MINUTE:
            return self.count(microseconds // MINUTE, "{number} minute", "{number} minutes")
        return self.count(max(1, microseconds // SECOND), "{number} second", "{number} seconds")

    def _months(self) -> Sequence[str]:
        return self.say("Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec").split()

    def _month(self, there: datetime) -> str:
        names = self.say("January February March April May June July August September October November December")
        return names.split()[there.month - 1]

    def _local(self, moment: int) -> datetime:
        return datetime.fromtimestamp(min(moment, LATEST - DAY) // SECOND, self.zone)


def marked(sentence: str) -> str:
    """Marks a sentence for translation; it is passed to `say` later."""
    return sentence


def preferred(accept_language: str, chosen: LanguageCode | None = None) -> tuple[LanguageCode, str]:
    """The preferred language (RFC 9110 section 12.5.4) and its region, which may be empty; English if none is
    supported. A `chosen` language counts alone, in the region that is preferred for it."""
    found: dict[tuple[LanguageCode, str], float] = {}
    matches = map(WEIGHTED.fullmatch, accept_language[:256].lower().split(","))
    for match, code in product(matches, (chosen,) if chosen else CODES):
        if match and match[1] == code:
            one = (code, match[2] or "")
            found[one] = max(found.get(one, 0), float(match[3] or 1))
    best = max(found, key=lambda one: found[one], default=None)
    return best if best and found[best] else (chosen or "en", "")


def is_sentence(text: str) -> bool:
    """Whether a text is one of the sentences, which can be translated."""
    return text in sentences()[TRANSLATED[0]]


@lru_cache(maxsize=1)
def sentences() -> Mapping[LanguageCode, Mapping[str, str]]:
    """The translations by language and English sentence."""
    path = Path(__file__).parent / "templates" / "sentences.toml"
    tables = tomllib.loads(path.read_text(encoding="utf-8")).values()
    rows = [(english, others) for table in tables for english, others in table.items()]
    return {code: {english: others[n] for english, others in rows} for n, code in enumerate(TRANSLATED)}


PLAIN: Final = re.compile(r"(?=.*[0-9])(?P<whole>[0-9]*)(?:[.,](?P<decimals>[0-9]*))?")
GROUPED: Final = re.compile(r"(?P<whole>[0-9]{1,3}([.,'’ ])[0-9]{3}(?:\2[0-9]{3})*)(?:(?!\2)[.,](?P<decimals>[0-9]+))?")
# Currency signs accepted in place of a code; an ambiguous sign means the wallet's currency.
SIGNS: Final = {"$": ("USD", "AUD", "CAD", "MXN", "NZD", "SGD"), "€": ("EUR",), "£": ("GBP",), "¥": ("JPY", "CNY")}
# Full-width ASCII and the yen sign, which Chinese and Japanese keyboards write, and the other spaces between groups.
WIDE: Final = {wide: chr(wide - 0xFEE0) for wide in range(0xFF01, 0xFF5F)} | {0xFFE5: "¥"}
USUAL: Final = WIDE | dict.fromkeys((0xA0, 0x2009, 0x202F, 0x3000), " ")


class Mistyped(Exception):
    """An unusable amount; the message says what to type, in the reader's language."""


def typed_amount(language: Language, text: str, asset: Asset, most: int = MAX_LEDGER) -> int:
    """Parses a typed amount above zero into minor units. Raises Mistyped, also for what can be read in two ways."""
    bare = _bare(text, asset)
    found = _parts(bare)
    if found and _is_ambiguous(bare, language.point):
        raise Mistyped(_ambiguous(language, bare, asset))
    if not found:
        example = language.decimal(1250 * 10**asset.scale // 100, asset)
        raise Mistyped(language.say("Type an amount, like {example}.", example=example))
    whole, decimals = found
    if len(decimals) > asset.scale:
        raise Mistyped(_too_fine(language, asset))
    value = _value(whole, decimals, asset)
    if value == 0:
        raise Mistyped(language.say("Type an amount above zero."))
    if value > most:
        raise Mistyped(language.say("This is more than this server can move at once. Type less."))
    return value


def typed_decimal(text: str, point: str = ".", asset: Asset | None = None) -> str:
    """The decimal that rules take, such as `1234.50`, of a typed amount; `point` is the reader's decimal mark.

    The asset's code or sign may stand beside it. What is no amount is returned as it is, so that the rule refuses it.
    Raises InvalidAmount for what can be read in two ways.
    """
    bare = _bare(text, asset)
    found = _parts(bare)
    if not found:
        return text
    whole, decimals = found
    if _is_ambiguous(bare, point):
        ways = f"{whole}{decimals} or {whole}{point}{decimals}"
        raise InvalidAmount(f"{bare} can be read in two ways: write {ways}")
    return f"{whole or 0}.{decimals}".rstrip(".")


def _bare(text: str, asset: Asset | None) -> str:
    """The typed amount without the asset's code and signs; empty if it is too long."""
    bare, code = text.translate(USUAL).strip().upper(), asset.code if asset else ""
    for name in (code.upper(), *(sign for sign, codes in SIGNS.items() if code in codes)):
        bare = bare.removeprefix(name).removesuffix(name).strip()
    return bare if len(bare) <= MAX_DECIMAL_LENGTH else ""


def _parts(bare: str) -> tuple[str, str] | None:
    """The digits before and after the decimal mark; None if it is no amount."""
    found = PLAIN.fullmatch(bare) or GROUPED.fullmatch(bare)
    return found and ("".join(filter(str.isdigit, found["whole"])), found["decimals"] or "")


def _is_ambiguous(bare: str, point: str) -> bool:
    """1,000: is the comma for thousands, or for decimals?"""
    grouped = GROUPED.fullmatch(bare)
    if grouped is None or PLAIN.fullmatch(bare) is None:
        return False
    return grouped[2] != point and not bare.startswith("0")


def _value(whole: str, decimals: str, asset: Asset) -> int:
    return int(whole + decimals.ljust(asset.scale, "0"))


def _ambiguous(language: Language, bare: str, asset: Asset) -> str:
    whole, decimals = re.split("[.,]", bare)
    thousands = language.decimal(_value(whole + decimals, "", asset), asset)
    if asset.scale < len(decimals):
        sentence = marked("Type {thousands}, without a mark for thousands: {typed} can be read in two ways.")
        return language.say(sentence, thousands=thousands, typed=bare)
    sentence = marked("{typed} can be read in two ways. Type {thousands} or {less}.")
    less = language.decimal(_value(whole, decimals, asset), asset)
    return language.say(sentence, typed=bare, thousands=thousands, less=less)


def _too_fine(language: Language, asset: Asset) -> str:
    if asset.scale == 0:
        return language.say("{currency} has no decimals. Type a whole number, without points.", currency=asset.code)
    one = marked("{currency} has one decimal. Type it like {example}, and thousands without a point.")
    many = marked("{currency} has {number} decimals. Type it like {example}, and thousands without a point.")
    example = language.decimal(1250 * 10**asset.scale // 100, asset)
    return language.count(asset.scale, one, many, currency=asset.code, example=example)


ZONE_COOKIE: Final = "payres_zone"
LANGUAGE_COOKIE: Final = "payres_language"
VALUE: Final = r"(?:^|;)[ \t]*+{name}=\"?([A-Za-z_/-]{{1,40}})\"?(?=[ \t]*+(?:;|$))"
VALUES: Final = {name: re.compile(VALUE.format(name=name).encode()) for name in (ZONE_COOKIE, LANGUAGE_COOKIE)}
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
    return zone_named(chosen_zone(request) or context_of(request).settings.time_zone)


def chosen_zone(request: Request) -> str:
    """The name of the zone that the reader has chosen, or an empty string."""
    found = _kept(request, ZONE_COOKIE)
    return found if found in NAMES else ""


def chosen_language(request: Request) -> LanguageCode | None:
    """The language that the reader has chosen, if they have."""
    found = _kept(request, LANGUAGE_COOKIE)
    return next((code for code in CODES if code == found), None)


def set_zone(response: Response, name: str, *, secure: bool) -> None:
    """Sets the cookie, or deletes it if the name is not in NAMES."""
    _keep(response, ZONE_COOKIE, name if name in NAMES else "", secure)


def set_language(response: Response, code: str, *, secure: bool) -> None:
    """Sets the cookie, or deletes it if the code is not in CODES."""
    _keep(response, LANGUAGE_COOKIE, code if code in CODES else "", secure)


def _kept(request: Request, cookie: str) -> str:
    match = VALUES[cookie].search(b";".join(value for name, value in request.scope["headers"] if name == b"cookie"))
    return match[1].decode() if match else ""


def _keep(response: Response, cookie: str, value: str, secure: bool) -> None:
    age = LIFETIME if value else 0
    response.set_cookie(cookie, value, max_age=age, path="/", secure=secure, httponly=True, samesite="lax")


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
