"""Offers for receivers on other servers: reads the receiver, probes the path to it, and fixes both amounts."""

from fractions import Fraction
from math import ceil, floor
from typing import Final

import msgspec

from payres.amounts import MAX_VALUE, Asset, Fee, Scales, convert, fee_on, minimum_send
from payres.errors import DomainError, InvalidAmount, Unavailable
from payres.federation.failures import RemoteReceiverFailed
from payres.federation.incoming_payments import RemoteIncomingPayment, RemoteReceivers
from payres.interledger.outbound import Outbound
from payres.interledger.routing import next_peer
from payres.interledger.sending.connection import Connection, Destination
from payres.interledger.sending.failures import SendingFailed
from payres.interledger.sending.path import fixed_delivery, fixed_send, minimum_rate
from payres.interledger.sending.probe import probe
from payres.payments.pricing import check_fits, check_liquidity, nothing_arrives, rate_between, wanted_amount
from payres.payments.quotes import check_amounts
from payres.payments.receivers import is_remote, unpayable
from payres.store.database import Database
from payres.store.wallets import active_wallet
from payres.store.work import Work
from payres.terms import Offer, Path, Terms
from payres.urls import Urls, canonical
from payres.wire import Amount, OutgoingPaymentRequest, QuoteRequest, value_in

# How much the rate may move between the quote and the payment, or differ from ours.
SLIPPAGE: Final = Fraction(1, 100)


class _Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """The request for an offer; `field` names the member with the receiver's URL, for errors. What `is_free` costs no
    fee."""

    wallet_address: str
    receiver: str
    field: str
    debit: Amount | None
    receive: Amount | None
    is_free: bool = False


class _Payer(msgspec.Struct, frozen=True):
    wallet_id: int
    asset_id: int
    asset: Asset
    fee: Fee
    external: Fraction


