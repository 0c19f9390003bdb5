"""Offers for receivers on other servers: the receiver is read, the way to it probed, and both amounts promised."""

from fractions import Fraction
from typing import Final

import msgspec

from payres.amounts import MAX_VALUE, Asset, Fee, Scales, fee_on, minimum_send
from payres.clock import Clock
from payres.errors import InvalidAmount, InvalidReceiver, InvalidRequest
from payres.federation.failures import RemoteReceiverFailed
from payres.federation.incoming_payments import RemoteIncomingPayment, RemoteReceivers
from payres.interledger.outbound import Outbounds
from payres.interledger.sending.channel import Connection, Destination
from payres.interledger.sending.failures import SendingFailed
from payres.interledger.sending.probe import probe
from payres.interledger.sending.rates import Path as ProbedPath
from payres.interledger.sending.rates import minimum_rate
from payres.interledger.sending.terms import fixed_delivery, fixed_send
from payres.payments.elsewhere import Offer, Path, is_elsewhere
from payres.payments.exchange import rate_between, value_in
from payres.payments.quotes import too_small
from payres.payments.receivers import invalid_receiver
from payres.payments.wallet_lookup import active_wallet
from payres.store import assets
from payres.store.database import Database, Transaction
from payres.urls import Urls, normalise
from payres.wire import Amount, OutgoingPaymentRequest, QuoteRequest

# What the rate may move between the quote and the payment, or differ from ours at all.
SLIPPAGE: Final = Fraction(1, 100)


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What an offer is asked for; `field` names the member with the receiver's URL, for refusals."""

    wallet_address: str
    receiver: str
    field: str
    debit: Amount | None
    receive: Amount | None


class _Payer(msgspec.Struct, frozen=True):
    wallet_id: int
    asset: Asset
    fee: Fee
    external: Fraction


class RemoteQuotes:
    """Makes offers; nothing is stored and no money moves."""

    def __init__(
        self, database: Database, urls: Urls, clock: Clock, receivers: RemoteReceivers, outbounds: Outbounds
    ) -> None:
        self._database = database
        self._urls = urls
        self._clock = clock
        self._receivers = receivers
        self._outbounds = outbounds

    async def offer_for_quote(self, request: QuoteRequest) -> Offer | None:
        """The offer that a quote for a receiver on another server is made of; None for a receiver here.

        Refuses with 400 `invalid_request`, `invalid_receiver`, `invalid_amount`. Part 4.7.
        """
        if not is_elsewhere(self._urls, request.receiver):
            return None
        if request.debit_amount and request.receive_amount:
            raise InvalidRequest("Give debitAmount or receiveAmount, not both", field="receiveAmount")
        return await self._offer(
            _Wanted(
                wallet_address=request.wallet_address,
                receiver=request.receiver,
                field="receiver",
                debit=request.debit_amount or None,
                receive=request.receive_amount or None,
            )
        )

    async def offer_for_payment(self, request: OutgoingPaymentRequest) -> Offer | None:
        """The offer for a payment without a quote; None when there is a quote or the receiver is here.

        Refuses with 400 `invalid_receiver`, `invalid_amount`. Part 4.3.
        """
        if request.quote_id or not (request.incoming_payment and request.debit_amount):
            return None
        if not is_elsewhere(self._urls, request.incoming_payment):
            return None
        return await self._offer(
            _Wanted(
                wallet_address=request.wallet_address,
                receiver=request.incoming_payment,
                field="incomingPayment",
                debit=request.debit_amount,
                receive=None,
            )
        )

    async def _offer(self, wanted: _Wanted) -> Offer:
        await self._database.read(lambda tx: active_wallet(tx, self._urls, wanted.wallet_address))
        try:
            receiver = await self._receivers.fetch_open(normalise(wanted.receiver))
        except RemoteReceiverFailed as error:
            raise _unpayable(wanted.field, error.reason, error.sentence) from error
        payer = await self._database.read(lambda tx: self._payer(tx, wanted.wallet_address, receiver.asset))
        rate = minimum_rate(payer.external, SLIPPAGE, Scales(payer.asset.scale, receiver.asset.scale))
        debit = value_in(wanted.debit, payer.asset, "debitAmount") if wanted.debit else None
        delivery = _to_deliver(wanted, receiver) if debit is None else 0
        try:
            path = await self._probe(payer, receiver)
            if debit is not None:
                return _sending(debit, payer, receiver, path, rate)
            return _delivering(delivery, payer, receiver, path, rate)
        except SendingFailed as error:
            raise _unpayable(wanted.field, "no_path", error.sentence) from error

    def _payer(self, tx: Transaction, wallet_address: str, target: Asset) -> _Payer:
        wallet = active_wallet(tx, self._urls, wallet_address)
        asset = assets.asset_by_id(tx, wallet.asset_id)
        return _Payer(
            wallet.id,
            Asset(asset.code, asset.scale),
            Fee(asset.fee_fixed, asset.fee_basis_points),
            rate_between(tx, asset.code, target.code, self._clock.now()),
        )

    async def _probe(self, payer: _Payer, receiver: RemoteIncomingPayment) -> ProbedPath:
        assert receiver.ilp_address is not None
        assert receiver.shared_secret is not None
        destination = Destination(receiver.ilp_address, receiver.shared_secret, receiver.asset)
        outbound = self._outbounds.open(payer.asset, payer.wallet_id)
        try:
            return await probe(Connection(outbound, destination, self._outbounds.timing))
        except SendingFailed:
            await outbound.note_silence()
            raise


