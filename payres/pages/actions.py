"""Actions: a page that says what will happen, with the form that makes it happen."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from starlette.responses import Response

from payres.clock import DAY
from payres.errors import DomainError, InvalidRequest, WrongState
from payres.http.error_responses import error_response
from payres.http.observation import observation_of
from payres.pages.listing import section_of
from payres.pages.sign_in import check_password
from payres.pages.tables import Cell
from payres.pages.visit import Form, Page, Visit
from payres.routes.pages import redirect
from payres.store.operators import operator_by_id, use_form
from payres.store.work import Work

Segments = Mapping[str, str]
ONCE: Final = "once"  # a field with the id of the form, which is carried out once
FORM: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Field(NamedTuple):
    """What the operator writes; `note` says how."""

    name: str
    label: str
    note: str
    required: bool
    longest: int = 100


class Summary(NamedTuple):
    """What the form is about, and what it will do, empty when nothing can be done. `back` is the next page."""

    title: str
    facts: Sequence[tuple[str, Cell]]
    will: Sequence[str]
    back: str


class Action(NamedTuple):
    """`choices` are what the form can send, each a button; or, with a `question`, one of several answers.

    What moves money takes the password again. `prepare` does what cannot be in one transaction; `do` gets its result as
    a fourth argument.
    """

    describe: Callable[[Work, Segments], Summary]
    do: Callable[..., object]
    choices: Mapping[str, str]
    fields: Sequence[Field] = ()
    moves_money: bool = False
    question: str = ""
    prepare: Callable[[Visit, Form], Awaitable[object]] | None = None


AMOUNT: Final = Field("amount", "Amount", "such as 100.00, in the wallet's asset", True)
REFERENCE: Final = Field("reference", "Reference", "your own for it; under one reference, nothing is done twice", False)


def page_for(action: Action) -> Page:
    """The page of an action."""
    return Page(partial(_show, action), partial(_act, action))


def reference_of(form: Form) -> str:
    """What the operator wrote, or else the id of the form."""
    return form.get("reference") or f"page {form.get(ONCE, '')}"


async def _show(action: Action, visit: Visit) -> Response:
    return await _render(action, visit, {}, None, 200)


async def _act(action: Action, visit: Visit, form: Form) -> Response:
    try:
        if action.moves_money:
            account = await visit.read(partial(operator_by_id, operator_id=visit.operator.id))
            await check_password(visit.request, account, form.get("password", ""))
        if form.get("choice") not in action.choices:
            raise InvalidRequest("This form is not one of this page's. Please open it again", field="choice")
        prepared = () if action.prepare is None else (await action.prepare(visit, form),)
        back = await visit.write(lambda work: _do(work, action, visit.segments, form, prepared))
    except DomainError as error:
        found = observation_of(visit.request.scope).error = error_response(error)
        return await _render(action, visit, form, found.hint, found.status)
    return redirect(back)


def _use(work: Work, form: Form) -> None:
    """Raises InvalidRequest, WrongState for a form that was carried out before: by a second click, or after Back."""
    form_id = form.get(ONCE, "")
    if FORM.fullmatch(form_id) is None:
        raise InvalidRequest("This form is not one of this page's. Please open it again", field=ONCE)
    if not use_form(work, form_id, work.now, work.now - DAY):
        raise WrongState("This form was carried out before, and nothing was done again. To do more, send this new one")


def _do(work: Work, action: Action, segments: Segments, form: Form, prepared: tuple[object, ...]) -> str:
    summary = action.describe(work, segments)
    if action.moves_money:
        _use(work, form)
    action.do(work, segments, form, *prepared)
    return summary.back


async def _render(action: Action, visit: Visit, form: Form, problem: str | None, status: int) -> Response:
    summary = await visit.read(lambda work: action.describe(work, visit.segments))
    return visit.show(
        "action.html",
        section_of(visit),
        status,
        summary=summary,
        action=action,
        form=form,
        problem=problem,
        once=visit.context.identifiers.resource(),
    )
