"""Finds the outcome of packets in flight that no task awaits any more, after a crash or a lost answer.

The rows are the backlog: every second it examines packets in flight, and takes those that have expired and so can no
longer be fulfilled. Only peers that repeat answers are asked, because others might accept the money twice. If a peer
gives no answer for an hour and to five requests, or cannot be asked, a payment of ours turns to its receiver, and a
packet from another peer is released.

The receiver's incoming payment is read again: packets that its received amount explains are posted, the others are
voided and sent again. An amount that cannot be explained proves nothing, as when others pay into the same incoming
payment or another payment of ours to it overlaps: the payer gets the money back, the payment ends, and an operator
resolves its packets.

A lying receiver harms no payer, because the amount only decides whether the payer gets money back or the peer is paid,
and how much of the quoted amount is still sent.
A receiver that denies a delivery is sent it again, and its peer, which showed no fulfillment in time, is not paid for
the first packet. A receiver that claims a delivery that never arrived has acknowledged it to the payer.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Hashable, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from math import ceil, floor
from typing import Final

import msgspec

from payres.core.process.slots import Slots
from payres.core.process.worker import Worker, cancel_all, retry
from payres.core.protocol.amounts import MAX_LEDGER, describe_amount
from payres.core.protocol.clock import HOUR, MILLISECOND, MINUTE, SECOND, Clock
from payres.core.remote.connection import FetchFailed
from payres.core.store.outgoing_payments import OUTGOING, OutgoingRecord
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work
from payres.interledger import clearing
from payres.interledger.carrier import BOUNDS, Carrier, land_forwarded
from payres.interledger.clearing import end_remote, has_arrived, payment_of, probed_path
from payres.interledger.connector import LONGEST_LIFE
from payres.interledger.oer import decode_prepare
from payres.interledger.packets import Code, Fulfill, Outcome, PacketRejected, Reject, Unanswered
from payres.interledger.remote_receivers import RemoteReceivers
from payres.interledger.store import outgoing_payments, packets, peers
from payres.interledger.store.packets import PacketRecord
from payres.interledger.store.peers import PeerRecord

# After a packet's expiry: the peer's clock may be a little behind, or the clocks on the way to the receiver.
PEER_MARGIN: Final = SECOND
RECEIVER_MARGIN: Final = 5 * SECOND
GIVE_UP_AFTER: Final = HOUR
LEAST_TRIES: Final = 5  # before that: for a server that was down, or whose clock was set, the hour is over at once
FIRST_WAIT: Final = SECOND
LONGEST_WAIT: Final = 5 * MINUTE
# Concurrent requests to one peer; and about packets of one payment or from one peer.
ASKED_AT_ONCE: Final = 16
ASKED_AT_ONCE_OF_ONE: Final = 8
TICK_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0
PAGE: Final = 512  # rows examined at a time
PAGE_PAUSE: Final = 50 * MILLISECOND  # before the next page, so that a backlog delays no packet by much
MAX_SUMS: Final = 4096  # distinct sums of packets: few, because packets of a payment have few sizes
NOT_REPEATED: Final = Unanswered("The peer does not repeat answers")
UNPROVED: Final = (
    "packets were left unanswered, and what the receiver has received does not say what became of them; what is not"
    " known to have arrived was given back"
)

log = logging.getLogger("payres.interledger")

# What a choice of packets has delivered, from and to; its cost, and how many packets of each amount it has.
AmountRange = tuple[int, int]
Choice = tuple[int, tuple[int, ...]]


class UnansweredPackets:
    """Call `run`. A case is our own payment with its packets in flight, or one packet from another peer."""

    def __init__(self, carrier: Carrier, receivers: RemoteReceivers) -> None:
        self._database, self._clock = carrier.database, carrier.clock
        self._carrier = carrier
        self._receivers = receivers
        self._slots = Slots(None, ASKED_AT_ONCE, ASKED_AT_ONCE_OF_ONE)
        self._after = ""  # the last packet of the previous page
        self._due: dict[str, int] = {}  # when to examine cases again
        self._tries = Counter[tuple[str, int | None]]()  # without an answer, by case and peer; None is for the receiver
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Runs until cancelled, or the database is in fail-stop."""
        try:
            await Worker("the search for unresolved packets", self._database, self._search, RETRY_SECONDS).run()
        finally:
            await cancel_all(self._tasks.values())

    async def settled(self, payment_id: str) -> None:
        """Returns when the payment has no packet in flight."""
        in_flight = partial(packets.in_flight_of_payment, outgoing_payment_id=payment_id)
        while True:
            if not await self._database.read(in_flight):
                return
            await asyncio.sleep(TICK_SECONDS)

    async def _search(self) -> float:
        return seconds_until(self._clock, await self._look())

    async def _look(self) -> int | None:
        """Starts the due cases of one page. Returns when to look again, or None for a second from now."""
        page = await self._database.read(partial(packets.prepared_packets, limit=PAGE, after=self._after))
        now, later = self._clock.now(), []
        ahead = [packet.id for packet in page if packet.expires_at > now + LONGEST_LIFE]
        if ahead:  # recorded while the clock was ahead
            await self._database.write(partial(packets.limit_expiry, ids=ahead, latest=now + LONGEST_LIFE))
            return None
        self._after = page[-1].id if len(page) == PAGE else ""
        self._due = {case: due for case, due in self._due.items() if abs(due - now) <= LONGEST_WAIT}
        known = self._due.keys() | self._tasks
        self._tries = Counter({key: tries for key, tries in self._tries.items() if key[0] in known})
        for packet in page:
            case = packet.outgoing_payment_id or packet.id
            if case in self._tasks or packet.id in self._carrier.awaited:
                continue
            due = max(self._due.get(case, 0), packet.expires_at + PEER_MARGIN)
            slot = packet.to_peer_id, packet.outgoing_payment_id or packet.from_peer_id
            if due > now:
                later.append(due)
            elif self._slots.try_take(*slot):
                self._tasks[case] = asyncio.create_task(self._take_up(case, packet, slot))
        if self._after:
            return now + PAGE_PAUSE
        return None if self._tasks or self._carrier.awaited else min(later, default=None)

    async def _take_up(self, case: str, packet: PacketRecord, slot: tuple[Hashable, ...]) -> None:
        try:
            step = partial(self._resolve, packet)
            due = await retry(f"recovery of packet {packet.id}", self._database, step, RETRY_SECONDS)
            self._due[case] = due or 0
        finally:
            self._slots.release(*slot)
            del self._tasks[case]

    async def _resolve(self, packet: PacketRecord) -> int | None:
        """Examines a case. Returns when to do so again; None when all its packets have an outcome."""
        payment_id, found = packet.outgoing_payment_id, [packet]
        if payment_id is not None:
            found = [*await self._database.read(lambda work: packets.packets_of_payment(work, payment_id, "prepared"))]
        expired_at = max((one.expires_at for one in found), default=0) + PEER_MARGIN
        if self._clock.now() < expired_at:
            return expired_at
        for one in found:
            outcome, may_change = await self._ask(one)
            if isinstance(outcome, Unanswered) and may_change:
                return next_look(self._clock.now(), one.expires_at)
            with suppress(PacketRejected):  # it was given up in the meantime
                await self._database.write(partial(_end, packet=one, outcome=outcome))
        return None if payment_id is None else await self._ask_receiver(payment_id)

    async def _ask(self, packet: PacketRecord) -> tuple[Outcome, bool]:
        """The outcome of an expired packet, and whether asking again may reveal more. Raises Unavailable."""
        if packet.outgoing_payment_id is None and packet.from_request_id is None:
            return Unanswered("The sending peer does not number its requests"), False  # and expects no answer
        found = await self._database.read(partial(_peer_and_token, peer_id=packet.to_peer_id))
        if found is None:
            return Unanswered("The peer was removed"), False
        peer, token = found
        if not peer.repeats_answers or packet.prepare is None:
            return NOT_REPEATED, False
        key = packet.outgoing_payment_id or packet.id, peer.id
        outcome, repeats = await self._carrier.link.post(peer, token, packet.prepare, packet.id, BOUNDS.seconds)
        if isinstance(outcome, Unanswered):
            return outcome, not self._is_over(key, packet.expires_at)
        del self._tries[key]
        if isinstance(outcome, Fulfill) and outcome.fits(decode_prepare(packet.prepare).condition):
            return outcome, False  # the preimage suffices, even if the peer does not repeat answers
        return (Reject(Code.TRANSFER_TIMED_OUT), False) if repeats else (NOT_REPEATED, False)

    async def _ask_receiver(self, payment_id: str) -> int | None:
        """Examines once what the receiver has received. Returns when to do so again; None when every packet of the
        payment has an outcome, or the payment has ended."""
        standing = await self._database.read(partial(find_standing, payment_id=payment_id))
        if standing is None:
            return None
        if self._clock.now() < (due := standing.expired_at + RECEIVER_MARGIN):
            return due
        received = await self._received(standing)
        is_over = self._is_over((payment_id, None), standing.expired_at)
        message = await self._database.write(partial(_conclude, before=standing, received=received, is_over=is_over))
        if message is not None:
            log.warning("%s", message)
            return None
        return next_look(self._clock.now(), standing.expired_at)

    def _is_over(self, key: tuple[str, int | None], expired_at: int) -> bool:
        """Counts a try without an answer, or with a receiver's that may explain nothing. Whether it was the last."""
        self._tries[key] += 1
        return self._tries[key] >= LEAST_TRIES and self._clock.now() >= expired_at + GIVE_UP_AFTER

    async def _received(self, standing: "Standing") -> int | None:
        """The receiver's received amount; None if it cannot be read or would prove nothing."""
        if standing.before is None:
            return None
        terms = standing.payment.terms
        try:
            receiver = await self._receivers.fetch(terms.receiver)
        except FetchFailed as error:
            log.info("payment %s waits for what its receiver has received: %s", standing.payment.id, error.sentence)
            return None
        return receiver.received if receiver.asset == terms.asset else None


