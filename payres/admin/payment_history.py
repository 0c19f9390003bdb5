"""Payments as operators see them: each by itself, and with its full history."""

from collections.abc import Sequence
from typing import Final

from msgspec import Raw

from payres.admin import representations, wire
from payres.admin.representations import represent
from payres.amounts import Asset, format_decimal
from payres.clock import format_time
from payres.events.subscriptions import deliveries_of
from payres.store import events, incoming, packets, payments
from payres.store.clients import CLIENTS
from payres.store.entries import EntryRecord, page_of_entries
from payres.store.events import EventRecord
from payres.store.grants import GRANTS
from payres.store.incoming import INCOMING
from payres.store.outgoing import OUTGOING
from payres.store.payments import PaymentRecord, RefundRecord, payers_of
from payres.store.quotes import QUOTES, QuoteRecord
from payres.store.rows import PageQuery
from payres.store.wallets import WALLETS
from payres.store.work import Work
from payres.wire import Resource

MAX_SHOWN: Final = 100  # ledger entries and packets of one payment, of which there may be many thousands


class PaymentEvent(Resource, frozen=True, kw_only=True):
    """An event about a payment or its refunds, which is kept for 30 days."""

    sequence: int
    id: str
    type: str
    timestamp: str
    deliveries: list[wire.EventDelivery]


class PaymentHistory(Resource, frozen=True, kw_only=True):
    """What came before a payment and what became of it: of ledger entries and packets, the newest hundred.

    `payers` are the outgoing payments here that paid an incoming one.
    """

    payment: wire.Payment
    delivered: wire.Money | None
    grant: wire.Grant | None
    quote: wire.PaymentQuote | None
    payers: list[str]
    entries: list[wire.LedgerEntry]
    has_earlier_entries: bool
    packets: list[wire.Packet]
    refunds: list[wire.Refund]
    events: list[PaymentEvent]


def payment(work: Work, record: PaymentRecord) -> wire.Payment:
    wallet = WALLETS.by_id(work, record.wallet_address_id)
    found = _refunds(work, record)
    sent_back = sum(one.counted if record.direction == "incoming" else one.returned for one in found)
    return represent(
        wire.Payment,
        record,
        wallet.asset,
        state=record.state_at(work.now),
        wallet=wallet.path,
        wallet_address=work.urls.wallet(wallet.path),
        client=CLIENTS.by_id(work, record.client_id).identity,
        refunded=format_decimal(sent_back, wallet.asset),
        refund_of=_refund_of(work, record),
        metadata=None if record.metadata is None else Raw(record.metadata.encode()),
    )


def history(work: Work, record: PaymentRecord) -> PaymentHistory:
    grant = None if record.grant_id is None else GRANTS.get(work, record.grant_id)
    quote = None if record.quote_id is None else QUOTES.get(work, record.quote_id)
    sent = OUTGOING.get(work, record.id)
    entries, bounds = page_of_entries(work, PageQuery(MAX_SHOWN, None, "older"), payment=record)
    return PaymentHistory(
        payment=payment(work, record),
        delivered=_money(sent.delivered, sent.terms.asset) if sent else None,
        grant=None if grant is None else representations.grant(work, grant),
        quote=None if quote is None else _quote(work, quote),
        payers=[] if sent else list(payers_of(work, record.id)),
        entries=[representations.ledger_entry(one) for one in reversed(entries)],
        has_earlier_entries=bounds.has_older,
        packets=_packets(work, record) if sent else [],
        refunds=[refund(work, one) for one in _refunds(work, record)],
        events=[
            represent(
                PaymentEvent,
                event,
                timestamp=format_time(event.created_at),
                deliveries=[representations.delivery(wire.EventDelivery, one) for one in deliveries_of(work, event)],
            )
            for event in _events(work, record, entries)
        ],
    )


def refund(work: Work, record: RefundRecord) -> wire.Refund:
    receiver = WALLETS.by_id(work, INCOMING.by_id(work, record.incoming_payment_id).wallet_address_id)
    # The payer's payment, or that to the wallet address which the operator named.
    back = OUTGOING.by_id(work, record.outgoing_payment_id or record.return_payment_id or "")
    payer = WALLETS.by_id(work, back.wallet_address_id) if record.outgoing_payment_id else None
    returned = payer.asset if payer else back.terms.asset
    return represent(
        wire.Refund,
        record,
        receiver=receiver.path,
        payer=payer.path if payer else None,
        to=record.wallet_address,
        amount=format_decimal(record.amount, receiver.asset),
        sent=format_decimal(record.counted, receiver.asset),
        asset_code=receiver.asset_code,
        returned=format_decimal(record.returned, returned),
        returned_asset_code=returned.code,
    )


def _quote(work: Work, record: QuoteRecord) -> wire.PaymentQuote:
    asset = WALLETS.by_id(work, record.wallet_address_id).asset
    return represent(
        wire.PaymentQuote,
        record,
        debit=_money(record.terms.debit, asset),
        fee=_money(record.terms.fee, asset),
        receive=_money(record.terms.receive, record.terms.asset),
    )


def _packets(work: Work, record: PaymentRecord) -> list[wire.Packet]:
    """The newest ones, oldest first."""
    found = packets.newest_of_payment(work, record.id, MAX_SHOWN)
    return [
        represent(wire.Packet, one, peer=name, source_amount=str(one.source_amount), amount=str(one.amount))
        for one, name in reversed(found)
    ]


def _events(work: Work, record: PaymentRecord, entries: Sequence[EntryRecord]) -> Sequence[EventRecord]:
    """Those of the times at which the payment began, received something, ended and was refunded."""
    moments = {record.created_at, record.ended_at}
    if record.direction == "incoming":
        moments |= {incoming.expiry_event_at(work, record.id), *(one.created_at for one in entries)}
    found = [*events.events_of(work, record.id, {moment for moment in moments if moment is not None})]
    for one in _refunds(work, record):
        found += [] if one.ended_at is None else events.events_of(work, one.id, [one.ended_at])
    return sorted(found, key=lambda event: event.sequence)


def _refunds(work: Work, record: PaymentRecord) -> Sequence[RefundRecord]:
    is_incoming = record.direction == "incoming"
    return (payments.refunds_of_incoming if is_incoming else payments.refunds_of_outgoing)(work, record.id)


def _refund_of(work: Work, record: PaymentRecord) -> str | None:
    """Payments of clients have a grant, so that only the server's own are looked up."""
    if record.direction == "incoming" or record.grant_id is not None:
        return None
    found = payments.refund_by_return_payment(work, record.id)
    return None if found is None else found.incoming_payment_id


def _money(amount: int, asset: Asset) -> wire.Money:
    return wire.Money(amount=format_decimal(amount, asset), asset_code=asset.code, asset_scale=asset.scale)
