"""Rules of quotes: the cost, delivery and validity of a payment. Specification 2.5, 4.7.

The arithmetic of fees, rates and rounding is in `payres.core.protocol.amounts`.
"""

from fractions import Fraction

from payres.core.grants.access import Caller
from payres.core.payments.incoming import LocalReceiver, fits, open_receiver
from payres.core.payments.settlement import check_liquidity
from payres.core.protocol.amounts import (
    MAX_LEDGER,
    Asset,
    Fee,
    Offer,
    Terms,
    TooLarge,
    TooSmall,
    describe_amount,
    fixed_receive,
    fixed_send,
    parse_rate,
    unit_rate,
)
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import InvalidAmount, InvalidRequest, NoRate
from payres.core.protocol.limits import MAX_MISSING_RATES
from payres.core.protocol.wire import Amount, Quote, QuoteRequest, value_in
from payres.core.store import accounts, representations, retention
from payres.core.store.accounts import RateRecord
from payres.core.store.quotes import QUOTES, QuoteRecord
from payres.core.store.wallets import WalletRecord, active_wallet
from payres.core.store.work import Work


def create(work: Work, caller: Caller, asked: QuoteRequest, offer: Offer | None) -> Quote:
    """A quote, valid until its lifetime ends or the receiver expires; `offer` is for a receiver on another server. Call
    `check_amounts` before.

    Raises InvalidReceiver, InvalidAmount; InsufficientFunds if an exchange exceeds the operator's
    liquidity. Specification 4.7.
    """
    wallet = active_wallet(work, caller.wallet_address)
    if offer is None:
        receiver = open_receiver(work, asked.receiver, "receiver")
        offer = local_offer(work, wallet, receiver, asked.debit_amount or None, asked.receive_amount or None)
    return representations.quote(work.urls, wallet, insert(work, wallet, caller.client_id, offer))


def insert(work: Work, wallet: WalletRecord, client_id: int, offer: Offer, wish: str | None = None) -> QuoteRecord:
    """Stores an offer as a quote of the client; `wish` is the owner's input, as JSON."""
    latest = latest_expiry(work)
    expires_at = latest if offer.expires_at is None else min(latest, offer.expires_at)
    quote = QuoteRecord(
        id=work.new_id(),
        wallet_address_id=wallet.id,
        client_id=client_id,
        terms=offer.terms,
        created_at=work.now,
        expires_at=expires_at,
        purge_at=expires_at + retention.UNUSED_QUOTE,
        wish=wish,
    )
    QUOTES.insert(work, quote)
    retention.purge(work, retention.QUOTES, work.now)  # afterwards, so that it keeps the client
    return quote


def latest_expiry(work: Work) -> int:
    """The expiry of a quote made now: late enough that an owner who decides in time never approves an expired quote."""
    return work.now + max(work.settings.quote_lifetime, work.settings.interaction_lifetime) * SECOND


def local_offer(
    work: Work, wallet: WalletRecord, receiver: LocalReceiver, debit: Amount | None, receive: Amount | None
) -> Offer:
    """The offer for a local receiver. Raises InvalidAmount, NoRate; InsufficientFunds for lack of liquidity."""
    terms = local_terms(work, wallet, receiver, debit, receive)
    if receiver.wallet.asset_id != wallet.asset_id:
        check_liquidity(work, receiver.wallet.asset_id, terms.receive)
    return Offer(terms, receiver.payment.expires_at)


def check_amounts(asked: QuoteRequest) -> None:
    """Raises InvalidRequest if the request fixes both amounts."""
    if asked.debit_amount and asked.receive_amount:
        raise InvalidRequest("Give debitAmount or receiveAmount, not both", field="receiveAmount")


def local_terms(
    work: Work,
    wallet: WalletRecord,
    receiver: LocalReceiver,
    debit: Amount | None,
    receive: Amount | None,
    *,
    is_free: bool = False,
) -> Terms:
    """The terms of sending `debit`, fee included, or of delivering `receive`, or else the receiver's remaining amount.

    With `is_free` there is no fee. Raises InvalidAmount, NoRate.
    """
    fee = Fee() if is_free else wallet.fee
    rate = unit_rate_between(work, wallet.asset, receiver.wallet.asset)
    try:
        if debit:
            split = fixed_send(value_in(debit, wallet.asset, "debitAmount"), fee, rate)
        else:
            split = fixed_receive(wanted_amount(receiver.wallet.asset, receiver.payment.remaining, receive), fee, rate)
    except TooSmall as error:
        works = _works(error.minimum, fee, rate, receiver.payment.remaining)
        raise nothing_arrives(error.minimum if works else None, wallet.asset) from error
    except TooLarge as error:
        raise InvalidAmount(f"The payment is too large: {error}") from error
    check_fits(receiver.payment.remaining, split.receive, receiver.wallet.asset)
    return Terms(
        receiver=receiver.url,
        incoming_payment_id=receiver.payment.id,
        debit=split.debit,
        fee=split.fee,
        receive=split.receive,
        asset=receiver.wallet.asset,
    )


