"""Sends payments to receivers on other servers, from the hold of the debit amount to the end.

The rows suffice to continue after a crash: the sent amount, packets without an outcome, and number of attempts.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import Context
from fractions import Fraction
from functools import partial
from typing import Final, Literal

import msgspec

from payres.core.payments.incoming import PAID_MEANWHILE
from payres.core.process.slots import Slots
from payres.core.process.worker import Worker, cancel_all, retry
from payres.core.protocol.amounts import MAX_LEDGER
from payres.core.protocol.clock import DAY
from payres.core.remote.connection import FetchFailed
from payres.core.store import terms
from payres.core.store.outgoing_payments import OUTGOING, OutgoingRecord
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Work
from payres.interledger.clearing import end_sending, is_finished, probed_path
from payres.interledger.limits import MAX_SENDING_PAYMENTS, MAX_SENDING_PAYMENTS_OF_WALLET
from payres.interledger.outbound import Outbound, WalletPackets
from payres.interledger.overpayment import overpay_tolerance
from payres.interledger.remote_receivers import RemoteIncomingPayment, RemoteReceivers
from payres.interledger.sending.connection import SendingFailed, StreamConnection, close
from payres.interledger.sending.payment import Plan, Progress, pay
from payres.interledger.store import outgoing_payments, packets
from payres.interledger.unanswered import UnansweredPackets

BATCH: Final = 128
# After it a payment ends with what it has sent, long before the 2^31 packets that one key may encrypt (RFC 29).
LONGEST: Final = 7 * DAY
# Seconds that a payment keeps its slot: a receiver may accept a little only from time to time.
LONGEST_ATTEMPT: Final = 3600.0
MAX_ATTEMPTS: Final = 5  # without any delivery
RETRY_SECONDS: Final = 1.0
POLL_SECONDS: Final = 1.0  # finds payments that a `payres` command has made
NOT_IN_FULL: Final = "the receiver could not be paid in full after several attempts"

log = logging.getLogger("payres.remote_payments")


class Backoff(msgspec.Struct, frozen=True):
    """Seconds until the next attempt: after a failed one, times the number of attempts since the last delivery; and
    after a fault of our own."""

    after_failure: float = 5
    after_fault: float = 1


def next_step(
    payment: OutgoingRecord, failure: SendingFailed | None, *, in_flight: bool, now: int
) -> Literal["resolve", "compare", "end", "wait", "attempt"]:
    """The next step of a payment in progress, after the last step's `failure`.

    Packets in flight are resolved first. An estimate of what they delivered is compared with the receiver before
    another attempt, and before the payment ends because it needs none.
    """
    if in_flight:
        return "resolve"
    is_over = payment.attempts >= MAX_ATTEMPTS or now >= payment.created_at + LONGEST
    if is_over or (failure and not failure.retryable) or (is_finished(payment) and not payment.estimated):
        return "end"
    if failure:
        return "wait"
    return "compare" if payment.estimated else "attempt"


class RemotePayments:
    """Sends payments. Call `send` after each creation, and `run` until cancelled.

    `backoff` and the timing of `outbound` may be changed at any time; changes apply from the next attempt. `before`, if
    set, is awaited with the id of each payment before it is sent.
    """

    def __init__(self, receivers: RemoteReceivers, outbound: Outbound, unanswered: UnansweredPackets) -> None:
        self._database, self._clock = outbound.database, outbound.clock
        self._receivers = receivers
        self.outbound = outbound
        self._unanswered = unanswered
        self.backoff = Backoff()
        self.before: Callable[[str], Awaitable[None]] | None = None
        self._worker = Worker("the search for payments to send", self._database, self._start, RETRY_SECONDS)
        self._slots = Slots(MAX_SENDING_PAYMENTS, MAX_SENDING_PAYMENTS_OF_WALLET)
        self._is_running = False
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._closings: dict[asyncio.Task[None], None] = {}  # in order

    def wake(self) -> None:
        """Looks for payments to send."""
        self._worker.wake()

    def send(self, payment_id: str) -> None:
        """Sends a payment in a task of its own, unless one already does."""
        if self._is_running and payment_id not in self._sending:
            # In a new context: requests to other servers made for payments count for no client.
            self._sending[payment_id] = asyncio.create_task(self._send(payment_id), context=Context())

    async def run(self) -> None:
        """Sends payments, each in its own task, until the database is in fail-stop."""
        self._is_running = True
        try:
            await self._worker.run()
        finally:
            self._is_running = False
            await cancel_all([*self._sending.values(), *self._closings])

    async def _start(self) -> float:
        """Starts a task for each payment in progress without one. Returns the seconds until the next search."""
        after: str | None = ""
        while after is not None:
            found = await self._database.read(partial(outgoing_payments.sending_remote, limit=BATCH, after=after))
            for payment_id in found:
                self.send(payment_id)
            after = found[-1] if len(found) == BATCH else None
        return POLL_SECONDS

    async def _send(self, payment_id: str) -> None:
        try:
            step = partial(self._continue, payment_id)
            await retry(f"payment {payment_id}", self._database, step, self.backoff.after_fault)
        finally:
            self._sending.pop(payment_id, None)

    async def _continue(self, payment_id: str) -> None:
        """Continues the payment until it has ended."""
        if self.before is not None:
            await self.before(payment_id)
        failure: SendingFailed | None = None
        while found := await self._database.read(partial(_in_progress, payment_id=payment_id)):
            payment, wallet, in_flight = found
            step = next_step(payment, failure, in_flight=in_flight, now=self._clock.now())
            last, failure = failure, None
            if step == "resolve":
                await self._unanswered.settled(payment_id)
            elif step == "compare":
                failure = await self._compare(payment)
            elif step == "end":
                await self._end(payment_id, last.sentence if last else NOT_IN_FULL)
            elif step == "wait":
                log.info("payment %s is tried again: %s", payment_id, last)
                await asyncio.sleep(self.backoff.after_failure * max(payment.attempts, 1))
            else:
                # The slot is held while packets are sent, not while the payment waits.
                async with self._slots.slot(wallet.id):
                    failure = await self._attempt(payment, wallet)

    async def _compare(self, payment: OutgoingRecord) -> SendingFailed | None:
        """Corrects an estimate of what the payment has delivered by what its receiver has got."""
        try:
            receiver = await self._receivers.fetch(payment.terms.receiver)
        except FetchFailed as error:
            return await self._failed_to_read(payment, error)
        corrected = {"delivered": delivered_by(payment, receiver), "estimated": 0}
        await self._database.write(lambda work: OUTGOING.update(work, payment.id, **corrected))
        return None

    async def _attempt(self, payment: OutgoingRecord, wallet: WalletRecord) -> SendingFailed | None:
        """Reads the receiver and sends the rest. None if the rows determine the next step."""
        try:
            receiver = await self._receivers.fetch_open(payment.terms.receiver)
        except FetchFailed as error:
            if error.reason == "completed" and _price_sent(payment):
                await self._end(payment.id, None)
                return None
            return await self._failed_to_read(payment, error)
        count_attempt = _count_attempt(payment)
        if (objection := _objection(payment, receiver)) is not None:
            await self._database.write(count_attempt)
            return SendingFailed(objection, retryable=False)
        assert receiver.method is not None, "fetch_open returns only payments with a method"
        before = receiver.received - payment.delivered
        baseline = before if abs(before) <= MAX_LEDGER else None
        progress = Progress(_plan(payment))

        def begin(work: Work) -> None:
            count_attempt(work, received_before=baseline)
            # What its packets deliver is judged by the rate that they left at.
            OUTGOING.update(work, payment.id, path=terms.path_column(progress.path, sends_all=payment.terms.sends_all))

        own_packets = WalletPackets(self.outbound, wallet.asset, wallet.id, payment.id, begin)
        connection = StreamConnection(own_packets, receiver.method, self.outbound.timing)
        result = None
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_ATTEMPT):
                result = await pay(connection, progress)
        await own_packets.ensure_begun()
        if result is None:
            return SendingFailed("the receiver takes the money too slowly")
        if connection.is_kept:
            self._close(connection)
        if result.failure is None and not result.unresolved:
            return SendingFailed(NOT_IN_FULL, retryable=False)  # the rest cannot be sent; no failure if it has arrived
        return result.failure

    async def _failed_to_read(self, payment: OutgoingRecord, error: FetchFailed) -> SendingFailed:
        """The failure of a step whose receiver cannot be read or paid."""
        if error.reason == "busy":  # our own server was busy: not a failed attempt
            return SendingFailed(error.sentence)
        await self._database.write(_count_attempt(payment))
        return SendingFailed(error.sentence, retryable=error.retryable)

    def _close(self, connection: StreamConnection) -> None:
        """Closes in the background: an unresponsive peer must not delay the payment's end or other payments."""
        closing = asyncio.create_task(close(connection))
        self._closings[closing] = None
        closing.add_done_callback(self._closings.pop)

    async def _end(self, payment_id: str, failure: str | None) -> None:
        await self._database.write(partial(end_sending, payment_id=payment_id, failure=failure))


