"""Exports: the forms that ask for one, and the files that they lead to."""

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from payres.admin import exports
from payres.admin.exports import Download, send_download
from payres.admin.requests import ExportQuery, PeriodQuery
from payres.admin.serving import read_query
from payres.operator.operators import actor_of
from payres.pages.list_page import filters_of
from payres.pages.visit import Visit
from payres.routes.requests import other_parameters


async def page(visit: Visit) -> Response:
    """The forms of all exports but that of a wallet's statement."""
    return visit.show("exports.html", "/exports", fields=filters_of(ExportQuery))


async def _send(visit: Visit, endpoint: Callable[..., Download], query: type[PeriodQuery]) -> Response:
    given = {name: value for name, value in other_parameters(visit.request, ()).items() if value}
    arguments: dict[str, Any] = {**visit.segments, "query": read_query(given, query)}
    return await send_download(visit.request, endpoint(**arguments), actor_of(visit.operator), visit.read)


PAYMENTS: Final = partial(_send, endpoint=exports.payments, query=ExportQuery)
LEDGER: Final = partial(_send, endpoint=exports.ledger, query=ExportQuery)
STATEMENT: Final = partial(_send, endpoint=exports.statement, query=PeriodQuery)
