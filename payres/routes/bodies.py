"""Resources as the wire shows them: records of the store turned into the structs of `payres.wire`."""

from collections.abc import Sequence

from msgspec import UNSET, Raw, UnsetType

from payres.amounts import Asset
from payres.clock import format_time
from payres.grants.limits import Spent
from payres.interledger.credentials import CredentialSource
from payres.store.incoming import IncomingRecord
from payres.store.outgoing import OutgoingRecord
from payres.store.pages import PageBounds
from payres.store.quotes import QuoteRecord
from payres.store.wallets import WalletRecord
from payres.urls import Urls
from payres.wire import Amount, IncomingPayment, OutgoingPayment, Pagination, PaymentMethod, Quote


def amount(value: int | str, asset: Asset) -> Amount:
    """An amount of the wire (part 2.1)."""
    return Amount(value=str(value), asset_code=asset.code, asset_scale=asset.scale)


def wallet_asset(wallet: WalletRecord) -> Asset:
    return wallet.asset


def incoming_payment(
    urls: Urls, wallet: WalletRecord, payment: IncomingRecord, methods: list[PaymentMethod] | UnsetType = UNSET
) -> IncomingPayment:
    """An incoming payment (part 2.3), with methods or, in lists and after completion, without."""
    asset = wallet_asset(wallet)
    return IncomingPayment(
        id=urls.resource("incoming-payments", payment.id),
        wallet_address=urls.wallet(wallet.path),
        completed=payment.completed,
        incoming_amount=UNSET if payment.incoming_value is None else amount(payment.incoming_value, asset),
        received_amount=amount(payment.received, asset),
        expires_at=format_time(payment.expires_at),
        metadata=_metadata(payment.metadata),
        created_at=format_time(payment.created_at),
        methods=methods,
    )


def payment_methods(
    credentials: CredentialSource, wallet: WalletRecord, payment: IncomingRecord, now: int
) -> list[PaymentMethod]:
    """The ways to pay an incoming payment; none when it takes no more money."""
    if not payment.open_at(now):
        return []
    found = credentials.for_payment(payment.id, wallet_asset(wallet))
    return [PaymentMethod(type="ilp", ilp_address=found.ilp_address, shared_secret=found.shared_secret)]


def quote_body(urls: Urls, wallet: WalletRecord, quote: QuoteRecord) -> Quote:
    """A quote (part 2.5)."""
    return Quote(
        id=urls.resource("quotes", quote.id),
        wallet_address=urls.wallet(wallet.path),
        receiver=quote.receiver,
        receive_amount=amount(quote.receive_value, quote.receive_asset),
        debit_amount=amount(quote.debit_value, wallet_asset(wallet)),
        expires_at=format_time(quote.expires_at),
        created_at=format_time(quote.created_at),
    )


def outgoing_payment(
    urls: Urls, wallet: WalletRecord, payment: OutgoingRecord, spent: Spent | None = None
) -> OutgoingPayment:
    """An outgoing payment (part 2.4); what its grant has spent belongs to the answer to creation alone."""
    asset = wallet_asset(wallet)
    return OutgoingPayment(
        id=urls.resource("outgoing-payments", payment.id),
        wallet_address=urls.wallet(wallet.path),
        quote_id=UNSET if payment.quote_id is None else urls.resource("quotes", payment.quote_id),
        failed=payment.failed,
        receiver=payment.receiver,
        receive_amount=amount(payment.receive, payment.receive_asset),
        debit_amount=amount(payment.debit, asset),
        sent_amount=amount(payment.sent, asset),
        grant_spent_debit_amount=UNSET if spent is None else amount(spent.debit, asset),
        grant_spent_receive_amount=UNSET if spent is None else amount(spent.receive, spent.receive_asset),
        metadata=_metadata(payment.metadata),
        created_at=format_time(payment.created_at),
    )


def pagination(records: Sequence[IncomingRecord | OutgoingRecord], bounds: PageBounds) -> Pagination:
    """The pagination of a page (part 2.6): the next page is the older one."""
    return Pagination(
        start_cursor=records[0].id if records else UNSET,
        end_cursor=records[-1].id if records else UNSET,
        has_next_page=bounds.has_older,
        has_previous_page=bounds.has_newer,
    )


def _metadata(text: str | None) -> Raw | UnsetType:
    return UNSET if text is None else Raw(text.encode())
