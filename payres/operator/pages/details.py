"""The pages of one wallet, payment, grant or peer."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import msgspec
from starlette.responses import Response

from payres.core.grants.limits import spending_of
from payres.core.protocol.urls import ADMIN_ROOT
from payres.core.protocol.visible import visible_text
from payres.core.store.rows import PageQuery
from payres.core.store.work import Work
from payres.html.html import language_of
from payres.html.sentences import other_words, spending_sentence
from payres.operator import keys, payments, peers, wallets
from payres.operator.api import all_operations
from payres.operator.declarations import operation_of
from payres.operator.exports import export_statement
from payres.operator.grants import GRANT
from payres.operator.keys import KEY
from payres.operator.movements import MOVEMENT
from payres.operator.pages.operations import filters_of
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.payment_history import HISTORY, show_payment, story_of
from payres.operator.payments import PAYMENT, Payment
from payres.operator.peers import PEER
from payres.operator.shapes import Cell, Column, Shape, cell_of, facts_of, make_table, path_of
from payres.operator.unresolved_packets import UNRESOLVED_PAYMENT, list_unresolved_payments
from payres.operator.wallets import WALLET

FEW: Final = PageQuery(10, None, "older")
LIVE_SECONDS: Final = 5
KNOWN: Final = "The outcome of each packet is known"
NO_MOVEMENTS: Final = "There are no deposits or withdrawals yet"


def _nothing(*_: object) -> dict[str, Any]:
    return {}


Sections = Callable[[Work, Mapping[str, str]], dict[str, Any]]


async def thing_page(
    visit: OperatorVisit, shape: Shape, template: str = "thing.html", more: Sections = _nothing
) -> Response:
    """The page of a thing: its facts, a button for each form about it that is not over, and what `more` finds."""

    def unit(work: Work) -> tuple[Any, dict[str, Any]]:
        return shape.find(work, **visit.segments), more(work, visit.segments)

    thing, found = await visit.read(unit)
    return visit.show(template, **shown_thing(visit, shape, thing), **found)


def shown_thing(visit: OperatorVisit, shape: Shape, thing: Any) -> dict[str, Any]:
    """The values of the template of a thing: its heading, facts, forms, and what was just done."""
    forms = [one.form for one in all_operations() if one.form and one.form.about is shape]
    return {
        "title": shape.name(thing),
        "facts": facts_of(shape.columns, thing),
        "forms": [(one, f"{ADMIN_ROOT}{one.url_of(visit.segments)}") for one in forms if not one.is_over(thing)],
        "thing": thing,
    }


def _listed(work: Work, rule: Any, **given: Any) -> Any:
    """The result of an operation that lists."""
    return operation_of(rule).run(work, given).result


def _of_wallet(work: Work, names: Mapping[str, str]) -> dict[str, Any]:
    path = names["wallet"]
    own_keys = _listed(work, keys.list_keys, wallet=path, revoked=True)
    few_payments = _listed(work, payments.list_payments, page=FEW, wallet=path)
    movements = _listed(work, wallets.list_movements, page=FEW, wallet=path)
    own = [column for column in PAYMENT.on_pages if column.section != "wallets"]
    return {
        "base": path_of("wallets", path),
        "statement": filters_of(operation_of(export_statement)),
        "keys": make_table("Keys", [_key_id(path), *KEY.listed[1:]], own_keys, "No client signs for this wallet"),
        "payments": make_table("Payments", own, few_payments, "There are no payments yet"),
        "movements": make_table("Deposits and withdrawals", MOVEMENT.on_pages, movements, NO_MOVEMENTS),
    }


def _key_id(path: str) -> Column:
    link = partial(path_of, "wallets", path, "keys")
    return Column("Key id", lambda one: Cell(one.kid, "code", link(one.kid)), section="keys")


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
        **shown_thing(visit, PAYMENT, payment) | {"facts": facts_of(HISTORY.columns, history)},
        payment=payment,
        metadata=_metadata(payment),
        moments=story_of(history, visit.context.urls),
        history=history,
        events=make_table("Events", EVENT_COLUMNS, rows, "There are none any more: they are kept 30 days"),
        is_under_way=is_under_way,
        refresh=LIVE_SECONDS if is_live else None,
    )


def _metadata(payment: Payment) -> str | None:
    if payment.metadata is None:
        return None
    text = msgspec.json.format(bytes(payment.metadata), indent=2).decode()
    return "\n".join(map(visible_text, text.splitlines()))


async def grant_page(visit: OperatorVisit) -> Response:
    """The page of a grant."""
    grant = await visit.read(lambda work: GRANT.find(work, **visit.segments))
    shown = shown_thing(visit, GRANT, grant)
    facts = dict(shown["facts"])
    facts["Wallet"] = cell_of(visit.context.urls.wallet_path(grant.wallet_address or ""), "long", "wallets")
    language, access = language_of(visit.request), msgspec.json.encode(grant.access).decode()
    english, spending = msgspec.structs.replace(language, code="en"), spending_of(access)
    allowed = [spending_sentence(english, spending)] if spending else []
    allowed += other_words(english, access, None, "")
    return visit.show("grant.html", **shown | {"facts": facts.items()}, allowed=allowed)


def _of_peer(work: Work, names: Mapping[str, str]) -> dict[str, Any]:
    name = names["name"]
    unresolved = _listed(work, list_unresolved_payments, name=name)
    settlements = _listed(work, peers.list_settlements, page=FEW, name=name)
    return {
        "packets": path_of("peers", name, "unresolved-packets"),
        "unresolved": make_table("Unresolved payments", UNRESOLVED_PAYMENT.on_pages, unresolved, KNOWN),
        "settlements": make_table("Settlements", MOVEMENT.on_pages, settlements, "Nothing was settled yet"),
    }


def thing_pages() -> Mapping[str, Callable[[OperatorVisit], Awaitable[Response]]]:
    """The page of each kind of thing that a form is about, by its path."""
    shapes = {one.form.about for one in all_operations() if one.form and one.form.about}
    pages = {one.page: partial(thing_page, shape=one) for one in shapes if one.page}
    return {
        **pages,
        WALLET.page: partial(thing_page, shape=WALLET, template="wallet.html", more=_of_wallet),
        PEER.page: partial(thing_page, shape=PEER, template="peer.html", more=_of_peer),
        PAYMENT.page: payment_page,
        GRANT.page: grant_page,
    }
