"""The page of what waits: what is for operators first, then what is tried again by itself, a row for each cause."""

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple

from starlette.responses import Response

from payres.accounts.store import mail
from payres.accounts.store.owners import OF_OWNERS, OwnerRecord, wallets_of
from payres.accounts.store.second_factors import REMOVAL_DELAY, removal_reason
from payres.core.protocol.clock import parse_time
from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.store.work import Work
from payres.html.html import operators_language
from payres.html.language import Language
from payres.operator import due_work
from payres.operator.audit import told, who_set
from payres.operator.declared.declarations import OperationForm, operation_of
from payres.operator.declared.shapes import Cell, path_of
from payres.operator.due_work import CALLED, GIVE_UP, DueWork, causes, due, given_up_at, list_due, name_of, place_of
from payres.operator.owners import require_owner
from payres.operator.pages.lists import show_list
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.store.due_work import DUE_KINDS, WaitingRow
from payres.operator.wallets import keep_wallet_factors

FEW: Final = 5  # things of one cause that are shown
YOURS: Final = ("set aside", "can be kept")


class Waiting(NamedTuple):
    """A cause with its name, why it waits and times in microseconds UTC; the first things of it, each with its page;
    what becomes of them; what can be done about all, and a page that says more; what is lost if they are given up."""

    cause: DueWork
    name: str
    why: str
    since: int
    next_try: int | None
    things: Sequence[tuple[DueWork, Cell]]
    future: str
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
    mine, others = ([one for one in found if (one.cause.state in YOURS) is mine] for mine in (True, False))
    return visit.show(
        "due.html",
        parts_of=[("For you", "since", mine), ("Tried again by itself", "next try", others)],
        lists=[
            (CALLED[kind][1], f"{ADMIN_ROOT}/due?kind={kind}&format=csv")
            for kind in dict.fromkeys(one.cause.kind for one in found)
        ],
    )


def _waiting(work: Work, visit: OperatorVisit, row: WaitingRow, rows: Sequence[WaitingRow]) -> Waiting:
    one, language = due(work, row), operators_language(visit.request)
    if one.kind == "removal":
        return _waiting_removal(work, visit, row, language)
    things = [due(work, each) for each in rows]
    rules = [due_work.retry] * (one.kind in DUE_KINDS) + [due_work.give_up] * (one.kind in GIVE_UP)
    all_of_it = "all" if one.count > 1 else "it"
    forms = [
        (form._replace(title=form.title or f"Try {all_of_it} now"), url) for form, url in visit.forms(rules, id=one.id)
    ]
    is_unknown = one.kind == "packet" and one.state == "set aside"
    resolve = ("It arrived, or not", path_of("peers", one.about)) if is_unknown else None
    more = ("Why", f"{ADMIN_ROOT}/health#mail") if one.kind == "mail" and one.next_attempt_at else resolve
    shown = [(each, place_of(each)) for each in things]
    ends_at, said = given_up_at(row), [f"Tried {row.attempts} time{'s' * (row.attempts > 1)}."] * (row.attempts > 0)
    if ends_at and row.next_try and ends_at > work.now:
        ends = language.moment(ends_at)
        said.append(f"Given up by itself {'on ' * ends[0].isdigit()}{ends}.")
    times, why = (row.since, row.next_try), one.last_error or "Due now"
    return Waiting(one, name_of(one), why, *times, shown, " ".join(said), forms, more, CALLED[one.kind][2])


class Removal(NamedTuple):
    """A second step of an owner that is removed: when, who asked for it and why, and until when who can say no."""

    title: str
    asked: str
    until: str


def removal_of(work: Work, owner: OwnerRecord, due_at: int, language: Language) -> Removal:
    entry, why = who_set(work, owner.name, "why"), removal_reason(work, OF_OWNERS, owner.id)
    asked = entry if entry and entry.action == "wallet.remove_factors" else None
    who = f"{told(asked)[0].text} {language.moment(parse_time(asked.created_at))}" if asked else "somebody"
    notice = mail.newest_of(work, owner.id, "remove_factors", due_at - REMOVAL_DELAY)
    waits = notice is not None and notice.send_at is not None
    untold = "but the mail about it has not gone yet" if waits else "but no mail about it has gone"
    return Removal(
        f"The second step of {owner.name} is removed {language.moment(due_at)}",
        f"Asked for by {who}" + (f": “{why}”" if why else ""),
        f"The owner can say no until then, {'and so can you' if notice and notice.sent_at else untold}.",
    )


def _waiting_removal(work: Work, visit: OperatorVisit, row: WaitingRow, language: Language) -> Waiting:
    """A second step of an owner that is removed unless somebody keeps it."""
    owner, path = require_owner(work, row.label), path_of("wallets", row.label, "owner")
    removal, opened = removal_of(work, owner, row.next_try or 0, language), wallets_of(work, owner.id)
    future = f"From then on the password alone opens {', '.join(one.path for one in opened)}. {removal.until}"
    forms, more = visit.forms([keep_wallet_factors], wallet=row.label), ("The owner", path)
    times = row.since, row.next_try
    return Waiting(due(work, row), removal.title, removal.asked, *times, [], future, forms, more, "")


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
