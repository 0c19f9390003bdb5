"""The overview page: readiness, findings, balances, volume and status."""

from calendar import month_abbr
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from payres.core.protocol.amounts import Asset, describe_amount, format_decimal
from payres.core.protocol.clock import DAY, format_time
from payres.core.store.work import Work
from payres.html.sentences import ended
from payres.operator import doctor
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.services import operator_of
from payres.operator.shapes import Cell, Column, facts_of, make_table, path_of
from payres.operator.status import KINDS, STATUS, read_status

# Facts that the page shows elsewhere, as balances and findings.
SAID: Final = {*KINDS.values(), "Not delivered", "Unresolved"}

LIVE_SECONDS: Final = 30
FEW_DAYS: Final = 14  # the fewest days in a chart
STEP: Final = 8  # the distance of bars, which are 6 wide
HEIGHT: Final = 96


def _balance(kind: str, row: tuple[Asset, Mapping[str, str]]) -> str:
    asset, balances = row
    return balances.get(kind, format_decimal(0, asset))


# Rows are an asset and its balances by kind.
BALANCE_COLUMNS: Final = (
    Column("Asset", lambda row: row[0].code),
    *(Column(label, partial(_balance, kind), "number") for kind, label in KINDS.items()),
)


async def page(visit: OperatorVisit) -> Response:
    """The first page after signing in."""
    context = visit.context
    problem = await operator_of(context).readiness.problem()
    volume = await operator_of(context).volume.look(context.database)
    return visit.show(
        "overview.html",
        problem=problem,
        charts=[
            bar_chart(f"{asset.code} {word} a day", asset, volume.first_day, figures[asset])
            for asset in volume.paid
            for word, figures in (("paid", volume.paid), ("received", volume.received))
        ],
        is_counted=volume.complete,
        refresh=LIVE_SECONDS if visit.request.query_params.get("live") == "1" else None,
        **await visit.read(_read_database),
    )


def _read_database(work: Work) -> dict[str, Any]:
    """The values that the page reads from the database, from one snapshot."""
    status, balances = read_status(work, is_running=True), dict[Asset, dict[str, str]]()
    for one in status.balances:
        balances.setdefault(Asset(one.asset_code, one.asset_scale), {})[one.kind] = one.balance
    return {
        "findings": [(one, _advice(one.fix, one.page)) for one in doctor.examine(work) if one.fix],
        "balances": make_table("Balances", BALANCE_COLUMNS, balances.items(), "There are no wallets yet"),
        "facts": [(label, cell) for label, cell in facts_of(STATUS.columns, status) if label not in SAID],
    }


def _advice(fix: str, page: doctor.Page | None) -> Sequence[Cell]:
    """The advice, with commands in backticks as code, the first as a link to the page that does the same."""
    steps = [Cell(part, "code" if place % 2 else "text") for place, part in enumerate(ended(fix).split("`"))]
    if page is not None:
        steps[1] = Cell(page[0], link=path_of(*page[1:]))
    return steps


def bar_chart(title: str, asset: Asset, first_day: int, figures: Sequence[int]) -> dict[str, Any]:
    """A bar chart of daily figures, in minor units, from the first non-zero day, but at least FEW_DAYS; with a table of
    the non-zero days."""
    start = min(next((place for place, figure in enumerate(figures) if figure), 0), len(figures) - FEW_DAYS)
    dates = [format_time((first_day + place) * DAY)[:10] for place in range(start, len(figures))]
    figures = figures[start:]
    top, last = _round_up(max(figures)), len(figures) - 1
    bars, days = [], []
    for place, figure in enumerate(figures):
        if figure:
            height = -(-figure * HEIGHT // top)  # rounded up, so that every figure has a bar
            words = f"{dates[place]}: {describe_amount(figure, asset)}"
            bars.append({"x": place * STEP, "y": HEIGHT - height, "height": height, "title": words})
            days.append((dates[place], format_decimal(figure, asset)))
    columns = [Column("Day (UTC)", lambda day: day[0]), Column(asset.code, lambda day: day[1], "number")]
    return {
        "title": title,
        "total": describe_amount(sum(figures), asset),
        "bars": bars,
        "width": len(figures) * STEP,
        "height": HEIGHT,
        "highest": describe_amount(max(figures), asset),
        "period": f"{dates[0]} to {dates[-1]}",
        "scale": [format_decimal(figure, asset) for figure in (top, top // 2, 0)],
        "days": [_short(dates[last * part // 3]) for part in range(4)],
        "table": make_table(title, columns, reversed(days), ""),
    }


def _short(date: str) -> str:
    return f"{int(date[8:])} {month_abbr[int(date[5:7])]}"


def _round_up(figure: int) -> int:
    """The top of an axis: at least the figure, rounded up to one digit, and even."""
    unit = max(int(10 ** (len(str(figure)) - 1)), 2)
    return max(-(-figure // unit), 1) * unit