def wanted_amount(asset: Asset, remaining: int | None, receive: Amount | None) -> int:
    """The amount to deliver: the requested one, or the incoming payment's remaining amount. Raises InvalidAmount."""
    if receive:
        return value_in(receive, asset, "receiveAmount")
    if remaining is None:
        raise InvalidAmount(
            "Give debitAmount or receiveAmount: the receiver has no incomingAmount to infer one from",
            field="debitAmount",
        )
    return remaining


def check_fits(remaining: int | None, amount: int, asset: Asset) -> None:
    """Raises InvalidAmount if the amount exceeds the receiver's remaining amount (`incoming.fits`)."""
    if remaining is not None and not fits(remaining, amount):
        most, delivered = describe_amount(remaining, asset), describe_amount(amount, asset)
        raise InvalidAmount(
            f"The receiver takes at most {most} more, this would deliver {delivered}",
            remaining=str(remaining),
            receiveValue=str(amount),
        )


def nothing_arrives(minimum: int | None, asset: Asset) -> InvalidAmount:
    """The error for too small a debit; `minimum` is the smallest debit that works, None if none does."""
    if minimum is None:
        return InvalidAmount(
            "Nothing would arrive, and no debitAmount would fit: the two assets cannot be exchanged in these amounts",
            field="debitAmount",
        )
    least = {"value": str(minimum), "assetCode": asset.code, "assetScale": asset.scale}
    sentence = f"Nothing would arrive: send at least {describe_amount(minimum, asset)} (see details.minSendAmount)"
    return InvalidAmount(sentence, field="debitAmount", reason="nothing_arrives", minSendAmount=least)


def unit_rate_between(work: Work, source: Asset, target: Asset) -> Fraction:
    """How many minor units of `target` one of `source` buys. Raises NoRate."""
    return unit_rate(rate_between(work, source.code, target.code), source, target)


def rate_between(work: Work, base: str, counter: str) -> Fraction:
    """How many units of currency `counter` one unit of `base` buys: 1 if they are the same, else the stored rate, or
    the inverse of the opposite one. Raises NoRate if there is none, or it has expired."""
    if base == counter:
        return Fraction(1)
    there, back = accounts.find_rate(work, base, counter), accounts.find_rate(work, counter, base)
    used = used_rate(there, back, work.now)
    if used is not None:
        return used
    _note_missing(work, base, counter)
    stale = there or back
    if stale is not None:
        age = (work.now - stale.set_at) // SECOND
        sentence = f"The exchange rate from {base} to {counter} is {age} s old; try again shortly"
        raise NoRate(sentence, reason="exchange_rate_expired")
    raise NoRate(
        f"This server has no exchange rate from {base} to {counter}; choose a receiver in {base} or ask the operator",
        reason="no_exchange_rate",
    )


def used_rate(there: RateRecord | None, back: RateRecord | None, now: int) -> Fraction | None:
    """What is used of the stored rates of a pair, there and back; None if neither holds."""
    inverse = 1 / parse_rate(back.rate) if back is not None and back.holds_at(now) else None
    if there is None or not there.holds_at(now):
        return inverse
    rate = parse_rate(there.rate)
    # Of two rates rounded independently, the one above 1 gives way: otherwise a round trip could make a gain.
    return min(rate, inverse) if inverse is not None and rate > 1 else rate


def overruled(there: RateRecord | None, back: RateRecord | None, now: int) -> bool:
    """Whether the rate there holds and is not used, because the inverse of the one back is lower."""
    return there is not None and there.holds_at(now) and used_rate(there, back, now) != parse_rate(there.rate)


def _note_missing(work: Work, base: str, counter: str) -> None:
    """Notes the pair in memory, because an error undoes what the unit stores. Clients can make up the currencies of
    receivers on other servers, so those have a bound and do not push out this server's own."""
    noted = work.environment.metrics.missing_rates
    if len(noted) < MAX_MISSING_RATES or {base, counter} <= {*accounts.list_codes(work)}:
        noted.add((base, counter))


def _works(debit: int, fee: Fee, rate: Fraction, remaining: int | None) -> bool:
    """Whether the receiver accepts this debit: if one unit of debit is worth a lot, it may be too much."""
    try:
        split = fixed_send(debit, fee, rate)
    except TooLarge:
        return False
    most = MAX_LEDGER if remaining is None else min(MAX_LEDGER, remaining)
    return split.debit <= MAX_LEDGER and split.receive <= most
