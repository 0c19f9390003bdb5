"""The pages of one thing: a wallet, a payment, a grant or a peer, with what belongs to it."""

from functools import partial
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import Response

from payres.admin import grants, payments, peers, wallets
from payres.admin.payment_history import PaymentEvent, PaymentHistory
from payres.admin.requests import KeyQuery, PeriodQuery
from payres.admin.wire import EventDelivery, PacketSum, Payment, Peer
from payres.grants.wording import describe_access, visible_text
from payres.operator.payments import PaymentQuery
from payres.operator.shapes import Cell, Column, cell_of, facts_of, path_of
from payres.pages.list_page import filters_of
from payres.pages.lists import (
    AMOUNT,
    ASSET,
    CLIENT,
    LEFT,
    MOVEMENT_COLUMNS,
    NO_MOVEMENTS,
    PAYMENT_COLUMNS,
    SPENT,
    STATE,
    WALLET,
)
from payres.pages.payment_history import moments_of
from payres.pages.tables import make_table
from payres.pages.visit import Visit
from payres.store.rows import PageQuery
from payres.store.work import Work

FEW: Final = PageQuery(10, None, "older")
LIVE_SECONDS: Final = 5

WALLET_FACTS: Final = (
    Column("Balance", "balance", "number"),
    Column("Reserved for payments in flight", "reserved", "number"),
    Column("Asset", lambda wallet: Cell(f"{wallet.asset_code}, {wallet.asset_scale} decimals")),
    Column("State", "state", "state"),
    Column("Name", "public_name"),
    Column("Wallet address", "wallet_address", "code"),
    Column("Owner", lambda wallet: Cell("can sign in" if wallet.can_sign_in else "has no password")),
    Column("Opened (UTC)", "created_at", "time"),
)
KEY_COLUMNS: Final = (
    Column("Name", "name", "long"),
    Column("Added (UTC)", "created_at", "time"),
    Column("State", lambda one: Cell("revoked" if one.revoked_at else "valid", "state")),
    Column("Revoked (UTC)", "revoked_at", "time"),
)
OWN_PAYMENT_COLUMNS: Final = [column for column in PAYMENT_COLUMNS if column is not WALLET]


async def wallet_page(visit: Visit) -> Response:
    """The page of a wallet."""
    path = visit.segments["wallet"]

    def unit(work: Work) -> dict[str, Any]:
        keys = wallets.list_wallet_keys(work, path, KeyQuery(revoked=True)).result
        few_payments = payments.list_page(work, FEW, PaymentQuery(wallet=path)).result
        movements = wallets.list_movements(work, path, FEW).result
        return {
            "wallet": wallets.show(work, path),
            "keys": make_table("Keys", [_key_id(path), *KEY_COLUMNS], keys, "No client signs for this wallet"),
            "payments": make_table("Payments", OWN_PAYMENT_COLUMNS, few_payments, "There are no payments yet"),
            "movements": make_table("Deposits and withdrawals", MOVEMENT_COLUMNS, movements, NO_MOVEMENTS),
        }

    found = await visit.read(unit)
    wallet = found["wallet"]
    base = path_of("wallets", wallet.path)
    change = ("Deactivate", f"{base}/deactivate") if wallet.state == "active" else ("Activate", f"{base}/activate")
    return visit.show(
        "wallet.html",
        "/wallets",
        title=wallet.path,
        facts=facts_of(WALLET_FACTS, wallet),
        base=base,
        actions=[("Deposit", f"{base}/deposit"), ("Withdraw", f"{base}/withdraw"), change],
        statement=filters_of(PeriodQuery),
        **found,
    )


def _key_id(path: str) -> Column:
    return Column("Key id", lambda one: Cell(one.kid, "code", path_of("wallets", path, "keys", one.kid)))


class EventRow(NamedTuple):
    """An event with its delivery to one webhook; None when it goes to no webhook."""

    event: PaymentEvent
    delivery: EventDelivery | None


EVENT_COLUMNS: Final = (
    Column("Sequence", lambda row: Cell(str(row.event.sequence), "code")),
    Column("Time (UTC)", lambda row: Cell(row.event.timestamp, "time")),
    Column("Event", lambda row: Cell(row.event.type)),
    Column("Webhook", lambda row: cell_of(row.delivery and row.delivery.webhook, "code", "webhooks")),
    Column("Delivery", lambda row: cell_of(row.delivery and row.delivery.state, "state")),
    Column("Attempts", lambda row: cell_of(row.delivery and row.delivery.attempts, "number")),
    Column("Error", lambda row: cell_of(row.delivery and row.delivery.last_error, "long")),
    Column("Next (UTC)", lambda row: cell_of(row.delivery and row.delivery.next_attempt_at, "time")),
)


async def payment_page(visit: Visit) -> Response:
    """The page of a payment."""
    history = await visit.read(partial(payments.show, id=visit.segments["id"]))
    payment = history.payment
    is_under_way = payment.state == "sending"
    is_refundable = payment.direction == "incoming" and _is_above_zero(payment.moved)
    is_live = is_under_way and visit.request.query_params.get("live") == "1"
    return visit.show(
        "payment.html",
        "/payments",
        payment=payment,
        facts=_facts(payment, history),
        metadata=_metadata(payment),
        actions=[("Refund", f"{path_of('payments', payment.id)}/refund")] if is_refundable else [],
        moments=moments_of(history, visit.context.urls),
        history=history,
        events=make_table(
            "Events",
            EVENT_COLUMNS,
            [EventRow(event, one) for event in history.events for one in event.deliveries or (None,)],
            "There are none any more: they are kept 30 days",
        ),
        is_under_way=is_under_way,
        is_live=is_live,
        refresh=LIVE_SECONDS if is_live else None,
    )


