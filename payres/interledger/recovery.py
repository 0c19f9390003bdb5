"""Recovery: finds the outcome of packets whose answer was lost, by a crash here or on the way.

A packet that has expired can no longer be fulfilled, so the peer's answer to the same request says what became of it.
Only peers that repeat their answers are asked: others might take the money twice. When the outcome of a packet of our
own payment stays unknown, `payres.interledger.reconciliation` goes on.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from heapq import heappop, heappush
from typing import Final, Literal, NamedTuple

import msgspec

from payres.clock import HOUR, MINUTE, SECOND, Clock
from payres.interledger import balances, responses
from payres.interledger.link import BOUNDS, Answered, Link
from payres.interledger.packets import Fulfill, decode_prepare, encode, fulfills
from payres.interledger.responses import Request
from payres.payments.settlement import payment_of
from payres.slots import Slots
from payres.store import packets, peers
from payres.store.database import Database
from payres.store.packets import PACKETS, PacketRecord
from payres.store.peers import PeerRecord
from payres.store.work import Work
from payres.worker import retry

MARGIN: Final = SECOND  # after a packet's expiry: the peer's clock may be a little behind
GIVE_UP_AFTER: Final = HOUR
FIRST_WAIT: Final = SECOND
LONGEST_WAIT: Final = 5 * MINUTE
# Requests in flight to one peer, in slots of their own so that packets that are held back do not delay them; and those
# among them about packets of one payment or from one peer.
ASKED_AT_ONCE: Final = 16
ASKED_AT_ONCE_OF_ONE: Final = 8
TICK_SECONDS: Final = 1.0  # between readings of the clock, at most: it may be moved
RETRY_SECONDS: Final = 5.0
PAGE: Final = 256
UNNUMBERED: Final = "The peer before does not number its requests"

log = logging.getLogger("payres.interledger")


class Resolved(msgspec.Struct, frozen=True):
    """What is known of a packet, which was fulfilled if there is a Fulfill. `final`: asking again is no use."""

    outcome: Fulfill | Literal["rejected", "unknown"]
    final: bool = True
    why: str = ""


class Waiting(NamedTuple):
    """A forwarded packet; when to ask about it (microseconds), and how long to wait after that."""

    due: int
    packet_id: str
    wait: int
    to_peer_id: int
    from_peer_id: int


class Backlog:
    """Forwarded packets without an outcome. Each pair of peers has its own queue, so that none delays another.

    A peer that is down leaves thousands for an hour, so each is only a few bytes until it is due and gets a task.
    """

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], list[Waiting]] = {}
        self._slots = Slots(None, ASKED_AT_ONCE, ASKED_AT_ONCE_OF_ONE)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, packet: Waiting) -> None:
        heappush(self._waiting.setdefault((packet.to_peer_id, packet.from_peer_id), []), packet)

    def take_due(self, now: int) -> Iterator[Waiting]:
        """Takes out what is due and has a slot, the first due first. `release` each afterwards."""
        for pair, waiting in list(self._waiting.items()):
            while waiting and waiting[0].due <= now and self._slots.try_take(*pair):
                yield heappop(waiting)
            if not waiting:
                del self._waiting[pair]

    def release(self, packet: Waiting) -> None:
        """Gives back the packet's slot."""
        self._slots.release(packet.to_peer_id, packet.from_peer_id)


