"""The pages of operations: lists with filters in the URL, also as CSV; forms, with what they will do; and exports."""

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin
from urllib.parse import urlencode

import msgspec
from msgspec.structs import asdict
from starlette.responses import Response

from payres.core.http.error_answers import note_error
from payres.core.protocol.errors import DomainError, InvalidAmount, InvalidRequest, SignInFailed, WrongState
from payres.core.protocol.identifiers import hash_secret, new_id
from payres.core.protocol.limits import DEFAULT_PAGE, MAX_PAGE
from payres.core.protocol.wire import Page
from payres.core.store.work import Work
from payres.html.html import HEADERS, redirect
from payres.html.visits import Form
from payres.operator.api import PAGE_PARAMETERS, attachment, operation_parameters, read_filters, send_export
from payres.operator.declarations import Input, Operation, operation_of
from payres.operator.declarations import OperationForm as Declared
from payres.operator.exports import Export, ExportQuery
from payres.operator.pages.sign_in import OPERATOR_SIGN_IN, OperatorVisit
from payres.operator.shapes import Fact, facts_of, make_table, path_of
from payres.operator.store.operators import OPERATORS, is_used, use_form

FORMAT: Final = "format"
LABELS: Final = {
    "from": "From (UTC)",
    "to": "Before (UTC)",
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
ONCE: Final = "once"  # the field with the form's id, which makes it run once
FORM: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


async def show_list(visit: OperatorVisit, operation: Operation) -> Response:
    """A page of an operation's list."""
    request, listing, shape = visit.request, operation.listing, operation.shows
    assert listing is not None
    assert shape is not None
    parameters = dict(request.query_params)
    non_empty = {name: value for name, value in parameters.items() if value}
    if non_empty != parameters:  # forms send empty fields
        return redirect(_url(visit, non_empty))
    filters = read_filters(request, operation, (FORMAT,))
    given = operation_parameters(request, operation, filters)
    found = await visit.read(partial(operation.run, given=given))
    count = given["page"].count if operation.is_paged else DEFAULT_PAGE
    title = listing.title.format(**visit.segments)
    if non_empty.get(FORMAT) == "csv":
        table = make_table(title, shape.listed, found.result, listing.none)
        return Response(table.csv, headers=HEADERS | attachment(title, "csv"), media_type="text/csv")
    return visit.show(
        "list.html",
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
    """A query parameter. `options` are its values, none if it can be any text. `optional`: it may be empty; false if
    it has a default."""

    name: str
    label: str
    value: str
    options: Sequence[str]
    is_day: bool
    optional: bool


def _newer_and_older(
    visit: OperatorVisit, parameters: Mapping[str, str], found: Any, count: int
) -> Sequence[tuple[str, str]]:
    """The labels and URLs of the newer and older pages that exist."""
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


def filters_of(query: type[msgspec.Struct], given: Mapping[str, str] = {}) -> Sequence[Filter]:
    """The form fields of a query's parameters."""
    found = []
    for field in msgspec.structs.fields(query):
        name, kind = field.encode_name, Input.of(field.name, field.type, field.default).type
        options = ["true", "false"] if kind is bool else get_args(kind) if get_origin(kind) is Literal else ()
        default = field.default if isinstance(field.default, str) else ""
        value = given.get(name) or default
        found.append(Filter(name, LABELS.get(name, name.capitalize()), value, options, name in DAYS, not default))
    return found


def _url(visit: OperatorVisit, parameters: Mapping[str, str]) -> str:
    path = visit.request.scope["raw_path"].decode("ascii")
    return f"{path}?{urlencode(parameters)}" if parameters else path


async def exports_page(visit: OperatorVisit) -> Response:
    """The forms of all exports except a wallet's statement."""
    return visit.show("exports.html", fields=filters_of(ExportQuery))


async def send_file(visit: OperatorVisit, rule: Callable[..., Export]) -> Response:
    """The file of an export."""
    request, operation = visit.request, operation_of(rule)
    filters = {name: value for name, value in read_filters(request, operation).items() if value}
    export = rule(**operation.arguments(operation_parameters(request, operation, filters)))
    return await send_export(visit, export, visit.operator.actor)


class FormSubject(NamedTuple):
    """The object of a form, sentences on what the form will do (none if it can do nothing), and the page it returns
    to."""

    facts: Sequence[Fact]
    will: Sequence[str]
    back: str


class OperationPage:
    """The page of an operation with a form."""

    def __init__(self, operation: Operation, declared: Declared) -> None:
        self.operation = operation
        self.form = declared
        inputs = [one for one in operation.inputs.values() if one.name not in operation.segments]
        self._choice = next((one.name for one in inputs if get_origin(one.type) is Literal), None)
        self.fields = [one for one in inputs if one.name != self._choice]

    async def __call__(self, visit: OperatorVisit) -> Response:
        return await self._render(visit, {}, {}, 200)

    async def act(self, visit: OperatorVisit, form: Form) -> Response:
        """The response to a submitted form."""
        try:
            if self.form.moves_money:
                account = await visit.read(partial(OPERATORS.by_id, row_id=visit.operator.id))
                session = hash_secret(visit.session)  # a signed-in browser is exempt from the limit on guesses
                await OPERATOR_SIGN_IN.check_password(visit.request, account, form.get("password", ""), session)
            if form.get("choice") not in self.form.buttons:
                raise InvalidRequest("This form is not one of this page's. Please open it again", field="choice")
            back = await self._carry_out(visit, form)
        except DomainError as error:
            found = note_error(visit.request, error)
            return await self._render(visit, form, self._problems(found), found.status)
        return redirect(back)

    async def _carry_out(self, visit: OperatorVisit, form: Form) -> str:
        """Runs the operation once; returns the page to return to."""
        given, operation = self._given(visit, form), self.operation

        def unit(work: Work) -> str:
            back = self._subject(work, visit).back
            if self.form.moves_money:
                _check_unused(work, form)  # stops the second of two simultaneous clicks
                use_form(work, form[ONCE], work.now)
            if not operation.is_async:
                operation.run(work, given)
            return back

        if not operation.is_async:
            return await visit.write(unit)
        # It takes several transactions, so the second of two simultaneous clicks waits for the first.
        async with visit.context.idempotency_slots.slot("forms", form.get(ONCE, "")):
            if self.form.moves_money:
                await visit.read(partial(_check_unused, form=form))
            await operation.function(visit, **operation.arguments(given))
            return await visit.write(unit)

    def _given(self, visit: OperatorVisit, form: Form) -> Mapping[str, Any]:
        """The operation's arguments by name, without empty optional ones."""
        given: dict[str, Any] = dict(visit.segments)
        for name, one in self.operation.inputs.items():
            text = form.get("choice" if name == self._choice else name, "")
            if "is_reference" in one.extra:
                given[name] = text or f"page {form.get(ONCE, '')}"
            elif name not in given and (text or one.is_required):
                given[name] = text if one.type is str or name == self._choice else _converted(name, text, one.kind)
        return given

    def _subject(self, work: Work, visit: OperatorVisit) -> FormSubject:
        form, names = self.form, dict(visit.segments)
        thing = form.about.find(work, **{name: names[name] for name in form.about.names})
        members = asdict(thing) | names
        behind = form.back or form.path.rpartition("/")[0]
        back = path_of(*(members[part[1:-1]] if part.startswith("{") else part for part in behind.split("/")[1:]))
        return FormSubject(facts_of(form.about.on_pages, thing), form.sentences(thing), back)

    def _problems(self, error: DomainError) -> Mapping[str, str]:
        """The message by its field, "" if it concerns no field."""
        names = {one.name for one in self.fields if not one.is_mark}
        is_amount = isinstance(error, InvalidAmount) and "amount" in names
        field = "password" if isinstance(error, SignInFailed) else "amount" if is_amount else error.details.get("field")
        return {field if field in names | {"password"} else "": f"{error}."}

    async def _render(self, visit: OperatorVisit, form: Form, problems: Mapping[str, str], status: int) -> Response:
        subject = await visit.read(lambda work: self._subject(work, visit))
        return visit.show(
            "action.html",
            status,
            subject=subject,
            action=self.form,
            fields=self.fields,
            form=form,
            problems=problems,
            once=new_id(),
        )


def _converted(name: str, text: str, kind: Any) -> Any:
    """The value in the input's type. Raises InvalidRequest."""
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{name}: {error}", field=name) from error


def _check_unused(work: Work, form: Form) -> None:
    """Raises InvalidRequest for a malformed id, WrongState if the form was already carried out."""
    form_id = form.get(ONCE, "")
    if FORM.fullmatch(form_id) is None:
        raise InvalidRequest("This form is not one of this page's. Please open it again", field=ONCE)
    if is_used(work, form_id):
        raise WrongState("This form was carried out before, and nothing was done again. To do more, send this new one")
