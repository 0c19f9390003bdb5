"""Forwarding: sends a peer's packet on to the next peer, with its money held before and posted after."""

import logging
from functools import partial
from typing import Final

import msgspec

from payres.clock import MILLISECOND, SECOND, Clock
from payres.interledger import balances, responses
from payres.interledger.link import Answered, Link, NotSent, note_failure
from payres.interledger.packets import Code, Fulfill, Lost, Prepare, Reject, Rejected, Reply, encode, fulfills
from payres.interledger.recovery import Recovery, fulfil_forwarded
from payres.interledger.responses import NoReply, Request
from payres.interledger.routing import Hop, next_hop, peer_towards
from payres.limits import MAX_PASSED_ON, MAX_PASSED_ON_OF_PEER
from payres.slots import Slots, SlotsBusy
from payres.store.database import Database
from payres.store.packets import PACKETS, PacketRecord
from payres.store.peers import InboundPeer
from payres.store.work import Work

# The answer must be back and stored before the packet expires at the peer that it came from.
HOP_TIME: Final = SECOND
LONGEST_LIFE: Final = 30 * SECOND
SHORTEST_LIFE: Final = SECOND
# For a slot on the next link: enough for a burst; after it the rejection makes senders slow down.
SLOT_TIMEOUT_SECONDS: Final = 2.0

log = logging.getLogger("payres.interledger")


