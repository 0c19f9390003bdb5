"""Packets of our own: what quotes and payments send, through this server's connector to the next peer.

A packet with money is recorded before it leaves and its money posted before the sender hears of the outcome, so the
rows know at any moment what is sent and what may be.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

import msgspec

from payres import ledger
from payres.amounts import Asset
from payres.clock import SECOND, Clock
from payres.errors import Unavailable
from payres.identifiers import Identifiers
from payres.interledger import balances
from payres.interledger.balances import PaymentEnded
from payres.interledger.declined import Declined
from payres.interledger.hops import Hop, next_hop, peer_towards
from payres.interledger.link import Answered, Link, NotSent
from payres.interledger.packets import Code, Fulfill, Prepare, Reject, encode
from payres.interledger.sending.channel import Lost, Outcome
from payres.interledger.sending.timing import Timing
from payres.interledger.shares import Shares
from payres.store import peers
from payres.store.database import Database, Transaction
from payres.store.packets import PacketRecord
from payres.store.peers import PeerRecord

MARGIN: Final = SECOND  # how long after its expiry the answer to a packet is still waited for

# Packets with money under way to one peer; and from one wallet: a payment's twenty, and room beside it for another.
AT_ONCE: Final = 64
AT_ONCE_FROM_WALLET: Final = 24
# Packets without money, of quotes and closings; and from one wallet: the eleven of a quote for three at a time.
ASKED_AT_ONCE: Final = 64
ASKED_AT_ONCE_FROM_WALLET: Final = 33
SILENT: Final = "A packet of a quote was left unanswered"

log = logging.getLogger("payres.outbound")


class Outbounds:
    """Opens the way out for quotes and payments."""

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
        self.places = Shares(AT_ONCE, AT_ONCE_FROM_WALLET)
        self.probe_places = Shares(ASKED_AT_ONCE, ASKED_AT_ONCE_FROM_WALLET)

    def open(self, source: Asset, wallet_id: int, payment_id: str | None = None) -> "Outbound":
        """The way out for a wallet's packets, counted in `source`; those of an outgoing payment may carry its money."""
        return Outbound(self, source, wallet_id, payment_id)


