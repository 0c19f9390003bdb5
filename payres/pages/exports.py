"""Exports: the forms that ask for one, and the files that they lead to."""

from collections.abc import Callable
from functools import partial
from typing import Final

from starlette.responses import Response

from payres.admin import exports
from payres.admin.exports import Download, ExportQuery, send_download
from payres.admin.serving import read_filters, read_parameters
from payres.operator.operations import operation_of
from payres.operator.operators import actor_of
from payres.pages.list_page import filters_of
from payres.pages.visit import Visit


async def page(visit: Visit) -> Response:
    """The forms of all exports but that of a wallet's statement."""
    return visit.show("exports.html", "/exports", fields=filters_of(ExportQuery))


async def _send(visit: Visit, endpoint: Callable[..., Download]) -> Response:
    request, operation = visit.request, operation_of(endpoint)
    filters = {name: value for name, value in read_filters(request, operation).items() if value}
    download = endpoint(**operation.arguments(read_parameters(request, operation, filters)))
    return await send_download(request, download, actor_of(visit.operator), visit.read)


PAYMENTS: Final = partial(_send, endpoint=exports.payments)
LEDGER: Final = partial(_send, endpoint=exports.ledger)
STATEMENT: Final = partial(_send, endpoint=exports.statement)