def _count_attempt(payment: OutgoingRecord) -> Callable[..., None]:
    """A unit that counts one more attempt."""
    return partial(outgoing_payments.begin_attempt, payment_id=payment.id, number=payment.attempts + 1)


def _in_progress(work: Work, payment_id: str) -> tuple[OutgoingRecord, WalletRecord, bool] | None:
    """The payment, its wallet, and whether it has packets in flight; None if it has ended."""
    payment = OUTGOING.get(work, payment_id)
    if payment is None or payment.state != "sending":
        return None
    wallet = WALLETS.by_id(work, payment.wallet_address_id)
    return payment, wallet, packets.in_flight_of_payment(work, payment_id) > 0


def _objection(payment: OutgoingRecord, receiver: RemoteIncomingPayment) -> str | None:
    """Why the receiver can no longer be paid as quoted; None if it can, or a part was already paid."""
    if receiver.asset != payment.terms.asset:
        return "the receiver now takes another asset than was quoted"
    if payment.sent or receiver.incoming_value is None or receiver.remaining is None:
        return None
    # Otherwise packets would be sent until the receiver declines one, leaving a partial payment.
    taken = receiver.remaining + overpay_tolerance(receiver.incoming_value)
    return PAID_MEANWHILE if payment.terms.receive > taken else None


