"""Two operators at one form: what somebody else has changed meanwhile stands beside what was typed."""

import re
from collections.abc import Callable, Mapping
from typing import Final

from starlette.responses import Response

from payres.core.protocol.identifiers import new_id
from payres.core.store.work import Work
from payres.html.concurrent_edits import ChangedMeanwhile, sides_of
from payres.html.forms import Form
from payres.html.html import operators_language
from payres.html.sentences import ended
from payres.operator.audit import AuditEntry, told, who_set
from payres.operator.declared.declarations import OperationForm
from payres.operator.pages.fields import FormFields, FormSubject
from payres.operator.pages.sign_in import OperatorVisit

TYPE_AGAIN: Final = "Type it again: a page keeps no secret."


async def show_both(
    visit: OperatorVisit,
    own: FormFields,
    form: Form,
    error: ChangedMeanwhile,
    find: Callable[[Work, OperatorVisit], FormSubject],
) -> Response:
    """The page with both in the form, which is about what this finds."""
    about, english = " ".join(visit.segments.values()), operators_language(visit.request)
    theirs = {one.name: own.operation.wire_names[one.name] for one in error.fields if one.is_theirs}

    def unit(work: Work) -> tuple[FormSubject, Mapping[str, AuditEntry | None]]:
        return find(work, visit), {name: who_set(work, about, wire) for name, wire in theirs.items()}

    subject, entries = await visit.read(unit)
    by = {name: told(entry)[0].text if entry else "somebody" for name, entry in entries.items()}
    at = {name: english.clock_at(entry.created_at) if entry else "" for name, entry in entries.items()}
    who = " and ".join(dict.fromkeys(by.values()))
    newest = max(at, key=lambda name: getattr(entries[name], "id", ""))
    fields = own.shown(error.merged(form), {}, subject.thing)
    long = {one.name for one in fields if one.kind == "long" and one.name in theirs}
    hints = _hints(error, by, at, who) | dict.fromkeys(long, "Take over from above what shall stay.")
    hints |= {one.name: TYPE_AGAIN for one in fields if one.kind == "secret" and form.get(one.name)}
    labels = {one.name: " ".join(filter(None, (one.label, one.unit))) for one in fields if one.name not in long}
    return visit.show(
        "changed.html",
        error.status,
        subject=subject,
        action=own.form,
        because=own.operation.because,
        title=f"{who} changed {_what(own.form) or subject.name} while you were typing",
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