def _facts(payment: Payment, history: PaymentHistory) -> list[tuple[str, Cell]]:
    def money(amount: str | None) -> Cell:
        return Cell("" if amount is None else f"{payment.asset_code} {amount}")

    is_incoming = payment.direction == "incoming"
    delivered = history.delivered
    refunded = payment.refunded if _is_above_zero(payment.refunded) else None
    return [
        ("State", Cell(payment.state, "state")),
        ("Wallet", cell_of(payment.wallet, "long", "wallets")),
        ("Wants" if is_incoming else "May debit", money(payment.amount)),
        ("Received" if is_incoming else "Sent", money(payment.moved)),
        ("Delivered", Cell(f"{delivered.asset_code} {delivered.amount}" if delivered else "")),
        ("Sent back" if is_incoming else "Came back", money(refunded)),
        ("Client", Cell(payment.client)),
        ("Refund of", cell_of(payment.refund_of, "code", "payments")),
        ("Grant", cell_of(payment.grant, "code", "grants")),
        ("Receiver", cell_of(payment.receiver, "code")),
        ("Failure", cell_of(payment.failure)),
        ("Created (UTC)", Cell(payment.created_at, "time")),
        ("Ended (UTC)", cell_of(payment.ended_at, "time")),
        ("Takes money until (UTC)", cell_of(payment.expires_at, "time")),
    ]


def _is_above_zero(amount: str) -> bool:
    return bool(amount.strip("0."))


def _metadata(payment: Payment) -> str | None:
    if payment.metadata is None:
        return None
    text = msgspec.json.format(bytes(payment.metadata), indent=2).decode()
    return "\n".join(map(visible_text, text.splitlines()))


async def grant_page(visit: Visit) -> Response:
    """The page of a grant."""
    grant = await visit.read(partial(grants.show, id=visit.segments["id"]))
    wallet_address, consent = grant.wallet_address or "", grant.interaction
    facts = [
        *facts_of([STATE, CLIENT], grant),
        ("Wallet", cell_of(visit.context.urls.wallet_path(wallet_address), "long", "wallets")),
        *facts_of([SPENT, LEFT], grant),
        ("Asked for (UTC)", cell_of(grant.created_at, "time")),
        ("Consent until (UTC)", cell_of(consent.expires_at if consent and not consent.decided_at else None, "time")),
        ("Decided (UTC)", cell_of(consent and consent.decided_at, "time")),
        ("Ended (UTC)", cell_of(grant.ended_at, "time")),
        ("Afterwards the owner goes to", cell_of(consent and consent.finish, "code")),
    ]
    actions = [] if grant.ended_at else [("Revoke", f"{path_of('grants', grant.id)}/revoke")]
    access = describe_access(msgspec.json.encode(grant.access).decode(), wallet_address)
    return visit.show("grant.html", "/grants", title=grant.id, facts=facts, access=access, actions=actions)


def _packets(found: PacketSum) -> Cell:
    counted = f"{found.packets} packet{'' if found.packets == 1 else 's'}"
    return Cell(f"{found.amount} in {counted}" if found.packets else "nothing")


def _largest(peer: Peer) -> Cell:
    return Cell("any size" if peer.max_packet is None else f"{peer.max_packet} of the smallest unit")


PEER_FACTS: Final = (
    Column("Standing", "standing"),
    Column("Balance", "balance", "number"),
    Column("Credit limit", "credit_limit", "number"),
    Column("It can still send", "left", "number"),
    Column("Reserved for packets from it", "reserved", "number"),
    Column("In flight to it", lambda peer: _packets(peer.in_flight)),
    Column("Unresolved", lambda peer: _packets(peer.unresolved)),
    Column("Asset", lambda peer: Cell(f"{peer.asset_code}, {peer.asset_scale} decimals")),
    Column("Packets received", "packets_received", "number"),
    Column("Packets sent", "packets_sent", "number"),
    Column("Largest packet", _largest),
    Column("Repeats answers", lambda peer: Cell("yes" if peer.repeats_answers else "not known")),
    Column("ILP address", "ilp_address", "code"),
    Column("Routes", "routes", "code"),
    Column("URL", "url", "code"),
    Column("Last error", "last_error"),
    Column("Last error (UTC)", "last_error_at", "time"),
    Column("Added (UTC)", "created_at", "time"),
)
PACKET_COLUMNS: Final = (
    Column("Packet", "id", "code", section="packets"),
    Column("Payment", "payment", "code", section="payments"),
    WALLET,
    AMOUNT,
    ASSET,
    Column("Expired (UTC)", "expired_at", "time"),
)


async def peer_page(visit: Visit) -> Response:
    """The page of a peer."""
    name = visit.segments["name"]

    def unit(work: Work) -> dict[str, Any]:
        unresolved = peers.list_unresolved(work, name).result
        settlements = peers.list_settlements(work, name, FEW).result
        return {
            "facts": facts_of(PEER_FACTS, peers.show(work, name)),
            "packets": make_table("Unresolved packets", PACKET_COLUMNS, unresolved, "The outcome of each is known"),
            "settlements": make_table("Settlements", MOVEMENT_COLUMNS, settlements, "Nothing was settled yet"),
        }

    return visit.show("peer.html", "/peers", title=name, **await visit.read(unit))
