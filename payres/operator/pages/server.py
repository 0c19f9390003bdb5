"""The pages of the server itself: its backups, the ledger check, and the settings in effect."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
from starlette.responses import Response

from payres.core.process.settings import Settings, fields_of, is_secret
from payres.core.protocol.clock import format_time
from payres.core.protocol.identifiers import new_id
from payres.core.store.connections import free_bytes
from payres.html.preferences import chosen_zone, clocks
from payres.html.settings import PageSettings
from payres.operator import operators
from payres.operator.backups import BACKUP, NONE, list_backups, make
from payres.operator.declared.declarations import DeclaredRule, operation_of
from payres.operator.declared.shapes import Cell, Column, DataTable, format_size, make_table
from payres.operator.ledger import LedgerCheck, check
from payres.operator.pages.fields import FormFields
from payres.operator.pages.lists import show_list
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.services import operator_of
from payres.operator.settings import OperatorSettings

REFRESH_SECONDS: Final = 5
# Replaces secrets, and URL queries, which may contain one.
MASK: Final = "••••••••"
CHECK_COLUMNS: Final = (
    Column("Must hold", "claim", "long"),
    Column("State", lambda one: "holds" if one.holds else "broken", "state"),
    Column("Looked at", "examined", "number"),
    Column("Found", lambda one: "; ".join(one.breaches), "long"),
)


async def operators_page(visit: OperatorVisit) -> Response:
    """Who may use these pages, beside the form that lets somebody in; with a query a list, as CSV."""
    if visit.request.query_params:
        return await show_list(visit, operation_of(operators.list_operators))
    found = await visit.read(lambda work: operation_of(operators.list_operators).run(work, {}).result)
    forms = visit.forms([operators.make_link])
    fields = [one for form, _ in forms for one in FormFields(operation_of(operators.make_link), form).shown()]
    return visit.show("operators.html", operators=found, forms=forms, fields=fields, once=new_id())


async def backups_page(visit: OperatorVisit) -> Response:
    """The backups in the folder, how far one is that is being made, and the schedule."""
    kept, schedule = await visit.read(
        lambda work: ([BACKUP.show(work, one) for one in list_backups(work)], _schedule(work.settings))
    )
    about = "A file holds everything, secrets too; a download asks for your password. `payres restore` brings one back."
    table = make_table("Backups", BACKUP.on_pages, kept, NONE)
    return _show(visit, make, table, [about, schedule])


def _schedule(found: Settings) -> str:
    settings = found.of(OperatorSettings)
    made, folder = "Backups are made only when asked for", Path(settings.backup_directory)
    if settings.backup_every:
        made = f"One is made every {settings.backup_every / 3600:g} hours, and the last {settings.backup_keep} are kept"
    if settings.backup_directory and folder.is_dir():
        made += f", in `{folder}` with {format_size(free_bytes(folder))} free"
    return (
        f"{made}. The settings `backup_directory`, `backup_every` and `backup_keep` say so: to change them, edit"
        " `payres.toml` or the environment and start the server again."
    )


async def check_page(visit: OperatorVisit) -> Response:
    """What the last check that was begun here has found, and how far one is that is under way."""
    latest = operator_of(visit.context).long_works.latest.get("check")
    checks = latest.outcome.checks if latest and isinstance(latest.outcome, LedgerCheck) else ()
    table = make_table("Ledger check", CHECK_COLUMNS, checks, "Nobody has begun one here since the server started")
    about = "The server also checks by itself all the time, and takes no payments when something does not hold."
    return _show(visit, check, table, [about])


def _show(visit: OperatorVisit, rule: DeclaredRule, table: DataTable, about: Sequence[str]) -> Response:
    """A page that looks again by itself while a long work, which the form of the rule begins, is under way."""
    operation = operation_of(rule)
    form = operation.form
    assert form is not None
    latest = operator_of(visit.context).long_works.latest.get(form.begins)
    is_running = latest is not None and latest.ended_at is None
    return visit.show(
        "long_work.html",
        title=table.name,
        table=table,
        about=about,
        form=form,
        latest=latest,
        since=latest and Cell(format_time(latest.began_at), "time"),
        is_running=is_running,
        is_offered=visit.may(operation),
        refresh=REFRESH_SECONDS if is_running else None,
    )


async def settings_page(visit: OperatorVisit) -> Response:
    """All settings with where each comes from, without secrets; and the choice of a time zone."""
    found = visit.context.settings
    fields, origins = fields_of([type(one) for one in found.groups]), dict(found.origins)
    values = {name: getattr(one, name) for one in (found, *found.groups) for name in one.__struct_fields__}
    rows = [(field, values[name], origins.get(name)) for name, field in fields.items()]
    return visit.show(
        "settings.html",
        table=make_table("Settings", SETTING_COLUMNS, rows, ""),
        regions=clocks(visit.context.clock.now()).items(),
        chosen=chosen_zone(visit.request),
        usual=found.of(PageSettings).time_zone,
    )


def _masked(row: tuple[msgspec.structs.FieldInfo, object, str | None]) -> str:
    """The value of a setting in words."""
    field, value, _ = row
    if is_secret(field) and value:
        return MASK
    text, mark, _ = (str(value).lower() if isinstance(value, bool) else str(value)).partition("?")
    return f"{text}{mark}{MASK}" if mark else text


# Rows are a setting, its value and its origin.
SETTING_COLUMNS: Final = (
    Column("Setting", lambda row: row[0].name, "code"),
    Column("Value", _masked, "code"),
    Column("From", lambda row: row[2] or ("default" if row[1] == row[0].default else "set"), "long"),
)
