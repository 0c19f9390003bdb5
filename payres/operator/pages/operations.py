"""The forms of operations: what they will do is looked over, and what others did meanwhile is shown."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, Literal, NamedTuple, get_origin
from urllib.parse import urlencode

from starlette.responses import Response

from payres.accounts.second_factors import TYPED, factors_of
from payres.core.http.error_answers import note_error
from payres.core.protocol.clock import parse_time
from payres.core.protocol.errors import DomainError, InvalidAmount, InvalidRequest, NotFound, SignInFailed, WrongState
from payres.core.protocol.identifiers import hash_secret, new_id
from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.protocol.visible import visible_text
from payres.core.store.work import Work
from payres.html.concurrent_edits import WAS, ChangedMeanwhile, check_unchanged, plain_lines, sides_of
from payres.html.forms import Form, not_of_page
from payres.html.html import operators_language, redirect
from payres.html.sentences import ended
from payres.operator.audit import AuditEntry, told, who_moved, who_set
from payres.operator.declared.declarations import LookOver, Operation, OperationForm
from payres.operator.declared.etags import Conditions, thing_of
from payres.operator.declared.inputs import MAX_NAME_LENGTH, Input, naming
from payres.operator.declared.long_work import in_background
from payres.operator.declared.shapes import Cell, Fact, facts_of, members_of, path_of
from payres.operator.movements import MOVEMENT, MadeBefore, own_reference, page_of_account
from payres.operator.pages.lists import Field
from payres.operator.pages.sign_in import OPERATOR_SIGN_IN, OperatorVisit
from payres.operator.roles import beyond
from payres.operator.services import operator_of
from payres.operator.store.operators import OF_OPERATORS, OPERATORS
from payres.operator.store.used_forms import is_used, use_form

# Labels of fields that are no English words.
FIELDS: Final = {"ilp_address": "ILP address", "url": "URL", "asset_scale": "Decimals", "max_packet": "Largest packet"}
ONCE: Final = "once"  # the field with the form's id, which makes it run once
SEEN: Final = "seen"  # the field of a form that was looked over and asks for no password
FACTOR: Final = "second_step"  # the field of a code beside that of the password
NOW: Final = "now"  # the field of what stood as `Now` where a form was looked over
SECRETS: Final = "secrets"  # the field of what secrets the thing had where a form that sets one was opened
SET: Final = "Somebody has set another secret here since you opened this: look again."
CHANGED: Final = "Somebody has changed it since you looked it over: look again."
AGAIN: Final = "again"  # the field with the id of what was made before, and is made once more on purpose
ASKED: Final = "Your own name for it; if another one has it, you see that one first."
TYPE_AGAIN: Final = "Type it again: a page keeps no secret."
CODE: Final = re.compile("[!-~]{1,32}")  # of a currency
FORM: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


class FormSubject(NamedTuple):
    """What a form is about: the thing, None for something new; its heading, facts and the path of the next page."""

    thing: Any
    name: str
    facts: Sequence[Fact]
    back: str


class Done(NamedTuple):
    """What a form has done, in a sentence; `undo` is the path of the form that takes it back, "" if there is none."""

    said: str
    undo: str = ""


class Repeated(NamedTuple):
    """What may have been made before, in words: `about` is its page, `reference` is said of one that is the same."""

    title: str
    who: str
    what: str
    about: str
    button: str
    reference: str


class ChangedSince(WrongState):
    """What stood as `Now` where a form was looked over is so no more."""


class _Rehearsed(Exception):
    """Ends the unit of a rehearsal, so that nothing of it is stored; it has the thing as it would be."""

    def __init__(self, thing: Any) -> None:
        self.thing = thing


class OperationPage:
    """The page of an operation with a form: the fields, what is looked over before money moves, what is shown once."""

    def __init__(self, operation: Operation, form: OperationForm) -> None:
        self.operation = operation
        self.form = form
        inputs = [
            one for one in operation.inputs.values() if f"{{{one.name}}}" not in form.url and not one.is_of_people
        ]
        is_choice = isinstance(form.button, Mapping)
        choices = (one.name for one in inputs if is_choice and (one.is_mark or get_origin(one.type) is Literal))
        self._choice = next(choices, None)
        self._inputs = [one for one in inputs if one.name != self._choice]
        self._secret = [one.name for one in inputs if one.kind_of_field == "secret"]

    async def __call__(self, visit: OperatorVisit) -> Response:
        names, query = (
            {SECRETS, *(name for one in self._inputs for name in (one.name, f"{WAS}{one.name}"))},
            visit.request.query_params,
        )
        if not self._inputs and await self._asks_first(visit):
            return await OPERATOR_SIGN_IN.asking.again(visit.request, visit.session, {})
        return await self._render(visit, {name: value for name, value in query.items() if name in names}, {}, 200)

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
        undo = shape.undo if shape else ""
        undo = _filled(undo, members_of(answer)) if undo != self.form.path else ""
        say(visit, Done(self._sentence(answer, subject), undo))
        return redirect(subject.back)

    async def _check_asked_again(self, visit: OperatorVisit, form: Form) -> None:
        """Raises SignInFailed for a wrong password, InvalidRequest for a code that is not taken, TooManyRequests."""
        account = await visit.read(partial(OPERATORS.by_id, row_id=visit.operator.id))
        session = hash_secret(visit.session)  # a signed-in browser is exempt from the limit on guesses
        await OPERATOR_SIGN_IN.check_password(visit.request, account, form.get("password", ""), session)
        if await OPERATOR_SIGN_IN.asking.is_stale(visit.request, visit.session):
            typed = {TYPED: form.get(FACTOR, "")}
            refused = await OPERATOR_SIGN_IN.asking.verify(visit.request, visit.session, typed)
            if refused is not None:
                raise InvalidRequest(refused.beside_password, field=FACTOR)

    async def _refused(self, visit: OperatorVisit, form: Form, error: DomainError) -> Response:
        """The form with what is wrong with it, or the page that shows what others did."""
        if isinstance(error, ChangedMeanwhile):
            return await self._show_both(visit, form, error)
        if isinstance(error, ChangedSince):
            typed = {name: text for name, text in form.items() if name not in {"password", FACTOR, NOW, SECRETS}}
            return await self._look_over(visit, typed, {"password": str(error)}, error.status)
        if isinstance(error, MadeBefore):
            typed = {name: text for name, text in form.items() if name not in {"password", FACTOR}}
            return await self._look_over(visit, typed | {AGAIN: error.first.id}, {}, error.status)
        problems = self._problems(error)
        if not {"password", FACTOR} & problems.keys():
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

    async def _carry_out(self, visit: OperatorVisit, form: Form) -> tuple[Any, FormSubject]:
        """Runs the operation once; returns its answer, and the subject after it."""
        operation, once = self.operation, form.get(ONCE, "")
        is_once = self.operation.because or ONCE in form  # buttons that press have no id

        def unit(work: Work) -> tuple[Any, FormSubject]:
            if is_once:
                _check_unused(work, once)  # stops the second of two simultaneous clicks
                use_form(work, once, work.now)
            return self._run(work, visit, form)

        if not operation.is_async:
            return await visit.write(unit)
        # It takes several transactions, so the second of two simultaneous clicks waits for the first.
        async with visit.context.idempotency_slots.slot("forms", once):
            if is_once:
                await visit.read(partial(_check_unused, form_id=once))
            if await visit.read(partial(self._is_changed, visit=visit, form=form)):
                raise ChangedSince(CHANGED)
            before, given = await visit.read(lambda work: (self._subject(work, visit), self._given(visit, form, work)))
            answer = await (self._begin(visit, given) if self.form.begins else operation.function(visit, **given))
            if is_once:
                await visit.write(lambda work: use_form(work, once, work.now))
            return answer, await visit.read(partial(self._subject, visit=visit, answer=answer, before=before))

    async def _begin(self, visit: OperatorVisit, given: Mapping[str, Any]) -> None:
        """Leaves the operation to the server. Raises what its plan raises, WrongState while one runs."""
        await visit.read(lambda work: self.form.plan(work, **given))
        actor, background = await in_background(visit)
        begin = operator_of(visit.context).long_works.begin
        begin(self.form.begins, actor, lambda: self.operation.function(background, **given))

    def _run(self, work: Work, visit: OperatorVisit, form: Form) -> tuple[Any, FormSubject]:
        before = self._subject(work, visit)
        check_unchanged(form, self._present(before.thing))
        sets = self.operation.shows_secret or any(form.get(name) for name in self._secret)
        if sets and form.get(SECRETS, "") not in {"", self._secrets(work, visit)}:
            raise ChangedSince(SET)
        is_changed = self._is_changed(work, visit, form)
        answer = self.operation.run(work, self._given(visit, form, work))
        if is_changed:  # after what the operation refuses
            raise ChangedSince(CHANGED)
        return answer, self._subject(work, visit, answer, before)

    async def _look_over(
        self, visit: OperatorVisit, form: Form, problems: Mapping[str, str] = {}, status: int = 200
    ) -> Response:
        """The page that names what will be done, and asks for the password. Raises what the operation refuses."""

        def unit(work: Work) -> None:
            _, subject = self._run(work, visit, form)
            raise _Rehearsed(subject.thing)

        then = None
        if self.operation.is_async:
            given = await visit.read(partial(self._given, visit, form))
            meant = await visit.read(lambda work: self.form.plan(work, **given))
            form = {**form, **{name: text for name, text in meant.items() if not form.get(name)}}
        else:
            try:
                await visit.write(unit)
            except _Rehearsed as rehearsed:
                then = rehearsed.thing
        return await self._render(visit, form, problems, status, then)

    def _weighed(self, work: Work, visit: OperatorVisit, form: Form) -> LookOver | None:
        """What is to be looked at. Raises what is wrong with an argument."""
        return self.form.weighs(work, **self._given(visit, form, work)) if self.form.weighs else None

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

    def _shown(self, work: Work, visit: OperatorVisit, form: Form) -> tuple[LookOver | None, str]:
        weighed = self._weighed(work, visit, form)
        return weighed, self._now(work, visit, weighed)

    def _secrets(self, work: Work, visit: OperatorVisit) -> str:
        """What stands for the present secrets of what the form is about; "" if it sets none."""
        about = self.form.about if self.operation.shows_secret or self._secret else None
        return about.secrets_of(work, **visit.segments) if about else ""

    def _given(self, visit: OperatorVisit, form: Form, work: Work) -> dict[str, Any]:
        """The arguments of the operation, without empty optional ones and what a change leaves as it is."""
        typed: dict[str, Any] = dict(visit.segments)
        for one in self._inputs:
            text, was = plain_lines(form.get(one.name, "")), form.get(f"{WAS}{one.name}")
            was = was if self.operation.method == "PATCH" else None
            if was is not None and text == plain_lines(was):
                continue
            if "is_reference" in one.extra:
                typed[one.name] = text or f"page {form.get(ONCE, '')}"
            elif one.is_several:
                typed[one.name] = _chosen(one, form) if one.kind_of_field == "choices" else text.split()
            elif text or self._needs(one) or was is not None:
                with naming(one.name):
                    typed[one.name] = one.read(work, text)
        if self._choice is not None:
            typed[self._choice] = form["choice"]
        if AGAIN in self.operation.inputs:
            typed[AGAIN] = form.get(AGAIN)
        return self.operation.read(typed)

    def _needs(self, one: Input) -> bool:
        return one.is_required or one.name in self.form.needs

    def _subject(
        self, work: Work, visit: OperatorVisit, answer: Any = None, before: FormSubject | None = None
    ) -> FormSubject:
        """The subject before the operation, or after it with its answer; a thing that is gone is as it was."""
        about = self.form.about or (self.operation.shows if answer is not None else None)
        back = self.form.back or (about.page if about and about.page else self.form.lists)
        names = dict(visit.segments) if self.form.about else about.names_of(answer) if about else {}
        try:
            thing = about.find(work, **names) if about and about.read and names else answer
        except (NotFound, WrongState):
            if before is None:
                raise
            thing = before.thing
        name = about.name(thing) if about and thing is not None else ""
        facts = facts_of(about.on_pages, thing) if self.form.about and about else ()
        members = (about.names_of(thing) if about else {}) | dict(visit.segments)
        path = _filled(back, members) if isinstance(back, str) else back(thing)
        return FormSubject(thing, name, facts, path or ADMIN_ROOT)

    def _sentence(self, answer: Any, subject: FormSubject) -> str:
        """What was done; amounts in groups of digits with `:money`."""
        members = members_of(subject.thing) | members_of(answer) | {"name": subject.name}
        words = {key: Words(value) for key, value in members.items()}
        return (self.form.done or f"Done: {self.form.heading}").format_map(words)

    def _problems(self, error: DomainError) -> Mapping[str, str]:
        """The message by its field, "" if it concerns no field."""
        wire = {encoded: name for name, encoded in self.operation.wire_names.items()}
        amounts = [one.name for one in self._inputs if one.kind_of_field == "amount"]
        named = str(error.details.get("field", amounts[0] if isinstance(error, InvalidAmount) and amounts else ""))
        field = wire.get(named, named)
        field = "password" if isinstance(error, SignInFailed) else field
        names, text = {one.name for one in self._inputs if not one.is_mark} | {"password", FACTOR}, str(error)
        text = (
            re.sub(f"^{re.escape(named)} (?=must (?:not be empty|be an? ))", "This ", text) if field in names else text
        )
        return {field if field in names else "": ended(text)}

    async def _render(
        self, visit: OperatorVisit, form: Form, problems: Mapping[str, str], status: int, then: Any = None
    ) -> Response:
        subject, secrets, says, offers, refused = await visit.read(partial(self._about, visit=visit))
        weighed, now = None, ""
        is_over = subject.thing is not None and self.form.is_over(subject.thing)
        is_plain = not (self._inputs or is_over) and len(self.form.buttons) == 1
        if self.operation.because and is_plain and visit.may(self.operation):
            form = {"choice": next(iter(self.form.buttons)), **form}  # there is nothing to fill in first
        is_looked_over = {"password", FACTOR} & problems.keys() or ("choice" in form and not problems)
        first = await self._made_before(visit, form, subject) if is_looked_over and form.get(AGAIN) else None
        if is_looked_over:
            weighed, now = await visit.read(partial(self._shown, visit=visit, form=form))
        columns = self.form.about.columns if self.form.about and then is not None else ()
        changes = zip(facts_of(columns, subject.thing), facts_of(columns, then), strict=True)
        return visit.show(
            "look_over.html" if is_looked_over else "action.html",
            status,
            subject=subject,
            action=self.form,
            will=self.operation.sentences(subject.thing),
            because=self.operation.because,
            first=first,
            is_over=is_over,
            beyond=refused,
            fields=[
                _with_offers(one._replace(words=says.get(one.name, one.words)), offers.get(one.name, {}), form)
                for one in self.fields(form, problems, subject.thing, bool(is_looked_over))
                if offers.get(one.name) != {}
            ],
            changes=[(label, before, after) for (label, before), (_, after) in changes if before != after],
            weighed=weighed,
            now=now,
            secrets=form.get(SECRETS, secrets),
            again=self._again(visit, form),
            form=form,
            problems=problems,
            once=new_id(),
            asks_factor=self.operation.because and await OPERATOR_SIGN_IN.asking.is_stale(visit.request, visit.session),
        )

    def _about(
        self, work: Work, visit: OperatorVisit
    ) -> tuple[FormSubject, str, Mapping[str, str], Mapping[str, Mapping[str, tuple[str, str]]], str]:
        """What the form is about, what stands for its secrets, what fields say and offer; why the role may not."""
        refused = "" if visit.may(self.operation) else str(beyond(work, visit.operator))
        says, subject = {} if refused else self.form.says(work), self._subject(work, visit)
        own = {one.name: one.extra["offers"] for one in self._inputs if "offers" in one.extra}
        offers = {name: offered(work, subject.thing) for name, offered in own.items()}
        return subject, self._secrets(work, visit), says, offers, refused

    async def _made_before(self, visit: OperatorVisit, form: Form, subject: FormSubject) -> Repeated:
        """What the page says of the movement that is made once more."""

        def unit(work: Work) -> tuple[Any, str]:
            found = MOVEMENT.find(work, id=form[AGAIN])
            return found, who_moved(work, found.id, found.created_at)

        first, who = await visit.read(unit)
        english, money = operators_language(visit.request), f"{first.asset_code} {Cell(first.amount, 'number').shown}"
        way = "into" if first.kind == "deposit" else "out of"
        ago, reference = english.span(max(english.now - parse_time(first.created_at), 0)), own_reference(first)
        by = "You did" if who == visit.operator.name else f"{who or 'Somebody'} did"
        named = f", “{visible_text(reference)}”" if reference else ""
        button = self.form.buttons[form["choice"]]
        there = f" {way} {subject.name}" if first.account.startswith("wallet ") else ""
        typed = _understood(self.operation.inputs["amount"], form.get("amount", ""))
        return Repeated(
            f"{button.partition(' it')[0]} {first.asset_code} {typed}{there} again?",
            f"{by} that {ago} ago",
            f"{money} {way} the {first.account}{named},{english.clock_at(first.created_at)}. It is there.",
            page_of_account(first),
            f"{button.partition(' it')[0]} another {first.asset_code} {typed}",
            "The same as the first time: a number follows it"
            if reference and reference == form.get("reference")
            else "",
        )

    def _again(self, visit: OperatorVisit, form: Form) -> str:
        """The URL of the form with what was typed and what it showed, but for secrets."""
        names = [one.name for one in self._inputs if one.kind_of_field not in {"secret", "choices"}]
        typed = {name: form[name] for one in [*names, SECRETS] for name in (one, f"{WAS}{one}") if form.get(name)}
        return f"{visit.request.scope['raw_path'].decode('ascii')}?{urlencode(typed)}"

    def fields(
        self,
        form: Mapping[str, str] = {},
        problems: Mapping[str, str] = {},
        thing: Any = None,
        is_looked_over: bool = False,
    ) -> Sequence[Field]:
        """The fields; secrets have their values only where these are looked over, to be sent again."""
        present, found = self._present(thing), []
        codes = {name: text for name, text in form.items() if CODE.fullmatch(text)}
        named = defaultdict(lambda: "unit", codes)
        units = {"amount": getattr(thing, "asset_code", ""), "percent": "%"}
        for one in self._inputs:
            kind, derived = one.kind_of_field, one.name.rstrip("_").replace("_", " ").capitalize()
            text, default = present.get(one.name), "" if one.name in self.form.needs else one.default
            was = form.get(f"{WAS}{one.name}", text) if one.name in present else None
            value = form.get(one.name, text or (default if isinstance(default, str) else ""))
            value = " ".join(_chosen(one, form)) if kind == "choices" and form else value
            found.append(
                Field(
                    name=one.name,
                    label=(one.extra.get("label") or FIELDS.get(one.name, derived)).format_map(named),
                    words=ASKED if "is_reference" in one.extra and AGAIN in self.operation.inputs else one.hint,
                    kind=kind,
                    value="" if kind == "secret" and not is_looked_over else value,
                    was=was,
                    options=one.choices,
                    unit=codes.get(one.extra.get("unit_of", ""), units.get(kind, "")),
                    shown=_understood(one, value),
                    problem=problems.get(one.name, ""),
                    is_required=self._needs(one) and "is_reference" not in one.extra,
                    longest=one.longest or {"long": 10_000, "lines": 100}.get(kind, MAX_NAME_LENGTH),
                )
            )
        return found

    def _present(self, thing: Any) -> dict[str, str]:
        """What the fields show of the thing, as texts; nothing if the form is about something new."""
        present = {} if thing is None else self.form.present(thing)
        return {one.name: one.filled(present[one.name]) for one in self._inputs if one.name in present}

    async def _show_both(self, visit: OperatorVisit, form: Form, error: ChangedMeanwhile) -> Response:
        """The page that shows what somebody else has changed meanwhile beside what was typed, with both in the form."""
        about, english = " ".join(visit.segments.values()), operators_language(visit.request)
        theirs = {one.name: self.operation.wire_names[one.name] for one in error.fields if one.is_theirs}

        def unit(work: Work) -> tuple[FormSubject, Mapping[str, AuditEntry | None]]:
            return self._subject(work, visit), {name: who_set(work, about, wire) for name, wire in theirs.items()}

        subject, entries = await visit.read(unit)
        by = {name: told(entry)[0].text if entry else "somebody" for name, entry in entries.items()}
        at = {name: english.clock_at(entry.created_at) if entry else "" for name, entry in entries.items()}
        who, newest = (
            " and ".join(dict.fromkeys(by.values())),
            max(at, key=lambda name: getattr(entries[name], "id", "")),
        )
        fields = self.fields(error.merged(form), {}, subject.thing)
        long = {one.name for one in fields if one.kind == "long" and one.name in theirs}
        hints = _hints(error, by, at, who) | dict.fromkeys(long, "Take over from above what shall stay.")
        hints |= {one.name: TYPE_AGAIN for one in fields if one.kind == "secret" and form.get(one.name)}
        labels = {one.name: " ".join(filter(None, (one.label, one.unit))) for one in fields if one.name not in long}
        return visit.show(
            "changed.html",
            error.status,
            subject=subject,
            action=self.form,
            because=self.operation.because,
            title=f"{who} changed {_what(self.form) or subject.name} while you were typing",
            who=who,
            whose="theirs" if len({*by.values()}) > 1 or who == "somebody" else f"{who}’s",
            at=at[newest],
            rows=sides_of(error, labels),
            fields=[one._replace(words=hints.get(one.name, one.words)) for one in fields],
            long={one.name: one.now for one in error.fields if one.name in long},
            form=form,
            once=new_id(),
        )


def _hints(error: ChangedMeanwhile, by: Mapping[str, str], at: Mapping[str, str], who: str) -> dict[str, str]:
    """Whose value stands in each field that was changed, by the name of the field."""
    found = {}
    for one in error.fields:
        if one.is_theirs and one.is_yours:
            set_there = f"{by[one.name]} set {one.now or 'nothing'}{at[one.name]}"
            found[one.name] = ended(f"{set_there}; you typed {one.sent or 'nothing'}")
        elif one.is_theirs:
            found[one.name] = f"As {by[one.name]} set it: you left it alone."
        elif one.is_yours:
            found[one.name] = f"As you typed it: {who} left it alone."
    return found


def _what(form: OperationForm) -> str:
    """What a form changes, by its words: "the fee" of "Set the fee", or "" if they do not say."""
    found = (re.search(r"the \w+$", words) for words in (form.heading, *form.buttons.values()))
    return next((one[0] for one in found if one), "")


def _understood(one: Input, value: str) -> str:
    """What was typed as these pages write it."""
    if one.is_mark:
        return "yes" if value else "no"
    try:
        return Cell(one.plain(value), "number").shown if one.kind_of_field == "amount" else value
    except InvalidAmount:
        return value


class Words(str):
    """A text in a sentence; as `{amount:money}` its digits are in groups."""

    def __new__(cls, value: object) -> "Words":
        return super().__new__(cls, "" if value is None else value)

    def __format__(self, spec: str) -> str:
        return Cell(str(self), "number").shown if spec == "money" else visible_text(str(self))


def say(visit: OperatorVisit, done: Done) -> None:
    """Keeps what was done for the next page of the browser."""
    operator_of(visit.context).said[visit.session] = done


def _filled(path: str, members: Mapping[str, Any]) -> str:
    """The path of a page, with these in place of its placeholders."""
    parts = path.split("/")[1:]
    return path_of(*(str(members[part[1:-1]]) if part.startswith("{") else part for part in parts)) if path else ""


def _with_offers(field: Field, offers: Mapping[str, tuple[str, str]], form: Form) -> Field:
    """The field with what it offers, all of it marked until a form was sent."""
    if not offers:
        return field
    marked = [one for one in offers if "csrf" not in form or f"{field.name}.{one}" in form]
    shown = ", ".join(offers[one][0] for one in marked) or "nothing"
    return field._replace(options=offers, value=" ".join(marked), shown=shown)


def _chosen(one: Input, form: Form) -> list[str]:
    """The boxes that are ticked."""
    return [name.removeprefix(f"{one.name}.") for name in form if name.startswith(f"{one.name}.")]


def _check_unused(work: Work, form_id: str) -> None:
    """Raises InvalidRequest for a malformed id, WrongState if the form was already carried out."""
    if FORM.fullmatch(form_id) is None:
        raise not_of_page(ONCE)
    if is_used(work, form_id):
        raise WrongState("This form was carried out before, and nothing was done again. To do more, send this new one")
