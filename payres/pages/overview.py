"""The overview: whether payments can be taken, what needs attention, and how the server and its money stand."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from starlette.responses import Response

from payres import __version__
from payres.amounts import Asset, describe_amount, format_decimal
from payres.clock import DAY, HOUR, MINUTE, format_time
from payres.encoding import format_size
from payres.operator import doctor
from payres.operator.shapes import Cell, Column
from payres.operator.status import Status, read_last_day, read_status
from payres.pages.tables import make_table
from payres.pages.visit import Visit
from payres.store.status import PaymentCounts
from payres.store.work import Work

LIVE_SECONDS: Final = 30
STEP: Final = 8  # of which a bar takes 6
HEIGHT: Final = 96


def _balance(heading: str, kind: str) -> Column:
    """The accounts of a kind together."""
    return Column(heading, lambda row: Cell(format_decimal(row[1].get(kind, 0), row[0]), "number"))


# Rows are an asset, and the balances in it by kind.
BALANCE_COLUMNS: Final = (
    Column("Asset", lambda row: Cell(row[0].code)),
    _balance("In wallets", "wallet"),
    _balance("Liquidity", "liquidity"),
    _balance("Fees", "fees"),
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
    status, balances = read_status(work), dict[Asset, dict[str, int]]()
    for one in status.sums:
        balances.setdefault(Asset(one.code, one.scale), {})[one.kind] = one.balance
    return {
        "findings": [one for one in doctor.examine(work) if one.fix],
        "balances": make_table("Balances", BALANCE_COLUMNS, balances.items(), "There are no wallets yet"),
        "facts": _facts(status, read_last_day(work), work.now),
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


def _ledger(status: Status, now: int) -> str:
    if status.broken_invariant is not None:
        return f"BROKEN: its invariant {status.broken_invariant} did not hold in the last check"
    return _age(status.last_check_at, now, "not checked yet")


def _facts(status: Status, day: PaymentCounts, now: int) -> Sequence[tuple[str, Cell]]:
    payments = f"{day.incoming:,} incoming and {day.outgoing:,} outgoing payments, {day.failed:,} of them failed"
    return [
        ("Last 24 hours", Cell(payments)),
        ("Being sent to other servers", Cell(f"{status.sending:,} payments")),
        ("Wallets", Cell(f"{status.wallets:,}", link="/admin/wallets")),
        ("Peers", Cell(str(len(status.peers)), link="/admin/peers")),
        ("Unresolved packets", Cell(f"{status.unresolved_packets:,}", link="/admin/peers")),
        ("Failed deliveries of webhooks", Cell(f"{status.failed_deliveries:,}", link="/admin/webhooks/deliveries")),
        ("Ledger last checked", Cell(_ledger(status, now))),
        ("Last backup", Cell(_age(status.last_backup_at, now, "none is in the audit log"))),
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
