"""Forwarding: a packet of one peer passed on to the next, with the money reserved before and posted after."""

import logging
from functools import partial
from typing import Final

import msgspec

from payres.amounts import Asset
from payres.clock import SECOND, Clock
from payres.errors import DomainError
from payres.identifiers import Identifiers
from payres.interledger import balances
from payres.interledger.answers import Answers, NoAnswerYet, Request
from payres.interledger.balances import PaymentEnded
from payres.interledger.declined import Declined
from payres.interledger.hops import Hop, next_hop, peer_towards
from payres.interledger.link import Answered, Link, Lost, NotSent
from payres.interledger.oer import MILLISECOND
from payres.interledger.outbound import note_failure
from payres.interledger.packets import Code, Fulfill, Prepare, Reply, encode, fulfills
from payres.interledger.recovery import Recovery, fulfil_forwarded
from payres.interledger.shares import NoPlace, Shares
from payres.ledger import NotEnough
from payres.limits import MAX_PASSED_ON, MAX_PASSED_ON_OF_PEER
from payres.store import packets
from payres.store.database import Database, Transaction
from payres.store.packets import PacketRecord
from payres.store.peers import PeerRecord

# The answer must be back, and stored, before the packet expires where it came from.
HOP_TIME: Final = SECOND
LONGEST_LIFE: Final = 30 * SECOND
SHORTEST_LIFE: Final = SECOND
PATIENCE_SECONDS: Final = 2.0  # of waiting for a place on the next link: enough for a burst, and senders slow down then

log = logging.getLogger("payres.interledger")


class Departure(msgspec.Struct, frozen=True):
    """A packet that is recorded and may leave."""

    hop: Hop
    packet: PacketRecord


