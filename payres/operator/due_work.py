"""What waits: due work that was not done yet, why, when it is tried again, and what is set aside until you say so."""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Final, Literal

from payres.accounts.mail import PAUSES as MAIL_PAUSES
from payres.accounts.store import mail
from payres.core.protocol.errors import WrongState, require
from payres.core.protocol.visible import visible_url
from payres.core.protocol.wire import Resource
from payres.core.store.work import Work
from payres.interledger.remote_payments import LONGEST
from payres.interledger.remote_resources import END_FOR
from payres.interledger.store import remote_resources
from payres.operator.declared.declarations import CommandLine, Listing, OperationForm, operation
from payres.operator.declared.inputs import said
from payres.operator.declared.shapes import Cell, Column, Shape, Time, digest_of, fact, path_of, represent
from payres.operator.store import due_work
from payres.operator.store.due_work import DUE_KINDS, WaitingRow
from payres.people.store import checkouts, standing_orders
from payres.people.store.checkouts import CHECKOUTS
from payres.webhooks.attempts import RETRY_PAUSES
from payres.webhooks.store import webhooks

DueState = Literal["set aside", "tried again", "due", "can be kept"]
WorkId = Annotated[
    str, said("The one in the list, such as webhook:0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11, or of all of a cause.")
]
# What one of a kind is called, and several; and what is lost when it is given up.
CALLED: Final[Mapping[str, tuple[str, str, str]]] = {
    "mail": (
        *("Mail", "mails"),
        "It is never sent. What it says stands in the owner's wallet too; one with a code can be asked for again.",
    ),
    "order": ("Date of a standing order", "dates of standing orders", ""),
    "order-payment": (
        *("Payment of a standing order", "payments of standing orders"),
        "Nothing is taken for this date, and its owner is told. Later dates stay.",
    ),
    "checkout": (
        *("Payment from another wallet", "payments from other wallets"),
        "No money has left the payer's wallet. They can begin again.",
    ),
    "checkout-end": ("End of a payment page", "ends of payment pages", ""),
    "elsewhere": (
        *("Incoming payment or grant to end", "incoming payments or grants to end"),
        "It stays open until its server ends it.",
    ),
    "webhook": (
        *("Events for an owner's webhook", "owners' webhooks with events"),
        "They can be sent again for 30 days, from the page of the webhook.",
    ),
    "sending": ("Payment to another server", "payments to other servers", ""),
    "packet": ("Packet to a peer", "packets", ""),
    "removal": ("Removal of a second step", "removals of second steps", ""),
}
# The pauses between all tries, or how long what waits is tried.
PAUSES: Final = {"mail": MAIL_PAUSES, "webhook": RETRY_PAUSES}
TRIED_FOR: Final = {"order-payment": standing_orders.LATE, "elsewhere": END_FOR, "sending": LONGEST}
CAUSE: Final = "*"  # begins the label of what stands for all of a cause


class DueWork(Resource, frozen=True, kw_only=True):
    """What waits. `wallet` is the path of the one that it is for; `about` the kind of a mail, or the URL of a payee, a
    payer or a webhook. `next_attempt_at` is null for what is `set aside`; `last_error` is why the last one failed.
    A second step that `can be kept` is removed then. `count` is more than 1 for what stands for several that wait for
    the same cause, and has the earliest times."""

    id: str
    kind: str
    wallet: str | None
    about: str
    state: DueState
    since: Time
    next_attempt_at: Time | None
    attempts: int
    last_error: str | None
    count: int


def due(work: Work, row: WaitingRow) -> DueWork:
    is_later = row.next_try is not None and (row.next_try > work.now or row.attempts > 0)
    state = "set aside" if row.next_try is None else "tried again" if is_later else "due"
    state = "can be kept" if row.kind == "removal" else state
    made = {"id": f"{row.kind}:{row.label}", "state": state, "next_attempt_at": row.next_try, "last_error": row.why}
    return represent(DueWork, row, count=row.number, **made)


def require_due(work: Work, id: str) -> WaitingRow:
    """Raises NotFound."""
    return _merged(_rows(work, id))


