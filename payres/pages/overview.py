"""The overview: whether payments can be taken, what needs attention, and how the server and its money stand; and the
settings in effect."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

import msgspec
from starlette.responses import Response

from payres.amounts import Asset, describe_amount, format_decimal
from payres.clock import DAY, format_time
from payres.operator import doctor
from payres.operator.shapes import Cell, Column, facts_of, make_table
from payres.operator.status import KINDS, STATUS, read_status
from payres.pages.sign_in import Visit
from payres.settings import Settings
from payres.store.work import Work

SECRET: Final = frozenset({"metrics_token"})
# Stands for secrets and for the query of a URL, which may have one.
MASK: Final = "••••••••"

LIVE_SECONDS: Final = 30
STEP: Final = 8  # of which a bar takes 6
HEIGHT: Final = 96


def _balance(kind: str, row: tuple[Asset, Mapping[str, str]]) -> str:
    asset, balances = row
    return balances.get(kind, format_decimal(0, asset))


# Rows are an asset, and the balances in it by kind.
BALANCE_COLUMNS: Final = (
    Column("Asset", lambda row: row[0].code),
    *(Column(label, partial(_balance, kind), "number") for kind, label in KINDS.items()),
)


async def page(visit: Visit) -> Response:
    """The first page after signing in."""
    context = visit.context
    problem = await context.readiness.problem()
    volume = await context.volume.look(context.database)
    is_live = visit.request.query_params.get("live") == "1"
    return visit.show(
        "overview.html",
        "",
        problem=problem,
        charts=[
            _bar_chart(f"{asset.code} {word} a day", asset, volume.first_day, figures[asset])
            for asset in volume.paid
            for word, figures in (("paid", volume.paid), ("received", volume.received))
        ],
        is_counted=volume.complete,
        is_live=is_live,
        refresh=LIVE_SECONDS if is_live else None,
        **await visit.read(_read_database),
    )


def _read_database(work: Work) -> dict[str, Any]:
    """What the page says of the database, over one snapshot."""
    status, balances = read_status(work, is_running=True), dict[Asset, dict[str, str]]()
    for one in status.balances:
        balances.setdefault(Asset(one.asset_code, one.asset_scale), {})[one.kind] = one.balance
    return {
        "findings": [one for one in doctor.examine(work) if one.fix],
        "balances": make_table("Balances", BALANCE_COLUMNS, balances.items(), "There are no wallets yet"),
        "facts": facts_of(STATUS.columns, status),
    }


def _bar_chart(title: str, asset: Asset, first_day: int, figures: Sequence[int]) -> dict[str, Any]:
    """A figure a day, in minor units, as bars from the oldest to the newest; the table has the days that are not 0."""
    most = max(figures)
    dates = [format_time((first_day + place) * DAY)[:10] for place in range(len(figures))]
    bars, days = [], []
    for place, figure in enumerate(figures):
        if figure:
            height = -(-figure * HEIGHT // most)
            words = f"{dates[place]}: {describe_amount(figure, asset)}"
            bars.append({"x": place * STEP, "y": HEIGHT - height, "height": height, "title": words})
            days.append((dates[place], format_decimal(figure, asset)))
    columns = [
        Column("Day (UTC)", lambda day: Cell(day[0])),
        Column(asset.code, lambda day: Cell(day[1], "number")),
    ]
    return {
        "title": title,
        "total": describe_amount(sum(figures), asset),
        "bars": bars,
        "width": len(figures) * STEP,
        "height": HEIGHT,
        "highest": describe_amount(most, asset),
        "first": dates[0],
        "last": dates[-1],
        "table": make_table(title, columns, reversed(days), ""),
    }


async def settings_page(visit: Visit) -> Response:
    """All settings, without secrets."""
    found = visit.context.settings
    rows = [(field, getattr(found, field.name)) for field in msgspec.structs.fields(Settings)]
    return visit.show("settings.html", "/settings", table=make_table("Settings", SETTING_COLUMNS, rows, ""))


def _masked(row: tuple[msgspec.structs.FieldInfo, object]) -> str:
    """The value of a setting in words."""
    field, value = row
    if field.name in SECRET and value:
        return MASK
    text, mark, _ = (str(value).lower() if isinstance(value, bool) else str(value)).partition("?")
    return f"{text}{mark}{MASK}" if mark else text


# Rows are a setting and its value.
SETTING_COLUMNS: Final = (
    Column("Setting", lambda row: row[0].name, "code"),
    Column("Value", _masked, "code"),
    Column("From", lambda row: "default" if row[1] == row[0].default else "set"),
)
