"""Actions: a page that says what will happen, with the form that makes it happen."""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import msgspec
from starlette.responses import Response

from payres.errors import DomainError, InvalidRequest, WrongState
from payres.identifiers import new_id
from payres.operator.shapes import Cell
from payres.pages.list_page import section_of
from payres.pages.sign_in import check_password
from payres.pages.visit import Form, Visit
from payres.routes.exception_handlers import note_error
from payres.routes.pages import redirect
from payres.store.operators import OPERATORS, use_form
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


class Subject(NamedTuple):
    """What a form is about. `back` is the next page. `will` is what it will do where that depends on the subject, and
    empty when nothing can be done."""

    facts: Sequence[tuple[str, Cell]]
    back: str
    will: Sequence[str] | None = None


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """A page that says what will happen, with the form that makes it happen.

    `choices` are what the form can send, each a button; or, with a `question`, one of several answers. What moves money
    takes the password again. `prepare` does what cannot be in one transaction; `do` gets its result as a fourth
    argument. `on_done` is called after its commit.
    """

    title: str
    describe: Callable[[Work, Segments], Subject]
    will: Sequence[str] = ()
    do: Callable[..., object]
    choices: Mapping[str, str]
    fields: Sequence[Field] = ()
    moves_money: bool = False
    question: str = ""
    prepare: Callable[[Visit, Form], Awaitable[object]] | None = None
    on_done: Callable[[Visit], None] | None = None

    async def __call__(self, visit: Visit) -> Response:
        return await self._render(visit, {}, None, 200)

    async def act(self, visit: Visit, form: Form) -> Response:
        """The answer to a form that was sent."""
        try:
            if self.moves_money:
                account = await visit.read(partial(OPERATORS.by_id, row_id=visit.operator.id))
                await check_password(visit.request, account, form.get("password", ""))
            if form.get("choice") not in self.choices:
                raise InvalidRequest("This form is not one of this page's. Please open it again", field="choice")
            prepared = () if self.prepare is None else (await self.prepare(visit, form),)
            back = await visit.write(lambda work: self._do(work, visit.segments, form, prepared))
        except DomainError as error:
            found = note_error(visit.request, error)
            return await self._render(visit, form, str(found), found.status)
        if self.on_done is not None:
            self.on_done(visit)
        return redirect(back)

    def _do(self, work: Work, segments: Segments, form: Form, prepared: tuple[object, ...]) -> str:
        back = self.describe(work, segments).back
        if self.moves_money:
            _use(work, form)
        self.do(work, segments, form, *prepared)
        return back

    async def _render(self, visit: Visit, form: Form, problem: str | None, status: int) -> Response:
        subject = await visit.read(lambda work: self.describe(work, visit.segments))
        return visit.show(
            "action.html",
            section_of(visit),
            status,
            subject=subject,
            will=self.will if subject.will is None else subject.will,
            action=self,
            form=form,
            problem=problem,
            once=new_id(),
        )


AMOUNT: Final = Field("amount", "Amount", "such as 100.00, in the wallet's asset", True)
REFERENCE: Final = Field("reference", "Reference", "your own for it; under one reference, nothing is done twice", False)


def reference_of(form: Form) -> str:
    """What the operator wrote, or else the id of the form."""
    return form.get("reference") or f"page {form.get(ONCE, '')}"


def _use(work: Work, form: Form) -> None:
    """Raises InvalidRequest, WrongState for a form that was carried out before: by a second click, or after Back."""
    form_id = form.get(ONCE, "")
    if FORM.fullmatch(form_id) is None:
        raise InvalidRequest("This form is not one of this page's. Please open it again", field=ONCE)
    if not use_form(work, form_id, work.now):
        raise WrongState("This form was carried out before, and nothing was done again. To do more, send this new one")