def _rows(work: Work, id: str) -> Sequence[WaitingRow]:
    """One row, or all of a cause. Raises NotFound."""
    kind, _, label = id.partition(":")
    rows = due_work.waiting(work, kind, work.now) if kind in DUE_KINDS else due_work.all_waiting(work, work.now)
    found = [one for one in rows if one.kind == kind and label in {one.label, _cause(one)}]
    return require(found or None, f"Nothing with the id {id!r} waits", "`payres due list` shows all that does")


def _cause(row: WaitingRow) -> str:
    """The same for what fails for the same reason at the same place; mails all fail at the mail server."""
    place = "" if row.kind == "mail" else _host(row.about) or (row.about if row.kind == "packet" else row.wallet)
    return CAUSE + digest_of([place, row.why, row.next_try is None])[:12]


def _merged(rows: Sequence[WaitingRow]) -> WaitingRow:
    """What stands for rows of one cause."""
    if len(rows) == 1:
        return rows[0]
    wallet, *others = {one.wallet for one in rows}
    return rows[0]._replace(
        label=_cause(rows[0]),
        wallet=None if others else wallet,
        since=min(one.since for one in rows),
        attempts=max(one.attempts for one in rows),
        next_try=min((one.next_try for one in rows if one.next_try is not None), default=None),
        ends_at=min((one.ends_at for one in rows if one.ends_at is not None), default=None),
        number=len(rows),
    )


def causes(work: Work) -> Sequence[tuple[WaitingRow, Sequence[WaitingRow]]]:
    """What waits, by its cause: what stands for it, and the rows."""
    found: dict[tuple[str, str], list[WaitingRow]] = {}
    for row in list_due(work):
        found.setdefault((row.kind, _cause(row)), []).append(row)
    return [(_merged(rows), rows) for rows in found.values()]


def given_up_at(row: WaitingRow) -> int | None:
    """About when the server gives it up if it never succeeds, in microseconds UTC; None if nobody knows."""
    if row.next_try is not None and row.kind in PAUSES:
        return row.next_try + sum(PAUSES[row.kind][row.attempts :])
    return row.since + TRIED_FOR[row.kind] if row.kind in TRIED_FOR else row.ends_at


def _host(about: str) -> str:
    return visible_url(about).host if "://" in about else ""


def name_of(one: DueWork) -> str:
    """Such as `Mail: password`, or of several `3 packets: tide`."""
    what, several, _ = CALLED[one.kind]
    about = _host(one.about) or one.about.replace("_", " ")
    if one.count == 1:
        return f"{what}: {about}"
    return f"{one.count} {several}{f': {about}' if one.kind != 'mail' else f': {one.wallet}' if one.wallet else ''}"


def place_of(one: DueWork) -> Cell:
    """Its name, with its page; what the node does is seen, and resolved, where payments and packets are."""
    kind, _, label = one.id.partition(":")
    is_unresolved = kind == "packet" and one.state == "set aside"
    own = "payments" if kind == "sending" else "packets" if is_unresolved else ""
    path = ("wallets", label, "owner") if kind == "removal" else (own, label) if own else ("due", one.id)
    return Cell(name_of(one), "long", path_of(*path))


def _see(one: DueWork) -> Cell | None:
    """The page of the standing order or webhook."""
    kind, _, label = one.id.partition(":")
    section = {"order": "orders", "order-payment": "orders", "webhook": "webhooks"}.get(kind)
    return Cell(one.about, "long", path_of(section, label.partition(":")[0])) if section else None


DUE: Final = Shape(
    due,
    Column("What", place_of, listed="on pages"),
    Column("Id", "id", "code", listed="in files"),
    Column("Wallet", "wallet", "long", "wallets"),
    Column("About", "about", "long", listed="in files"),
    Column("State", "state", "state"),
    Column("Since (UTC)", "since", "time"),
    Column("Next try (UTC)", "next_attempt_at", "time"),
    Column("Tries", "attempts", "number"),
    Column("Why", "last_error", "long"),
    fact("See", _see),
    read=require_due,
    page="/due/{id}",
    name=name_of,
    moving={"state", "since", "next_attempt_at", "attempts", "last_error"},
    gone="It does not wait any more: it was done or given up meanwhile",
)


