"""The overview: readiness, findings, balances, volume and the last changes."""

from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response

from payres.core.protocol.amounts import Asset, describe_amount, format_decimal
from payres.core.protocol.clock import DAY
from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.store.rows import PageQuery
from payres.core.store.work import Work
from payres.html.html import operators_language
from payres.html.language import Language
from payres.operator import audit
from payres.operator.declared.declarations import declared, operation_of
from payres.operator.declared.shapes import Cell, CellKind, Column, facts_of, format_size, make_table, path_of
from payres.operator.pages.due import waits
from payres.operator.pages.health import findings
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.services import operator_of
from payres.operator.upkeep.daily_volume import DAYS, Volume
from payres.operator.upkeep.health import count_wrong
from payres.operator.upkeep.status import KINDS, STATUS, Status, read_status

# Facts that the page shows elsewhere, as balances and findings.
SAID: Final = {*KINDS.values(), "Not delivered", "Unresolved", "Ledger", "Last backup", "Free on the disk"}
LIVE_SECONDS: Final = 30
CHANGES: Final = PageQuery(4, None, "older")
HEIGHT: Final = 96
FLOWS: Final[Sequence[tuple[str, CellKind]]] = (("Day", "text"), ("Received", "number"), ("Sent", "number"))


# Rows are dicts of a currency.
BALANCE_COLUMNS: Final = (
    Column("Currency", itemgetter("wallets"), section="assets"),
    Column("Code", itemgetter("name"), titles=True),
    *(Column(label, itemgetter(kind), "number") for kind, label in KINDS.items()),
)


async def page(visit: OperatorVisit) -> Response:
    """The first page after signing in."""
    context, language = visit.context, operators_language(visit.request)
    services, asked = operator_of(context), visit.request.query_params
    volume = await services.volume.look(context.database)
    found = await visit.read(partial(_read_database, visit=visit, language=language))
    assets: Mapping[str, Asset] = found["assets"]
    busy = [name for name, asset in assets.items() if asset in volume.paid]
    shown = next((name for name in (asked.get("currency"), *busy, *assets) if name in assets), None)
    links = {name: f"{ADMIN_ROOT}?{urlencode({'currency': name})}" for name in assets}
    return visit.show(
        "overview.html",
        problem=await services.readiness.problem(),
        looked_at=services.others.looked_at,
        shown=shown,
        currencies=[*links.items()],
        here=links.get(shown or "", f"{ADMIN_ROOT}?currency="),
        chart=pair_chart(assets[shown], volume, language) if shown else None,
        is_counted=volume.complete,
        new=[
            (one.form, ADMIN_ROOT + one.form.url)
            for one in declared()
            if one.form and one.form.lists and visit.may(one)
        ],
        refresh=LIVE_SECONDS if asked.get("live") == "1" else None,
        **found,
    )


def _read_database(work: Work, visit: OperatorVisit, language: Language) -> dict[str, Any]:
    """The values that the page reads from the database, from one snapshot."""
    status, assets = read_status(work, is_running=True), dict[str, Asset]()
    balances = dict[str, dict[str, str | Cell]]()
    for one in status.balances:
        asset = Asset(one.asset_code, one.asset_scale)
        is_first = assets.get(asset.code, asset) == asset
        name = asset.code if is_first else f"{asset.code} {asset.scale}"
        assets[name] = asset
        row = balances.setdefault(name, {**dict.fromkeys(KINDS, ""), "name": name, "wallets": "no wallets"})
        row[one.kind] = one.balance
        if one.kind == "wallet":
            count = f"{one.accounts:,} wallet{'' if one.accounts == 1 else 's'}"
            row["wallets"] = Cell(count, link=path_of("assets", asset.code, str(asset.scale)))
    found = findings(work, visit)
    changes = operation_of(audit.list_entries).run(work, {"page": CHANGES})
    return {
        "health": _health(status, language),
        "counted": count_wrong([one.state for one in found]),
        "wrong": [one for one in found if one.state != "in order"],
        "waits": waits(work, language),
        "assets": assets,
        "balances": make_table("Balances", BALANCE_COLUMNS, balances.values(), "There are no wallets yet"),
        "changes": [(one, audit.told(one)) for one in changes.result],
        "facts": [(label, cell) for label, cell in facts_of(STATUS.columns, status) if label not in SAID],
    }


def _health(status: Status, language: Language) -> str:
    at = language.stamp(status.last_check_at).lower() if status.last_check_at else ""
    checked = f"in order, checked {at}" if at else "not checked yet"
    made = language.stamp(status.last_backup_at) if status.last_backup_at else "none by payres"
    broken = f"BROKEN: {status.broken_invariant}" if status.broken_invariant else checked
    return f"Ledger {broken}. Last backup: {made}. {format_size(status.free_bytes)} free."


def pair_chart(asset: Asset, volume: Volume, language: Language) -> dict[str, Any]:
    """Two bars for each day on one scale, with a table of the days on which there was something."""
    flows = [volume.received.get(asset, [0] * DAYS), volume.paid.get(asset, [0] * DAYS)]
    top = _round_up(highest := max(map(max, flows)))
    names = [language.short_date((volume.first_day + n) * DAY) for n in range(DAYS)]
    bars, rows = [], []
    for place, (day, *figures) in enumerate(zip(names, *flows, strict=True)):
        for n, figure in enumerate(figures):
            height = -(-figure * HEIGHT // top)  # rounded up, so that every figure has a bar
            words = f"{day}: {describe_amount(figure, asset)} {('received', 'sent')[n]}"
            bars.append({"is_sent": n, "x": place * 10 + 1 + n * 4.2, "height": height, "words": words})
        if any(figures):
            rows.append((day, *(format_decimal(figure, asset) for figure in figures)))
    columns = [Column(label, itemgetter(n), kind) for n, (label, kind) in enumerate(FLOWS)]
    return {
        "sums": [describe_amount(sum(flow), asset) for flow in flows],
        "bars": [bar for bar in bars if bar["height"]],
        "width": DAYS * 10,
        "height": HEIGHT,
        "scale": [language.grouped(figure, asset) for figure in (top, top // 2, 0)],
        "days": [names[(DAYS - 1) * part // 3] for part in range(4)],
        "highest": describe_amount(highest, asset),
        "table": make_table(f"{asset.code} received and sent a day", columns, reversed(rows), ""),
    }


def _round_up(figure: int) -> int:
    """The top of an axis: at least the figure, rounded up to one digit, and even."""
    unit = max(int(10 ** (len(str(figure)) - 1)), 2)
    return max(-(-figure // unit), 1) * unit
