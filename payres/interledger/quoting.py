"""Offers for receivers on other servers: reads the receiver, probes the path to it, and fixes both amounts."""

from collections.abc import Callable
from fractions import Fraction
from functools import partial
from math import ceil
from typing import NamedTuple

from payres.core.payments import quotes
from payres.core.payments.incoming import is_remote, unpayable
from payres.core.payments.remote import CheckedPayer
from payres.core.payments.settlement import check_liquidity
from payres.core.protocol.amounts import MAX_VALUE, Asset, Fee, Offer, ProbedPath, Terms, convert, fee_on, minimum_send
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import DomainError, InvalidAmount, Unavailable
from payres.core.protocol.urls import Urls, canonical
from payres.core.protocol.wire import Amount, value_in
from payres.core.remote.connection import FetchFailed, failing_as
from payres.core.remote.wallet_addresses import RemoteWallet
from payres.core.store import representations
from payres.core.store.wallets import WalletRecord, active_wallet
from payres.core.store.work import Work
from payres.interledger.clearing import SLIPPAGE
from payres.interledger.outbound import Outbound, WalletPackets
from payres.interledger.remote_receivers import PAYING, RemoteIncomingPayment, RemoteReceivers
from payres.interledger.routing import next_peer
from payres.interledger.sending.connection import SendingFailed, StreamConnection
from payres.interledger.sending.probe import check_funded, max_source, min_delivery, price_of, probe, promise_of
from payres.interledger.sending.timing import monotonic


class RemoteQuotes:
    """Makes offers, each within the `probe_timeout`. Stores nothing and moves no money."""

    def __init__(self, urls: Urls, receivers: RemoteReceivers, outbound: Outbound) -> None:
        self._database = outbound.database
        self.urls = urls
        self._receivers = receivers
        self._outbound = outbound

    async def offer(
        self,
        checked_payer: CheckedPayer,
        receiver: str,
        field: str,
        debit: Amount | None,
        receive: Amount | None = None,
        *,
        is_free: bool = False,
        at_once: bool = False,
    ) -> Offer | None:
        """As in the port. With `is_free` there is no fee; with `at_once` the path must have the money for all of it,
        because an owner waits for the payment."""
        if not is_remote(self.urls, receiver):
            return None
        wallet = await self._database.read(checked_payer)
        seconds = self._outbound.timing.probe_timeout / SECOND
        deadline = monotonic() + self._outbound.timing.probe_timeout
        with failing_as(partial(_not_payable, field)):
            payment = await self._receivers.fetch_open(canonical(receiver), seconds)
        assert payment.method is not None, "fetch_open returns only payments with a method"
        external = await self._database.read(lambda work: quotes.unit_rate_between(work, wallet.asset, payment.asset))
        packets = WalletPackets(self._outbound, wallet.asset, wallet.id)
        connection = StreamConnection(packets, payment.method, self._outbound.timing)
        connection.probed_until = deadline
        way = _Way(connection, packets, payment, Fee() if is_free else wallet.fee, external * (1 - SLIPPAGE))
        if debit:
            probed = way.send(value_in(debit, wallet.asset, "debitAmount"), wallet.asset)
        else:
            delivery = quotes.wanted_amount(payment.asset, payment.remaining, receive)
            quotes.check_fits(payment.remaining, delivery, payment.asset)
            probed = way.deliver(delivery)
        try:
            terms = await probed
            if at_once and terms.path:
                await check_funded(connection, terms.path, terms.debit - terms.fee)
        except SendingFailed as error:
            if packets.waiting:
                sentence = "The path was not probed: too many quotes are in progress; try again shortly"
                raise Unavailable(sentence) from error
            silent = f" No answer came from {packets.silent}." if packets.silent else ""
            raise unpayable(field, f"{error.sentence}{silent}", "no_path") from error
        await self._database.read(lambda work: self._check_exchange(work, wallet, connection, terms))
        return Offer(terms, payment.expires_at)

    async def offer_for_refund(
        self, to: str | None, plan: Callable[[Work], tuple[WalletRecord, int] | None]
    ) -> Offer | None:
        """The offer, without a fee, for a refund to a wallet address on another server; None for other refunds, and if
        `plan` gives no wallet that pays and amount. Creates the incoming payment there, as any client does.

        Before another server is asked, raises what `plan` raises; InvalidReceiver, Unavailable.
        """
        if to is None or self.urls.is_ours(to):
            return None
        planned = await self._database.examine(plan)
        if planned is None:
            return None
        wallet, amount = planned
        receiver = await self.create_receiver(await self.find_wallet(to), "Refund", PAYING)
        payer = partial(active_wallet, url=self.urls.wallet(wallet.path))
        debit = representations.amount(amount, wallet.asset)
        return await self.offer(payer, receiver, "to", debit, is_free=True)

    async def find_wallet(self, url: str) -> RemoteWallet:
        """The wallet address at a URL of another server, for the field `to`. Raises InvalidReceiver, Unavailable."""
        with failing_as(_no_wallet):
            return await self._receivers.find_wallet(url)

    async def find_bill(self, url: str) -> RemoteIncomingPayment:
        """The incoming payment at a URL of another server. Raises InvalidReceiver, Unavailable."""
        with failing_as(partial(_not_payable, "to")):
            return await self._receivers.fetch_open(url)

    async def create_receiver(
        self, wallet: RemoteWallet, description: str, paying: int, receive: Amount | None = None
    ) -> str:
        """The URL of a new incoming payment on another server, of an amount if that is fixed. It expires so many
        microseconds after its quote: 0 if it only gives a price. Raises InvalidReceiver, Unavailable."""
        until = await self._database.read(quotes.latest_expiry) + paying
        with failing_as(partial(_not_payable, "to")):
            receiver = await self._receivers.create(wallet, description, receive, until)
        if not is_remote(self.urls, receiver):
            raise unpayable("to", "its server did not create an incoming payment of another server", "bad_content")
        return receiver

    def _check_exchange(self, work: Work, wallet: WalletRecord, connection: StreamConnection, terms: Terms) -> None:
        """Raises InsufficientFunds if the next peer has another asset and the operator's liquidity in it is short."""
        assert terms.path is not None, "terms of remote payments have a path"
        peer = next_peer(work, connection.destination.ilp_address, self._outbound.ilp_address, wallet.asset)
        if peer is None or peer.asset_id == wallet.asset_id:
            return
        sent = terms.debit - terms.fee
        if not terms.sends_all:  # most of the slippage stays unused
            sent = min(sent, ceil(terms.receive / terms.path.low))
        rate = quotes.unit_rate_between(work, wallet.asset, peer.asset)
        check_liquidity(work, peer.asset_id, convert(sent, rate))