class Forwarder:
    """Passes packets on. What it answers with comes from the next peer; what it says itself it raises as Declined."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        identifiers: Identifiers,
        ilp_address: str,
        link: Link,
        answers: Answers,
        recovery: Recovery,
    ) -> None:
        self._database = database
        self._clock = clock
        self._identifiers = identifiers
        self._ilp_address = ilp_address
        self._link = link
        self._answers = answers
        self._recovery = recovery
        self._places = Shares(MAX_PASSED_ON, MAX_PASSED_ON_OF_PEER)

    async def forward(self, peer: PeerRecord, prepare: Prepare, request: Request) -> Reply | bytes:
        """The next peer's reply, or the answer that was kept of the same request.

        Raises Declined, NoAnswerYet when the outcome is not known and the peer may ask again,
        RequestIdReused, DomainError.
        """
        next_peer_id = await self._database.read(partial(self._to, peer=peer, prepare=prepare))
        try:
            async with self._places.place(next_peer_id, peer.id, PATIENCE_SECONDS):
                if not prepare.amount:
                    return await self._pass_on(peer, prepare)
                return await self._carry(peer, prepare, request)
        except NoPlace as full:
            raise Declined(Code.CONNECTOR_BUSY, "The link to the next peer takes no more packets now") from full

    async def _carry(self, peer: PeerRecord, prepare: Prepare, request: Request) -> Reply | bytes:
        """A packet with money, recorded before it leaves."""
        left = await self._database.write(partial(self._depart, peer=peer, prepare=prepare, request=request))
        if isinstance(left, bytes):
            return left
        try:
            return await self._conclude(left, request, await self._post(left.hop, left.packet))
        except (Declined, NoAnswerYet):
            raise
        except BaseException:  # storage failed, or the server stops: the packet is still under way
            self._recovery.lost(left.packet)
            raise

    async def _pass_on(self, peer: PeerRecord, prepare: Prepare) -> Reply:
        """A packet without money, of which nothing is kept."""
        expires_at = self._onward_expiry(prepare)
        hop = await self._database.read(partial(self._hop, peer=peer, prepare=prepare))
        onward = encode(msgspec.structs.replace(prepare, expires_at=expires_at))
        outcome = await self._link.post(hop.peer, hop.token, onward, None, self._seconds_until(expires_at))
        if not isinstance(outcome, Answered):
            await self._note(hop, outcome.why)
            raise self._unanswered(outcome, expires_at)
        if isinstance(outcome.reply, Fulfill) and not fulfills(outcome.reply.fulfillment, prepare.condition):
            await self._note(hop, "A fulfillment does not fit its condition")
            raise Declined(Code.WRONG_CONDITION)
        return outcome.reply

    def _depart(self, tx: Transaction, peer: PeerRecord, prepare: Prepare, request: Request) -> Departure | bytes:
        """One unit: the request is new, there is a way, and its money is reserved. Raises Declined, NoAnswerYet."""
        kept = self._answers.find(tx, request)
        if kept is not None:
            return kept
        expires_at = self._onward_expiry(prepare)
        hop = self._hop(tx, peer, prepare)
        packet = PacketRecord(
            id=self._identifiers.resource(),
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
        try:
            balances.prepare(tx, packet, hop.peer, self._clock.now())
        except NotEnough as lack:
            whose = "The peer's credit" if lack.account.kind == "peer" else "The liquidity in the next asset"
            raise Declined(Code.INSUFFICIENT_LIQUIDITY, f"{whose} does not suffice") from lack
        except (PaymentEnded, DomainError) as obstacle:  # the peer was removed a moment ago; more than the ledger holds
            raise Declined(Code.INSUFFICIENT_LIQUIDITY) from obstacle
        return Departure(hop, packet)

    def _to(self, tx: Transaction, peer: PeerRecord, prepare: Prepare) -> int:
        """The id of the peer that the packet goes on to. Raises Declined."""
        source = Asset(peer.asset_code, peer.asset_scale)
        return peer_towards(tx, self._ilp_address, prepare.destination, source, peer.id).id

    def _hop(self, tx: Transaction, peer: PeerRecord, prepare: Prepare) -> Hop:
        source = Asset(peer.asset_code, peer.asset_scale)
        destination, amount = prepare.destination, prepare.amount
        return next_hop(tx, self._ilp_address, destination, amount, source, self._clock.now(), peer.id)

    def _onward_expiry(self, prepare: Prepare) -> int:
        """When the packet expires at the next peer, in whole milliseconds. Raises Declined."""
        now = self._clock.now()
        expires_at = min(prepare.expires_at - HOP_TIME, now + LONGEST_LIFE)
        if expires_at < now + SHORTEST_LIFE:
            raise Declined(Code.INSUFFICIENT_TIMEOUT, "The packet expires too soon to be passed on")
        return expires_at - expires_at % MILLISECOND

    async def _post(self, hop: Hop, packet: PacketRecord) -> Answered | NotSent | Lost:
        assert packet.prepare is not None
        seconds = self._seconds_until(packet.expires_at)
        # A peer that cannot ask again is told the end at once. Then the next peer may not bring a fulfillment later, so
        # it gets no number to ask about either.
        number = None if packet.from_request_id is None else packet.id
        return await self._link.post(hop.peer, hop.token, packet.prepare, number, seconds)

    async def _conclude(self, left: Departure, request: Request, outcome: Answered | NotSent | Lost) -> Reply:
        """Posts or releases the money before the answer goes back. Raises Declined, NoAnswerYet, DomainError."""
        if isinstance(outcome, Lost) and request.request_id is not None:
            self._recovery.lost(left.packet)
            await self._note(left.hop, outcome.why)
            raise NoAnswerYet
        if isinstance(outcome, Answered) and isinstance(outcome.reply, Fulfill):
            if fulfills(outcome.reply.fulfillment, request.condition):
                return await self._fulfil(left.packet, outcome.reply)
            await self._release(left.packet)
            await self._note(left.hop, "A fulfillment does not fit its condition")
            raise Declined(Code.WRONG_CONDITION)
        await self._release(left.packet)
        if isinstance(outcome, Answered):
            return outcome.reply
        if isinstance(outcome, Lost):  # the peer that it came from cannot ask again, so for it the packet ends here
            log.warning("packet %s over %s was released unanswered", left.packet.id, left.packet.amount)
        await self._note(left.hop, outcome.why)
        raise self._unanswered(outcome, left.packet.expires_at)

    async def _fulfil(self, packet: PacketRecord, fulfill: Fulfill) -> Fulfill:
        def unit(tx: Transaction) -> bool:
            if fulfil_forwarded(tx, self._answers, packet, fulfill, self._clock.now()):
                return True
            decided = packets.find_packet(tx, packet.id)
            return decided is not None and decided.state == "fulfilled"

        if not await self._database.write(unit):
            raise Declined(Code.TRANSFER_TIMED_OUT, "The packet was given up before its fulfillment came")
        return fulfill

    async def _release(self, packet: PacketRecord) -> None:
        await self._database.write(partial(balances.reject, packet_id=packet.id))

    def _unanswered(self, outcome: NotSent | Lost, expires_at: int) -> Declined:
        if isinstance(outcome, NotSent):
            return Declined(Code.PEER_UNREACHABLE, "The next peer could not be reached")
        if self._clock.now() >= expires_at:
            return Declined(Code.TRANSFER_TIMED_OUT, "The next peer did not answer in time")
        return Declined(Code.INTERNAL_ERROR, "The answer of the next peer was lost")

    def _seconds_until(self, time: int) -> float:
        return max(time - self._clock.now(), 0) / SECOND

    async def _note(self, hop: Hop, why: str) -> None:
        await note_failure(self._database, hop.peer, why, self._clock.now())