@operation(
    "GET /due status:read",
    DUE,
    command=CommandLine("due list"),
    listing=Listing(
        *("due", "Nothing waits", "What waits"),
        page="/due",
        menu="Server",
        about="What is set aside waits for you: it has failed again and again. The rest is tried again by itself.",
    ),
    noun="due",
)
def list_due(
    work: Work,
    kind: Annotated[str | None, said("Only of this kind.", choices=CALLED)] = None,
    by_cause: Annotated[bool, said("A row for all that fails for the same reason at the same place.")] = False,
) -> Sequence[WaitingRow]:
    """List what waits, what is set aside first.

    That is work that is due and not done yet, and what could not be done and is tried again.
    """
    if by_cause:
        return [one for one, _ in causes(work) if kind in {None, one.kind}]
    found = [one for one in due_work.all_waiting(work, work.now) if kind in {None, one.kind}]
    return sorted(found, key=lambda one: (one.next_try is not None, one.next_try or one.since))


@operation("GET /due/{id} status:read", DUE, noun="due")
def show_due(work: Work, id: WorkId) -> WaitingRow:
    """Read one thing that waits."""
    return require_due(work, id)


@operation(
    "POST /due/{id}/tries due:write|due:retry",
    DUE,
    command=CommandLine("due retry ID", "mail:0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11", text="It is due now"),
    form=OperationForm(
        "Try now",
        DUE,
        "It is due now, and tried in its turn",
        is_over=lambda one: one.kind not in DUE_KINDS,
        back="/due",
        presses=True,
        unasked="it would be tried in any case",
    ),
    noun="due",
)
def retry(work: Work, id: WorkId) -> WaitingRow:
    """Try now what waits, also if it is set aside."""
    for row in (rows := _on_agenda(work, id)):
        due_work.try_now(work, row)
    return require_due(work, f"{rows[0].kind}:{rows[0].label}")


@operation(
    "DELETE /due/{id} due:write",
    DUE,
    command=CommandLine("due give-up ID", "mail:0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11", text="It is given up"),
    form=OperationForm(
        "Give up",
        DUE,
        "It is given up",
        title="Give it up",
        path="/due/{id}/give-up",
        will=lambda one: [CALLED[one.kind][2], *([f"This gives up all {one.count}."] if one.count > 1 else [])],
        is_over=lambda one: one.kind not in GIVE_UP,
        back="/due",
        ends=True,
        because="it is not tried again",
    ),
    noun="due",
    audits="due.give-up",
)
def give_up(work: Work, id: WorkId) -> WaitingRow:
    """Give up what waits: it is not tried again."""
    for row in (rows := _on_agenda(work, id)):
        if row.kind not in GIVE_UP:
            raise WrongState("This cannot be given up: it would come back, or stand in the way of what follows")
        GIVE_UP[row.kind](work, row.label)
        due_work.forget(work, row)
    return _merged(rows)


def _on_agenda(work: Work, id: str) -> Sequence[WaitingRow]:
    """Raises NotFound, and WrongState for what the Interledger node does."""
    rows = _rows(work, id)
    if rows[0].kind not in DUE_KINDS:
        sentence = "The server does this by itself, or you on the page of a peer or an owner"
        raise WrongState(sentence, advice="See `payres peer unresolved NAME` and `payres wallet keep-factors PATH`")
    return rows


def _end_run(work: Work, label: str) -> None:
    """Its next step ends it, and tells the owner."""
    order_id, _, window = label.partition(":")
    standing_orders.give_up_run(work, order_id, int(window), work.now)


def _end_checkout(work: Work, label: str) -> None:
    record = CHECKOUTS.get(work, bytes.fromhex(label))
    if record is None or record.state != "returned":
        raise WrongState("Its payment may have been created: the payer's server is asked until it says so")
    checkouts.change_checkout(work, record, "failed", work.now, failure="silent")


GIVE_UP: Final[Mapping[str, Callable[[Work, str], None]]] = {
    "mail": lambda work, label: mail.change_mail(work, label, send_at=None, last_error="given up by an operator"),
    "order-payment": _end_run,
    "checkout": _end_checkout,
    "elsewhere": remote_resources.forget,
    "webhook": webhooks.give_up,
}