def _not_payable(field: str, error: FetchFailed) -> DomainError:
    """The error for a remote receiver, given in the member `field`, that cannot be read or created."""
    return Unavailable(error.sentence) if error.reason == "busy" else unpayable(field, error.sentence, error.reason)


def _no_wallet(error: FetchFailed) -> DomainError:
    """The error for a remote wallet address that cannot be read."""
    if error.retryable or error.reason == "refused":
        return _not_payable("to", error)
    return unpayable("to", error.sentence, "no_wallet")


class _Way(NamedTuple):
    """The way to a receiver, the payer's fee, and what each minor unit sent must deliver at least."""

    connection: StreamConnection
    packets: WalletPackets
    receiver: RemoteIncomingPayment
    pricing: Fee
    rate: Fraction

    async def send(self, debit: int, asset: Asset) -> Terms:
        """Sends all of `debit` minus the fee. Promises the least that arrives, minus the slippage."""
        path, remaining = await probe(self.connection), self.receiver.remaining
        fee = fee_on(debit, self.pricing)
        net = debit - fee
        least = _least_net(path, self.packets.on_link)
        if net < least:
            min_delivery(least, path, self.rate)  # raises if no amount would arrive
            is_taken = remaining is None or path.least(least) <= remaining
            raise quotes.nothing_arrives(minimum_send(self.pricing, Fraction(1, least)) if is_taken else None, asset)
        promised = min_delivery(net, path, self.rate)
        promised = await promise_of(self.connection, net, promised, self.packets.on_link, SLIPPAGE)
        # More than promised will arrive, and the receiver must have room for it.
        quotes.check_fits(remaining, max(promised, path.least(net)), self.receiver.asset)
        return self._terms(debit, fee, promised, path, sends_all=True)

    async def deliver(self, amount: int) -> Terms:
        """Delivers `amount`. The debit amount is the fee and the price: its maximum cost, including the slippage."""
        path = await probe(self.connection)
        price = max_source(amount, path, self.rate)
        price = await price_of(self.connection, path, price, amount, self.packets.on_link)
        fee = fee_on(price, self.pricing)
        return self._terms(price + fee, fee, amount, path, sends_all=False)

    def _terms(self, debit: int, fee: int, receive: int, path: ProbedPath, *, sends_all: bool) -> Terms:
        """Raises InvalidAmount if an amount exceeds 64 bits."""
        if max(debit, receive) > MAX_VALUE:
            raise InvalidAmount(f"The payment is too large: an amount is at most {MAX_VALUE}")
        return Terms(
            receiver=self.receiver.url,
            incoming_payment_id=None,
            debit=debit,
            fee=fee,
            receive=receive,
            asset=self.receiver.asset,
            path=path,
            sends_all=sends_all,
        )


def _least_net(path: ProbedPath, on_link: Fraction) -> int:
    """The least net amount: what delivers one unit, in whole units of the first link. One unit sent is `on_link` of
    these.

    An example: ten units sent deliver one, and three are one on the link. Four are needed there, which take twelve.
    """
    if not path.low:
        return 1
    delivering_one = ceil(on_link / path.low)
    return ceil(delivering_one / on_link)
