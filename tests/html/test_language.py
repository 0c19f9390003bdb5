import ast
import re
import tomllib
from collections.abc import Iterator
from datetime import timedelta, timezone
from string import Formatter
from typing import get_args

import pytest
from jinja2.nodes import Call, Const

from payres.accounts.notices import NoticeKind
from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import DAY, HOUR, MINUTE, SECOND, parse_time
from payres.html.html import _environment
from payres.html.language import LANGUAGE_CODES, TRANSLATED, Language, preferred, sentences
from payres.people.not_me import REMEDIES
from tests.helpers import ROOT
from tests.test_architecture import MODULES, nodes

# Mails, whose texts are whole tables.
MAILS = [kind for one in get_args(NoticeKind) for kind in (get_args(one) or (one,))]
MAILS += ["money", "money_several", "refund_in", "failed", "failed_part", "failed_bill", "failed_several"]
SAID = {"say": (0,), "count": (1, 2), "marked": (0,)}  # which arguments are sentences
TEMPLATES = sorted((ROOT / "payres").glob("*/templates"))
USD = Asset("USD", 2)
NOW = parse_time("2026-11-23T14:02:00Z")


def said_in_modules() -> Iterator[tuple[str, str]]:
    for module in MODULES:
        for node in nodes(module):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                for place in SAID.get(name, ()):
                    if place < len(node.args) and isinstance(node.args[place], ast.Constant | ast.JoinedStr):
                        yield ast.literal_eval(node.args[place]), module


def said_in_templates() -> Iterator[tuple[str, str]]:
    for path in (path for folder in TEMPLATES for path in folder.rglob("*.html")):
        for call in _environment().parse(path.read_text(encoding="utf-8")).find_all(Call):
            for place in SAID.get(getattr(call.node, "name", getattr(call.node, "attr", "")), ()):
                for part in call.args[place : place + 1]:
                    yield from (
                        (one.value, path.name) for one in [part, *part.find_all(Const)] if isinstance(one, Const)
                    )


def fields(sentence: str) -> set[str]:
    return {name for _, name, _, _ in Formatter().parse(sentence) if name}


def test_places_have_the_names_that_stand_on_pages() -> None:
    for said in sentences().values():
        for english, sentence in said.items():
            for place in re.findall(
                r"(?:under|Home,|Settings,) (Home|Activity|Apps|Settings|Security|Coming up)\b", english
            ):
                assert said[place] in sentence, (english, sentence)


def test_every_sentence_is_in_the_catalogue_in_each_language_and_none_besides() -> None:
    catalogue = tomllib.loads((ROOT / "payres/html/templates/sentences.toml").read_text(encoding="utf-8"))
    rows = [(english, others) for table in catalogue.values() for english, others in table.items()]
    wholes = {name: table for name, table in catalogue.items() if name.startswith(("mail_", "not_me_"))}
    others = [english for name, table in catalogue.items() if name not in wholes for english in table]
    assert len(set(others)) == len(others), "one sentence stands in two tables"
    assert all(dict(rows)[english] == others for english, others in rows), "one sentence has two translations"
    assert {*wholes} == {*(f"mail_{kind}" for kind in MAILS), *(f"not_me_{name}" for name, _ in REMEDIES.values())}
    said = [*said_in_modules(), *said_in_templates(), *((one, "") for table in wholes.values() for one in table)]
    assert sorted({(one, where) for one, where in said if one not in dict(rows)}) == []
    assert sorted({one for one, _ in rows} - {one for one, _ in said}) == []
    for english, others in rows:
        assert len(others) == len(TRANSLATED), english
        for other in others:
            assert fields(other) == fields(english), (english, other)
            assert re.findall(r"</?\w+", other) == re.findall(r"</?\w+", english), (english, other)