class RemoteQuotes:
    """Makes offers. Stores nothing and moves no money."""

    def __init__(self, database: Database, urls: Urls, receivers: RemoteReceivers, outbound: Outbound) -> None:
        self._database = database
        self._urls = urls
        self._receivers = receivers
        self._outbound = outbound

    async def offer_for_quote(self, request: QuoteRequest) -> Offer | None:
        """The offer for a quote with a receiver on another server; None for a receiver here.

        Raises InvalidRequest, InvalidReceiver, InvalidAmount, InsufficientFunds, Unavailable. Specification 4.7.
        """
        if not is_remote(self._urls, request.receiver):
            return None
        check_amounts(request)
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

        Raises InvalidReceiver, InvalidAmount, InsufficientFunds, Unavailable. Specification 4.3.
        """
        if request.quote_id or not (request.incoming_payment and request.debit_amount):
            return None
        if not is_remote(self._urls, request.incoming_payment):
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

    async def offer_for_refund(self, wallet_address: str, receiver: str, debit: Amount) -> Offer:
        """The offer for a refund to a receiver on another server, without a fee.

        Raises InvalidRequest, InvalidReceiver, InvalidAmount, InsufficientFunds, Unavailable.
        """
        return await self._offer(
            _Wanted(
                wallet_address=wallet_address, receiver=receiver, field="to", debit=debit, receive=None, is_free=True
            )
        )

    async def _offer(self, wanted: _Wanted) -> Offer:
        await self._database.read(lambda work: active_wallet(work, wanted.wallet_address))
        try:
            receiver = await self._receivers.fetch_open(canonical(wanted.receiver))
        except RemoteReceiverFailed as error:
            raise not_payable(wanted.field, error) from error
        payer = await self._database.read(lambda work: self._payer(work, wanted, receiver.asset))
        rate = minimum_rate(payer.external, SLIPPAGE, Scales(payer.asset.scale, receiver.asset.scale))
        debit = value_in(wanted.debit, payer.asset, "debitAmount") if wanted.debit else None
        delivery = 0
        if debit is None:
            delivery = wanted_amount(receiver, wanted.receive)
            check_fits(receiver, delivery)
        try:
            path = await self._probe(payer, receiver)
            if debit is not None:
                offer = _sending(debit, payer, receiver, path, rate)
            else:
                offer = _delivering(delivery, payer, receiver, path, rate)
        except SendingFailed as error:
            raise unpayable(wanted.field, error.sentence, "no_path") from error
        await self._database.read(lambda work: self._check_exchange(work, payer, receiver, offer.terms))
        return offer

    def _payer(self, work: Work, wanted: _Wanted, target: Asset) -> _Payer:
        wallet = active_wallet(work, wanted.wallet_address)
        return _Payer(
            wallet.id,
            wallet.asset_id,
            wallet.asset,
            Fee() if wanted.is_free else wallet.fee,
            rate_between(work, wallet.asset_code, target.code),
        )

    def _check_exchange(self, work: Work, payer: _Payer, receiver: RemoteIncomingPayment, terms: Terms) -> None:
        """Raises InsufficientFunds when the next peer is paid in another asset and the operator has too little of
        it."""
        assert receiver.method is not None, "what is open can be paid"
        assert terms.path is not None, "it leads to another server"
        peer = next_peer(work, receiver.method.ilp_address, self._outbound.ilp_address, payer.asset_id)
        if peer is None or peer.asset_id == payer.asset_id:
            return
        sent = terms.debit - terms.fee
        if not terms.sends_all:  # most of the slippage is not used
            sent = min(sent, ceil(terms.receive / terms.path.low))
        rate = rate_between(work, payer.asset.code, peer.asset_code)
        check_liquidity(work, peer.asset_id, convert(sent, rate, payer.asset.scale, peer.asset_scale))

    async def _probe(self, payer: _Payer, receiver: RemoteIncomingPayment) -> Path:
        assert receiver.method is not None, "what is open can be paid"
        destination = Destination(receiver.method.ilp_address, receiver.method.shared_secret, receiver.asset)
        packets = self._outbound.open(payer.asset, payer.wallet_id)
        try:
            return await probe(Connection(packets, destination, self._outbound.timing))
        except SendingFailed as error:
            await packets.note_silence()
            if packets.kept_waiting:
                sentence = "The path was not probed: too many quotes are in progress; try again shortly"
                raise Unavailable(sentence) from error
            raise


def not_payable(field: str, error: RemoteReceiverFailed) -> DomainError:
    """The error for a receiver on another server that cannot be read or created."""
    return Unavailable(error.sentence) if error.reason == "busy" else unpayable(field, error.sentence, error.reason)


def _sending(debit: int, payer: _Payer, receiver: RemoteIncomingPayment, path: Path, rate: Fraction) -> Offer:
    """Sends all of `debit` less the fee. Promises what arrives at the least, less the slippage."""
    fee = fee_on(debit, payer.fee)
    net, least = debit - fee, _least_to_send(path)
    if net < least:
        fixed_send(least, path, rate)  # raises where no amount would arrive
        is_taken = receiver.remaining is None or floor(least * path.low) <= receiver.remaining
        raise nothing_arrives(_least_debit(payer.fee, least) if is_taken else None, payer.asset)
    terms = fixed_send(net, path, rate)
    # More will arrive than is promised, and the receiver must have room for it.
    check_fits(receiver, max(terms.min_delivery, floor(net * path.low)))
    return _offer(receiver, debit, fee, terms.min_delivery, path, sends_all=True)


def _delivering(amount: int, payer: _Payer, receiver: RemoteIncomingPayment, path: Path, rate: Fraction) -> Offer:
    """Delivers `amount`. The debit amount is what that costs at most, with the slippage and the fee."""
    price = fixed_delivery(amount, path, rate).max_source
    fee = fee_on(price, payer.fee)
    return _offer(receiver, price + fee, fee, amount, path, sends_all=False)


def _offer(
    receiver: RemoteIncomingPayment, debit: int, fee: int, receive: int, path: Path, *, sends_all: bool
) -> Offer:
    if max(debit, receive) > MAX_VALUE:
        raise InvalidAmount(f"The payment is too large: an amount is at most {MAX_VALUE}")
    terms = Terms(
        receiver=receiver.url,
        incoming_payment_id=None,
        debit=debit,
        fee=fee,
        receive=receive,
        asset=receiver.asset,
        path=path,
        sends_all=sends_all,
    )
    return Offer(terms, receiver.expires_at)


def _least_to_send(path: Path) -> int:
    """The smallest amount that is sure to deliver something: two units, one of them forgiven, or the price of one
    unit."""
    return max(2, ceil(1 / path.low)) if path.low else 2


def _least_debit(fee: Fee, least: int) -> int:
    """The smallest debit that leaves `least` after the fee."""
    return minimum_send(fee, Fraction(1, least), Scales(0, 0))
