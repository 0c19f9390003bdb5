"""Packets of our own: what quotes and payments send to the next peer.

A packet with money is recorded before it leaves and its money posted before the sender hears of the outcome, so the
rows know at any moment what is sent and what may be.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

import msgspec

from payres.amounts import Asset
from payres.clock import SECOND, Clock
from payres.identifiers import Identifiers
from payres.interledger import balances
from payres.interledger.link import Answered, Link, NotSent, note_failure
from payres.interledger.packets import Code, Fulfill, Lost, Outcome, Prepare, Reject, Rejected, encode
from payres.interledger.routing import Hop, next_hop, peer_towards
from payres.interledger.sending.pacing import Timing
from payres.limits import DRAIN_SECONDS, MAX_UNREPEATED, MAX_UNREPEATED_OF_WALLET
from payres.payments.settlement import end_if_finished
from payres.requester import requested_by
from payres.slots import Slots
from payres.store.database import Database
from payres.store.packets import PacketRecord
from payres.store.peers import PeerRecord
from payres.store.work import Work

MARGIN: Final = SECOND  # how long after its expiry the answer to a packet is still waited for

# Packets with money in flight to one peer; and from one wallet: a payment's twenty, and room beside it for another.
AT_ONCE: Final = 64
AT_ONCE_FROM_WALLET: Final = 24
# Packets without money, of quotes and closings; for one client, or all unknown ones of an address: the eleven of a
# quote for three at a time; and for one of an address that is known by its key alone.
ASKED_AT_ONCE: Final = 96
ASKED_AT_ONCE_OF_CLIENT: Final = 33
ASKED_AT_ONCE_OF_KEY: Final = 16
SILENT: Final = "A packet of a quote was left unanswered"
UNANSWERED: Final = "a packet was left unanswered, and no more are sent until it is known what became of it"


class Outbound:
    """The way out for the packets of this node's own wallets, with their slots. `timing` may be changed."""

    def __init__(
        self,
        database: Database,
        link: Link,
        probe_link: Link,
        clock: Clock,
        identifiers: Identifiers,
        ilp_address: str,
        timing: Timing | None = None,
    ) -> None:
        self.database = database
        self.link = link
        self.probe_link = probe_link  # apart, because anyone may ask for quotes, and their probes may hang
        self.clock = clock
        self.identifiers = identifiers
        self.ilp_address = ilp_address
        self.timing = timing or Timing(clock)
        self._slots = Slots(None, AT_ONCE, AT_ONCE_FROM_WALLET)
        self._unrepeated_slots = Slots(None, MAX_UNREPEATED, MAX_UNREPEATED_OF_WALLET)
        self._in_flight = 0
        self._landed = asyncio.Event()
        self._draining = False
        self.probe_slots = Slots(None, ASKED_AT_ONCE, ASKED_AT_ONCE_OF_CLIENT, ASKED_AT_ONCE_OF_KEY)

    def open(
        self, source: Asset, wallet_id: int, payment_id: str | None = None, begin: Callable[[Work], None] | None = None
    ) -> "WalletPackets":
        """Sends a wallet's packets, counted in `source`; those of an outgoing payment may carry its money.

        `begin` runs once, in the unit that records the first packet with money, or else in `ensure_begun`.
        """
        return WalletPackets(self, source, wallet_id, payment_id, begin)

    def slots_to(self, peer: PeerRecord) -> Slots:
        """The slots of packets with money to a peer: fewer when a lost answer cannot be had again."""
        return self._slots if peer.repeats_answers else self._unrepeated_slots

    async def drain(self) -> None:
        """Lets no more packets with money leave, and waits for the answers to those that have, for a while."""
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                while self._in_flight:
                    self._landed.clear()
                    await self._landed.wait()

    @asynccontextmanager
    async def departure(self) -> AsyncIterator[None]:
        """For a packet with money, from before it is recorded until its outcome is; once draining it never begins."""
        if self._draining:
            await asyncio.Event().wait()  # until cancelled: the payment goes on when the server has started again
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._landed.set()


