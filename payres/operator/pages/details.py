"""The pages of one wallet, payment, grant or peer."""

from functools import partial
from typing import Any, Final

import msgspec
from starlette.responses import Response

from payres.core.grants.limits import spending_of
from payres.core.protocol.visible import visible_text
from payres.core.store.rows import PageQuery
from payres.core.store.work import Work
from payres.html.html import language_of
from payres.html.sentences import other_words, spending_sentence
from payres.operator import keys, payments, peers, wallets
from payres.operator.declarations import operation_of
from payres.operator.exports import PeriodQuery
from payres.operator.grants import GRANT
from payres.operator.keys import KEY
from payres.operator.movements import MOVEMENT
from payres.operator.pages.operations import filters_of
from payres.operator.pages.sign_in import OperatorVisit
from payres.operator.payment_history import HISTORY, is_above_zero, show_payment, story_of
from payres.operator.payments import PAYMENT, Payment
from payres.operator.peers import PEER
from payres.operator.shapes import Cell, Column, cell_of, facts_of, make_table, path_of
from payres.operator.unresolved_packets import UNRESOLVED_PAYMENT, list_unresolved_payments
from payres.operator.wallets import WALLET

FEW: Final = PageQuery(10, None, "older")
LIVE_SECONDS: Final = 5
KNOWN: Final = "The outcome of each packet is known"
NO_MOVEMENTS: Final = "There are no deposits or withdrawals yet"


def _listed(work: Work, rule: Any, **given: Any) -> Any:
    """The result of an operation that lists."""
    return operation_of(rule).run(work, given).result


async def wallet_page(visit: OperatorVisit) -> Response:
    """The page of a wallet."""
    path = visit.segments["wallet"]

    def unit(work: Work) -> dict[str, Any]:
        own_keys = _listed(work, keys.list_keys, wallet=path, revoked=True)
        few_payments = _listed(work, payments.list_payments, page=FEW, wallet=path)
        movements = _listed(work, wallets.list_movements, page=FEW, wallet=path)
        own = [column for column in PAYMENT.on_pages if column.section != "wallets"]
        return {
            "wallet": WALLET.find(work, wallet=path),
            "keys": make_table("Keys", [_key_id(path), *KEY.listed[1:]], own_keys, "No client signs for this wallet"),
            "payments": make_table("Payments", own, few_payments, "There are no payments yet"),
            "movements": make_table("Deposits and withdrawals", MOVEMENT.listed, movements, NO_MOVEMENTS),
        }

    found = await visit.read(unit)
    wallet = found["wallet"]
    base = path_of("wallets", wallet.path)
    actions = ("Deposit", "Withdraw", "Deactivate" if wallet.state == "active" else "Activate")
    return visit.show(
        "wallet.html",
        title=wallet.path,
        facts=facts_of(WALLET.columns, wallet),
        base=base,
        actions=[(action, f"{base}/{action.lower()}") for action in actions],
        statement=filters_of(PeriodQuery),
        **found,
    )


def _key_id(path: str) -> Column:
    return Column("Key id", lambda one: Cell(one.kid, "code", path_of("wallets", path, "keys", one.kid)))


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
    is_refundable = payment.direction == "incoming" and is_above_zero(payment.moved)
    rows = [(event, one) for event in history.events for one in event.deliveries or (None,)]
    is_live = is_under_way and visit.request.query_params.get("live") == "1"
    return visit.show(
        "payment.html",
        payment=payment,
        facts=facts_of(HISTORY.columns, history),
        metadata=_metadata(payment),
        actions=[("Refund", f"{path_of('payments', payment.id)}/refund")] if is_refundable else [],
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
    grant = await visit.read(partial(GRANT.find, id=visit.segments["id"]))
    wallet_address = grant.wallet_address or ""
    facts = dict(facts_of(GRANT.columns, grant))
    facts["Wallet"] = cell_of(visit.context.urls.wallet_path(wallet_address), "long", "wallets")
    actions = [] if grant.ended_at else [("Revoke", f"{path_of('grants', grant.id)}/revoke")]
    language, access = language_of(visit.request), msgspec.json.encode(grant.access).decode()
    english, spending = msgspec.structs.replace(language, code="en"), spending_of(access)
    allowed = [spending_sentence(english, spending)] if spending else []
    allowed += other_words(english, access, None, "")
    return visit.show("grant.html", title=grant.id, facts=facts.items(), allowed=allowed, actions=actions)


async def peer_page(visit: OperatorVisit) -> Response:
    """The page of a peer."""
    name = visit.segments["name"]

    def unit(work: Work) -> dict[str, Any]:
        unresolved = _listed(work, list_unresolved_payments, name=name)
        settlements = _listed(work, peers.list_settlements, page=FEW, name=name)
        return {
            "facts": facts_of(PEER.columns, PEER.find(work, name=name)),
            "unresolved": make_table("Unresolved payments", UNRESOLVED_PAYMENT.on_pages, unresolved, KNOWN),
            "settlements": make_table("Settlements", MOVEMENT.listed, settlements, "Nothing was settled yet"),
        }

    packets = path_of("peers", name, "unresolved-packets")
    return visit.show("peer.html", title=name, packets=packets, **await visit.read(unit))
