"""The settings as they are in effect."""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from payres.pages.tables import Cell, Column, make_table
from payres.pages.visit import FunctionPage, Visit
from payres.settings import Settings

SECRET: Final = frozenset({"metrics_token"})
# Stands for secrets and for the query of a URL, which may have one.
MASK: Final = "••••••••"


class Effective(msgspec.Struct, frozen=True):
    """One setting in words."""

    name: str
    value: str
    is_default: bool


COLUMNS: Final = (
    Column("Setting", "name", "code"),
    Column("Value", "value", "code"),
    Column("From", lambda one: Cell("default" if one.is_default else "set")),
)


@FunctionPage
async def page(visit: Visit) -> Response:
    """All settings, without secrets."""
    found = visit.context.settings
    rows = [_effective(field, getattr(found, field.name)) for field in msgspec.structs.fields(Settings)]
    table = make_table("Settings", COLUMNS, rows, "")
    return visit.show("settings.html", "/settings", table=table)


def _effective(field: Any, value: object) -> Effective:
    shown = str(value).lower() if isinstance(value, bool) else str(value)
    if field.name in SECRET and shown:
        shown = MASK
    before, mark, _ = shown.partition("?")
    return Effective(field.name, f"{before}{mark}{MASK}" if mark else shown, value == field.default)