class Outbound:
    """Sends the packets of one quote or payment, each when there is a place for it on its link."""

    def __init__(self, parts: Outbounds, source: Asset, wallet_id: int, payment_id: str | None) -> None:
        self._parts = parts
        self._source = source
        self._wallet_id = wallet_id
        self._payment_id = payment_id
        self._peer_id: int | None = None  # whom the packets with money go to, as far as is known
        self._silent: PeerRecord | None = None

    async def ask(self, prepare: Prepare) -> Outcome:
        """Sends a packet that moves no money: nobody can fulfill it, or its amount is zero."""
        asked_at = self._parts.clock.now()
        try:
            hop = await self._parts.database.read(lambda tx: self._hop(tx, prepare))
        except Declined as declined:
            return declined.reject(self._parts.ilp_address)
        async with self._parts.probe_places.place(hop.peer.id, self._wallet_id):
            outcome = await self._ask(hop, self._postponed(prepare, asked_at))
        if isinstance(outcome, Fulfill) and prepare.amount > 0:
            return self._reject(Code.WRONG_CONDITION, "a packet was fulfilled that nobody can fulfill")
        return outcome

    async def pay(self, prepare: Prepare, fulfillment: bytes, delivered: Callable[[Fulfill], int]) -> Outcome:
        """Sends a packet with money, recorded before it leaves; what was fulfilled is posted before this returns."""
        asked_at, packet_id = self._parts.clock.now(), self._parts.identifiers.resource()
        try:
            if (peer_id := self._peer_id) is None:
                peer_id = self._peer_id = await self._parts.database.read(lambda tx: self._to(tx, prepare))
            async with self._parts.places.place(peer_id, self._wallet_id):
                outcome = await self._carry(self._postponed(prepare, asked_at), packet_id, peer_id)
        except Declined as declined:
            self._peer_id = None
            return declined.reject(self._parts.ilp_address)
        except ledger.NotEnough:
            return self._reject(Code.INSUFFICIENT_LIQUIDITY, "there is not enough liquidity for the exchange")
        except PaymentEnded:
            return self._reject(Code.BAD_REQUEST, "the payment has ended, or has nothing left to send")
        if isinstance(outcome, Fulfill) and outcome.fulfillment != fulfillment:
            outcome = self._reject(Code.WRONG_CONDITION, "the fulfillment does not fit the condition")
        if isinstance(outcome, Fulfill):
            arrived, now = delivered(outcome), self._parts.clock.now()
            await self._parts.database.write(lambda tx: balances.fulfil(tx, packet_id, arrived, now))
        elif isinstance(outcome, Reject):
            await self._parts.database.write(lambda tx: balances.reject(tx, packet_id))
        return outcome

    async def note_silence(self) -> None:
        """Keeps with the peer that it left unanswered what was asked, until nobody waited any more."""
        if self._silent is not None:
            await note_failure(self._parts.database, self._silent, SILENT, self._parts.clock.now())

    async def _ask(self, hop: Hop, prepare: Prepare) -> Outcome:
        # Numbered although nothing of it is kept, because the answer shows whether the peer repeats its answers.
        raw, number = encode(_onward(prepare, hop)), self._parts.identifiers.resource()
        left_at = self._parts.clock.now()
        try:
            return await self._post(self._parts.probe_link, hop, prepare, raw, number)
        except asyncio.CancelledError:
            # A probe at its end also waits no longer for what has just left.
            if self._parts.clock.now() - left_at >= self._parts.timing.probe_timeout // 2:
                self._silent = hop.peer
            raise

    async def _carry(self, prepare: Prepare, packet_id: str, peer_id: int) -> Outcome:
        """Records the packet and posts it. Raises Declined, ledger.NotEnough, PaymentEnded."""
        hop, raw = await self._parts.database.write(lambda tx: self._prepare(tx, prepare, packet_id, peer_id))
        return await self._post(self._parts.link, hop, prepare, raw, packet_id)

    def _postponed(self, prepare: Prepare, asked_at: int) -> Prepare:
        """The packet with the time that it waited for its place added, so that it does not expire in the queue."""
        waited = self._parts.clock.now() - asked_at
        return msgspec.structs.replace(prepare, expires_at=prepare.expires_at + max(waited, 0))

    def _to(self, tx: Transaction, prepare: Prepare) -> int:
        """The id of the peer that the packet goes to. Raises Declined."""
        return peer_towards(tx, self._parts.ilp_address, prepare.destination, self._source).id

    def _hop(self, tx: Transaction, prepare: Prepare) -> Hop:
        parts = self._parts
        return next_hop(tx, parts.ilp_address, prepare.destination, prepare.amount, self._source, parts.clock.now())

    def _prepare(self, tx: Transaction, prepare: Prepare, packet_id: str, peer_id: int) -> tuple[Hop, bytes]:
        """One unit: the route, the rate, and the money, which no other packet can take any more.

        Raises Declined, also when the packet no longer goes to the peer on whose link it has its place;
        ledger.NotEnough, PaymentEnded.
        """
        hop = self._hop(tx, prepare)
        if hop.peer.id != peer_id:
            raise Declined(Code.PEER_UNREACHABLE, "the way to the receiver has just changed")
        raw = encode(_onward(prepare, hop))
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
        balances.prepare(tx, packet, hop.peer, self._parts.clock.now())
        return hop, raw

    async def _post(self, link: Link, hop: Hop, prepare: Prepare, raw: bytes, request_id: str) -> Outcome:
        """The outcome as the sender has it; a failure is kept with the peer for its operator to see."""
        now = self._parts.clock.now()
        if now >= prepare.expires_at:
            return self._reject(Code.TRANSFER_TIMED_OUT, "the packet had expired before it left")
        seconds = (prepare.expires_at - now + MARGIN) / SECOND
        posted = await link.post(hop.peer, hop.token, raw, request_id, seconds)
        if isinstance(posted, Answered):
            return posted.reply
        await note_failure(self._parts.database, hop.peer, posted.why, self._parts.clock.now())
        if isinstance(posted, NotSent):
            return self._reject(Code.PEER_UNREACHABLE, "the next peer did not take the packet")
        return Lost(posted.why)

    def _reject(self, code: Code, message: str) -> Reject:
        return Reject(code, self._parts.ilp_address, message)


async def note_failure(database: Database, peer: PeerRecord, why: str, now: int) -> None:
    """Keeps what went wrong with a peer. That this may fail in turn is no reason to stop."""
    if peer.last_error == why and peer.last_error_at is not None and now - peer.last_error_at < SECOND:
        return
    try:
        await database.write(lambda tx: peers.note_error(tx, peer.id, why, now))
    except Unavailable as error:
        log.warning("the failure of peer %s could not be kept: %s", peer.name, str(error))


def _onward(prepare: Prepare, hop: Hop) -> Prepare:
    return msgspec.structs.replace(prepare, amount=hop.amount)
