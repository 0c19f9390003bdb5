"""The pages of one wallet, payment, grant or peer."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from starlette.responses import Response

from payres.core.grants.limits import Spending
from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.protocol.visible import note_of, visible_text, visible_url
from payres.core.protocol.wire import encode
from payres.core.store.events import find_event
from payres.core.store.payments import INCOMING
from payres.core.store.rows import PageQuery
from payres.core.store.wallets import find_with_wallet
from payres.core.store.work import Work
from payres.html.language import Language
from payres.html.sentences import limit_words
from payres.html.sign_in import SignInGuard
from payres.html.store.sessions import OF_WALLETS, count_sessions
from payres.operator import deliveries, keys, payments, peers, wallets
from payres.operator.api import all_operations
from payres.operator.declarations import operation_of
from payres.operator.deliveries import ATTEMPTS
from payres.operator.exports import export_statement
from payres.operator.grants import GRANT, sees, spending_under
from payres.operator.movements import MOVEMENT, Movement, own_reference, undoable_until
from payres.operator.pages.operations import filters_of
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.payment_history import HISTORY, show_payment, story_of
from payres.operator.payments import PAYMENT, Payment
from payres.operator.peers import PEER
from payres.operator.shapes import Cell, Column, Shape, facts_of, make_table, path_of
from payres.operator.store.entries import MOVEMENTS
from payres.operator.unresolved_packets import UNRESOLVED_PAYMENT, list_unresolved_payments
from payres.operator.wallets import WALLET
from payres.operator.webhooks import WEBHOOK
from payres.webhooks.sender import event_view

FEW: Final = PageQuery(10, None, "older")
LIVE_SECONDS: Final = 5
KNOWN: Final = "The outcome of each packet is known"


def _nothing(*_: object) -> dict[str, Any]:
    return {}


Sections = Callable[[Work, OperatorVisit], dict[str, Any]]


async def thing_page(
    visit: OperatorVisit, shape: Shape, template: str = "thing.html", more: Sections = _nothing
) -> Response:
    """The page of a thing: its facts, a button for each form about it that is not over, and what `more` finds."""

    def unit(work: Work) -> tuple[Any, dict[str, Any]]:
        return shape.find(work, **visit.segments), more(work, visit)

    thing, found = await visit.read(unit)
    return visit.show(template, **shown_thing(visit, shape, thing), **found)


def shown_thing(visit: OperatorVisit, shape: Shape, thing: Any) -> dict[str, Any]:
    """The values of the template of a thing: its heading, facts, the forms with their URLs, and what each will do."""
    about = [one for one in all_operations() if one.form and one.form.about is shape and not one.form.is_over(thing)]
    urls = [f"{ADMIN_ROOT}{one.form.url_of(visit.segments)}" for one in about if one.form]
    return {
        "title": shape.name(thing),
        "facts": facts_of(shape.columns, thing),
        "forms": [(one.form, url) for one, url in zip(about, urls, strict=True)],
        "will": {url: one.sentences(thing) for one, url in zip(about, urls, strict=True)},
        "thing": thing,
    }


def _listed(work: Work, rule: Any, **given: Any) -> Any:
    """The result of an operation that lists."""
    return operation_of(rule).run(work, given).result


def _of_wallet(work: Work, visit: OperatorVisit) -> dict[str, Any]:
    path = visit.segments["wallet"]
    owner, own_keys = wallets.require_wallet(work, path), _listed(work, keys.list_keys, wallet=path)
    moved = [*_listed(work, payments.list_payments, page=FEW, wallet=path, used=True)]
    moved += _listed(work, wallets.list_movements, page=FEW, wallet=path)
    newest = sorted(moved, key=lambda one: one.created_at, reverse=True)[: FEW.count]
    columns = [
        Column("What", partial(_moved, work), "long", section="payments"),
        Column("Amount", _amount, "number"),
        Column("Time", "created_at", "time"),
        Column("State", partial(_standing, work), "state"),
    ]
    return {
        "base": path_of("wallets", owner.path),
        "statement": filters_of(operation_of(export_statement)),
        "moved": make_table("Last movements", columns, newest, "Nothing has moved yet"),
        "keys": [(one, path_of("wallets", path, "keys", one.kid)) for one in own_keys],
        "sessions": count_sessions(work, OF_WALLETS, owner.id, work.now),
        "tries": partial(visit.context.part(SignInGuard).wrong_tries, owner, work.now),  # in the event loop, later
    }


def _amount(one: Payment | Movement) -> Cell:
    return Cell(one.amount if isinstance(one, Movement) else one.moved, "number", unit=one.asset_code)


def _moved(work: Work, one: Payment | Movement) -> Cell:
    """What moved, with the page of a payment."""
    if isinstance(one, Movement):
        return Cell(": ".join(filter(None, (one.kind.capitalize(), own_reference(one)))), "long")
    note = note_of(bytes(one.metadata).decode() if one.metadata is not None else None)
    text = f"To {_receiver(work, one.receiver or '')}" if one.direction == "outgoing" else note or "Received"
    return Cell(text, "long", path_of("payments", one.id))


def _standing(work: Work, one: Payment | Movement) -> Cell:
    """The state of a payment that is not completed; for a movement the form that undoes it, while that is possible."""
    if not isinstance(one, Movement):
        return Cell("" if one.state == "completed" else one.state, "state")
    if undoable_until(work, MOVEMENTS.by_id(work, one.id)):
        return Cell("Undo", link=path_of("movements", one.id, "undo"))
    return Cell("undone" if one.undone_by else "undoes another" if one.undoes else "")


# Rows are an event and its delivery to one webhook, or None if it has none.
EVENT_COLUMNS: Final = (
    Column("Sequence", lambda row: row[0].sequence, "code"),
    Column("Time (UTC)", lambda row: row[0].timestamp, "time"),
    Column("Event", lambda row: row[0].type),
    Column("Webhook", lambda row: row[1] and row[1].webhook, "code", "webhooks"),
    Column("Delivery", lambda row: row[1] and row[1].state, "state"),
    Column("Attempts", lambda row: row[1] and row[1].attempts, "number"),
    Column("Error", lambda row: row[1] and row[1].last_error, "long"),
    Column("Next (UTC)", lambda row: row[1] and row[1].next_attempt_at, "time"),
)


async def payment_page(visit: OperatorVisit) -> Response:
    """The page of a payment."""
    history = await visit.read(partial(operation_of(show_payment).run, given={"id": visit.segments["id"]}))
    payment = history.payment
    is_under_way = payment.state == "sending"
    rows = [(event, one) for event in history.events for one in event.deliveries or (None,)]
    is_live = is_under_way and visit.request.query_params.get("live") == "1"
    return visit.show(
        "payment.html",
        **shown_thing(visit, PAYMENT, payment) | {"facts": facts_of(HISTORY.columns[1:], history)},
        payment=payment,
        metadata=None if payment.metadata is None else _indented(bytes(payment.metadata)),
        moments=story_of(history),
        history=history,
        events=make_table("Events", EVENT_COLUMNS, rows, "There are none any more: they are kept 30 days"),
        is_under_way=is_under_way,
        refresh=LIVE_SECONDS if is_live else None,
    )


def _indented(json: bytes) -> str:
    text = msgspec.json.format(json, indent=2).decode()
    return "\n".join(map(visible_text, text.splitlines()))


# What an app does with the wallet's money, by the state of its grant.
VERBS: Final = {
    "pending": "asks to pay",
    "expired": "asked to pay",
    "denied": "asked to pay",
    "lapsed": "could pay",
    "revoked": "could pay",
}


def _of_grant(work: Work, visit: OperatorVisit) -> dict[str, Any]:
    grant, english = GRANT.find(work, **visit.segments), Language("en", work.now)
    own, spending = work.urls.wallet_path(grant.wallet_address or ""), spending_under(grant)
    paid = _listed(work, payments.list_payments, page=FEW, grant=grant.id)
    columns = [column for column in PAYMENT.on_pages if column.label not in {"Direction", "Wallet"}]
    return {
        "balance": dict(facts_of(WALLET.columns, WALLET.find(work, wallet=own)))["Balance"] if own else None,
        "base": path_of("wallets", own or ""),
        "verb": VERBS.get(grant.state, "may pay"),
        "what": limit_words(english, spending) if spending else None,
        "to": _receiver(work, spending.receiver) if spending and spending.receiver else None,
        "address": visible_url(grant.client),
        "renews_at": _renews_at(spending, work.now),
        "sees": sees(grant, english),
        "paid": make_table("What it paid", columns, paid, "It has paid nothing yet"),
    }


def _renews_at(spending: Spending | None, now: int) -> int | None:
    """When the next window of the limit begins, in microseconds UTC."""
    interval = spending.interval if spending else None
    index = interval.window_at(now) if interval else None
    return interval.boundary(index + 1) if interval and index is not None and index != interval.last else None


def _receiver(work: Work, url: str) -> str:
    """The name of the wallet of a bill here, or the host of one elsewhere."""
    bill_id = work.urls.resource_id("incoming-payments", url)
    found = find_with_wallet(work, INCOMING, bill_id) if bill_id else None
    return found[1].name if found else visible_url(url).host


def _of_peer(work: Work, visit: OperatorVisit) -> dict[str, Any]:
    name = visit.segments["name"]
    unresolved = _listed(work, list_unresolved_payments, name=name)
    settlements = _listed(work, peers.list_settlements, page=FEW, name=name)
    return {
        "packets": path_of("peers", name, "unresolved-packets"),
        "unresolved": make_table("Unresolved payments", UNRESOLVED_PAYMENT.on_pages, unresolved, KNOWN),
        "settlements": make_table("Settlements", MOVEMENT.on_pages, settlements, "Nothing was settled yet"),
    }


def _of_webhook(work: Work, visit: OperatorVisit) -> dict[str, Any]:
    def sent(event_id: str) -> str | None:
        event = find_event(work, event_id)
        return None if event is None else _indented(encode(event_view(event)))

    at = ATTEMPTS.columns[0]
    found = _listed(work, deliveries.list_attempts, id=visit.segments["id"])
    return {
        "attempts": [(one, at.cell(one), sent(one.event)) for one in found],
        "again": path_of("webhooks", visit.segments["id"], "send"),
        "deliveries": f"{path_of('webhooks', 'deliveries')}?webhook={visit.segments['id']}",
    }


def thing_pages() -> Mapping[str, Callable[[OperatorVisit], Awaitable[Response]]]:
    """The page of each kind of thing that a form is about, by its path."""
    shapes = {one.form.about for one in all_operations() if one.form and one.form.about}
    pages = {one.page: partial(thing_page, shape=one) for one in shapes if one.page}
    return {
        **pages,
        WALLET.page: partial(thing_page, shape=WALLET, template="wallet.html", more=_of_wallet),
        PEER.page: partial(thing_page, shape=PEER, template="peer.html", more=_of_peer),
        WEBHOOK.page: partial(thing_page, shape=WEBHOOK, template="webhook.html", more=_of_webhook),
        PAYMENT.page: payment_page,
        GRANT.page: partial(thing_page, shape=GRANT, template="grant.html", more=_of_grant),
    }
