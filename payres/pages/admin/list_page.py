"""The page of a list: what an operation lists, with its filters in the URL, and as CSV; and the files of exports."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin
from urllib.parse import urlencode

import msgspec
from starlette.responses import Response

from payres.admin.exports import attachment, send_export
from payres.admin.serving import PAGE_PARAMETERS, read_filters, read_parameters
from payres.limits import DEFAULT_PAGE, MAX_PAGE
from payres.operator.declarations import Input, Operation, operation_of
from payres.operator.exports import Export, ExportQuery
from payres.operator.shapes import as_csv, make_table
from payres.pages.admin.sign_in import Visit
from payres.pages.html import HEADERS, redirect
from payres.wire import Page

FORMAT: Final = "format"
LABELS: Final = {
    "from": "From",
    "to": "Before",
    "counterpart": "Other wallet, or beginning of a URL",
    "min": "Amount from",
    "max": "Amount to",
    "reason": "Reason contains",
    "actor": "Who contains",
    "action": "Did what contains",
    "object": "To what contains",
    "withoutConsent": "Without consent too",
}
DAYS: Final = frozenset({"from", "to"})
COUNTS: Final = (DEFAULT_PAGE, 50, MAX_PAGE)


async def show_list(visit: Visit, operation: Operation) -> Response:
    """What an operation lists, a page of it."""
    request, listing, shape = visit.request, operation.listing, operation.shows
    assert listing is not None
    assert shape is not None
    parameters = dict(request.query_params)
    non_empty = {name: value for name, value in parameters.items() if value}
    if non_empty != parameters:  # as a form sends what was left empty
        return redirect(_url(visit, non_empty))
    filters = read_filters(request, operation, (FORMAT,))
    given = read_parameters(request, operation, filters)
    found = await visit.read(partial(operation.run, given=given))
    count = given["page"].count if operation.is_paged else DEFAULT_PAGE
    title = listing.title.format(**visit.segments)
    if non_empty.get(FORMAT) == "csv":
        table = make_table(title, shape.listed, found.result, listing.none)
        return Response(as_csv(table), headers=HEADERS | attachment(title, "csv"), media_type="text/csv")
    return visit.show(
        "list.html",
        section=section_of(visit),
        title=title,
        about=listing.about,
        also=listing.also,
        table=make_table(title, shape.on_pages, found.result, listing.none),
        filters=() if operation.struct is None else filters_of(operation.struct, filters),
        is_filtered=bool(filters),
        counts=COUNTS if operation.is_paged else (),
        count=count,
        is_resized=count != DEFAULT_PAGE,
        csv=_url(visit, non_empty | {FORMAT: "csv"}),
        all=request.scope["raw_path"].decode("ascii"),
        beside=_newer_and_older(visit, non_empty, found, count),
    )


class Filter(NamedTuple):
    """A parameter of the query; `options` are all that it can be, none if it can be any text; `optional`: it may be
    left empty, which is false when it has a default."""

    name: str
    label: str
    value: str
    options: Sequence[str]
    is_day: bool
    optional: bool


def section_of(visit: Visit) -> str:
    """The section in the navigation that the page is in."""
    path: str = visit.request.scope["path"]
    return "/".join(path.split("/")[1:3]).removeprefix("admin")


def _newer_and_older(visit: Visit, parameters: Mapping[str, str], found: Any, count: int) -> Sequence[tuple[str, str]]:
    """The names and URLs of the pages with newer and older rows, as far as there are any."""
    if not isinstance(found, Page):
        return []
    shared = {name: value for name, value in parameters.items() if name not in PAGE_PARAMETERS}
    pagination, cursor = found.pagination, parameters.get("cursor", "")
    pages = []
    if pagination.has_previous_page:
        newer = {"last": str(count), "cursor": pagination.start_cursor or cursor}
        pages.append(("Newer", _url(visit, shared | newer)))
    if pagination.has_next_page:
        older = {"first": str(count), "cursor": pagination.end_cursor or cursor}
        pages.append(("Older", _url(visit, shared | older)))
    return pages


def filters_of(query: type[msgspec.Struct], given: Mapping[str, str] | None = None) -> Sequence[Filter]:
    """The parameters of a query as the fields of a form."""
    return [_filter(field, (given or {}).get(field.encode_name, "")) for field in msgspec.structs.fields(query)]


def _filter(field: msgspec.structs.FieldInfo, value: str) -> Filter:
    name, default = field.encode_name, field.default
    kind = Input.of(field.name, field.type, default).type
    options = ["true", "false"] if kind is bool else get_args(kind) if get_origin(kind) is Literal else ()
    has_default = isinstance(default, str)
    label = LABELS.get(name, name.capitalize())
    return Filter(name, label, value or (default if has_default else ""), options, name in DAYS, not has_default)


def _url(visit: Visit, parameters: Mapping[str, str]) -> str:
    path = visit.request.scope["raw_path"].decode("ascii")
    return f"{path}?{urlencode(parameters)}" if parameters else path


async def exports_page(visit: Visit) -> Response:
    """The forms of all exports but that of a wallet's statement."""
    return visit.show("exports.html", "/exports", fields=filters_of(ExportQuery))


async def send_file(visit: Visit, rule: Callable[..., Export]) -> Response:
    """The file of an export."""
    request, operation = visit.request, operation_of(rule)
    filters = {name: value for name, value in read_filters(request, operation).items() if value}
    export = rule(**operation.arguments(read_parameters(request, operation, filters)))
    return await send_export(request, export, visit.operator.actor, visit.read)
