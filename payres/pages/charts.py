"""Bar charts as inline SVG, with what a table beside them says."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from payres.amounts import Asset, describe_amount, format_decimal
from payres.clock import DAY, format_time
from payres.pages.tables import Column, Table, make_table

STEP: Final = 8  # of which a bar takes 6
HEIGHT: Final = 96


class Bar(NamedTuple):
    """A day: its place in the chart, and what it stands for in words."""

    x: int
    y: int
    height: int
    title: str


class Chart(NamedTuple):
    """Bars from the oldest day to the newest; `table` has the days that are not 0."""

    title: str
    total: str
    bars: Sequence[Bar]
    width: int
    height: int
    highest: str
    first: str
    last: str
    table: Table


class _Day(NamedTuple):
    date: str
    amount: str


def bar_chart(title: str, asset: Asset, first_day: int, figures: Sequence[int]) -> Chart:
    """A chart of a figure a day, in minor units."""
    most = max(figures)
    dates = [format_time((first_day + place) * DAY)[:10] for place in range(len(figures))]
    heights = [-(-figure * HEIGHT // most) if most else 0 for figure in figures]
    bars = [
        Bar(place * STEP, HEIGHT - heights[place], heights[place], f"{dates[place]}: {describe_amount(figure, asset)}")
        for place, figure in enumerate(figures)
        if figure
    ]
    days = [_Day(dates[place], format_decimal(figure, asset)) for place, figure in enumerate(figures) if figure]
    columns = (
        Column("Day (UTC)", "date"),
        Column(asset.code, "amount", "number"),
    )
    return Chart(
        title=title,
        total=describe_amount(sum(figures), asset),
        bars=bars,
        width=len(figures) * STEP,
        height=HEIGHT,
        highest=describe_amount(most, asset),
        first=dates[0],
        last=dates[-1],
        table=make_table(title, columns, reversed(days), ""),
    )
