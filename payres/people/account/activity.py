"""All movements of the owner's wallet, by day, and monthly statements, on the page and as CSV."""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple, cast, get_args
from urllib.parse import urlencode

from starlette.responses import Response

from payres.core.protocol.clock import SECOND, format_time
from payres.core.protocol.errors import nothing_here
from payres.core.protocol.visible import visible_text
from payres.core.store.accounts import ACCOUNTS
from payres.core.store.work import Work
from payres.html.language import Language, marked
from payres.operator.api import send_export
from payres.operator.exports import PeriodQuery, export_statement
from payres.people.account.visits import OwnerVisit
from payres.people.rules.activity import ActivityRow, Reader, Show, Wanted, day_of
from payres.people.store.activity import statement

TAB: Final = "/account/activity"
ROWS: Final = 25
A_YEAR: Final = 330  # days ago from which dates show the year
MAX_TEXT: Final = 100
IDENTIFIER: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
SHOWS: Final[Mapping[Show, str]] = {
    "all": marked("all movements"),
    "in": marked("money in"),
    "out": marked("money out"),
    "failed": marked("failed ones"),
}


class Month(NamedTuple):
    """A month in the reader's zone; `name` is like `2026-11`."""

    name: str
    since: int
    until: int


async def show(visit: OwnerVisit) -> Response:
    """GET /account/activity."""
    language, given = visit.language, visit.request.query_params
    months = _months(visit)
    chosen = next((one for one in months if one.name == given.get("month")), None)
    wanted = Wanted(
        below=_identifier(given.get("below")),
        since=chosen.since if chosen else 0,
        until=chosen.until if chosen else Wanted().until,
        show=cast("Show", given["show"]) if given.get("show") in get_args(Show) else "all",
        text=visible_text(given.get("text", "")[:MAX_TEXT]).strip(),
        like=_identifier(given.get("like")),
    )
    summed = chosen or months[0]

    def unit(work: Work) -> dict[str, Any]:
        found = Reader(work, visit.wallet, language.zone).page(wanted, ROWS)
        account = ACCOUNTS.by_id(work, visit.wallet.account_id)
        return {
            "rows": found.rows,
            "next": found.next,
            "statement": statement(work, account, summed.since, summed.until),
            "held": account.held if summed == months[0] else 0,
        }

    values = await visit.read(unit)
    kept = {"month": chosen.name if chosen else "", "show": wanted.show, "text": wanted.text, "like": wanted.like or ""}
    filters = {name: value for name, value in kept.items() if value not in {"", "all"}}
    return visit.show(
        "activity.html",
        tab=TAB,
        days=groupby(values["rows"], partial(_heading, language)),
        wanted=wanted,
        months=months,
        chosen=chosen,
        summed=summed,
        is_now=summed == months[0],
        shows=SHOWS,
        begins=language.date(summed.since),
        earlier=f"{TAB}?{urlencode(filters | {'below': values['next'] or ''})}",
        latest=f"{TAB}?{urlencode(filters)}",
        **values,
    )


async def download(visit: OwnerVisit) -> Response:
    """GET /account/activity/statement.csv: the statement of a month."""
    found = next((one for one in _months(visit) if one.name == visit.request.query_params.get("month")), None)
    if found is None:
        raise nothing_here()
    period = PeriodQuery(from_=format_time(found.since), to=format_time(found.until))
    export = export_statement(visit.wallet.path, period)
    export.name = f"{visit.wallet.path} {found.name}"
    return await send_export(visit, export, visit.wallet.actor)


def _heading(language: Language, row: ActivityRow) -> str:
    """The heading of a row's day."""
    moment = row.newest.time
    ago = language.days_ago(moment)
    if ago in {0, 1}:
        return language.day(moment)
    return language.weekday(moment) if ago < A_YEAR else language.date(moment)


def _months(visit: OwnerVisit) -> Sequence[Month]:
    """The months since the wallet was created, the current one first."""
    zone, found = visit.language.zone, list[Month]()
    first = datetime.fromtimestamp(visit.wallet.created_at // SECOND, zone).date().replace(day=1)
    this = datetime.fromtimestamp(visit.language.now // SECOND, zone).date().replace(day=1)
    while this >= first or not found:
        after = (this.replace(day=28) + timedelta(days=4)).replace(day=1)
        found.append(Month(f"{this:%Y-%m}", day_of(this, zone)[0], day_of(after, zone)[0]))
        this = (this - timedelta(days=1)).replace(day=1)
    return found


def _identifier(text: str | None) -> str | None:
    """A query parameter that is an id; None if malformed."""
    return text if text and IDENTIFIER.fullmatch(text) else None