def seconds_until(clock: Clock, due: int | None) -> float:
    """The seconds until the next look: one, or less if something is due earlier."""
    return TICK_SECONDS if due is None else min(max((due - clock.now()) / SECOND, 0), TICK_SECONDS)


def next_look(now: int, expired_at: int) -> int:
    """Waits as long again as since the packet expired, within bounds."""
    return now + min(max(now - expired_at, FIRST_WAIT), LONGEST_WAIT)


def _peer_and_token(work: Work, peer_id: int) -> tuple[PeerRecord, str] | None:
    peer = peers.peer_by_id(work, peer_id)
    return (peer, peers.outgoing_token(work, peer)) if peer else None


def _end(work: Work, packet: PacketRecord, outcome: Outcome) -> None:
    """Posts or voids the money of a packet. An unanswered packet of our own payment is left to its receiver."""
    is_own = packet.outgoing_payment_id is not None
    if isinstance(outcome, Fulfill):
        if is_own:
            _fulfil_by_estimate(work, packet)
        else:
            land_forwarded(work, packet, outcome)
    elif isinstance(outcome, Reject):
        clearing.reject(work, packet.id)
    elif not is_own and clearing.reject(work, packet.id):
        note = f"Packet {packet.id} over {packet.amount} was released unanswered. {outcome.why}"
        peers.note_error(work, packet.to_peer_id, note, work.now)
        log.warning("%s", note)