@pytest.mark.parametrize(
    ("header", "code", "region"),
    [
        ("", "en", ""),
        ("de", "de", ""),
        ("de-AT,de;q=0.9,en;q=0.8", "de", "at"),
        ("de-CH,de;q=0.9", "de", "ch"),
        ("es;q=0.8,es-MX", "es", "mx"),
        ("es-419,es;q=0.9", "es", "419"),
        ("es-Latn-MX", "es", "mx"),
        ("fr-FR,fr;q=0.9,es;q=0.5,en;q=0.4", "es", ""),
        ("en-GB,en;q=0.9,de;q=0.8", "en", "gb"),
        ("es;q=0,de;q=0.1", "de", ""),
        ("es;q=0", "en", ""),
        ("*", "en", ""),
        ("xx;;q=,de", "de", ""),
        ("de" * 5000, "en", ""),
    ],
)
def test_language_and_region_are_those_that_the_browser_prefers(header: str, code: str, region: str) -> None:
    assert preferred(header) == (code, region)


def test_what_is_put_into_a_sentence_is_escaped() -> None:
    for code in LANGUAGE_CODES:
        assert "&lt;b&gt;" in Language(code, NOW).say("{name}, you have", name="<b>")


def test_amounts_are_written_as_in_the_language() -> None:
    english, german = Language("en", NOW), Language("de", NOW)
    assert english.money(1250, USD) == '<span class="money">USD 12.50</span>'
    assert german.money(1250, USD) == '<span class="money">USD 12,50</span>'
    assert (english.signed(2000, USD), english.signed(-1250, USD)) == ("+20.00", "\u221212.50")
    assert english.count(1204, "{number} day", "{number} days") == "1,204 days"
    assert german.count(1204, "{number} day", "{number} days") == "1.204 Tage"
    mexican, swiss = Language("es", NOW, region="mx"), Language("de", NOW, region="ch")
    assert (mexican.grouped(123450, USD), mexican.decimal(123450, USD)) == ("1,234.50", "1234.50")
    assert (swiss.grouped(123450, USD), swiss.decimal(123450, USD)) == ("1’234.50", "1234.50")
    assert swiss.count(1204, "{number} day", "{number} days") == "1’204 Tage"
    assert german.count(1, "{number} day", "{number} days") == "1 Tag"


def test_times_are_in_the_words_and_the_zone_of_the_reader() -> None:
    here = Language("en", NOW)
    assert (here.moment(NOW), here.day(NOW - DAY), here.day(NOW + DAY)) == ("today, 14:02", "yesterday", "tomorrow")
    assert (here.day(NOW - 3 * DAY), here.day(NOW - 400 * DAY)) == ("20 Nov", "19 Oct 2025")
    assert (here.date(NOW), here.month(NOW), here.weekday(NOW)) == (
        "23 November 2026",
        "November 2026",
        "Monday 23 November",
    )
    east = Language("es", NOW, timezone(timedelta(hours=11)))
    assert (east.moment(NOW), east.date(NOW)) == ("hoy, 01:02", "24 de noviembre de 2026")
    spans = {10 * MINUTE: "10 minutes", 90 * MINUTE: "1 hour", 47 * HOUR: "47 hours", 2 * DAY: "2 days", 0: "1 second"}
    assert {length: here.span(length + SECOND // 2) for length in spans} == spans


@pytest.mark.parametrize(
    ("text", "shown", "exact"),
    [
        ("2026-11-23T14:02:31.000Z", "Today 14:02", "Today 14:02:31"),
        ("2026-11-22T23:59:59.999Z", "Yesterday", "Yesterday 23:59:59"),
        ("2026-11-24T00:00:00.000Z", "Tomorrow 00:00", "Tomorrow 00:00:00"),
        ("2026-03-02T08:00:00.000Z", "2 Mar", "2 Mar 08:00:00"),
        ("2025-03-02T08:00:00.000Z", "2 Mar 2025", "2 Mar 2025 08:00:00"),
    ],
)
def test_times_of_operators_are_as_exact_as_is_asked(text: str, shown: str, exact: str) -> None:
    english = Language("en", NOW)
    assert (english.stamp(text), english.stamp(text, seconds=True)) == (shown, exact)


def test_catalogue_is_read_once() -> None:
    assert sentences() is sentences()