class WalletPackets:
    """The `PacketSender` of one quote or payment. A packet first waits for a slot on its link."""

    def __init__(
        self,
        outbound: Outbound,
        source: Asset,
        wallet_id: int,
        payment_id: str | None,
        begin: Callable[[Work], None] | None,
    ) -> None:
        self._outbound = outbound
        self._database = outbound.database
        self._clock = outbound.clock
        self._source = source
        self._wallet_id = wallet_id
        self._payment_id = payment_id
        self._begin = begin  # None as soon as a unit with it is queued
        self._peer: PeerRecord | None = None  # whom the packets with money go to, as far as is known
        self._unanswered = False  # whether one of them was, by a peer that does not repeat answers
        self._silent: PeerRecord | None = None
        self._waiting = 0  # packets of `ask` that have no slot yet, or never got one

    @property
    def kept_waiting(self) -> bool:
        """Whether a packet of `ask` was given up before it had a slot."""
        return self._waiting > 0

    async def ask(self, prepare: Prepare) -> Outcome:
        """Sends a packet that moves no money: nobody can fulfill it, or its amount is zero."""
        outbound, asked_at = self._outbound, self._clock.now()
        try:
            hop = await self._database.read(lambda work: self._hop(work, prepare))
        except Rejected as rejected:
            return rejected.reject(outbound.ilp_address)
        # Numbered although nothing of it is stored, because the answer shows whether the peer repeats its answers.
        number = outbound.identifiers.resource()
        # What the server asks of its own accord, at the end of a payment, is its wallet's.
        requester = requested_by.get() or (self._wallet_id,)
        self._waiting += 1
        async with outbound.probe_slots.slot(hop.peer.id, *requester):
            self._waiting -= 1
            postponed = self._postponed(prepare, asked_at)
            raw, left_at = encode(msgspec.structs.replace(postponed, amount=hop.amount)), self._clock.now()
            try:
                outcome = await self._post(outbound.probe_link, hop, raw, number, postponed.expires_at)
            except asyncio.CancelledError:
                # At its end a probe also stops waiting for what has just left, which says nothing about the peer.
                if self._clock.now() - left_at >= outbound.timing.probe_timeout // 2:
                    self._silent = hop.peer
                raise
        if isinstance(outcome, Fulfill) and prepare.amount > 0:
            return self._reject(Code.WRONG_CONDITION, "a packet was fulfilled that nobody can fulfill")
        return outcome

    async def pay(self, prepare: Prepare, fulfillment: bytes, delivered: Callable[[Fulfill], int]) -> Outcome:
        """Sends a packet with money, recorded before it leaves; what was fulfilled is posted before this returns."""
        asked_at = self._clock.now()
        try:
            peer = self._peer = self._peer or await self._next_peer(prepare)
            async with self._outbound.slots_to(peer).slot(peer.id, self._wallet_id):
                if self._unanswered:
                    raise Rejected(Code.BAD_REQUEST, UNANSWERED)
                async with self._outbound.departure():
                    return await self._carry(peer.id, self._postponed(prepare, asked_at), fulfillment, delivered)
        except Rejected as rejected:
            self._peer = None
            return rejected.reject(self._outbound.ilp_address)

    async def _carry(
        self, peer_id: int, prepare: Prepare, fulfillment: bytes, delivered: Callable[[Fulfill], int]
    ) -> Outcome:
        packet_id = self._outbound.identifiers.resource()
        begin, self._begin = self._begin, None
        try:
            hop, raw = await self._database.write(
                partial(self._depart, prepare=prepare, packet_id=packet_id, peer_id=peer_id, begin=begin)
            )
        except BaseException:
            self._begin = self._begin or begin
            raise
        self._peer = hop.peer
        outcome = await self._post(self._outbound.link, hop, raw, packet_id, prepare.expires_at)
        if isinstance(outcome, Fulfill) and outcome.fulfillment != fulfillment:
            outcome = self._reject(Code.WRONG_CONDITION, "the fulfillment does not fit the condition")
        if isinstance(outcome, Fulfill):
            arrived = delivered(outcome)
            await self._database.write(partial(self._land, packet_id=packet_id, delivered=arrived))
        elif isinstance(outcome, Reject):
            await self._database.write(partial(balances.reject, packet_id=packet_id))
        elif not hop.peer.repeats_answers:
            self._unanswered = True
        return outcome

    def _land(self, work: Work, packet_id: str, delivered: int) -> None:
        """One unit: the money of a fulfilled packet is posted, and with the last of it the payment ends."""
        if balances.fulfil(work, packet_id, delivered) and self._payment_id is not None:
            end_if_finished(work, self._payment_id)

    async def ensure_begun(self) -> None:
        """Has `begin` run if no packet with money has left."""
        begin, self._begin = self._begin, None
        if begin is not None:
            await self._database.write(begin)

    async def note_silence(self) -> None:
        """Stores with the peer that it left a packet of a probe unanswered, if it did until the probe ended."""
        if self._silent is not None:
            await note_failure(self._database, self._silent, SILENT, self._clock.now())

    async def _next_peer(self, prepare: Prepare) -> PeerRecord:
        """Raises Rejected."""
        return await self._database.read(
            lambda work: peer_towards(work, self._outbound.ilp_address, prepare.destination, self._source)
        )

    def _depart(
        self, work: Work, prepare: Prepare, packet_id: str, peer_id: int, begin: Callable[[Work], None] | None
    ) -> tuple[Hop, bytes]:
        """One unit: the route, the rate, and the money, which no other packet can take any more.

        Raises Rejected, also when the packet no longer goes to the peer on whose link it has its slot.
        """
        hop = self._hop(work, prepare)
        if hop.peer.id != peer_id:
            raise Rejected(Code.PEER_UNREACHABLE, "the way to the receiver has just changed")
        raw = encode(msgspec.structs.replace(prepare, amount=hop.amount))
        packet = PacketRecord(
            id=packet_id,
            to_peer_id=hop.peer.id,
            outgoing_payment_id=self._payment_id,
            from_peer_id=None,
            from_request_id=None,
            source_amount=prepare.amount,
            amount=hop.amount,
            prepare=raw,
            expires_at=prepare.expires_at,
            state="prepared",
        )
        balances.prepare(work, packet, hop.peer)
        if begin is not None:
            begin(work)
        return hop, raw

    async def _post(self, link: Link, hop: Hop, raw: bytes, request_id: str, expires_at: int) -> Outcome:
        """The outcome as the sender has it; a failure is stored with the peer."""
        now = self._clock.now()
        if now >= expires_at:
            return self._reject(Code.TRANSFER_TIMED_OUT, "the packet had expired before it left")
        posted = await link.post(hop.peer, hop.token, raw, request_id, (expires_at - now + MARGIN) / SECOND)
        if isinstance(posted, Answered):
            return posted.reply
        await note_failure(self._database, hop.peer, posted.why, self._clock.now())
        if isinstance(posted, NotSent):
            return self._reject(Code.PEER_UNREACHABLE, "the next peer did not take the packet")
        return Lost(posted.why)

    def _postponed(self, prepare: Prepare, asked_at: int) -> Prepare:
        """The packet with the time added that it waited for its slot, so that it does not expire in the queue."""
        waited = self._clock.now() - asked_at
        return msgspec.structs.replace(prepare, expires_at=prepare.expires_at + max(waited, 0))

    def _hop(self, work: Work, prepare: Prepare) -> Hop:
        return next_hop(work, self._outbound.ilp_address, prepare, self._source)

    def _reject(self, code: Code, message: str) -> Reject:
        return Reject(code, self._outbound.ilp_address, message)
