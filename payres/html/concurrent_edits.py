"""Two people at one form: a form that is filled with what is carries what it showed, and this is compared with what is
there in the unit that saves it. So nobody takes back unseen what somebody else has just done."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from payres.core.http.requests import ActorRequest
from payres.core.protocol.errors import WrongState
from payres.core.store.work import Work
from payres.html.forms import Form, not_of_page

T = TypeVar("T")
WAS: Final = "was."  # before the name of a field: what the form showed in it


class Compared(NamedTuple):
    """A field of a form: what it showed, what is there now, and what was sent. A field that only others changed takes
    what is there."""

    name: str
    was: str
    now: str
    sent: str

    @property
    def is_theirs(self) -> bool:
        return self.now != self.was

    @property
    def is_yours(self) -> bool:
        return self.sent != self.was

    @property
    def merged(self) -> str:
        return self.sent if self.is_yours else self.now


class ChangedMeanwhile(WrongState):
    """What a form showed has been changed by others since: its sender looks at both before anything is saved."""

    def __init__(self, fields: Sequence[Compared]) -> None:
        super().__init__("This was changed while you were typing. Look at both, then save it")
        self.fields = fields

    def merged(self, form: Form) -> dict[str, str]:
        """The form as it is shown next: with the changes of both, and with what is there now as what it showed."""
        now = {f"{WAS}{one.name}": one.now for one in self.fields}
        return {**form, **now, **{one.name: one.merged for one in self.fields}}


def check_unchanged(form: Form, present: Mapping[str, str]) -> None:
    """Raises ChangedMeanwhile if a field is neither as the form showed it nor as it was sent, InvalidRequest for a form
    that does not say what it showed."""
    if any(f"{WAS}{name}" not in form for name in present):
        raise not_of_page("")
    fields = [
        Compared(name, plain_lines(form[f"{WAS}{name}"]), plain_lines(now), plain_lines(form.get(name, "")))
        for name, now in present.items()
    ]
    if any(one.is_theirs and one.sent != one.now for one in fields):
        raise ChangedMeanwhile(fields)


def plain_lines(text: str) -> str:
    """The text of a field with the line ends that it had before a browser sent it."""
    return text.replace("\r\n", "\n")


async def save_unchanged(
    visit: ActorRequest, form: Form, present: Callable[[Work], Mapping[str, str]], change: Callable[[Work], T]
) -> T:
    """Carries out the change of a form that showed what is `present`. Raises what check_unchanged raises."""

    def unit(work: Work) -> T:
        check_unchanged(form, present(work))
        return change(work)

    return await visit.write(unit)


def filled(present: Mapping[str, str]) -> dict[str, str]:
    """The fields of a form that shows this, with what it carries along."""
    return {**present, **{f"{WAS}{name}": text for name, text in present.items()}}


def sides_of(
    error: ChangedMeanwhile, labels: Mapping[str, str], words: Mapping[str, Mapping[str, str]] = {}
) -> list[Compared]:
    """The fields with these labels that were changed, for the macro `meanwhile`: by their labels, and with the values
    that have words in these."""
    rows = []
    for name, *values in error.fields:
        if name in labels and len({*values}) > 1:
            rows.append(Compared(labels[name], *(words.get(name, {}).get(text, text) for text in values)))
    return rows