def delivered_by(payment: OutgoingRecord, receiver: RemoteIncomingPayment) -> int:
    """What the payment has delivered, of which a part is estimated, by what its receiver has got since it began.

    Others may have paid into the receiver too, and it may say too little, but each packet delivered its minimum. If it
    has its amount, and only a few units are missing by the estimate, these arrived too: the rate has risen a little.
    """
    terms = payment.terms
    if payment.received_before is None or receiver.asset != terms.asset:
        return payment.delivered
    least, most = payment.delivered - payment.estimated, payment.delivered
    if payment.estimated and receiver.remaining == 0:
        most = max(most, min(most + overpay_tolerance(payment.estimated), terms.receive))
    return min(most, max(receiver.received - payment.received_before, least))


def _plan(payment: OutgoingRecord) -> Plan:
    """The plan for the rest of the payment, over the path that its quote probed."""
    spendable = payment.terms.debit - payment.terms.fee
    return Plan(
        max_source=spendable - payment.sent,
        min_delivery=max(payment.terms.receive - payment.delivered, 0),
        min_rate=Fraction(payment.terms.receive, spendable),
        path=probed_path(payment),
        sends_all=payment.terms.sends_all,
        is_begun=payment.sent > 0,
    )


def _price_sent(payment: OutgoingRecord) -> bool:
    """Whether the sent amount is worth the quoted amount, so that all of it arrived if the receiver is complete.

    For packets whose fulfillment was fetched later, only an estimate is known.
    """
    return payment.sent * probed_path(payment).low >= payment.terms.receive
