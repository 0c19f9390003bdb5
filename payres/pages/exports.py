"""Exports: the forms that ask for one, and the files that they lead to."""

from collections.abc import Callable

from starlette.responses import Response

from payres.admin.exports import send_export
from payres.admin.serving import read_filters, read_parameters
from payres.operator.exports import Export, ExportQuery
from payres.operator.operations import operation_of
from payres.operator.operators import actor_of
from payres.pages.list_page import filters_of
from payres.pages.visit import Visit


async def page(visit: Visit) -> Response:
    """The forms of all exports but that of a wallet's statement."""
    return visit.show("exports.html", "/exports", fields=filters_of(ExportQuery))


async def send(visit: Visit, rule: Callable[..., Export]) -> Response:
    """The file of an export."""
    request, operation = visit.request, operation_of(rule)
    filters = {name: value for name, value in read_filters(request, operation).items() if value}
    export = rule(**operation.arguments(read_parameters(request, operation, filters)))
    return await send_export(request, export, actor_of(visit.operator), visit.read)
