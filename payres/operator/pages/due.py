"""The page of what waits: what is for operators first, then what is tried again by itself, a row for each cause."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.responses import Response

from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.store.work import Work
from payres.html.language import Language
from payres.operator import due_work
from payres.operator.declared.declarations import OperationForm, operation_of
from payres.operator.declared.shapes import Cell, path_of
from payres.operator.due_work import CALLED, GIVE_UP, DueWork, causes, due, list_due, name_of, place_of
from payres.operator.pages.lists import show_list
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.store.due_work import DUE_KINDS, WaitingRow

FEW: Final = 5  # things of one cause that are shown


class Waiting(NamedTuple):
    """A cause with its name and times in microseconds UTC, and the first things of it, each with its page; what can be
    done about all of them, and a page that says more; what is lost if they are given up."""

    cause: DueWork
    name: str
    since: int
    next_try: int | None
    things: Sequence[tuple[DueWork, Cell]]
    forms: Sequence[tuple[OperationForm, str]]
    more: tuple[str, str] | None
    lost: str


async def page(visit: OperatorVisit) -> Response:
    """What waits by cause; with a query a list, also as CSV."""
    if visit.request.query_params:
        return await show_list(visit, operation_of(list_due))

    def unit(work: Work) -> list[Waiting]:
        return [_waiting(work, visit, one, rows[:FEW]) for one, rows in causes(work)]

    found = await visit.read(unit)
    mine, others = ([one for one in found if (one.cause.state == "set aside") is mine] for mine in (True, False))
    return visit.show(
        "due.html",
        parts_of=[("For you", "since", mine), ("Tried again by itself", "next try", others)],
        lists=[
            (CALLED[kind][1], f"{ADMIN_ROOT}/due?kind={kind}&format=csv")
            for kind in dict.fromkeys(one.cause.kind for one in found)
        ],
    )


def _waiting(work: Work, visit: OperatorVisit, row: WaitingRow, rows: Sequence[WaitingRow]) -> Waiting:
    one, things = due(work, row), [due(work, each) for each in rows]
    rules = [due_work.retry] * (one.kind in DUE_KINDS) + [due_work.give_up] * (one.kind in GIVE_UP)
    all_of_it = "all" if one.count > 1 else "it"
    forms = [
        (form._replace(title=form.title or f"Try {all_of_it} now"), ADMIN_ROOT + form.url_of({"id": one.id}))
        for operation in map(operation_of, rules)
        if (form := operation.form) and visit.may(operation)
    ]
    is_unknown = one.kind == "packet" and one.state == "set aside"
    resolve = ("It arrived, or not", path_of("peers", one.about)) if is_unknown else None
    more = ("Why", f"{ADMIN_ROOT}/health#mail") if one.kind == "mail" and one.next_attempt_at else resolve
    shown = [(each, place_of(each)) for each in things]
    return Waiting(one, name_of(one), row.since, row.next_try, shown, forms, more, CALLED[one.kind][2])


def waits(work: Work, language: Language) -> tuple[int, str] | None:
    """How many things wait, and in words those of the most frequent kinds and since when; None if nothing does."""
    found = list_due(work)
    if not found:
        return None
    counts = Counter(one.kind for one in found).most_common()
    said = [f"{n} {CALLED[kind][n > 1].lower()}" for kind, n in counts[:3]]
    others = sum(n for _, n in counts[3:])
    listed = ", ".join([*said, f"{others} more"] if others else said)
    return len(found), f"{listed}. The oldest since {language.moment(min(one.since for one in found))}."
