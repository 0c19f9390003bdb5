"""The pages of lists, with filters in the URL, also as CSV; and of exports."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from starlette.responses import Response

from payres.core.http.error_answers import note_error
from payres.core.protocol.errors import DomainError, NotFound
from payres.core.protocol.limits import DEFAULT_PAGE, MAX_PAGE
from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.protocol.wire import List, Page
from payres.core.store.rows import PageQuery
from payres.core.store.work import Work
from payres.html.exports import Export, attachment, send_export
from payres.html.html import HEADERS, redirect
from payres.html.sentences import ended
from payres.operator.declared.api import PAGE_PARAMETERS, operation_parameters, read_filters
from payres.operator.declared.declarations import Operation, declared, operation_of
from payres.operator.declared.inputs import naming
from payres.operator.declared.shapes import make_table
from payres.operator.exports import export_payments
from payres.operator.pages.fields import Field
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.services import operator_of

FORMAT: Final = "format"
LABELS: Final = {
    "to": "Before",
    "counterpart": "Payer or receiver",
    "min": "Amount from",
    "max": "Amount to",
    "reason": "Reason contains",
    "actor": "By",
    "action": "Did",
    "object": "To",
    "withoutConsent": "Also grants that asked nobody",
    "canSignIn": "Password",
    "used": "Prices that nobody paid",
    "byCause": "What waits for the same cause",
}
HINTS: Final = dict.fromkeys(("from", "to"), "A day, or a day and a time (UTC).") | {
    "counterpart": "A name here, or an address elsewhere.",
    "actor": "A part is enough.",
}
# The words of marks that are chosen.
SHOWN: Final = {"false": "leave out", "true": "show"}
WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "withoutConsent": SHOWN,
    "canSignIn": {"true": "set", "false": "none"},
    "used": {"false": "show", "true": "leave out"},
    "byCause": {"false": "each", "true": "one row"},
}
COUNTS: Final = (DEFAULT_PAGE, 50, MAX_PAGE)


async def show_list(visit: OperatorVisit, operation: Operation) -> Response:
    """A page of an operation's list."""
    request, listing, shape, path = visit.request, operation.listing, operation.shows, _url(visit, {})
    assert listing is not None
    assert shape is not None
    parameters = dict(request.query_params)
    non_empty = {name: value for name, value in parameters.items() if value}
    if non_empty != parameters:  # forms send empty fields
        return redirect(_url(visit, non_empty))
    filters = read_filters(request, operation, (FORMAT,))
    narrowed = ({listing.narrowed: "true"} if listing.narrowed else {}) | filters
    own = {name: wire for name, wire in operation.wire_names.items() if name not in operation.segments}
    names = {wire: name for name, wire in own.items() if not operation.inputs[name].is_of_people}
    given = operation_parameters(
        request, operation, {name: text for name, text in filters.items() if name not in names}
    )

    def unit(work: Work) -> Any:
        typed = dict[str, Any]()
        for wire, text in narrowed.items():
            with naming(wire):
                typed[names[wire]] = operation.inputs[names[wire]].read(work, text)
        return operation.run(work, given | operation.read(typed))

    found, problems = List[Any](result=[]), dict[str, str]()
    try:
        found = await visit.read(unit)
    except DomainError as error:
        # What is not there is a wallet: no other filter names a thing.
        field = str(error.details.get("field", "wallet" if isinstance(error, NotFound) else ""))
        if field not in filters:
            raise
        problems = {field: ended(str(note_error(request, error)))}
    page = given.get("page")
    count = page.count if isinstance(page, PageQuery) else DEFAULT_PAGE
    rows = Field("first", "Rows", "choice", str(count), [*{str(n): n for n in (*COUNTS, count)}], is_required=True)
    title = listing.title.format(**visit.segments)
    if non_empty.get(FORMAT) == "csv" and not problems:
        table = make_table(title, shape.listed, found.result, listing.none)
        return Response(table.csv, headers=HEADERS | attachment(title, "csv"), media_type="text/csv")
    none = listing.none if filters or not listing.none_yet else listing.none_yet
    return visit.show(
        "list.html",
        400 if problems else 200,
        title=title,
        problems=problems,
        about=listing.about,
        also=listing.also,
        views=[(name, f"{path}?{query}".rstrip("?")) for name, query in listing.views.items()],
        here=f"{path}?{request.url.query}".rstrip("?"),
        new=_new(visit, operation.list_url),
        table=make_table(title, shape.on_pages, found.result, none),
        filters=filters_of(operation, narrowed, problems),
        is_filtered=bool(filters),
        rows=[rows] if operation.is_paged else [],
        is_resized=count != DEFAULT_PAGE,
        csv=_url(visit, non_empty | {FORMAT: "csv"}),
        beside=_newer_and_older(visit, non_empty, found, count),
    )


def _new(visit: OperatorVisit, path: str) -> tuple[str, str] | None:
    """The label and the URL of the form that makes something new for the list, for who may."""
    forms = (one.form for one in declared() if one.form and one.form.lists == path and visit.may(one))
    return next(((one.heading, ADMIN_ROOT + one.url) for one in forms), None)


def _newer_and_older(
    visit: OperatorVisit, parameters: Mapping[str, str], found: Any, count: int
) -> Sequence[tuple[str, str]]:
    """The labels and URLs of the newer and older pages that exist."""
    if not isinstance(found, Page):
        return []
    shared = {name: value for name, value in parameters.items() if name not in PAGE_PARAMETERS}
    pagination, cursor = found.pagination, parameters.get("cursor", "")
    newer = ("Newer", "last", pagination.start_cursor, pagination.has_previous_page)
    older = ("Older", "first", pagination.end_cursor, pagination.has_next_page)
    return [
        (label, _url(visit, shared | {name: str(count), "cursor": end or cursor}))
        for label, name, end, is_there in (newer, older)
        if is_there
    ]


def filters_of(operation: Operation, given: Mapping[str, str] = {}, problems: Mapping[str, str] = {}) -> list[Field]:
    """The form fields of the parameters of a query."""
    found = []
    for one in operation.inputs.values() if operation.struct else ():
        if one.name in operation.segments or one.name == "limit":
            continue
        name = operation.wire_names[one.name]
        kind, options = ("select", WORDS[name]) if one.is_mark else (one.kind_of_field, one.choices)
        kind = "text" if kind == "day" else kind  # with a time too
        default = "false" if one.is_mark else one.default if isinstance(one.default, str) else ""
        field = Field(name, LABELS.get(name, name.capitalize()), kind, given.get(name) or default, options)
        said = {"words": HINTS.get(name, ""), "problem": problems.get(name, "")}
        found.append(field._replace(is_required=bool(default), longest=one.longest or field.longest, **said))
    return found


def _url(visit: OperatorVisit, parameters: Mapping[str, str]) -> str:
    path = visit.request.scope["raw_path"].decode("ascii")
    return f"{path}?{urlencode(parameters)}" if parameters else path


async def exports_page(visit: OperatorVisit) -> Response:
    """The forms of all exports except a wallet's statement."""
    return visit.show("exports.html", title="Exports", fields=filters_of(operation_of(export_payments)))


async def send_file(visit: OperatorVisit, rule: Callable[..., Export]) -> Response:
    """The file of an export."""
    request, operation = visit.request, operation_of(rule)
    filters = {name: value for name, value in read_filters(request, operation).items() if value}
    export = rule(**operation_parameters(request, operation, filters))
    slots = operator_of(visit.context).export_slots
    return await send_export(visit, export, visit.operator.actor, slots)
