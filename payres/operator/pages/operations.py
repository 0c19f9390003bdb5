"""The forms of operations: what they will do is looked over, and what others did meanwhile is shown."""

import re
from collections.abc import Collection, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from starlette.responses import Response

from payres.accounts.second_factors import TYPED, factors_of
from payres.accounts.visits import Act
from payres.core.http.error_answers import note_error
from payres.core.protocol.errors import DomainError, InvalidRequest, NotFound, WrongState
from payres.core.protocol.identifiers import hash_secret, new_id
from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.protocol.visible import visible_text
from payres.core.store.work import Work
from payres.html.concurrent_edits import WAS, ChangedMeanwhile, check_unchanged
from payres.html.forms import Form, not_of_page
from payres.html.html import redirect
from payres.operator.declared.declarations import LookOver, Operation, OperationForm
from payres.operator.declared.etags import Conditions, thing_of
from payres.operator.declared.long_work import in_background
from payres.operator.declared.shapes import Cell, Shape, facts_of, members_of, path_of
from payres.operator.movements import MadeBefore
from payres.operator.pages.changed import show_both
from payres.operator.pages.fields import AGAIN, FACTOR, ONCE, PROOF, FormFields, FormSubject
from payres.operator.pages.repeated import made_before
from payres.operator.pages.sign_in import OPERATOR_SIGN_IN, OperatorVisit
from payres.operator.roles import beyond
from payres.operator.services import operator_of
from payres.operator.store.operators import OF_OPERATORS
from payres.operator.store.used_forms import is_used, use_form

SEEN: Final = "seen"  # the field of a form that was looked over and asks for no password
NOW: Final = "now"  # the field of what stood as `Now` where a form was looked over
SECRETS: Final = "secrets"  # the field of what secrets the thing had where a form that sets one was opened
SET: Final = "Somebody has set another secret here since you opened this: look again."
CHANGED: Final = "Somebody has changed it since you looked it over: look again."
OF_ONE_TRY: Final = {"choice", "csrf", ONCE, SEEN, NOW, AGAIN}  # fields that a form shown again does not begin with
FORM: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class Done(NamedTuple):
    """What a form has done, in a sentence; `undo` is the path of the form that takes it back, "" if there is none."""

    said: str
    undo: str = ""


class ChangedSince(WrongState):
    """What stood as `Now` where a form was looked over is so no more."""


class _Rehearsed(Exception):
    """Ends the unit of a rehearsal, so that nothing of it is stored; it has the thing as it would be."""

    def __init__(self, thing: object) -> None:
        self.thing = thing


