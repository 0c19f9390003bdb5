"""Payments to receivers on other servers, from the reserved debit amount to their end.

All that is needed to go on after a crash is in the rows: what was sent, the packets whose outcome is not known, and how
often it was tried.
"""

import asyncio
import logging
from fractions import Fraction
from functools import partial
from typing import Final, Protocol

import msgspec

from payres.amounts import Asset
from payres.clock import Clock
from payres.federation.failures import RemoteReceiverFailed
from payres.federation.incoming_payments import RemoteIncomingPayment, RemoteReceivers
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
AT_ONCE: Final = 64  # payments under way at a time; the others wait for their turn
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
        self._sending: dict[str, asyncio.Task[None]] = {}

    def wake(self) -> None:
        """There is, or may be, a payment to send."""
        self._woken.set()

    async def run(self) -> None:
        """Sends for ever, each payment in a task of its own."""
        try:
            while True:
                await self._woken.wait()
                self._woken.clear()
                try:
                    await self._take_up()
                except Exception:
                    log.exception("payments could not be looked up; next try in %s s", self.patience.after_fault)
                    await asyncio.sleep(self.patience.after_fault)
                    self._woken.set()
        finally:
            for task in list(self._sending.values()):
                task.cancel()
            await asyncio.gather(*self._sending.values(), return_exceptions=True)

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
            async with self._turns:
                while (payment := await self._under_way(payment_id)) is not None:
                    try:
                        await self._go_on(payment)
                    except Exception:
                        log.exception("payment %s stumbled and goes on in %s s", payment_id, self.patience.after_fault)
                        await asyncio.sleep(self.patience.after_fault)
        finally:
            self._sending.pop(payment_id, None)

    async def _under_way(self, payment_id: str) -> OutgoingRecord | None:
        payment = await self._database.read(lambda tx: outgoing.find_outgoing(tx, payment_id))
        return payment if payment is not None and payment.state == "sending" else None

    async def _go_on(self, payment: OutgoingRecord) -> None:
        """One step: what is in doubt is cleared up first; then the payment ends, or is tried once more."""
        doubtful = await self._database.read(lambda tx: packets.packets_of_payment(tx, payment.id, "prepared"))
        if doubtful:
            await asyncio.gather(*map(self._clear_up, doubtful))
            return
        if _finished(payment):
            await self._end(payment, NOT_IN_FULL)
            return
        if payment.attempts >= MAX_ATTEMPTS:
            await self._end(payment, NOT_IN_FULL)
            return
        await self._database.write(lambda tx: outgoing.count_attempt(tx, payment.id))
        try:
            receiver = await self._receivers.fetch_open(payment.receiver)
        except RemoteReceiverFailed as error:
            await self._failed(payment, error.sentence, retryable=not error.permanent)
            return
        await self._attempt(payment, receiver)

    async def _attempt(self, payment: OutgoingRecord, receiver: RemoteIncomingPayment) -> None:
        assert receiver.ilp_address is not None
        assert receiver.shared_secret is not None
        if (receiver.asset.code, receiver.asset.scale) != (payment.receive_code, payment.receive_scale):
            await self._end(payment, "the receiver now takes another asset than was quoted")
            return
        wallet = await self._database.read(lambda tx: wallets.wallet_by_id(tx, payment.wallet_address_id))
        source = Asset(wallet.asset_code, wallet.asset_scale)
        destination = Destination(receiver.ilp_address, receiver.shared_secret, receiver.asset)
        outbound = self.outbounds.open(source, payment.id)
        connection = Connection(outbound, destination, self.outbounds.timing)
        result = await pay(connection, _plan(payment))
        await close(connection)
        if result.failure is not None:
            await self._failed(payment, result.failure.sentence, retryable=result.failure.retryable)
        elif not result.in_doubt:  # what may be left is too little to be sent
            await self._end(payment, NOT_IN_FULL)

    async def _failed(self, payment: OutgoingRecord, sentence: str, *, retryable: bool) -> None:
        """Waits before the next attempt, or ends the payment when there will be none."""
        current = await self._under_way(payment.id)
        attempts = current.attempts if current else MAX_ATTEMPTS
        if retryable and attempts < MAX_ATTEMPTS:
            log.info("payment %s is tried again: %s", payment.id, sentence)
            await asyncio.sleep(self.patience.after_failure * attempts)
        else:
            await self._end(payment, sentence)

    async def _clear_up(self, packet: PacketRecord) -> None:
        """Finds out what became of a packet; when nobody can say, its money counts as sent."""
        if not await self._resolver.resolve(packet):
            now = self._clock.now()
            await self._database.write(lambda tx: balances.doubt(tx, packet.id, now))

    async def _end(self, payment: OutgoingRecord, failure: str) -> None:
        """Ends the payment, which has failed unless it kept its promise; packets in doubt are cleared up first."""
        now = self._clock.now()

        def unit(tx: Transaction) -> None:
            current = outgoing.find_outgoing(tx, payment.id)
            if current is None or current.state != "sending":
                return
            if packets.under_way(tx, payment.id):
                return
            end_elsewhere(tx, current, None if _arrived(current) else failure, now)

        await self._database.write(unit)


def _plan(payment: OutgoingRecord) -> Plan:
    """What is left of the payment, over the way that its quote found."""
    assert payment.path is not None
    path = decode_path(payment.path)
    spendable = payment.debit - payment.fee
    return Plan(
        max_source=spendable - payment.sent,
        min_delivery=max(payment.receive - payment.delivered, 0),
        min_rate=Fraction(payment.receive, spendable),
        path=Path(Fraction(path.low), Fraction(path.high), int(path.max_packet)),
        sends_all=path.sends_all,
        unit_forgiven=payment.sent > 0,
    )


def _finished(payment: OutgoingRecord) -> bool:
    """Whether nothing more is to be sent. What promised an amount to the receiver stops there; else all is sent."""
    assert payment.path is not None
    return _all_sent(payment) if decode_path(payment.path).sends_all else _arrived(payment)


def _arrived(payment: OutgoingRecord) -> bool:
    """Whether the promise is kept: the promised amount has arrived, or all there was is spent."""
    return payment.delivered >= payment.receive or _all_sent(payment)


def _all_sent(payment: OutgoingRecord) -> bool:
    return payment.sent >= payment.debit - payment.fee
