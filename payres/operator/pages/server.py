"""The pages of the server itself: its backups, the ledger check, and the settings in effect."""

from pathlib import Path
from typing import Any, Final

import msgspec
from starlette.responses import Response

from payres.core.process.settings import LoadedSettings, Settings
from payres.core.protocol.clock import format_time
from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.store.connections import free_bytes
from payres.html.html import redirect
from payres.html.language import chosen, clocks, set_zone
from payres.html.visits import Form
from payres.operator.long_work import BACKUP, NONE, list_backups
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.services import operator_of
from payres.operator.shapes import Cell, Column, Fact, format_size, make_table

REFRESH_SECONDS: Final = 5
SECRET: Final = frozenset({"metrics_token"})
# Replaces secrets, and URL queries, which may contain one.
MASK: Final = "••••••••"
NOT_YET: Final = "Nobody has begun one here since the server started"
CHECK_COLUMNS: Final = (
    Column("Must hold", "claim", "long"),
    Column("State", lambda one: "holds" if one.holds else "broken", "state"),
    Column("Looked at", "examined", "number"),
    Column("Found", lambda one: "; ".join(one.breaches), "long"),
)


async def backups_page(visit: OperatorVisit) -> Response:
    """The backups in the folder, how far one is that is being made, and the schedule."""
    kept, facts = await visit.read(
        lambda work: ([BACKUP.show(work, one) for one in list_backups(work)], _schedule(work.settings))
    )
    facts.append(("Kept here", Cell(f"{len(kept)}, together {format_size(sum(one.bytes for one in kept))}")))
    return _show(visit, "backup", "backups.html", make_table("Backups", BACKUP.on_pages, kept, NONE), facts)


def _schedule(settings: Settings) -> list[Fact]:
    every, folder = settings.backup_every, settings.backup_directory
    pause = f"every {every // 3600} hours" if every % 3600 == 0 else f"every {every} seconds"
    facts = [("Made", Cell(pause if every else "only when asked"))]
    facts += [("The schedule keeps", Cell(f"the last {settings.backup_keep}"))] if every else []
    if folder and Path(folder).is_dir():
        facts.append(("Into", Cell(f"{folder}, {format_size(free_bytes(Path(folder)))} free", "long")))
    return facts


async def check_page(visit: OperatorVisit) -> Response:
    """What the last check that was begun here has found, and how far one is that is under way."""
    latest = operator_of(visit.context).long_works.latest.get("check")
    checks = latest.outcome.checks if latest and latest.outcome else ()
    return _show(visit, "check", "ledger_check.html", make_table("Checks", CHECK_COLUMNS, checks, NOT_YET), [])


def _show(visit: OperatorVisit, kind: str, template: str, table: Any, facts: list[Fact]) -> Response:
    """A page that looks again by itself while a long work of this kind is under way."""
    latest = operator_of(visit.context).long_works.latest.get(kind)
    is_running = latest is not None and latest.ended_at is None
    return visit.show(
        template,
        table=table,
        facts=facts,
        latest=latest,
        since=latest and Cell(format_time(latest.began_at), "time"),
        until=latest and latest.ended_at and Cell(format_time(latest.ended_at), "time"),
        is_running=is_running,
        refresh=REFRESH_SECONDS if is_running else None,
    )


async def settings_page(visit: OperatorVisit) -> Response:
    """All settings with where each comes from, without secrets; and the choice of a time zone."""
    found = visit.context.settings
    origins = dict(found.origins) if isinstance(found, LoadedSettings) else {}
    rows = [(one, getattr(found, one.name), origins.get(one.name)) for one in msgspec.structs.fields(Settings)]
    return visit.show(
        "settings.html",
        table=make_table("Settings", SETTING_COLUMNS, rows, ""),
        regions=clocks(visit.context.clock.now()).items(),
        chosen=chosen(visit.request),
        usual=found.time_zone,
    )


async def choose_zone(visit: OperatorVisit, form: Form) -> Response:
    """Stores the operator's time zone in a cookie, which owners' pages in this browser have too."""
    response = redirect(f"{ADMIN_ROOT}/settings")
    set_zone(response, form.get("zone", ""), secure=visit.context.urls.base.startswith("https:"))
    return response


def _masked(row: tuple[msgspec.structs.FieldInfo, object, str | None]) -> str:
    """The value of a setting in words."""
    field, value, _ = row
    if field.name in SECRET and value:
        return MASK
    text, mark, _ = (str(value).lower() if isinstance(value, bool) else str(value)).partition("?")
    return f"{text}{mark}{MASK}" if mark else text


# Rows are a setting, its value and its origin.
SETTING_COLUMNS: Final = (
    Column("Setting", lambda row: row[0].name, "code"),
    Column("Value", _masked, "code"),
    Column("From", lambda row: row[2] or ("default" if row[1] == row[0].default else "set"), "long"),
)