def _to_deliver(wanted: _Wanted, receiver: RemoteIncomingPayment) -> int:
    """What shall arrive: the amount asked for, or what the incoming payment still wants."""
    amount = value_in(wanted.receive, receiver.asset, "receiveAmount") if wanted.receive else receiver.remaining
    if amount is None:
        raise InvalidAmount(
            "Give debitAmount or receiveAmount: the receiver has no incomingAmount to infer one from",
            field="debitAmount",
        )
    _check_fits(receiver, amount)
    return amount


def _sending(debit: int, payer: _Payer, receiver: RemoteIncomingPayment, path: ProbedPath, rate: Fraction) -> Offer:
    """Sends all of `debit`, the fee taken out; the least that arrives, the slippage taken off, is promised."""
    fee = fee_on(debit, payer.fee)
    net = debit - fee
    terms = fixed_send(net, path, rate) if net > 0 else None
    if terms is None or terms.min_delivery < 1 or net * path.low < 1:
        raise too_small(_least_debit(payer.fee, path), payer.asset)
    # What will arrive is more than what is promised, and the receiver must have room for it.
    _check_fits(receiver, max(terms.min_delivery, net * path.low.numerator // path.low.denominator))
    return _offer(receiver, debit, fee, terms.min_delivery, path, sends_all=True)


def _delivering(amount: int, payer: _Payer, receiver: RemoteIncomingPayment, path: ProbedPath, rate: Fraction) -> Offer:
    """Delivers `amount`; the most that it can take, the slippage and the fee added, is the debit amount."""
    price = fixed_delivery(amount, path, rate).max_source
    fee = fee_on(price, payer.fee)
    return _offer(receiver, price + fee, fee, amount, path, sends_all=False)


def _offer(
    receiver: RemoteIncomingPayment, debit: int, fee: int, receive: int, path: ProbedPath, *, sends_all: bool
) -> Offer:
    if max(debit, receive) > MAX_VALUE:
        raise InvalidAmount(f"The payment is too large: an amount is at most {MAX_VALUE}")
    return Offer(
        receiver=receiver.url,
        debit=debit,
        fee=fee,
        receive=receive,
        receive_asset=receiver.asset,
        path=Path(low=str(path.low), high=str(path.high), max_packet=str(path.max_packet), sends_all=sends_all),
        expires_at=receiver.expires_at,
    )


def _least_debit(fee: Fee, path: ProbedPath) -> int:
    """The smallest debit of which something is sure to arrive: two units, one forgiven, or the price of one unit."""
    price = max(2, -(-path.low.denominator // path.low.numerator)) if path.low else 2
    return minimum_send(fee, Fraction(1, price), Scales(0, 0))


def _check_fits(receiver: RemoteIncomingPayment, amount: int) -> None:
    if receiver.remaining is not None and amount > receiver.remaining:
        raise InvalidAmount(
            f"The receiver takes at most {receiver.remaining} more, this would deliver {amount}",
            remaining=str(receiver.remaining),
            receiveValue=str(amount),
        )


def _unpayable(field: str, reason: str, sentence: str) -> InvalidReceiver:
    return invalid_receiver(field, sentence, reason)