def _fulfil_by_estimate(work: Work, packet: PacketRecord) -> None:
    """Posts a packet of our own payment with the minimum that it has delivered by the probed rate.

    The receiver's own figure is encrypted with a secret that is not stored. What is above the receiver's minimum is an
    estimate, which the payment compares with what its receiver has got.
    """
    payment = payment_of(work, packet)
    least = max(probed_path(payment).least(packet.source_amount), packet.minimum)
    if clearing.fulfil(work, packet.id, least):
        OUTGOING.update(work, payment.id, estimated=min(payment.estimated + least - packet.minimum, MAX_LEDGER))


class InFlight(msgspec.Struct, frozen=True):
    """A packet in flight. If it arrived, it delivered from `least` to `most`."""

    packet: PacketRecord
    least: int
    most: int


class Standing(msgspec.Struct, frozen=True):
    """A payment and its packets in flight.

    `before` is what the receiver had received before the payment; None if unknown, or if other payments of ours to it
    overlap, so that its figure proves nothing.
    """

    payment: OutgoingRecord
    before: int | None
    in_flight: Sequence[InFlight]

    @property
    def expired_at(self) -> int:
        """When the last packet expires."""
        return max(one.packet.expires_at for one in self.in_flight)


def find_standing(work: Work, payment_id: str) -> Standing | None:
    """None if the payment has ended, or has no packet in flight."""
    payment = OUTGOING.get(work, payment_id)
    found = packets.packets_of_payment(work, payment_id, "prepared")
    if payment is None or payment.state != "sending" or not found:
        return None
    others = [one for one in outgoing_payments.in_flight_to(work, payment.terms.receiver) if one.id != payment.id]
    is_alone = not payment.overlapped and not any(one.has_begun for one in others)
    in_flight = [InFlight(packet, *_delivers(payment, packet)) for packet in found]
    return Standing(payment, payment.received_before if is_alone else None, in_flight)


def _delivers(payment: OutgoingRecord, packet: PacketRecord) -> tuple[int, int]:
    """The minimum and maximum that a packet delivers, by the probed rate, or the payment's own if that is wider, and by
    its receiver's minimum."""
    path, amount = probed_path(payment), packet.source_amount
    least, most = path.least(amount), path.most(amount)
    if payment.sent and payment.delivered:
        seen = Fraction(payment.delivered, payment.sent)
        least = min(least, floor(amount * seen))
        if seen >= path.high:  # which is exclusive
            most = ceil(amount * seen)
    return max(least, packet.minimum), max(most, packet.minimum)