class OperationPage:
    """The page of an operation with a form: its fields, what is looked over before it is carried out, and once."""

    def __init__(self, operation: Operation, form: OperationForm) -> None:
        self.operation = operation
        self.form = form
        self.fields = FormFields(operation, form)
        self._secret = [one.name for one in self.fields if one.kind_of_field == "secret"]

    async def __call__(self, visit: OperatorVisit) -> Response:
        names = {SECRETS, *(name for one in self.fields for name in (one.name, f"{WAS}{one.name}"))}
        if not self.fields and await self._asks_first(visit):
            return await OPERATOR_SIGN_IN.asking.again(visit.request, visit.session, {})
        query = visit.request.query_params
        return await self._render(visit, {name: value for name, value in query.items() if name in names}, {}, 200)

    async def show_typed(self, visit: OperatorVisit, form: Form) -> Response:
        """The form as it was filled in when the session had ended; whoever sends it again looks it over first."""
        return await self._render(visit, {name: text for name, text in form.items() if name not in OF_ONE_TRY}, {}, 200)

    @property
    def again(self) -> Mapping[str, Act]:
        """What shows the form as it was filled in, by its buttons."""
        return dict.fromkeys(self.form.buttons, self.show_typed) if self.fields else {}

    @property
    def secrets(self) -> Collection[str]:
        """The fields that no page keeps."""
        return {*PROOF, *self._secret}

    async def act(self, visit: OperatorVisit, form: Form) -> Response:
        """The response to a submitted form."""
        try:
            if form.get("choice") not in self.form.buttons:
                raise not_of_page()
            if not {"password", SEEN} & form.keys():
                if await self._asks_first(visit):
                    return await OPERATOR_SIGN_IN.asking.again(visit.request, visit.session, form)
                weighs = self.form.weighs and not self.operation.because
                weighed = await visit.read(lambda work: self._weighed(work, visit, form)) if weighs else None
                if self.operation.because or weighed:
                    return await self._look_over(visit, form)
            if self.operation.because:
                await self._check_asked_again(visit, form)
            answer, subject = await self._carry_out(visit, form)
        except DomainError as error:
            return await self._refused(visit, form, note_error(visit.request, error))
        if isinstance(answer, Response):  # a file
            return answer
        shape = self.operation.shows
        if shape and self.operation.shows_secret:
            return visit.show("made.html", subject=subject, action=self.form, facts=facts_of(shape.columns, answer))
        undo = _filled(shape.undo, members_of(answer)) if shape and shape.undo != self.form.path else ""
        said = (self.form.done or f"Done: {self.form.heading}").format_map(Sentence(subject, answer))
        say(visit, Done(said, undo))
        return redirect(subject.back)

    async def _check_asked_again(self, visit: OperatorVisit, form: Form) -> None:
        """Raises SignInFailed for a wrong password, InvalidRequest for a code that is not taken, TooManyRequests."""
        session = hash_secret(visit.session)  # a signed-in browser is exempt from the limit on guesses
        await OPERATOR_SIGN_IN.check_password(visit.request, visit.operator, form.get("password", ""), session)
        if await OPERATOR_SIGN_IN.asking.is_stale(visit.request, visit.session):
            typed = {TYPED: form.get(FACTOR, "")}
            refused = await OPERATOR_SIGN_IN.asking.verify(visit.request, visit.session, typed)
            if refused is not None:
                raise InvalidRequest(refused.beside_password, field=FACTOR)

    async def _refused(self, visit: OperatorVisit, form: Form, error: DomainError) -> Response:
        """The form with what is wrong with it, or the page that shows what others did."""
        if isinstance(error, ChangedMeanwhile):
            return await show_both(visit, self.fields, form, error, self._subject)
        if isinstance(error, ChangedSince):
            typed = {name: text for name, text in form.items() if name not in {*PROOF, NOW, SECRETS}}
            return await self._look_over(visit, typed, {"password": str(error)}, error.status)
        if isinstance(error, MadeBefore):
            typed = {name: text for name, text in form.items() if name not in PROOF}
            return await self._look_over(visit, typed | {AGAIN: error.first.id}, {}, error.status)
        problems = self.fields.problems(error)
        if not PROOF & problems.keys():
            return await self._render(visit, form, problems, error.status)
        try:
            return await self._look_over(visit, form, problems, error.status)
        except DomainError as other:
            return await self._refused(visit, form, note_error(visit.request, other))

    async def _asks_first(self, visit: OperatorVisit) -> bool:
        """Whether the second step comes before what is looked over: that form takes codes, and it can be a passkey."""
        if not self.operation.because or not visit.may(self.operation):
            return False
        factors = await visit.read(lambda work: factors_of(work, OF_OPERATORS, visit.operator.id))
        return any(one.field != TYPED for one in factors.asked) and await OPERATOR_SIGN_IN.asking.is_stale(
            visit.request, visit.session
        )

    async def _carry_out(self, visit: OperatorVisit, form: Form) -> tuple[object, FormSubject]:
        """Runs the operation once; returns its answer, and the subject after it."""
        operation, once = self.operation, form.get(ONCE, "")
        is_once = operation.because or ONCE in form  # buttons that press have no id

        def unit(work: Work) -> tuple[object, FormSubject]:
            if is_once:
                _check_unused(work, once)  # stops the second of two simultaneous clicks
                use_form(work, once, work.now)
            answer = self._run(work, visit, form)
            return answer, self._after(work, visit, answer)

        def before(work: Work) -> dict[str, object]:
            if is_once:
                _check_unused(work, once)
            if self._is_changed(work, visit, form):
                raise ChangedSince(CHANGED)
            self._thing(work, visit)
            return self.fields.read(work, visit.segments, form)

        if not operation.is_async:
            return await visit.write(unit)
        # It takes several transactions, so the second of two simultaneous clicks waits for the first, and so does
        # another operator with the same page, who then sees what the first has changed.
        async with visit.context.idempotency_slots.slot("forms", visit.request.url.path):
            given = await visit.read(before)
            answer = await (self._begin(visit, given) if self.form.begins else operation.function(visit, **given))
            if is_once:
                await visit.write(lambda work: use_form(work, once, work.now))
            return answer, await visit.read(partial(self._after, visit=visit, answer=answer))

    async def _begin(self, visit: OperatorVisit, given: Mapping[str, object]) -> None:
        """Leaves the operation to the server. Raises what its plan raises, WrongState while one runs."""
        await visit.read(lambda work: self.form.plan(work, **given))
        actor, background = await in_background(visit)
        begin = operator_of(visit.context).long_works.begin
        begin(self.form.begins, actor, lambda: self.operation.function(background, **given))

    def _run(self, work: Work, visit: OperatorVisit, form: Form) -> object:
        """The answer of an operation of one unit. Raises what it refuses, and what says that others were here."""
        if self.form.changes:
            check_unchanged(form, self.fields.present(self._thing(work, visit)))
        elif self.form.about:
            self.form.about.record(work, **visit.segments)
        sets = self.operation.shows_secret or any(form.get(name) for name in self._secret)
        if sets and form.get(SECRETS, "") not in {"", self._secrets(work, visit)}:
            raise ChangedSince(SET)
        is_changed = self._is_changed(work, visit, form)
        answer = self.operation.run(work, self.fields.read(work, visit.segments, form))
        if is_changed:  # after what the operation refuses
            raise ChangedSince(CHANGED)
        return answer

    async def _look_over(
        self, visit: OperatorVisit, form: Form, problems: Mapping[str, str] = {}, status: int = 200
    ) -> Response:
        """The page that names what will be done, and asks for the password. Raises what the operation refuses."""

        def rehearse(work: Work) -> None:
            self._run(work, visit, form)
            raise _Rehearsed(self._left(work, visit))

        def plan(work: Work) -> Mapping[str, str]:
            return self.form.plan(work, **self.fields.read(work, visit.segments, form))

        then = None
        if self.operation.is_async:
            meant = await visit.read(plan)
            form = {**form, **{name: text for name, text in meant.items() if not form.get(name)}}
        else:
            try:
                await visit.write(rehearse)
            except _Rehearsed as rehearsed:
                then = rehearsed.thing
        return await self._render(visit, form, problems, status, then)

    def _weighed(self, work: Work, visit: OperatorVisit, form: Form) -> LookOver | None:
        """What is to be looked at. Raises what is wrong with an argument."""
        return self.form.weighs(work, **self.fields.read(work, visit.segments, form)) if self.form.weighs else None

    def _is_changed(self, work: Work, visit: OperatorVisit, form: Form) -> bool:
        """Whether what stood where the form was looked over is so no more, and there is something to look at."""
        now = form.get(NOW)
        with suppress(ValueError):  # the operation says what is wrong with an argument
            now = now and self._now(work, visit, self._weighed(work, visit, form))
        return bool(now) and now != form.get(NOW)

    def _now(self, work: Work, visit: OperatorVisit, weighed: LookOver | None) -> str:
        """What stands now of what is looked over: its figures, and what is unusual; the ETag of what a form ends."""
        if weighed:
            return " ".join([*(before.text for _, before, _ in weighed.rows), *(weighed.risk or ())[:1]]) or "-"
        thing = thing_of(self.operation) if self.form.ends else None
        return (Conditions(None, None, thing, visit.segments).tag(work) or "").strip('"')

    def _secrets(self, work: Work, visit: OperatorVisit) -> str:
        """What stands for the present secrets of what the form is about; "" if it sets none."""
        about = self.form.about if self.operation.shows_secret or self._secret else None
        return about.secrets_of(work, **visit.segments) if about else ""

    def _thing(self, work: Work, visit: OperatorVisit) -> object:
        """What the form is about, None for something new. Raises NotFound, WrongState."""
        return self.form.about.find(work, **visit.segments) if self.form.about else None

    def _left(self, work: Work, visit: OperatorVisit) -> object:
        """The same after the operation; None if it is gone."""
        with suppress(NotFound, WrongState):
            return self._thing(work, visit)
        return None

    def _subject(self, work: Work, visit: OperatorVisit) -> FormSubject:
        """The subject before the operation."""
        return self._with_back(visit, self.form.about, self._thing(work, visit))

    def _after(self, work: Work, visit: OperatorVisit, answer: object) -> FormSubject:
        """The subject after the operation: what is new, or gone, is as the answer shows it."""
        return self._with_back(visit, self.form.about or self.operation.shows, self._left(work, visit) or answer)

    def _with_back(self, visit: OperatorVisit, shape: Shape | None, thing: object) -> FormSubject:
        back = self.form.back or (shape.page if shape and shape.page else self.form.lists)
        members = (shape.names_of(thing) if shape else {}) | dict(visit.segments)
        path = _filled(back, members) if isinstance(back, str) else back(thing)
        return FormSubject(shape, thing, path or ADMIN_ROOT)

    async def _render(
        self, visit: OperatorVisit, form: Form, problems: Mapping[str, str], status: int, then: object = None
    ) -> Response:
        values = await visit.read(lambda work: self._values(work, visit, form, problems))
        subject: FormSubject = values["subject"]
        return visit.show(
            "look_over.html" if values["is_looked_over"] else "action.html",
            status,
            action=self.form,
            will=self.operation.sentences(subject.thing),
            because=self.operation.because,
            changes=[] if then is None or subject.shape is None else subject.shape.changes(subject.thing, then),
            again=self._again(visit, values["form"]),
            problems=problems,
            once=new_id(),
            asks_factor=self.operation.because and await OPERATOR_SIGN_IN.asking.is_stale(visit.request, visit.session),
            **values,
        )

    def _values(self, work: Work, visit: OperatorVisit, form: Form, problems: Mapping[str, str]) -> dict[str, Any]:
        """What the page shows of the database: before the form is filled in, or as it is looked over."""
        subject, may = self._subject(work, visit), visit.may(self.operation)
        is_over = subject.thing is not None and bool(self.form.is_over(subject.thing))
        if self.operation.because and may and not (self.fields or is_over) and len(self.form.buttons) == 1:
            form = {"choice": next(iter(self.form.buttons)), **form}  # there is nothing to fill in first
        is_looked_over = bool(PROOF & problems.keys()) or ("choice" in form and not problems)
        weighed = self._weighed(work, visit, form) if is_looked_over else None
        says = self.form.says(work) if may else {}
        fields = self.fields.shown(form, problems, subject.thing, is_looked_over)
        fields = [one._replace(words=says.get(one.name, one.words)) for one in fields]
        is_again = is_looked_over and form.get(AGAIN)
        return {
            "subject": subject,
            "form": form,
            "fields": self.fields.with_offers(work, fields, subject.thing, form),
            "secrets": form.get(SECRETS, self._secrets(work, visit)),
            "is_over": is_over,
            "beyond": "" if may else str(beyond(work, visit.operator)),
            "is_looked_over": is_looked_over,
            "weighed": weighed,
            "now": self._now(work, visit, weighed) if is_looked_over else "",
            "first": made_before(work, visit, self.fields, form, subject.name) if is_again else None,
        }

    def _again(self, visit: OperatorVisit, form: Form) -> str:
        """The URL of the form with what was typed and what it showed, but for secrets."""
        names = [one.name for one in self.fields if one.kind_of_field not in {"secret", "choices"}]
        typed = {name: form[name] for one in [*names, SECRETS] for name in (one, f"{WAS}{one}") if form.get(name)}
        return f"{visit.request.scope['raw_path'].decode('ascii')}?{urlencode(typed)}"


