"""The page of the search: a few results of each kind, or all of one; and where the words alone would lead."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final
from urllib.parse import urlencode

from starlette.responses import Response

from payres.core.protocol.amounts import format_decimal
from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.protocol.visible import visible_text
from payres.core.store.work import Work
from payres.operator.declared.inputs import MAX_NAME_LENGTH
from payres.operator.declared.shapes import make_table
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.search import MOST, SEARCHED, SearchResults, amounts_of, find_all, read_words, results_of
from payres.operator.store.search import Word

FEW: Final = 5  # rows of each kind, where all kinds are shown


async def page(visit: OperatorVisit) -> Response:
    """GET /admin/search."""
    asked = visit.request.query_params
    text = " ".join(visible_text(asked.get("q", "")).split())[:MAX_NAME_LENGTH]
    found, words, ways = await visit.read(partial(_look, text=text))
    things = {name: rows for name in SEARCHED if (rows := getattr(found, name))}
    number, kind = sum(map(len, things.values())), asked.get("kind")
    kinds, everything = [], _url(text)
    for name, rows in things.items():
        label, _, shape, _ = SEARCHED[name]
        shown = rows if kind == name else [] if kind in things else rows[:FEW]
        count = f"{label} {len(rows)}{' and more' if name in found.more else ''}"
        table, url = make_table(label, shape.on_pages, shown, ""), f"{everything}&kind={name}"
        kinds.append((table, count, url, len(shown) < len(rows)))
    counted = f"{'More than ' if found.more else ''}{number or 'No'} result{'' if number == 1 else 's'} for “{text}”"
    both = "both" if len(words) == 2 else "all of"
    nothing = (
        f"Nothing has {both} {' and '.join(f'“{one.text}”' for one in words)}" if ways else f"Nothing for “{text}”"
    )
    return visit.show(
        "search.html",
        searched=text,
        marks=[part for one in words for part in (one.text, *amounts_of(one))],
        title=(counted if number else nothing) if text else "Search",
        number=number,
        both=both,
        words=[(one.text, (amounts_of(one) or [""])[0]) for one in words],
        unknown=[one.text for one, way in zip(words, ways, strict=False) if one.worths and way["count"] == "0"],
        ways=ways if number else [way for way in ways if way["count"] != "0"],
        kinds=kinds,
        views=[(f"All {number}", everything), *((count, url) for _, count, url, _ in kinds)] if len(kinds) > 1 else [],
        here=f"{everything}&kind={kind}" if kind in things else everything,
        is_cut=kind in found.more,
    )


def _look(work: Work, text: str) -> tuple[SearchResults, Sequence[Word], list[dict[str, str]]]:
    """What has every word; the words; and what each of two words alone would find, or another amount near one."""
    words = read_words(work, text)
    if len(words) != 2:  # each word more would be one more search
        return results_of(work, find_all(work, words)), words, []
    alone = [(one, find_all(work, [one])) for one in words]
    found = find_all(work, words, alone)
    ways = [_way(f"Only “{one.text}”", f'"{one.text}"', rows, "Names, addresses, notes") for one, rows in alone]
    if not any(found.values()):
        ways += [_near(work, one, *alone[1 - n]) for n, one in enumerate(words) if one.worths]
    return results_of(work, found), words, ways


def _way(said: str, query: str, found: Mapping[str, Sequence[object]], why: str) -> dict[str, str]:
    numbers = [len(rows) for rows in found.values()]
    more = " and more" if max(numbers) > MOST else ""
    return {"words": said, "url": _url(query), "count": f"{sum(min(one, MOST) for one in numbers)}{more}", "why": why}


def _near(work: Work, word: Word, other: Word, with_other: Mapping[str, Sequence[object]]) -> dict[str, str]:
    """The other word, with which these are found, and the whole amounts around this one."""
    asset, value, _ = word.worths[-1]
    unit = 10**asset.scale
    around = (max(value - 1, 0) // unit * unit, (value // unit + 1) * unit)
    least, most = (format_decimal(one, asset.asset) for one in around)
    query = f'"{other.text}" {least}..{most}'
    found = find_all(work, read_words(work, query), [(other, with_other)])
    said = f"{other.text}, from {least} to {most}"
    return _way(said, query, found, "Fees and rates make amounts differ")


def _url(text: str) -> str:
    return f"{ADMIN_ROOT}/search?{urlencode({'q': text})}"
