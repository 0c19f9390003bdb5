"""Recovery: what became of packets whose answer was lost, by a crash here or on the way.

A packet that has expired can no longer be fulfilled anew, so its peer's answer to the very same request is the truth
about the first. Only peers that have numbered their answers before are asked: others might take the money twice.
"""

import asyncio
import logging
from fractions import Fraction
from functools import partial
from math import floor
from typing import Final, Literal

import msgspec

from payres.clock import HOUR, MINUTE, SECOND, Clock
from payres.errors import Unavailable
from payres.interledger import balances
from payres.interledger.answers import Answers, Request
from payres.interledger.link import BOUNDS, Answered, Link
from payres.interledger.packets import Fulfill, decode_prepare, encode, fulfills
from payres.interledger.shares import Shares
from payres.payments.elsewhere import decode_path
from payres.store import outgoing, packets, peers
from payres.store.database import Database, Transaction
from payres.store.packets import PacketRecord
from payres.store.peers import PeerRecord

MARGIN: Final = SECOND  # after the expiry: the peer's clock may be a little behind
GIVE_UP_AFTER: Final = HOUR
FIRST_WAIT: Final = SECOND
LONGEST_WAIT: Final = 5 * MINUTE
# Questions under way to one peer, in places of their own, or packets that are held would keep the truth about others
# away; and those about packets of one payment or from one peer.
ASKED_AT_ONCE: Final = 16
ASKED_AT_ONCE_OF_ONE: Final = 8
TICK_SECONDS: Final = 1.0  # at most so long between looks at the clock, which may be moved
RETRY_SECONDS: Final = 5.0
PAGE: Final = 256
UNNUMBERED: Final = "The peer before does not number its requests"

log = logging.getLogger("payres.interledger")


class Resolved(msgspec.Struct, frozen=True):
    """What is known of a packet; `fulfill` is there when it was fulfilled. `for_good`: nothing more ever will be."""

    outcome: Literal["fulfilled", "rejected", "unknown"]
    fulfill: Fulfill | None = None
    for_good: bool = True
    why: str = ""


