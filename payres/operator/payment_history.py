"""A payment with its full history: what came before it and what became of it."""

from collections.abc import Sequence
from typing import Final

from payres.amounts import Asset, format_decimal
from payres.clock import format_time
from payres.events.subscriptions import deliveries_of
from payres.operator import grants, ledger
from payres.operator.grants import Grant
from payres.operator.ledger import LedgerEntry
from payres.operator.payments import Payment, payment, refunds_of
from payres.operator.webhooks import EventDelivery, event_delivery
from payres.store import events, packets, payments
from payres.store.entries import EntryRecord, page_of_entries
from payres.store.events import EventRecord
from payres.store.grants import GRANTS
from payres.store.payments import INCOMING, OUTGOING, PaymentRecord, RefundRecord, RefundState, payers_of
from payres.store.quotes import QUOTES, QuoteRecord
from payres.store.rows import PageQuery
from payres.store.wallets import WALLETS
from payres.store.work import Work
from payres.wire import Resource

MAX_SHOWN: Final = 100  # ledger entries and packets of one payment, of which there may be many thousands


class Money(Resource, frozen=True, kw_only=True):
    amount: str
    asset_code: str
    asset_scale: int


class PaymentQuote(Resource, frozen=True, kw_only=True):
    id: str
    debit: Money
    fee: Money
    receive: Money
    created_at: str
    expires_at: str


class Packet(Resource, frozen=True, kw_only=True):
    """A packet to a peer. `source_amount` is in the smallest unit of the payer, `amount` in that of the link."""

    id: str
    state: str
    peer: str
    source_amount: str
    amount: str
    expires_at: str


class Refund(Resource, frozen=True, kw_only=True):
    """`amount` leaves the wallet of the receiver, `returned` has come back, each in its own asset. It is that of
    `outgoingPayment`, whose payer has it back, or is sent by `returnPayment` to the wallet address `to`; `sent` has
    left the receiver's wallet for good, or is held there while the state is `sending`."""

    id: str
    incoming_payment: str
    outgoing_payment: str | None
    return_payment: str | None
    receiver: str
    payer: str | None
    to: str | None
    state: RefundState
    failure: str | None
    amount: str
    sent: str
    asset_code: str
    returned: str
    returned_asset_code: str
    reference: str
    created_at: str


class PaymentEvent(Resource, frozen=True, kw_only=True):
    """An event about a payment or its refunds, which is kept for 30 days."""

    sequence: int
    id: str
    type: str
    timestamp: str
    deliveries: list[EventDelivery]


class PaymentHistory(Resource, frozen=True, kw_only=True):
    """What came before a payment and what became of it: of ledger entries and packets, the newest hundred.

    `payers` are the outgoing payments here that paid an incoming one.
    """

    payment: Payment
    delivered: Money | None
    grant: Grant | None
    quote: PaymentQuote | None
    payers: list[str]
    entries: list[LedgerEntry]
    has_earlier_entries: bool
    packets: list[Packet]
    refunds: list[Refund]
    events: list[PaymentEvent]


def history(work: Work, record: PaymentRecord) -> PaymentHistory:
    grant = None if record.grant_id is None else GRANTS.get(work, record.grant_id)
    quote = None if record.quote_id is None else QUOTES.get(work, record.quote_id)
    sent = OUTGOING.get(work, record.id)
    entries, bounds = page_of_entries(work, PageQuery(MAX_SHOWN, None, "older"), payment=record)
    return PaymentHistory(
        payment=payment(work, record),
        delivered=_money(sent.delivered, sent.terms.asset) if sent else None,
        grant=None if grant is None else grants.grant(work, grant),
        quote=None if quote is None else _quote(work, quote),
        payers=[] if sent else list(payers_of(work, record.id)),
        entries=[ledger.ledger_entry(work, one) for one in reversed(entries)],
        has_earlier_entries=bounds.has_older,
        packets=_packets(work, record) if sent else [],
        refunds=[refund(work, one) for one in refunds_of(work, record)],
        events=[_event(work, one) for one in _events(work, record, entries)],
    )


def refund(work: Work, record: RefundRecord) -> Refund:
    receiver = WALLETS.by_id(work, INCOMING.by_id(work, record.incoming_payment_id).wallet_address_id)
    # The payer's payment, or that to the wallet address which the operator named.
    back = OUTGOING.by_id(work, record.outgoing_payment_id or record.return_payment_id or "")
    payer = WALLETS.by_id(work, back.wallet_address_id) if record.outgoing_payment_id else None
    returned = payer.asset if payer else back.terms.asset
    return Refund(
        id=record.id,
        incoming_payment=record.incoming_payment_id,
        outgoing_payment=record.outgoing_payment_id,
        return_payment=record.return_payment_id,
        receiver=receiver.path,
        payer=payer.path if payer else None,
        to=record.wallet_address,
        state=record.state,
        failure=record.failure,
        amount=format_decimal(record.amount, receiver.asset),
        sent=format_decimal(record.counted, receiver.asset),
        asset_code=receiver.asset_code,
        returned=format_decimal(record.returned, returned),
        returned_asset_code=returned.code,
        reference=record.reference,
        created_at=format_time(record.created_at),
    )


def _quote(work: Work, record: QuoteRecord) -> PaymentQuote:
    asset = WALLETS.by_id(work, record.wallet_address_id).asset
    return PaymentQuote(
        id=record.id,
        debit=_money(record.terms.debit, asset),
        fee=_money(record.terms.fee, asset),
        receive=_money(record.terms.receive, record.terms.asset),
        created_at=format_time(record.created_at),
        expires_at=format_time(record.expires_at),
    )


def _packets(work: Work, record: PaymentRecord) -> list[Packet]:
    """The newest ones, oldest first."""
    return [
        Packet(
            id=one.id,
            state=one.state,
            peer=name,
            source_amount=str(one.source_amount),
            amount=str(one.amount),
            expires_at=format_time(one.expires_at),
        )
        for one, name in reversed(packets.newest_of_payment(work, record.id, MAX_SHOWN))
    ]


def _event(work: Work, event: EventRecord) -> PaymentEvent:
    return PaymentEvent(
        sequence=event.sequence,
        id=event.id,
        type=event.type,
        timestamp=format_time(event.created_at),
        deliveries=[event_delivery(one) for one in deliveries_of(work, event)],
    )


def _events(work: Work, record: PaymentRecord, entries: Sequence[EntryRecord]) -> Sequence[EventRecord]:
    """Those of the times at which the payment began, received something, ended and was refunded."""
    moments = {record.created_at, record.ended_at}
    if record.direction == "incoming":
        moments |= {payments.expiry_event_at(work, record.id), *(one.created_at for one in entries)}
    found = [*events.events_of(work, record.id, {moment for moment in moments if moment is not None})]
    for one in refunds_of(work, record):
        found += [] if one.ended_at is None else events.events_of(work, one.id, [one.ended_at])
    return sorted(found, key=lambda event: event.sequence)


def _money(amount: int, asset: Asset) -> Money:
    return Money(amount=format_decimal(amount, asset), asset_code=asset.code, asset_scale=asset.scale)
