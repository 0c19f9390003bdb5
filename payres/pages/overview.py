"""The overview: whether payments can be taken, what needs attention, and how the server and its money stand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from starlette.responses import Response

from payres import __version__
from payres.amounts import Asset, describe_amount, format_decimal
from payres.clock import DAY, HOUR, MINUTE, format_time
from payres.encoding import format_size
from payres.operator import doctor
from payres.operator.doctor import Finding
from payres.operator.status import Status, read_last_day, read_status
from payres.operator.volume import Volume
from payres.pages.tables import Cell, Column, Table, make_table
from payres.pages.visit import FunctionPage, Visit
from payres.store.status import LedgerSum, PaymentCounts
from payres.store.work import Work

LIVE_SECONDS: Final = 30
STEP: Final = 8  # of which a bar takes 6
HEIGHT: Final = 96


class Balance(NamedTuple):
    """What the accounts of one asset hold together, by kind."""

    asset_code: str
    wallets: str
    liquidity: str
    fees: str


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


class Stand(NamedTuple):
    """What the page is made of, over one snapshot."""

    status: Status
    day: PaymentCounts
    findings: Sequence[Finding]
    now: int


BALANCE_COLUMNS: Final = (
    Column("Asset", "asset_code"),
    Column("In wallets", "wallets", "number"),
    Column("Liquidity", "liquidity", "number"),
    Column("Fees", "fees", "number"),
)


@FunctionPage
async def page(visit: Visit) -> Response:
    """The first page after signing in."""
    state = visit.request.scope["app"].state
    problem = await state.readiness.problem()
    volume = await state.volume.look(visit.context.database)
    stand = await visit.read(_read)
    is_live = visit.request.query_params.get("live") == "1"
    return visit.show(
        "overview.html",
        "",
        problem=problem,
        findings=[one for one in stand.findings if one.fix],
        balances=make_table("Balances", BALANCE_COLUMNS, _balances(stand.status.sums), "There are no wallets yet"),
        charts=_charts(volume),
        is_counted=volume.complete,
        facts=_facts(stand),
        is_live=is_live,
        refresh=LIVE_SECONDS if is_live else None,
    )


def _read(work: Work) -> Stand:
    return Stand(read_status(work), read_last_day(work), doctor.examine(work), work.now)


def _balances(sums: Sequence[LedgerSum]) -> Sequence[Balance]:
    held = {(one.code, one.scale, one.kind): one.balance for one in sums}

    def shown(code: str, scale: int, kind: str) -> str:
        return format_decimal(held.get((code, scale, kind), 0), Asset(code, scale))

    assets = dict.fromkeys((one.code, one.scale) for one in sums)
    return [
        Balance(code, *(shown(code, scale, kind) for kind in ("wallet", "liquidity", "fees"))) for code, scale in assets
    ]


def _charts(volume: Volume) -> Sequence[Chart]:
    return [
        _bar_chart(f"{asset.code} {word} a day", asset, volume.first_day, figures)
        for asset in volume.paid
        for word, figures in (("paid", volume.paid[asset]), ("received", volume.received[asset]))
    ]


def _bar_chart(title: str, asset: Asset, first_day: int, figures: Sequence[int]) -> Chart:
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


def _ledger(stand: Stand) -> str:
    broken = stand.status.broken_invariant
    if broken is not None:
        return f"BROKEN: its invariant {broken} did not hold in the last check"
    return _age(stand.status.last_check_at, stand.now, "not checked yet")


def _facts(stand: Stand) -> Sequence[tuple[str, Cell]]:
    status, day = stand.status, stand.day
    payments = f"{day.incoming:,} incoming and {day.outgoing:,} outgoing payments, {day.failed:,} of them failed"
    return [
        ("Last 24 hours", Cell(payments)),
        ("Being sent to other servers", Cell(f"{status.sending:,} payments")),
        ("Wallets", Cell(f"{status.wallets:,}", link="/admin/wallets")),
        ("Peers", Cell(str(len(status.peers)), link="/admin/peers")),
        ("Unresolved packets", Cell(f"{status.unresolved_packets:,}", link="/admin/peers")),
        ("Failed deliveries of webhooks", Cell(f"{status.failed_deliveries:,}", link="/admin/webhooks/deliveries")),
        ("Ledger last checked", Cell(_ledger(stand))),
        ("Last backup", Cell(_age(status.last_backup_at, stand.now, "none is in the audit log"))),
        ("Database", Cell(f"{Path(status.database).name}, {format_size(status.database_bytes)}")),
        ("Write-ahead log", Cell(format_size(status.log_bytes))),
        ("Free on the disk", Cell(format_size(status.free_bytes))),
        ("Version", Cell(f"payres {__version__}")),
    ]


def _age(time: int | None, now: int, none: str) -> str:
    if time is None:
        return none
    age = now - time
    ago = (
        f"{age // MINUTE} minutes"
        if age < 2 * HOUR
        else f"{age // HOUR} hours"
        if age < 2 * DAY
        else f"{age // DAY} days"
    )
    return f"{format_time(time)[:10]}, {ago} ago"
