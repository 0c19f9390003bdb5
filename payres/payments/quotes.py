"""Rules of quotes (parts 2.5, 4.7): what leaves the sender, what arrives, and for how long that holds.

The arithmetic of fees, rates and their rounding is in `payres.amounts`; the money moves in `payments.settlement`.
"""

from fractions import Fraction

import msgspec

from payres.amounts import MAX_LEDGER, Asset, Fee, Scales, Terms, TooLarge, TooSmall, fixed_receive, fixed_send
from payres.errors import InvalidAmount, InvalidRequest, NotFound
from payres.grants.forgetting import QUOTE_UNUSED_FOR, forget_quotes
from payres.identifiers import Identifiers
from payres.payments.elsewhere import Offer, encode_path
from payres.payments.exchange import rate_between, value_in
from payres.payments.receivers import LocalReceiver, open_receiver
from payres.store import assets, quotes
from payres.store.database import Transaction
from payres.store.quotes import QuoteRecord
from payres.store.wallets import WalletRecord
from payres.urls import Urls
from payres.wire import Amount, QuoteRequest

MICROSECONDS = 1_000_000


def create_quote(
    tx: Transaction,
    urls: Urls,
    wallet: WalletRecord,
    client_id: int,
    request: QuoteRequest,
    identifiers: Identifiers,
    lifetime: int,
    now: int,
) -> QuoteRecord:
    """A quote for paying `request.receiver` from `wallet`, for `lifetime` seconds or until the receiver expires.

    Refuses with 400: `invalid_receiver`, `invalid_amount`. Part 4.7.
    """
    if request.debit_amount and request.receive_amount:
        raise InvalidRequest("Give debitAmount or receiveAmount, not both", field="receiveAmount")
    receiver = open_receiver(tx, urls, request.receiver, now, "receiver")
    terms = _terms(tx, wallet, receiver, request.debit_amount or None, request.receive_amount or None, now)
    quote = QuoteRecord(
        id=identifiers.resource(),
        wallet_address_id=wallet.id,
        client_id=client_id,
        receiver=receiver.url,
        incoming_payment_id=receiver.payment.id,
        debit_value=str(terms.debit),
        receive_value=str(terms.receive),
        receive_code=receiver.asset.code,
        receive_scale=receiver.asset.scale,
        fee_value=str(terms.fee),
        created_at=now,
        expires_at=min(now + lifetime * MICROSECONDS, receiver.payment.expires_at),
    )
    return _keep(tx, quote, now)


def record_offer(
    tx: Transaction,
    wallet: WalletRecord,
    client_id: int,
    offer: Offer,
    identifiers: Identifiers,
    lifetime: int,
    now: int,
) -> QuoteRecord:
    """A quote for what the way to a receiver on another server offers, for `lifetime` seconds or until that expires."""
    latest = now + lifetime * MICROSECONDS
    quote = QuoteRecord(
        id=identifiers.resource(),
        wallet_address_id=wallet.id,
        client_id=client_id,
        receiver=offer.receiver,
        incoming_payment_id=None,
        debit_value=str(offer.debit),
        receive_value=str(offer.receive),
        receive_code=offer.receive_asset.code,
        receive_scale=offer.receive_asset.scale,
        fee_value=str(offer.fee),
        created_at=now,
        expires_at=latest if offer.expires_at is None else min(latest, offer.expires_at),
        path=encode_path(offer.path),
    )
    return _keep(tx, quote, now)


def require_quote(tx: Transaction, quote_id: str) -> QuoteRecord:
    """The quote with this id; 404 when there is none."""
    quote = quotes.find_quote(tx, quote_id)
    if quote is None:
        raise no_such_quote()
    return quote


def no_such_quote() -> NotFound:
    """The same answer whether it does not exist, was never used and is forgotten, or is another client's."""
    return NotFound("There is no such quote, or it is not this client's")


def fixed_send_terms(tx: Transaction, wallet: WalletRecord, receiver: LocalReceiver, debit: Amount, now: int) -> Terms:
    """The terms of sending exactly `debit`, fee included. Refuses with 400 `invalid_amount`."""
    return _terms(tx, wallet, receiver, debit, None, now)


def _keep(tx: Transaction, quote: QuoteRecord, now: int) -> QuoteRecord:
    """Keeps a new quote until it is no longer of use, and forgets some that are not."""
    forget_quotes(tx, now)
    kept = msgspec.structs.replace(quote, forget_at=quote.expires_at + QUOTE_UNUSED_FOR)
    quotes.insert_quote(tx, kept)
    return kept


def _terms(
    tx: Transaction,
    wallet: WalletRecord,
    receiver: LocalReceiver,
    debit: Amount | None,
    receive: Amount | None,
    now: int,
) -> Terms:
    source = assets.asset_by_id(tx, wallet.asset_id)
    fee = Fee(source.fee_fixed, source.fee_basis_points)
    rate = rate_between(tx, source.code, receiver.asset.code, now)
    scales = Scales(source.scale, receiver.asset.scale)
    try:
        if debit:
            terms = fixed_send(value_in(debit, Asset(source.code, source.scale), "debitAmount"), fee, rate, scales)
        else:
            terms = fixed_receive(_wanted(receiver, receive), fee, rate, scales)
    except TooSmall as error:
        works = _works(error.minimum, fee, rate, scales, receiver)
        raise too_small(error.minimum if works else None, Asset(source.code, source.scale)) from error
    except TooLarge as error:
        raise InvalidAmount(f"The payment is too large: {error}") from error
    _check_fits(receiver, terms)
    return terms


def _wanted(receiver: LocalReceiver, receive: Amount | None) -> int:
    """What shall arrive: the amount asked for, or what the incoming payment still wants."""
    if receive:
        return value_in(receive, receiver.asset, "receiveAmount")
    remaining = receiver.payment.remaining
    if remaining is None:
        raise InvalidAmount(
            "Give debitAmount or receiveAmount: the receiver has no incomingAmount to infer one from",
            field="debitAmount",
        )
    return remaining


def _check_fits(receiver: LocalReceiver, terms: Terms) -> None:
    remaining = receiver.payment.remaining
    if remaining is not None and terms.receive > remaining:
        raise InvalidAmount(
            f"The receiver takes at most {remaining} more, this would deliver {terms.receive}",
            remaining=str(remaining),
            receiveValue=str(terms.receive),
        )


def _works(debit: int, fee: Fee, rate: Fraction, scales: Scales, receiver: LocalReceiver) -> bool:
    """Whether the receiver could be sent this much: where one unit of debit is worth a lot, it may take no more."""
    try:
        terms = fixed_send(debit, fee, rate, scales)
    except (TooSmall, TooLarge):
        return False
    most = MAX_LEDGER if receiver.payment.remaining is None else min(MAX_LEDGER, receiver.payment.remaining)
    return terms.debit <= MAX_LEDGER and terms.receive <= most


def too_small(minimum: int | None, asset: Asset) -> InvalidAmount:
    """Nothing would arrive; `minimum` is the smallest debit that works, None when none does."""
    if minimum is None:
        says = "Nothing would arrive, and no debitAmount would fit: the two assets cannot be exchanged in these amounts"
        return InvalidAmount(says, field="debitAmount")
    least = {"value": str(minimum), "assetCode": asset.code, "assetScale": asset.scale}
    return InvalidAmount(
        f"Nothing would arrive: send at least {minimum} (see details.minSendAmount)",
        field="debitAmount",
        minSendAmount=least,
    )
