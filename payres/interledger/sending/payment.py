"""Pays over a STREAM connection: many packets at once, each of which either arrives well enough or costs nothing."""

import asyncio

import msgspec

from payres.clock import SECOND
from payres.interledger.packets import Fulfill, Reject
from payres.interledger.sending.capacity import Capacity
from payres.interledger.sending.channel import Answer, Connection, Lost
from payres.interledger.sending.failures import Failure, SendingFailed
from payres.interledger.sending.pacing import Pace
from payres.interledger.sending.portions import Account, Plan, Portion
from payres.interledger.sending.rates import RateBounds
from payres.interledger.sending.replies import describe, fatal, is_congested, objection, too_large
from payres.interledger.sending.timing import MILLISECOND, monotonic, wait


class Result(msgspec.Struct, frozen=True):
    """What one run of a payment has come to.

    `sent` and `in_doubt` are source amounts, fulfilled for certain and perhaps; `delivered` has arrived for what was
    sent. Without `failure`, all is done once what is in doubt is resolved. `unit_forgiven` belongs into the plan of a
    further run.
    """

    sent: int
    delivered: int
    in_doubt: int
    failure: SendingFailed | None
    unit_forgiven: bool


async def pay(connection: Connection, plan: Plan) -> Result:
    """Sends what the plan allows. Returns when every packet has its outcome; failures are in the result.

    Raises only what `Outbound.pay` raises, after the other packets have come to their end; the packet concerned then
    counts as lost. When cancelled, it stops at once and leaves the packets under way to whoever recorded them.
    """
    connection.begin()
    run = _Run(connection, plan)
    try:
        return await run.result()
    finally:
        await run.stop()


class _Run:
    def __init__(self, connection: Connection, plan: Plan) -> None:
        self._connection = connection
        self._timing = connection.timing
        self._plan = plan
        self._account = Account(plan)
        self._bounds = RateBounds(plan.path.low, plan.path.high)
        self._capacity = Capacity(plan.path.max_packet)
        self._pace = Pace(self._timing)
        self._idle_at = monotonic() + self._timing.idle_timeout
        self._packets: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._failure: SendingFailed | None = None
        self._broken: Exception | None = None
        self._last_reject: Reject | None = None

    async def result(self) -> Result:
        while not self._failure and not self._broken:
            portion = self._next()
            if portion:
                await self._send(portion)
            elif self._packets:
                await wait(self._news)
            else:
                break
        while self._packets:
            await wait(self._news)
        if self._broken:
            raise self._broken
        account = self._account
        return Result(account.sent, account.delivered, account.in_doubt, self._outcome(), account.unit_forgiven)

    async def stop(self) -> None:
        packets = list(self._packets)
        for packet in packets:
            packet.cancel()
        await asyncio.gather(*packets, return_exceptions=True)

    def _next(self) -> Portion | None:
        try:
            return self._account.next(self._bounds, self._capacity.limit)
        except SendingFailed as failure:
            self._fail(failure)
            return None

    async def _send(self, portion: Portion) -> None:
        """Sends the packet if it is time for it; otherwise waits for that, or for what may change the packet."""
        now = monotonic()
        if now >= self._idle_at:
            return self._fail(self._idle())
        if self._connection.exhausted:
            return self._fail(
                SendingFailed(Failure.MAX_SAFE_ENCRYPTION_LIMIT, "The shared secret has sealed too many packets.")
            )
        if len(self._packets) >= self._timing.in_flight:
            return await wait(self._news, self._idle_at)
        if (ready_at := self._pace.ready_at(now)) >= now + MILLISECOND:  # no event loop waits for less
            return await wait(self._news, min(ready_at, self._idle_at))
        self._pace.sent(now)
        self._account.take(portion)
        self._packets.add(asyncio.create_task(self._carry(portion, now)))
        return None

    async def _carry(self, portion: Portion, sent_at: int) -> None:
        """Sends one packet and accounts for its outcome."""
        answer = None
        try:
            answer = await self._connection.pay(portion.amount, portion.minimum)
            self._learn(portion, answer, sent_at)
        except Exception as error:
            self._broken = self._broken or error
        finally:
            self._post(portion, answer)
            if task := asyncio.current_task():
                self._packets.discard(task)
            self._news.set()

    def _post(self, portion: Portion, answer: Answer | None) -> None:
        if answer is None or isinstance(answer.outcome, Lost):
            self._account.lost(portion)
        elif isinstance(answer.outcome, Fulfill):
            self._account.fulfilled(portion, answer.arrived)
            self._idle_at = monotonic() + self._timing.idle_timeout
        else:
            self._account.rejected(portion)
            self._last_reject = answer.outcome

    def _learn(self, portion: Portion, answer: Answer, sent_at: int) -> None:
        """What the outcome says about the path, and whether the payment may go on."""
        self._pace.answered(sent_at, monotonic(), authentic=answer.authentic, congested=is_congested(answer))
        try:
            if (data := too_large(answer)) is not None:
                self._capacity.too_large(portion.amount, data)
            elif answer.authentic:
                self._capacity.passed(portion.amount)
            if answer.stream:
                self._bounds = self._bounds.learn(portion.amount, answer.arrived)
        except SendingFailed as failure:
            self._fail(failure)
        asset = self._connection.destination.asset
        if end := objection(answer, portion.minimum, self._plan.min_delivery) or fatal(answer, asset):
            self._fail(end)

    def _idle(self) -> SendingFailed:
        seconds = self._timing.idle_timeout // SECOND
        last = f"; the last answer was {describe(self._last_reject)}" if self._last_reject else ""
        return SendingFailed(Failure.IDLE_TIMEOUT, f"Nothing has arrived for {seconds} seconds{last}.")

    def _fail(self, failure: SendingFailed) -> None:
        """The payment goes no further; the first reason is the one that counts."""
        self._failure = self._failure or failure

    def _outcome(self) -> SendingFailed | None:
        """Why the payment is not complete; no failure when nothing is left that another try could send."""
        account, promised = self._account, self._plan.min_delivery
        if not self._failure and not account.complete and not account.in_doubt:
            return SendingFailed(
                Failure.INSUFFICIENT_EXCHANGE_RATE,
                f"All that may be spent is spent, and {account.delivered} of {promised} have arrived.",
            )
        if self._failure and self._failure.reason == Failure.INSUFFICIENT_EXCHANGE_RATE:
            # What is left may be so little that rounding takes all of it.
            return self._failure if account.delivered < promised else None
        return None if self._failure and self._failure.retryable and account.complete else self._failure