def _conclude(work: Work, before: Standing, received: int | None, *, is_over: bool) -> str | None:
    """Sets the outcomes of the packets, or gives them up. Returns a description for the log, or None while more may be
    learned.

    `received` is what the receiver had received while the rows were as in `before`. They are given up if it `is_over`.
    """
    standing = find_standing(work, before.payment.id)
    if standing is None:
        return None
    if received is not None and standing.before is not None and standing == before:
        increase = received - standing.before - standing.payment.delivered
        found = arrived(standing.in_flight, increase)
        if found is not None:
            return _account_for(work, standing, found, increase)
        if increase > 0:  # money from other payers never goes away
            return _give_up(work, standing)
    if standing.before is None or is_over:
        return _give_up(work, standing)
    return None


def arrived(in_flight: Sequence[InFlight], increase: int) -> Sequence[InFlight] | None:
    """The packets that explain the increase of the receiver's amount; None if none do.

    If exchange rates allow several answers, the one that costs the payer least. An example: packets of 100, 100 and 30
    are in flight, of which each delivers nine tenths, or one less. The receiver has 116 more than before.

    | of 100 | of 30 | cost | have delivered | |
    |---|---|---|---|---|
    | 0 | 0 | 0 | 0 | too little |
    | 0 | 1 | 30 | 26 to 27 | too little |
    | 1 | 0 | 100 | 89 to 90 | too little |
    | 1 | 1 | 130 | 115 to 117 | this is the answer |
    | 2 | any | 200 or more | 178 or more | too much: no further packet is added |
    """
    alike: dict[int, list[InFlight]] = {}
    for one in in_flight:
        alike.setdefault(one.packet.source_amount, []).append(one)
    rows: dict[AmountRange, Choice] = {(0, 0): (0, ())}
    for amount, some in alike.items():
        grown: dict[AmountRange, Choice] = {}
        for (least, most), (spent, counts) in rows.items():
            for count in range(len(some) + 1):
                bounds = least + count * some[0].least, most + count * some[0].most
                if bounds[0] > increase:
                    break
                choice = spent + count * amount, (*counts, count)
                grown[bounds] = min(choice, grown.get(bounds, choice))
            if len(grown) > MAX_SUMS:
                return None
        rows = grown
    fitting = [choice for (least, most), choice in rows.items() if least <= increase <= most]
    if not fitting:
        return None
    _, counts = min(fitting)
    return [one for some, count in zip(alike.values(), counts, strict=True) for one in some[:count]]


def cost(some: Sequence[InFlight]) -> int:
    """The total that packets take from their payer."""
    return sum(one.packet.source_amount for one in some)


def _account_for(work: Work, standing: Standing, found: Sequence[InFlight], increase: int) -> str:
    """Posts the packets that arrived, and voids the others."""
    spare = increase - sum(one.least for one in found)
    for one in found:
        more = min(spare, one.most - one.least)
        spare -= more
        clearing.fulfil(work, one.packet.id, one.least + more)
    for one in standing.in_flight:
        clearing.reject(work, one.packet.id)  # no effect on those that were just posted
    described, proved = _described(work, standing, found)
    return f"{described}; by what the receiver has received, {proved} arrived"


def _give_up(work: Work, standing: Standing) -> str:
    """Ends the payment with what is known to have arrived; its other packets remain unresolved."""
    for one in standing.in_flight:
        clearing.leave_unresolved(work, one.packet)
        note = f"Packet {one.packet.id} over {one.packet.amount} is unresolved"
        peers.note_error(work, one.packet.to_peer_id, note, work.now)
    payment = OUTGOING.by_id(work, standing.payment.id)
    end_remote(work, payment, None if has_arrived(payment) else UNPROVED)
    described, _ = _described(work, standing, ())
    sentence = "nothing proves what arrived, the payer has it back, and `payres peer unresolved` lists the packets"
    return f"{described}; {sentence}"


def _described(work: Work, standing: Standing, found: Sequence[InFlight]) -> tuple[str, str]:
    """The payment, its wallet and the amount in question; and the amount that was `found` to have arrived."""
    wallet = WALLETS.by_id(work, standing.payment.wallet_address_id)
    amount, proved = (describe_amount(cost(some), wallet.asset) for some in (standing.in_flight, found))
    count = f"{len(standing.in_flight)} packets with {amount} were left unanswered"
    return f"payment {standing.payment.id} from wallet {wallet.path}: {count}", proved
