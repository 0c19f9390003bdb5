"""Payments to receivers on other servers, from the reserved debit amount to their end.

All that is needed to go on after a crash is in the rows: what was sent, the packets whose outcome is not known, and how
often it was tried.
"""

import asyncio
import logging
from fractions import Fraction
from functools import partial
from typing import Final, Protocol
from weakref import WeakValueDictionary

import msgspec

from payres.clock import DAY, Clock
from payres.federation.failures import RemoteReceiverFailed
from payres.federation.incoming_payments import RemoteReceivers
from payres.interledger import balances
from payres.interledger.outbound import Outbounds
from payres.interledger.sending.channel import Connection, Destination, close
from payres.interledger.sending.payment import pay
from payres.interledger.sending.portions import Plan
from payres.interledger.sending.rates import Path
from payres.payments.elsewhere import decode_path
from payres.payments.settlement import end_elsewhere
from payres.store import outgoing, packets, wallets
from payres.store.database import Database, Transaction
from payres.store.outgoing import OutgoingRecord
from payres.store.packets import PacketRecord

BATCH: Final = 128
AT_ONCE: Final = 64  # payments that send packets at a time; the others wait for their turn
AT_ONCE_FROM_WALLET: Final = 16  # of them, so that one wallet's slow receivers hold up no other wallet's payments
LONGEST: Final = 7 * DAY  # after which a payment ends with what it has sent
# Seconds that a payment keeps its turn; a receiver may take but a little from time to time.
LONGEST_ATTEMPT: Final = 3600.0
MAX_ATTEMPTS: Final = 5  # since something last arrived
NOT_IN_FULL: Final = "the receiver could not be paid in full after several attempts"

log = logging.getLogger("payres.remote_payments")


class Resolver(Protocol):
    """Finds out what became of packets whose outcome is not known."""

    async def resolve(self, packet: PacketRecord) -> bool:
        """Posts or releases the packet's money once that is known; False when nobody will ever say."""
        ...


class Patience(msgspec.Struct, frozen=True):
    """Seconds that are waited: after a failed attempt, times the attempts since something arrived; after our faults."""

    after_failure: float = 5
    after_fault: float = 1


class _Setback(msgspec.Struct, frozen=True):
    """Why an attempt got no further, in a sentence, and whether another one may."""

    sentence: str
    retryable: bool