class Forwarder:
    """Forwards packets. Replies come from the next peer; rejections of its own are raised as Rejected."""

    def __init__(self, database: Database, clock: Clock, ilp_address: str, link: Link, recovery: Recovery) -> None:
        self._database = database
        self._clock = clock
        self._ilp_address = ilp_address
        self._link = link
        self._recovery = recovery
        self._slots = Slots(None, MAX_PASSED_ON, MAX_PASSED_ON_OF_PEER)

    async def forward(self, peer: InboundPeer, prepare: Prepare, request: Request) -> Reply | bytes | NoReply:
        """The next peer's reply, or the cached response to the same request. Raises Rejected, DomainError."""
        next_peer = await self._database.read(
            lambda work: peer_towards(work, self._ilp_address, prepare.destination, peer.asset, peer.id)
        )
        try:
            async with self._slots.slot(next_peer.id, peer.id, seconds=SLOT_TIMEOUT_SECONDS):
                if prepare.amount:
                    return await self._carry(peer, prepare, request)
                return await self._carry_no_money(peer, prepare)
        except SlotsBusy as busy:
            raise Rejected(Code.CONNECTOR_BUSY, "The link to the next peer takes no more packets now") from busy

    async def _carry(self, peer: InboundPeer, prepare: Prepare, request: Request) -> Reply | bytes | NoReply:
        """A packet with money, recorded before it leaves."""
        departure = await self._database.write(partial(self._depart, peer=peer, prepare=prepare, request=request))
        if not isinstance(departure, tuple):
            return departure
        hop, packet = departure
        assert packet.prepare is not None
        # A peer that cannot repeat its request gets the final outcome at once. So no fulfillment may come later: the
        # next peer gets no Request-Id to be asked about.
        number = None if request.request_id is None else packet.id
        try:
            seconds = self._seconds_until(packet.expires_at)
            outcome = await self._link.post(hop.peer, hop.token, packet.prepare, number, seconds)
            return await self._conclude(hop, packet, request, outcome)
        except Rejected:
            raise
        except BaseException:  # storage failed, or the server stops: the outcome is unknown
            self._recovery.lost(packet)
            raise

    async def _carry_no_money(self, peer: InboundPeer, prepare: Prepare) -> Reply:
        """A packet without money, of which nothing is stored."""
        expires_at = self._onward_expiry(prepare)
        hop = await self._database.read(partial(self._hop, peer=peer, prepare=prepare))
        onward = encode(msgspec.structs.replace(prepare, expires_at=expires_at))
        outcome = await self._link.post(hop.peer, hop.token, onward, None, self._seconds_until(expires_at))
        return await self._passed_back(outcome, prepare.condition, hop, expires_at)

    def _depart(
        self, work: Work, peer: InboundPeer, prepare: Prepare, request: Request
    ) -> tuple[Hop, PacketRecord] | bytes | NoReply:
        """One unit: the request is new, there is a route, and the money of the packet that leaves is held. Raises
        Rejected."""
        found = responses.find(work, request)
        if found is not None:
            return found
        expires_at = self._onward_expiry(prepare)
        hop = self._hop(work, peer, prepare)
        packet = PacketRecord(
            id=work.new_id(),
            to_peer_id=hop.peer.id,
            outgoing_payment_id=None,
            from_peer_id=peer.id,
            from_request_id=request.request_id,
            source_amount=prepare.amount,
            amount=hop.amount,
            prepare=encode(msgspec.structs.replace(prepare, amount=hop.amount, expires_at=expires_at)),
            expires_at=expires_at,
            state="prepared",
        )
        balances.prepare(work, packet, hop.peer)
        return hop, packet

    async def _conclude(
        self, hop: Hop, packet: PacketRecord, request: Request, outcome: Answered | NotSent | Lost
    ) -> Reply | NoReply:
        """Posts or voids the money before the answer goes back. Raises Rejected, DomainError."""
        if isinstance(outcome, Lost) and request.request_id is not None:
            self._recovery.lost(packet)
            await self._note(hop, outcome.why)
            return NoReply.OUTCOME_UNKNOWN
        reply = outcome.reply if isinstance(outcome, Answered) else None
        if isinstance(reply, Fulfill) and fulfills(reply.fulfillment, request.condition):
            return await self._fulfil(packet, reply)
        await self._database.write(partial(balances.reject, packet_id=packet.id))
        if isinstance(outcome, Lost):  # the peer that it came from cannot ask again, so the packet ends here
            log.warning("packet %s over %s was released unanswered", packet.id, packet.amount)
        return await self._passed_back(outcome, request.condition, hop, packet.expires_at)

    async def _passed_back(
        self, outcome: Answered | NotSent | Lost, condition: bytes, hop: Hop, expires_at: int
    ) -> Reply:
        """The next peer's reply. Raises Rejected when there is none or it is wrong, and stores that with the peer."""
        if isinstance(outcome, Answered):
            reply = outcome.reply
            if isinstance(reply, Reject) or fulfills(reply.fulfillment, condition):
                return reply
            await self._note(hop, "A fulfillment does not fit its condition")
            raise Rejected(Code.WRONG_CONDITION)
        await self._note(hop, outcome.why)
        if isinstance(outcome, NotSent):
            raise Rejected(Code.PEER_UNREACHABLE, "The next peer could not be reached")
        if self._clock.now() >= expires_at:
            raise Rejected(Code.TRANSFER_TIMED_OUT, "The next peer did not answer in time")
        raise Rejected(Code.INTERNAL_ERROR, "The answer of the next peer was lost")

    async def _fulfil(self, packet: PacketRecord, fulfill: Fulfill) -> Fulfill:
        def unit(work: Work) -> bool:
            if fulfil_forwarded(work, packet, fulfill):
                return True
            decided = PACKETS.get(work, packet.id)
            return decided is not None and decided.state == "fulfilled"

        if not await self._database.write(unit):
            raise Rejected(Code.TRANSFER_TIMED_OUT, "The packet was given up before its fulfillment came")
        return fulfill

    def _hop(self, work: Work, peer: InboundPeer, prepare: Prepare) -> Hop:
        return next_hop(work, self._ilp_address, prepare, peer.asset, peer.id)

    def _onward_expiry(self, prepare: Prepare) -> int:
        """When the packet expires at the next peer, in whole milliseconds. Raises Rejected."""
        now = self._clock.now()
        expires_at = min(prepare.expires_at - HOP_TIME, now + LONGEST_LIFE)
        if expires_at < now + SHORTEST_LIFE:
            raise Rejected(Code.INSUFFICIENT_TIMEOUT, "The packet expires too soon to be passed on")
        return expires_at - expires_at % MILLISECOND

    def _seconds_until(self, time: int) -> float:
        return max(time - self._clock.now(), 0) / SECOND

    async def _note(self, hop: Hop, why: str) -> None:
        await note_failure(self._database, hop.peer, why, self._clock.now())