class Sentence(dict[str, object]):
    """The words of the sentence on what a form has done: members of the answer and the thing, and its name."""

    def __init__(self, subject: FormSubject, answer: object) -> None:
        super().__init__(members_of(subject.thing) | members_of(answer))
        self._subject = subject

    def __getitem__(self, name: str) -> "Words":
        return Words(self._subject.name if name == "name" else super().__getitem__(name))


class Words(str):
    """A text in a sentence; as `{amount:money}` its digits are in groups."""

    def __new__(cls, value: object) -> "Words":
        return super().__new__(cls, "" if value is None else value)

    def __format__(self, spec: str) -> str:
        return Cell(str(self), "number").shown if spec == "money" else visible_text(str(self))


def say(visit: OperatorVisit, done: Done) -> None:
    """Keeps what was done for the next page of the browser."""
    operator_of(visit.context).said[visit.session] = done


def _filled(path: str, members: Mapping[str, object]) -> str:
    """The path of a page, with these in place of its placeholders."""
    parts = path.split("/")[1:]
    return path_of(*(str(members[part[1:-1]]) if part.startswith("{") else part for part in parts)) if path else ""


def _check_unused(work: Work, form_id: str) -> None:
    """Raises InvalidRequest for a malformed id, WrongState if the form was already carried out."""
    if FORM.fullmatch(form_id) is None:
        raise not_of_page(ONCE)
    if is_used(work, form_id):
        raise WrongState("This form was carried out before, and nothing was done again. To do more, send this new one")