class RemotePayments:
    """Sends payments as soon as they are made. `wake` after each creation; `run` until cancelled.

    `patience`, and the timing of `outbounds`, may be changed at any time and hold for the next attempt.
    """

    def __init__(
        self,
        database: Database,
        clock: Clock,
        receivers: RemoteReceivers,
        outbounds: Outbounds,
        resolver: Resolver,
        patience: Patience | None = None,
    ) -> None:
        self._database = database
        self._clock = clock
        self._receivers = receivers
        self.outbounds = outbounds
        self._resolver = resolver
        self.patience = patience or Patience()
        self._woken = asyncio.Event()
        self._woken.set()  # the first round takes up what a crash left under way
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._turns_of_wallets: WeakValueDictionary[int, asyncio.Semaphore] = WeakValueDictionary()
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._closings: set[asyncio.Task[None]] = set()

    def wake(self) -> None:
        """There is, or may be, a payment to send."""
        self._woken.set()

    async def run(self) -> None:
        """Sends until nothing may be written any more, each payment in a task of its own."""
        try:
            while not self._database.halted:
                await self._woken.wait()
                self._woken.clear()
                try:
                    await self._take_up()
                except Exception:
                    log.exception("payments could not be looked up; next try in %s s", self.patience.after_fault)
                    await asyncio.sleep(self.patience.after_fault)
                    self._woken.set()
        finally:
            tasks = [*self._sending.values(), *self._closings]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_up(self) -> None:
        after = ""
        while found := await self._database.read(partial(outgoing.sending_elsewhere, limit=BATCH, after=after)):
            for payment in found:
                if payment.id not in self._sending:
                    self._sending[payment.id] = asyncio.create_task(self._send(payment.id))
            after = found[-1].id

    async def _send(self, payment_id: str) -> None:
        """Goes on with the payment until it has ended."""
        try:
            under_way = True
            while under_way:
                try:
                    under_way = await self._go_on(payment_id)
                except Exception:
                    if self._database.halted:
                        return
                    log.exception("payment %s stumbled and goes on in %s s", payment_id, self.patience.after_fault)
                    await asyncio.sleep(self.patience.after_fault)
        finally:
            self._sending.pop(payment_id, None)

    async def _go_on(self, payment_id: str) -> bool:
        """One step: what is in doubt is cleared up first; then the payment ends, or is tried once more.

        False when the payment had ended before.
        """
        payment = await self._database.read(lambda tx: outgoing.find_outgoing(tx, payment_id))
        if payment is None or payment.state != "sending":
            return False
        doubtful = await self._database.read(lambda tx: packets.packets_of_payment(tx, payment_id, "prepared"))
        if doubtful:
            await asyncio.gather(*map(self._clear_up, doubtful))
        elif _finished(payment) or payment.attempts >= MAX_ATTEMPTS or self._is_overdue(payment):
            await self._end(payment_id, NOT_IN_FULL)
        else:
            setback = await self._attempt_in_turn(payment)
            if setback is not None:
                await self._set_back(payment_id, setback)
        return True

    def _is_overdue(self, payment: OutgoingRecord) -> bool:
        return self._clock.now() >= payment.created_at + LONGEST

    async def _attempt_in_turn(self, payment: OutgoingRecord) -> "_Setback | None":
        """An attempt, when few enough others are under way."""
        wallet_id = payment.wallet_address_id
        turns = self._turns_of_wallets.setdefault(wallet_id, asyncio.Semaphore(AT_ONCE_FROM_WALLET))
        # Held while packets leave, and not while the payment waits for something.
        async with turns, self._turns:
            return await self._attempt(payment)

    async def _attempt(self, payment: OutgoingRecord) -> "_Setback | None":
        """Reads the receiver and sends what is left. None when that went well, or ended with packets in doubt."""
        await self._database.write(lambda tx: outgoing.count_attempt(tx, payment.id))
        try:
            receiver = await self._receivers.fetch_open(payment.receiver)
        except RemoteReceiverFailed as error:
            if error.reason == "completed" and _price_sent(payment):
                await self._end(payment.id, None)
                return None
            return _Setback(error.sentence, not error.permanent)
        if (receiver.asset.code, receiver.asset.scale) != (payment.receive_code, payment.receive_scale):
            return _Setback("the receiver now takes another asset than was quoted", retryable=False)
        assert receiver.ilp_address is not None
        assert receiver.shared_secret is not None
        wallet = await self._database.read(lambda tx: wallets.wallet_by_id(tx, payment.wallet_address_id))
        source = wallet.asset
        destination = Destination(receiver.ilp_address, receiver.shared_secret, receiver.asset)
        connection = Connection(self.outbounds.open(source, wallet.id, payment.id), destination, self.outbounds.timing)
        try:
            async with asyncio.timeout(LONGEST_ATTEMPT):
                result = await pay(connection, _plan(payment))
        except TimeoutError:
            return _Setback("the receiver takes the money too slowly", retryable=True)
        self._close(connection)
        if result.failure is not None:
            return _Setback(result.failure.sentence, result.failure.retryable)
        # Without packets in doubt, what may be left is too little to be sent.
        return None if result.in_doubt else _Setback(NOT_IN_FULL, retryable=False)

    def _close(self, connection: Connection) -> None:
        """Says goodbye in the background: a peer that does not answer that shall neither keep a turn nor an end."""
        closing = asyncio.create_task(_closed(connection))
        self._closings.add(closing)
        closing.add_done_callback(self._closings.discard)

    async def _set_back(self, payment_id: str, setback: "_Setback") -> None:
        """Waits before the next attempt, or ends the payment when there will be none."""
        payment = await self._database.read(lambda tx: outgoing.find_outgoing(tx, payment_id))
        if payment is not None and setback.retryable and payment.attempts < MAX_ATTEMPTS and not _finished(payment):
            log.info("payment %s is tried again: %s", payment_id, setback.sentence)
            await asyncio.sleep(self.patience.after_failure * payment.attempts)
        else:
            await self._end(payment_id, setback.sentence)

    async def _clear_up(self, packet: PacketRecord) -> None:
        """Finds out what became of a packet; when nobody can say, its money counts as sent."""
        if not await self._resolver.resolve(packet):
            now = self._clock.now()
            await self._database.write(lambda tx: balances.doubt(tx, packet.id, now))

    async def _end(self, payment_id: str, failure: str | None) -> None:
        """Ends the payment, which has failed unless it kept its promise; packets in doubt are cleared up first."""
        now = self._clock.now()

        def unit(tx: Transaction) -> None:
            payment = outgoing.find_outgoing(tx, payment_id)
            if payment is None or payment.state != "sending" or packets.under_way(tx, payment_id):
                return
            end_elsewhere(tx, payment, None if _arrived(payment) else failure, now)

        await self._database.write(unit)


async def _closed(connection: Connection) -> None:
    try:
        await close(connection)
    except Exception:  # the money is where it shall be
        log.info("a connection could not be closed", exc_info=True)


def _plan(payment: OutgoingRecord) -> Plan:
    """What is left of the payment, over the way that its quote found."""
    assert payment.path is not None
    path = decode_path(payment.path)
    spendable = payment.debit - payment.fee
    min_rate = Fraction(payment.receive, spendable)
    return Plan(
        max_source=spendable - payment.sent,
        min_delivery=max(payment.receive - payment.delivered, 0),
        min_rate=min_rate,
        path=Path(Fraction(path.low), Fraction(path.high), int(path.max_packet)),
        sends_all=path.sends_all,
        unit_forgiven=payment.delivered < payment.sent * min_rate,
    )


def _finished(payment: OutgoingRecord) -> bool:
    """Whether nothing more is to be sent. What promised an amount to the receiver stops there; else all is sent."""
    assert payment.path is not None
    return _all_sent(payment) if decode_path(payment.path).sends_all else _arrived(payment)


def _arrived(payment: OutgoingRecord) -> bool:
    """Whether the promise is kept: the promised amount has arrived, or all there was is spent."""
    return payment.delivered >= payment.receive or _all_sent(payment)


def _price_sent(payment: OutgoingRecord) -> bool:
    """Whether what was sent is worth what was promised, so that the promise is kept if the receiver has all it wants.

    What arrived is not known of every packet: not of those that their peer never answered.
    """
    assert payment.path is not None
    return payment.sent * Fraction(decode_path(payment.path).low) >= payment.receive


def _all_sent(payment: OutgoingRecord) -> bool:
    return payment.sent >= payment.debit - payment.fee