class Recovery:
    """Asks peers what became of packets: `resolve` for packets of our own payments, `run` for forwarded ones."""

    def __init__(self, database: Database, clock: Clock, link: Link) -> None:
        self._database = database
        self._clock = clock
        self._link = link
        self._backlog = Backlog()
        self._changed = asyncio.Event()
        self._slots = Slots(None, ASKED_AT_ONCE, ASKED_AT_ONCE_OF_ONE)

    async def resolve(self, packet: PacketRecord) -> bool:
        """Posts or voids the money of our payment's packet; False when its outcome stays unknown.

        Asks for an hour at most. Raises Unavailable.
        """
        wait = FIRST_WAIT
        while True:
            resolved = await self.ask(packet)
            due, wait = self._next_time(packet, resolved, wait)
            if due is None:
                break
            await sleep_until(self._clock, due)
        if resolved.outcome == "unknown":
            return False
        await self._database.write(partial(self._end_own, packet=packet, resolved=resolved))
        return True

    def lost(self, packet: PacketRecord) -> None:
        """Has `run` ask about a forwarded packet whose answer is lost, once it has expired."""
        assert packet.from_peer_id is not None
        self._wait_for(Waiting(0, packet.id, FIRST_WAIT, packet.to_peer_id, packet.from_peer_id))

    async def run(self) -> None:
        """Recovers packets that a crash left without an outcome, then those reported lost. Runs until cancelled."""
        await retry("the search for lost packets", self._database, self._find_lost, RETRY_SECONDS)
        async with asyncio.TaskGroup() as tasks:
            while True:
                for waiting in self._backlog.take_due(self._clock.now()):
                    tasks.create_task(self._recover(waiting))
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(TICK_SECONDS if self._backlog else None):
                        await self._changed.wait()

    async def ask(self, packet: PacketRecord) -> Resolved:
        """Asks the peer once what became of a packet in flight. Raises Unavailable."""
        found = await self._database.read(partial(_peer_and_token, peer_id=packet.to_peer_id))
        if found is None:
            return Resolved("unknown", why="The peer was removed")
        peer, token = found
        if not peer.repeats_answers or packet.prepare is None:
            return Resolved("unknown", why="The peer does not repeat answers")
        if self._clock.now() < packet.expires_at + MARGIN:
            return Resolved("unknown", final=False, why="The packet has not expired yet")
        async with self._slots.slot(peer.id, packet.outgoing_payment_id or packet.from_peer_id):
            answer = await self._link.post(peer, token, packet.prepare, packet.id, BOUNDS.seconds)
        if not isinstance(answer, Answered):
            return Resolved("unknown", final=False, why=answer.why)
        if isinstance(answer.reply, Fulfill) and fulfills(
            answer.reply.fulfillment, decode_prepare(packet.prepare).condition
        ):
            return Resolved(answer.reply)  # the preimage is enough, also from a peer that does not repeat answers
        if not answer.repeatable:
            return Resolved("unknown", why="The peer no longer repeats answers")
        return Resolved("rejected")

    async def _find_lost(self) -> None:
        """Queues the forwarded packets without an outcome. A packet that is queued twice still ends once."""
        after = ""
        while page := await self._database.read(partial(packets.prepared_packets, limit=PAGE, after=after)):
            for packet in page:
                if packet.from_peer_id is not None:
                    self.lost(packet)
            after = page[-1].id

    def _wait_for(self, waiting: Waiting) -> None:
        self._backlog.add(waiting)
        self._changed.set()

    async def _recover(self, waiting: Waiting) -> None:
        """Asks once; afterwards the packet has its outcome, or is queued again."""
        step = partial(self._ask_about, waiting)
        try:
            next_time = await retry(f"the recovery of packet {waiting.packet_id}", self._database, step, RETRY_SECONDS)
        finally:
            self._backlog.release(waiting)
            self._changed.set()
        if next_time is not None:
            self._wait_for(next_time)

    async def _ask_about(self, waiting: Waiting) -> Waiting | None:
        """When to ask again, for an hour at most; None when the packet has its outcome."""
        packet = await self._database.read(partial(PACKETS.get, row_id=waiting.packet_id))
        if packet is None or packet.state != "prepared":
            return None
        # A peer that does not number its requests cannot repeat one, so nobody waits for this packet's answer.
        repeats = packet.from_request_id is not None
        resolved = await self.ask(packet) if repeats else Resolved("unknown", why=UNNUMBERED)
        due, wait = self._next_time(packet, resolved, waiting.wait)
        if due is None:
            await self._database.write(partial(self._end_forwarded, packet=packet, resolved=resolved))
            return None
        return waiting._replace(due=due, wait=wait)

    def _next_time(self, packet: PacketRecord, resolved: Resolved, wait: int) -> tuple[int | None, int]:
        """When to ask again and how long to wait after that; None for no more."""
        now, first = self._clock.now(), packet.expires_at + MARGIN
        if resolved.final or now >= packet.expires_at + GIVE_UP_AFTER:
            return None, wait
        return (first, wait) if now < first else (now + wait, longer(wait))

    def _end_own(self, work: Work, packet: PacketRecord, resolved: Resolved) -> None:
        if isinstance(resolved.outcome, Fulfill):
            balances.fulfil(work, packet.id, _expected(work, packet))
        else:
            balances.reject(work, packet.id)

    def _end_forwarded(self, work: Work, packet: PacketRecord, resolved: Resolved) -> None:
        if isinstance(resolved.outcome, Fulfill):
            fulfil_forwarded(work, packet, resolved.outcome)
        elif balances.reject(work, packet.id) and resolved.outcome == "unknown":
            note = f"Packet {packet.id} over {packet.amount} was released unanswered. {resolved.why}"
            peers.note_error(work, packet.to_peer_id, note, work.now)
            log.warning("%s", note)


def longer(wait: int) -> int:
    """The wait after a wait that was in vain."""
    return min(2 * wait, LONGEST_WAIT)


async def sleep_until(clock: Clock, time: int) -> None:
    """Waits until the clock, which may be moved meanwhile, has reached the time."""
    left = time - clock.now()
    while left > 0:
        await asyncio.sleep(min(left / SECOND, TICK_SECONDS))
        left = time - clock.now()


def fulfil_forwarded(work: Work, packet: PacketRecord, fulfill: Fulfill) -> bool:
    """Posts the money of a forwarded packet, and caches the response for the peer that it came from.

    False, and nothing changes, when the packet's outcome was known before.
    """
    assert packet.from_peer_id is not None
    assert packet.prepare is not None
    if not balances.fulfil(work, packet.id, 0):
        return False
    peers.count_received(work, packet.from_peer_id)
    condition = decode_prepare(packet.prepare).condition
    responses.store(work, Request(packet.from_peer_id, packet.from_request_id, condition), encode(fulfill))
    return True


def _peer_and_token(work: Work, peer_id: int) -> tuple[PeerRecord, str] | None:
    peer = peers.peer_by_id(work, peer_id)
    return (peer, peers.outgoing_token(work, peer)) if peer else None


def _expected(work: Work, packet: PacketRecord) -> int:
    """What a fulfilled packet of our payment has delivered, at the rate that the probe found.

    The receiver's own figure is encrypted with a secret that is not stored.
    """
    path = payment_of(work, packet).terms.path
    assert path is not None, "payments with packets have one"
    return path.least(packet.source_amount)
