"""Actions: a page that says what an operation will do, with the form that carries it out."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_origin

import msgspec
from msgspec.structs import asdict
from starlette.responses import Response

from payres.errors import DomainError, InvalidAmount, InvalidRequest, SignInFailed, WrongState
from payres.identifiers import hash_secret, new_id
from payres.operator.declarations import Form as Declared
from payres.operator.declarations import Operation
from payres.operator.shapes import Fact, facts_of, path_of
from payres.pages.admin.list_page import section_of
from payres.pages.admin.sign_in import Visit
from payres.pages.html import redirect
from payres.pages.visits import Form, check_password
from payres.routes.error_answers import note_error
from payres.store.operators import OPERATORS, is_used, use_form
from payres.store.work import Work

ONCE: Final = "once"  # a field with the id of the form, which is carried out once
FORM: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LONGEST: Final = 100


class Field(NamedTuple):
    """What the operator writes; `note` says how."""

    name: str
    label: str
    note: str
    required: bool
    longest: int
    is_mark: bool  # is on or off


class Subject(NamedTuple):
    """What a form is about, what it will do, and the page behind it. It will do nothing where nothing can be done."""

    facts: Sequence[Fact]
    will: Sequence[str]
    back: str


class Action:
    """The page of an operation with a form."""

    def __init__(self, operation: Operation, declared: Declared) -> None:
        self.operation = operation
        self.form = declared
        inputs = [one for one in operation.inputs.values() if one.name not in operation.segments]
        self._choice = next((one.name for one in inputs if get_origin(one.type) is Literal), None)
        self.fields = [
            Field(
                one.name,
                one.name.replace("_", " ").capitalize(),
                one.words,
                one.is_required and "is_reference" not in one.extra,
                one.longest or LONGEST,
                one.type is bool,
            )
            for one in inputs
            if one.name != self._choice
        ]

    async def __call__(self, visit: Visit) -> Response:
        return await self._render(visit, {}, {}, 200)

    async def act(self, visit: Visit, form: Form) -> Response:
        """The answer to a form that was sent."""
        try:
            if self.form.moves_money:
                account = await visit.read(partial(OPERATORS.by_id, row_id=visit.operator.id))
                session = hash_secret(visit.session)  # whoever has it does not guess
                guard = visit.context.operator_sign_in
                await check_password(visit.request, guard, account, form.get("password", ""), session)
            if form.get("choice") not in self.form.buttons:
                raise InvalidRequest("This form is not one of this page's. Please open it again", field="choice")
            back = await self._carry_out(visit, form)
        except DomainError as error:
            found = note_error(visit.request, error)
            return await self._render(visit, form, self._problems(found), found.status)
        return redirect(back)

    async def _carry_out(self, visit: Visit, form: Form) -> str:
        """Does it once; returns the page behind the form."""
        given, operation = self._given(visit, form), self.operation

        def unit(work: Work) -> str:
            back = self._subject(work, visit).back
            if self.form.moves_money:
                _use(work, form)
            if not operation.is_async:
                operation.run(work, given)
            return back

        if not operation.is_async:
            return await visit.write(unit)
        # It takes several transactions: the second of two clicks at once waits until the form is used.
        async with visit.context.idempotency_slots.slot("forms", form.get(ONCE, "")):
            if self.form.moves_money:
                await visit.read(partial(_check_unused, form=form))
            await operation.function(visit, **operation.arguments(given))
            return await visit.write(unit)

    def _given(self, visit: Visit, form: Form) -> Mapping[str, Any]:
        """What the operation takes, by name. What is left empty is left out, unless it is required."""
        given: dict[str, Any] = dict(visit.segments)
        for name, one in self.operation.inputs.items():
            text = form.get("choice" if name == self._choice else name, "")
            if "is_reference" in one.extra:
                given[name] = text or f"page {form.get(ONCE, '')}"
            elif name not in given and (text or one.is_required):
                given[name] = text if one.type is str or name == self._choice else _converted(name, text, one.kind)
        return given

    def _subject(self, work: Work, visit: Visit) -> Subject:
        form, names = self.form, dict(visit.segments)
        thing = form.about.find(work, **{name: names[name] for name in form.about.names})
        members = asdict(thing) | names
        behind = form.back or form.path.rpartition("/")[0]
        back = path_of(*(members[part[1:-1]] if part.startswith("{") else part for part in behind.split("/")[1:]))
        return Subject(facts_of(form.about.on_pages, thing), form.sentences(thing), back)

    def _problems(self, error: DomainError) -> Mapping[str, str]:
        """The sentence at the field that it is about, "" when it is about none."""
        names = {one.name for one in self.fields if not one.is_mark}
        is_amount = isinstance(error, InvalidAmount) and "amount" in names
        field = "password" if isinstance(error, SignInFailed) else "amount" if is_amount else error.details.get("field")
        return {field if field in names | {"password"} else "": f"{error}."}

    async def _render(self, visit: Visit, form: Form, problems: Mapping[str, str], status: int) -> Response:
        subject = await visit.read(lambda work: self._subject(work, visit))
        return visit.show(
            "action.html",
            section_of(visit),
            status,
            subject=subject,
            will=subject.will,
            action=self.form,
            fields=self.fields,
            form=form,
            problems=problems,
            once=new_id(),
        )


def _converted(name: str, text: str, kind: Any) -> Any:
    """Raises InvalidRequest for what is no number, say."""
    try:
        return msgspec.convert(text, kind, strict=False)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"{name}: {error}", field=name) from error


def _use(work: Work, form: Form) -> None:
    """Raises what `_check_unused` raises: of two clicks at once, the second comes this far."""
    _check_unused(work, form)
    use_form(work, form[ONCE], work.now)


def _check_unused(work: Work, form: Form) -> None:
    """Raises InvalidRequest, WrongState for a form that was carried out before: by a second click, or after Back."""
    form_id = form.get(ONCE, "")
    if FORM.fullmatch(form_id) is None:
        raise InvalidRequest("This form is not one of this page's. Please open it again", field=ONCE)
    if is_used(work, form_id):
        raise WrongState("This form was carried out before, and nothing was done again. To do more, send this new one")
