"""Pages on all that is here: the overview with readiness, findings, balances, volume and the last changes; the search;
and the settings in effect."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from operator import itemgetter
from typing import Any, Final

import msgspec
from starlette.responses import Response

from payres.core.process.settings import Settings
from payres.core.protocol.amounts import Asset, describe_amount, format_decimal
from payres.core.protocol.clock import DAY
from payres.core.protocol.visible import visible_text
from payres.core.store.rows import PageQuery
from payres.core.store.work import Work
from payres.html.html import operators_language
from payres.html.language import Language
from payres.operator import audit, doctor
from payres.operator.declarations import MAX_NAME_LENGTH, operation_of
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.search import SEARCHED, search
from payres.operator.services import operator_of
from payres.operator.shapes import Cell, CellKind, Column, facts_of, format_size, make_table, path_of
from payres.operator.status import KINDS, STATUS, Status, read_status
from payres.operator.store.search import NEWEST
from payres.operator.volume import DAYS

SECRET: Final = frozenset({"metrics_token"})
# Replaces secrets, and URL queries, which may contain one.
MASK: Final = "••••••••"

# Facts that the page shows elsewhere, as balances and findings.
SAID: Final = {*KINDS.values(), "Not delivered", "Unresolved", "Ledger", "Last backup", "Free on the disk"}
# Where what the doctor finds is put right, by the first word of its subject.
PLACES: Final = {"backup": "backups", "exchange": "assets", "liquidity": "assets", "webhook": "webhooks"}
TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z")

LIVE_SECONDS: Final = 30
FEW: Final = 5  # rows of each kind that a search has found, where it shows all kinds
CHANGES: Final = PageQuery(4, None, "older")
HEIGHT: Final = 96
FLOWS: Final[Sequence[tuple[str, CellKind]]] = (("Day", "text"), ("Received", "number"), ("Sent", "number"))


def _balance(kind: str, row: tuple[Asset, Mapping[str, tuple[str, int]]]) -> str:
    asset, balances = row
    return balances[kind][0] if kind in balances else format_decimal(0, asset)


def _wallets(row: tuple[Asset, Mapping[str, tuple[str, int]]]) -> str:
    count = row[1].get("wallet", ("", 0))[1]
    return f"{count:,} wallet{'' if count == 1 else 's'}"


# Rows are an asset, and its balances with the number of their accounts by kind.
BALANCE_COLUMNS: Final = (
    Column("Currency", _wallets),
    Column("Code", lambda row: row[0].code, titles=True),
    *(Column(label, partial(_balance, kind), "number") for kind, label in KINDS.items()),
)


async def page(visit: OperatorVisit) -> Response:
    """The first page after signing in."""
    context, language = visit.context, operators_language(visit.request)
    services, asked = operator_of(context), visit.request.query_params
    volume = await services.volume.look(context.database)
    found = await visit.read(partial(_read_database, language=language))
    assets: Mapping[str, Asset] = found.pop("assets")
    shown = (
        asked.get("currency")
        if asked.get("currency") in assets
        else next((name for name, asset in assets.items() if asset in volume.paid), next(iter(assets), None))
    )
    nothing = [0] * DAYS
    return visit.show(
        "overview.html",
        problem=await services.readiness.problem(),
        assets=list(assets),
        shown=shown,
        chart=shown
        and pair_chart(
            assets[shown],
            volume.first_day,
            volume.received.get(assets[shown], nothing),
            volume.paid.get(assets[shown], nothing),
            language,
        ),
        is_counted=volume.complete,
        refresh=LIVE_SECONDS if asked.get("live") == "1" else None,
        **found,
    )


def _read_database(work: Work, language: Language) -> dict[str, Any]:
    """The values that the page reads from the database, from one snapshot."""
    status, balances = read_status(work, is_running=True), dict[Asset, dict[str, tuple[str, int]]]()
    for one in status.balances:
        asset = Asset(one.asset_code, one.asset_scale)
        balances.setdefault(asset, {})[one.kind] = (one.balance, one.accounts)
    codes = [asset.code for asset in balances]
    names = {asset: asset.code if codes.count(asset.code) == 1 else f"{asset.code} {asset.scale}" for asset in balances}
    return {
        "health": _health(status, language),
        "findings": [_attention(one, language) for one in doctor.examine(work) if one.fix],
        "assets": {name: asset for asset, name in names.items()},
        "balances": make_table("Balances", BALANCE_COLUMNS, balances.items(), "There are no wallets yet"),
        "changes": operation_of(audit.list_entries).run(work, {"page": CHANGES}).result,
        "told": audit.told,
        "facts": [(label, cell) for label, cell in facts_of(STATUS.columns, status) if label not in SAID],
    }


def _health(status: Status, language: Language) -> str:
    checked = f"in order at {language.stamp(status.last_check_at)}" if status.last_check_at else "not checked yet"
    made = language.stamp(status.last_backup_at) if status.last_backup_at else "none by payres"
    broken = f"BROKEN: {status.broken_invariant}" if status.broken_invariant else checked
    return f"Ledger {broken}. Last backup: {made}. {format_size(status.free_bytes)} free."


def _attention(found: doctor.Diagnosis, language: Language) -> dict[str, Any]:
    """A finding with the page where it is put right, whose words stand in place of the first command in its advice."""
    words = TIME.sub(lambda match: language.stamp(match[0]), found.seen)
    steps = [Cell(part, "code" if place % 2 else "text") for place, part in enumerate(f"{found.fix}.".split("`"))]
    if found.page is not None:
        steps[1] = Cell(found.page[0])
    names = found.page[1:] if found.page else filter(None, [PLACES.get(found.subject.partition(" ")[0])])
    return {"subject": found.subject, "seen": words, "advice": steps, "link": path_of(*names)}


def pair_chart(
    asset: Asset, first_day: int, received: Sequence[int], sent: Sequence[int], language: Language
) -> dict[str, Any]:
    """Two bars for each day, in minor units, on one scale; with a table of the days on which there was something."""
    top, days = _round_up(max(*received, *sent)), [(first_day + place) * DAY for place in range(len(received))]
    names = [language.short_date(day) for day in days]
    bars, rows = [], []
    for place, (day, *figures) in enumerate(zip(names, received, sent, strict=True)):
        for figure, kind, at in zip(figures, ("received", "sent"), (1, 5.2), strict=True):
            height = -(-figure * HEIGHT // top)  # rounded up, so that every figure has a bar
            words = f"{day}: {describe_amount(figure, asset)} {kind}"
            bars.append({"kind": kind, "x": place * 10 + at, "height": height, "words": words})
        if any(figures):
            rows.append((day, *(format_decimal(figure, asset) for figure in figures)))
    columns = [Column(label, itemgetter(n), kind) for n, (label, kind) in enumerate(FLOWS)]
    return {
        "received": describe_amount(sum(received), asset),
        "sent": describe_amount(sum(sent), asset),
        "bars": [bar for bar in bars if bar["height"]],
        "width": len(days) * 10,
        "height": HEIGHT,
        "scale": [format_decimal(figure, asset) for figure in (top, top // 2, 0)],
        "days": [names[(len(days) - 1) * part // 3] for part in range(4)],
        "highest": describe_amount(max(*received, *sent), asset),
        "table": make_table(f"{asset.code} received and sent a day", columns, reversed(rows), ""),
    }


def _round_up(figure: int) -> int:
    """The top of an axis: at least the figure, rounded up to one digit, and even."""
    unit = max(int(10 ** (len(str(figure)) - 1)), 2)
    return max(-(-figure // unit), 1) * unit


async def search_page(visit: OperatorVisit) -> Response:
    """What a search has found: a few of each kind, or all of one."""
    asked = visit.request.query_params
    text = " ".join(visible_text(asked.get("q", "")).split())[:MAX_NAME_LENGTH]
    found = await visit.read(partial(search, q=text))
    things = {name: rows for name in SEARCHED if (rows := getattr(found, name))}
    number, kind = sum(map(len, things.values())), asked.get("kind")
    kinds = []
    for name, rows in things.items():
        label, _, shape, _ = SEARCHED[name]
        shown = rows if kind == name else [] if kind in things else rows[:FEW]
        count = f"{label} {len(rows)}{' and more' if name in found.more else ''}"
        kinds.append((name, count, make_table(label, shape.on_pages, shown, ""), len(shown) < len(rows)))
    counted = f"{'More than ' if found.more else ''}{number or 'No'} result{'' if number == 1 else 's'}"
    return visit.show(
        "search.html",
        searched=text,
        heading=f"{counted} for “{text}”" if text else "Search",
        number=number,
        kinds=kinds,
        kind=kind if kind in things else None,
        is_cut=kind in found.more,
        partly=[SEARCHED[name].label.lower() for name in found.partly],
        newest=NEWEST,
    )


async def settings_page(visit: OperatorVisit) -> Response:
    """All settings, without secrets."""
    found = visit.context.settings
    rows = [(field, getattr(found, field.name)) for field in msgspec.structs.fields(Settings)]
    return visit.show("settings.html", table=make_table("Settings", SETTING_COLUMNS, rows, ""))


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
