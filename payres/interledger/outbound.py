"""Packets of our own quotes and payments: their slots, purposes and payers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from fractions import Fraction
from typing import Final

import msgspec

from payres.core.process.rate_limiter import requested_by
from payres.core.process.slots import Slots
from payres.core.protocol.amounts import MAX_LEDGER, Asset
from payres.core.protocol.identifiers import new_id
from payres.core.store.work import Work
from payres.interledger import clearing, limits
from payres.interledger.carrier import MARGIN, Carrier, Link, Payer
from payres.interledger.clearing import end_if_finished
from payres.interledger.packets import Code, Fulfill, Outcome, PacketRejected, Prepare, Unanswered
from payres.interledger.routing import Hop, next_hop
from payres.interledger.sending.timing import Timing
from payres.interledger.store.packets import PacketRecord
from payres.interledger.store.peers import PeerRecord

Carry = Callable[[Payer, Prepare], Awaitable[Outcome]]
Post = Callable[..., Awaitable[Outcome]]

SILENT: Final = "A packet of a quote was left unanswered"
UNANSWERED: Final = "a packet was left unanswered, and no more are sent until it is known what became of it"


class Outbound:
    """Sends the packets of local wallets, within their slots. `timing` may be changed; `carry` and `post`, which send
    packets with and without money, may be replaced by functions that interfere."""

    def __init__(self, carrier: Carrier, probe_link: Link) -> None:
        self.database, self.clock, self.ilp_address = carrier.database, carrier.clock, carrier.ilp_address
        self.carry: Carry = carrier.carry
        self.post: Post = carrier.post
        self.probe_link = probe_link  # separate, because anyone may request quotes, whose probes may hang
        self.timing = Timing()
        self._slots = Slots(None, limits.MAX_SENT, limits.MAX_SENT_OF_WALLET)
        self._unrepeated_slots = Slots(None, limits.MAX_UNREPEATED, limits.MAX_UNREPEATED_OF_WALLET)
        self._in_flight = 0
        self._landed = asyncio.Event()
        self._draining = False
        self.probe_slots = Slots(None, limits.MAX_PROBES, limits.MAX_PROBES_OF_CLIENT, limits.MAX_PROBES_OF_KEY)

    def slots_to(self, peer: PeerRecord) -> Slots:
        """The slots of money packets to a peer: fewer if the peer does not repeat lost answers."""
        return self._slots if peer.repeats_answers else self._unrepeated_slots

    def leaving(self, prepare: Prepare) -> Prepare:
        """The packet with its full lifetime from now."""
        return msgspec.structs.replace(prepare, expires_at=self.clock.now() + self.timing.packet_lifetime)

    async def drain(self) -> None:
        """Stops sending money packets, and waits up to DRAIN_SECONDS for the answers to those in flight."""
        self._draining = True
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.DRAIN_SECONDS):
                while self._in_flight:
                    self._landed.clear()
                    await self._landed.wait()

    @asynccontextmanager
    async def departure(self) -> AsyncIterator[None]:
        """Surrounds a money packet, from before it is recorded until its outcome is; blocks once draining."""
        if self._draining:
            await asyncio.Event().wait()  # until cancelled: the payment continues after the next start
        self._in_flight += 1
        try:
            yield
        finally:
            self._in_flight -= 1
            self._landed.set()


class WalletPackets:
    """The `PacketSender` of a quote or payment, for amounts in `source`; with an outgoing payment it can send money.

    Each packet first waits for a slot on its link. `begin` runs in the unit that records the first money packet, or one
    of the first, or else in `ensure_begun`.
    """

    def __init__(
        self,
        outbound: Outbound,
        source: Asset,
        wallet_id: int,
        payment_id: str | None = None,
        begin: Callable[[Work], None] = lambda work: None,
    ) -> None:
        self._outbound = outbound
        self._database = outbound.database
        self._source = source
        self._wallet_id = wallet_id
        self._payment_id = payment_id
        self._begin = begin
        self._has_begun = False
        self._peer: PeerRecord | None = None  # the next peer of money packets, if known
        self._unanswered = False  # whether one was left unanswered by a peer that does not repeat answers
        self.on_link = Fraction(1)  # units of the next peer's asset per unit sent, from the last probe
        self.silent: str | None = None  # the peer that did not answer the last packet of `ask` in time
        self.waiting = 0  # packets of `ask` without a slot, still waiting or given up

    async def ask(self, prepare: Prepare) -> Outcome:
        """Sends a packet that moves no money: it is unfulfillable, or its amount is zero."""
        outbound = self._outbound
        try:
            hop = await self._next_hop(prepare)
        except PacketRejected as rejected:
            return rejected.reject(outbound.ilp_address)
        if prepare.amount:
            self.on_link = Fraction(hop.amount, prepare.amount)
        # Packets that the server sends on its own, in a payment and at its end, count for the wallet. A payment that
        # asks for its price does not wait for quotes, which anyone may request.
        requester = requested_by.get() or (self._wallet_id,)
        is_probe = self._payment_id is None or not prepare.amount
        slots = outbound.probe_slots if is_probe else outbound.slots_to(hop.peer)
        self.waiting += 1
        async with slots.slot(hop.peer.id, *requester):
            self.waiting -= 1
            left_at = outbound.clock.now()
            try:
                # The packet is not stored, but the answer to its Request-Id shows whether the peer repeats answers.
                link = outbound.probe_link if is_probe else None
                return await outbound.post(hop, outbound.leaving(prepare), new_id(), MARGIN, link)
            except asyncio.CancelledError:
                self.silent = hop.peer.ilp_address
                # The end of a probe may cancel a packet that has just left, which is not the peer's failure.
                now = outbound.clock.now()
                if self._payment_id is None and now - left_at >= outbound.timing.probe_timeout // 2:
                    await outbound.probe_link.note_failure(hop.peer, SILENT, now)
                raise

    async def pay(self, prepare: Prepare, minimum: int, delivered: Callable[[Fulfill], int]) -> Outcome:
        """Sends a money packet, recorded before it leaves; a fulfilled amount is posted before this returns."""
        outbound = self._outbound
        try:
            peer = self._peer = self._peer or (await self._next_hop(prepare)).peer
            async with outbound.slots_to(peer).slot(peer.id, self._wallet_id):
                if self._unanswered:
                    raise PacketRejected(Code.BAD_REQUEST, UNANSWERED)
                async with outbound.departure():
                    outcome = await outbound.carry(self._payer(peer, minimum, delivered), outbound.leaving(prepare))
        except PacketRejected as rejected:
            self._peer = None
            return rejected.reject(outbound.ilp_address)
        self._has_begun = True
        if isinstance(outcome, Unanswered) and not peer.repeats_answers:
            self._unanswered = True
        return outcome

    async def ensure_begun(self) -> None:
        """Runs `begin` if no money packet has left."""
        if not self._has_begun:
            await self._database.write(self._begin)

    def _payer(self, peer: PeerRecord, minimum: int, delivered: Callable[[Fulfill], int]) -> Payer:
        def check(work: Work, hop: Hop) -> None:
            # The packet has a slot on the link to `peer`. The route may have changed since, or allow fewer slots.
            if hop.peer.id != peer.id or hop.peer.repeats_answers < peer.repeats_answers:
                raise PacketRejected(Code.PEER_UNREACHABLE, "the way to the receiver has just changed")
            if not self._has_begun:
                self._begin(work)

        def land(work: Work, packet: PacketRecord, fulfill: Fulfill) -> None:
            if clearing.fulfil(work, packet.id, delivered(fulfill)) and self._payment_id is not None:
                end_if_finished(work, self._payment_id)

        return Payer(self._source, None, self._payment_id, check, land, min(minimum, MAX_LEDGER))

    async def _next_hop(self, prepare: Prepare) -> Hop:
        """Raises PacketRejected."""
        return await self._database.read(lambda work: next_hop(work, self._outbound.ilp_address, prepare, self._source))
