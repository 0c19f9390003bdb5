"""The settings as they are in effect."""

from types import SimpleNamespace
from typing import Any, Final

import msgspec
from starlette.responses import Response

from payres.operator.shapes import Cell, Column
from payres.pages.tables import make_table
from payres.pages.visit import Visit
from payres.settings import Settings

SECRET: Final = frozenset({"metrics_token"})
# Stands for secrets and for the query of a URL, which may have one.
MASK: Final = "••••••••"

COLUMNS: Final = (
    Column("Setting", "name", "code"),
    Column("Value", "value", "code"),
    Column("From", lambda one: Cell("default" if one.is_default else "set")),
)


async def page(visit: Visit) -> Response:
    """All settings, without secrets."""
    found = visit.context.settings
    rows = [_effective(field, getattr(found, field.name)) for field in msgspec.structs.fields(Settings)]
    table = make_table("Settings", COLUMNS, rows, "")
    return visit.show("settings.html", "/settings", table=table)


def _effective(field: Any, value: object) -> SimpleNamespace:
    """One setting in words."""
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if field.name in SECRET and text:
        text = MASK
    before, mark, _ = text.partition("?")
    shown = f"{before}{mark}{MASK}" if mark else text
    return SimpleNamespace(name=field.name, value=shown, is_default=value == field.default)