class Recovery:
    """Asks peers what became of packets.

    `resolve` is for a packet of a payment of ours; `run` takes care of those that were passed on for other peers.
    """

    def __init__(self, database: Database, clock: Clock, link: Link, answers: Answers) -> None:
        self._database = database
        self._clock = clock
        self._link = link
        self._answers = answers
        self._lost: asyncio.Queue[PacketRecord] = asyncio.Queue()
        self._places = Shares(ASKED_AT_ONCE, ASKED_AT_ONCE_OF_ONE)

    async def resolve(self, packet: PacketRecord) -> bool:
        """Posts or releases the money of our payment's packet, once that is known; False when nobody will ever say.

        Raises what storage raises (Unavailable).
        """
        resolved = await self._resolved(packet)
        if resolved.outcome == "unknown":
            return False
        await self._database.write(partial(self._end_own, packet=packet, resolved=resolved))
        return True

    def lost(self, packet: PacketRecord) -> None:
        """The answer to a packet that was passed on is lost: `run` asks about it once it has expired."""
        self._lost.put_nowait(packet)

    async def run(self) -> None:
        """Takes up what a crash left under way, then whatever is reported lost; for ever."""
        await self._load()
        async with asyncio.TaskGroup() as tasks:
            while True:
                tasks.create_task(self._recover(await self._lost.get()))

    async def ask(self, packet: PacketRecord) -> Resolved:
        """Asks the peer once what became of a packet under way. Raises what storage raises (Unavailable)."""
        found = await self._database.read(partial(_peer_and_token, peer_id=packet.to_peer_id))
        if found is None:
            return Resolved("unknown", why="The peer was removed")
        peer, token = found
        if not peer.repeats_answers or packet.prepare is None:
            return Resolved("unknown", why="The peer does not repeat answers")
        if self._clock.now() < packet.expires_at + MARGIN:
            return Resolved("unknown", for_good=False, why="The packet has not expired yet")
        async with self._places.place(peer.id, packet.outgoing_payment_id or packet.from_peer_id):
            answer = await self._link.post(peer, token, packet.prepare, packet.id, BOUNDS.seconds)
        if not isinstance(answer, Answered):
            return Resolved("unknown", for_good=False, why=answer.why)
        if isinstance(answer.reply, Fulfill) and fulfills(
            answer.reply.fulfillment, decode_prepare(packet.prepare).condition
        ):
            return Resolved("fulfilled", answer.reply)  # that is proof, whoever says it
        if not answer.repeatable:
            return Resolved("unknown", why="The peer no longer repeats answers")
        return Resolved("rejected")

    async def _resolved(self, packet: PacketRecord) -> Resolved:
        """Asks until there is nothing more to learn, for an hour at most."""
        wait, due = FIRST_WAIT, packet.expires_at + MARGIN
        resolved = await self.ask(packet)
        while not resolved.for_good and self._clock.now() < packet.expires_at + GIVE_UP_AFTER:
            await self._until(due)
            resolved = await self.ask(packet)
            due, wait = self._clock.now() + wait, min(2 * wait, LONGEST_WAIT)
        return resolved

    async def _until(self, time: int) -> None:
        left = time - self._clock.now()
        while left > 0:
            await asyncio.sleep(min(left / SECOND, TICK_SECONDS))
            left = time - self._clock.now()

    async def _load(self) -> None:
        after = ""
        while True:
            try:
                page = await self._database.read(partial(packets.prepared_packets, limit=PAGE, after=after))
            except Unavailable:  # storage has logged why
                await asyncio.sleep(RETRY_SECONDS)
                continue
            for packet in page:
                if packet.from_peer_id is not None:
                    self.lost(packet)
            if not page:
                return
            after = page[-1].id

    async def _recover(self, packet: PacketRecord) -> None:
        while True:
            try:
                # A peer that does not number its requests cannot ask again: for it the packet has ended unanswered.
                repeats = packet.from_request_id is not None
                resolved = await self._resolved(packet) if repeats else Resolved("unknown", why=UNNUMBERED)
                await self._database.write(partial(self._end_forwarded, packet=packet, resolved=resolved))
            except Exception:
                if self._database.halted:
                    return
                log.exception("the packet %s could not be settled; trying again in %s s", packet.id, RETRY_SECONDS)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def _end_own(self, tx: Transaction, packet: PacketRecord, resolved: Resolved) -> None:
        if resolved.fulfill is None:
            balances.reject(tx, packet.id)
        else:
            balances.fulfil(tx, packet.id, _expected(tx, packet), self._clock.now())

    def _end_forwarded(self, tx: Transaction, packet: PacketRecord, resolved: Resolved) -> None:
        now = self._clock.now()
        if resolved.fulfill is not None:
            fulfil_forwarded(tx, self._answers, packet, resolved.fulfill, now)
        elif balances.reject(tx, packet.id) and resolved.outcome == "unknown":
            note = f"Packet {packet.id} over {packet.amount} was released unanswered. {resolved.why}"
            peers.note_error(tx, packet.to_peer_id, note, now)
            log.warning("%s", note)


def fulfil_forwarded(tx: Transaction, answers: Answers, packet: PacketRecord, fulfill: Fulfill, now: int) -> bool:
    """Posts the money of a packet that was passed on, and keeps the answer for the peer that it came from.

    False when the packet's outcome was known before; then nothing changes.
    """
    assert packet.from_peer_id is not None
    assert packet.prepare is not None
    if not balances.fulfil(tx, packet.id, 0, now):
        return False
    condition = decode_prepare(packet.prepare).condition
    answers.keep(tx, Request(packet.from_peer_id, packet.from_request_id, condition), encode(fulfill), now)
    return True


def _peer_and_token(tx: Transaction, peer_id: int) -> tuple[PeerRecord, str] | None:
    peer = peers.peer_by_id(tx, peer_id)
    return (peer, peers.outgoing_token(tx, peer)) if peer else None


def _expected(tx: Transaction, packet: PacketRecord) -> int:
    """What a fulfilled packet of our payment has delivered, going by the rate that the probe found.

    The receiver's own figure is sealed with a secret that is not kept beyond the connection.
    """
    assert packet.outgoing_payment_id is not None
    payment = outgoing.find_outgoing(tx, packet.outgoing_payment_id)
    assert payment is not None, "the foreign key holds it"
    assert payment.path is not None, "payments with packets have one"
    return floor(packet.source_amount * Fraction(decode_path(payment.path).low))
