"""The reader's language: sentences, amounts and times.

Code and templates pass English sentences to `say` and `count`. `templates/sentences.toml` has the translations; a test
finds missing ones. Sentences are HTML; values are escaped.
"""

import re
import tomllib
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Final, Literal

import msgspec
from markupsafe import Markup

from payres.core.protocol.amounts import Asset, format_decimal
from payres.core.protocol.clock import DAY, HOUR, LATEST, MINUTE, SECOND, parse_time

LanguageCode = Literal["en", "de", "es"]
TRANSLATED: Final[tuple[LanguageCode, ...]] = ("de", "es")  # the columns of the catalogue
LANGUAGE_CODES: Final[tuple[LanguageCode, ...]] = ("en", *TRANSLATED)
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
    for match, code in product(matches, (chosen,) if chosen else LANGUAGE_CODES):
        if match and match[1] == code:
            one = (code, match[2] or "")
            found[one] = max(found.get(one, 0), float(match[3] or 1))
    best = max(found, key=lambda one: found[one], default=None)
    return best if best and found[best] else (chosen or "en", "")


def is_sentence(text: str) -> bool:
    """Whether a text is one of the sentences, which can be translated."""
    return text in sentences()[TRANSLATED[0]]


def table(name: str) -> Sequence[str]:
    """The English sentences of a table of the catalogue, in order: what has no other place, such as a mail's."""
    return list(_tables()[name])


@lru_cache(maxsize=1)
def _tables() -> Mapping[str, Mapping[str, Sequence[str]]]:
    path = Path(__file__).parent / "templates" / "sentences.toml"
    return tomllib.loads(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=1)
def sentences() -> Mapping[LanguageCode, Mapping[str, str]]:
    """The translations by language and English sentence."""
    rows = [(english, others) for table in _tables().values() for english, others in table.items()]
    return {code: {english: others[n] for english, others in rows} for n, code in enumerate(TRANSLATED)}
