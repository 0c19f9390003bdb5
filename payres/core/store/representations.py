"""Converts records of the store to the structs of `payres.core.protocol.wire` and the data of events."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import format_time
from payres.core.protocol.event_types import GrantEvent, OutgoingPaymentEvent
from payres.core.protocol.urls import Urls
from payres.core.protocol.wire import Amount, IncomingPayment, OutgoingPayment, Page, Pagination, Quote
from payres.core.store.grants import GrantRecord
from payres.core.store.incoming_payments import IncomingRecord
from payres.core.store.outgoing_payments import OutgoingRecord
from payres.core.store.quotes import QuoteRecord
from payres.core.store.rows import PageBounds
from payres.core.store.wallets import WalletRecord

T = TypeVar("T")


def page_of(found: tuple[Sequence[Any], PageBounds], show: Callable[[Any], T]) -> Page[T]:
    """A page of records, converted by `show`."""
    records, bounds = found
    pagination = Pagination(
        start_cursor=str(records[0].id) if records else UNSET,
        end_cursor=str(records[-1].id) if records else UNSET,
        has_next_page=bounds.has_older,  # the next page is the older one
        has_previous_page=bounds.has_newer,
    )
    return Page(pagination=pagination, result=[show(record) for record in records])


def amount(value: int | str, asset: Asset) -> Amount:
    return Amount(value=str(value), asset_code=asset.code, asset_scale=asset.scale)


def incoming_payment(urls: Urls, wallet: WalletRecord, payment: IncomingRecord) -> IncomingPayment:
    """The payment without methods, as in lists and after completion."""
    asset = wallet.asset
    return IncomingPayment(
        id=urls.resource("incoming-payments", payment.id),
        wallet_address=urls.wallet(wallet.path),
        completed=payment.completed,
        incoming_amount=UNSET if payment.incoming_value is None else amount(payment.incoming_value, asset),
        received_amount=amount(payment.received, asset),
        expires_at=format_time(payment.expires_at),
        metadata=_metadata(payment.metadata),
        created_at=format_time(payment.created_at),
    )


def quote(urls: Urls, wallet: WalletRecord, record: QuoteRecord) -> Quote:
    terms = record.terms
    return Quote(
        id=urls.resource("quotes", record.id),
        wallet_address=urls.wallet(wallet.path),
        receiver=terms.receiver,
        receive_amount=amount(terms.receive, terms.asset),
        debit_amount=amount(terms.debit, wallet.asset),
        expires_at=format_time(record.expires_at),
        created_at=format_time(record.created_at),
    )


def outgoing_payment(urls: Urls, wallet: WalletRecord, payment: OutgoingRecord) -> OutgoingPayment:
    """The payment without its grant's spending, which only the answer to the creation has."""
    asset = wallet.asset
    return OutgoingPayment(
        id=urls.resource("outgoing-payments", payment.id),
        wallet_address=urls.wallet(wallet.path),
        quote_id=UNSET if payment.quote_id is None else urls.resource("quotes", payment.quote_id),
        failed=payment.failed,
        receiver=payment.terms.receiver,
        receive_amount=amount(payment.terms.receive, payment.terms.asset),
        debit_amount=amount(payment.terms.debit, asset),
        sent_amount=amount(payment.sent, asset),
        metadata=_metadata(payment.metadata),
        created_at=format_time(payment.created_at),
    )


def outgoing_payment_event(shown: OutgoingPayment, payment: OutgoingRecord) -> OutgoingPaymentEvent:
    """`shown` is the payment as its client sees it."""
    fields = msgspec.structs.asdict(shown)
    return OutgoingPaymentEvent(**fields, grant=payment.grant_id or UNSET, failure=payment.failure or UNSET)


def grant_event(urls: Urls, wallet: WalletRecord, grant: GrantRecord) -> GrantEvent:
    return GrantEvent(
        id=grant.id,
        client=grant.client_name,
        wallet_address=urls.wallet(wallet.path),
        access=Raw(grant.access.encode()),
    )


def _metadata(text: str | None) -> Raw | UnsetType:
    return UNSET if text is None else Raw(text.encode())
