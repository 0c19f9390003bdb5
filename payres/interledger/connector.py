"""The connector: accepts a peer's packet, delivers it here or forwards it to the next peer, and returns the reply."""

import hashlib
import logging
from functools import partial
from typing import Final

import msgspec

from payres.core.process.rate_limiter import RateLimiter
from payres.core.process.slots import Slots, SlotsBusy
from payres.core.protocol.amounts import MAX_LEDGER
from payres.core.protocol.clock import MILLISECOND, SECOND
from payres.core.protocol.errors import Unavailable
from payres.interledger import oer
from payres.interledger.carrier import Carrier, NoReply, Payer, Request, confirm_reject
from payres.interledger.clearing import ABOVE_LIMIT, CreditUsed
from payres.interledger.credentials import CredentialSource
from payres.interledger.limits import MAX_PACKETS_IN_FLIGHT, MAX_PASSED_ON, MAX_PASSED_ON_OF_PEER
from payres.interledger.oer import CodecError, decode_prepare, encode_packet
from payres.interledger.packets import (
    HASH_BYTES,
    Code,
    Fulfill,
    Outcome,
    PacketRejected,
    Prepare,
    Reject,
    Unanswered,
    too_large_data,
)
from payres.interledger.receiver import receive
from payres.interledger.routing import next_hop
from payres.interledger.store.peers import InboundPeer

NEIGHBOURS: Final = "peer."  # addresses within a link (RFC 15)
# IL-DCP (RFC 31): a child asks its parent connector for its address and asset.
CONFIGURATION: Final = "peer.config"
CONFIGURATION_FULFILLMENT: Final = bytes(HASH_BYTES)  # public: no money depends on it
CONFIGURATION_CONDITION: Final = hashlib.sha256(CONFIGURATION_FULFILLMENT).digest()
# The answer to a forwarded packet must be stored before it expires at the peer that sent it.
HOP_TIME: Final = SECOND
LONGEST_LIFE: Final = 30 * SECOND
SHORTEST_LIFE: Final = SECOND
# The wait for a slot on the next link: enough for a burst, after which rejections slow senders down.
SLOT_TIMEOUT_SECONDS: Final = 2.0

log = logging.getLogger("payres.interledger")


class Connector:
    """Answers the packets of peers. Answers to packets with money are sent after the commit."""

    def __init__(self, carrier: Carrier, credentials: CredentialSource, rate_limiter: RateLimiter) -> None:
        self._database, self._clock, self._ilp_address = carrier.database, carrier.clock, carrier.ilp_address
        self._carrier = carrier
        self._credentials = credentials
        self._rate_limiter = rate_limiter
        self._in_flight = Slots(None, MAX_PACKETS_IN_FLIGHT)
        self._next_links = Slots(None, MAX_PASSED_ON, MAX_PASSED_ON_OF_PEER)

    async def handle(self, peer: InboundPeer, body: bytes, request_id: str | None) -> bytes | NoReply:
        """The reply to a peer's packet, which should be a Prepare; or the reason for none."""
        try:
            prepare = decode_prepare(body)
        except CodecError as error:
            return encode_packet(Reject(Code.INVALID_PACKET, self._ilp_address, str(error)))
        request = Request(peer.id, request_id, prepare.condition)
        try:
            outcome = await self._process(peer, prepare, request)
        except PacketRejected as rejected:
            if isinstance(rejected, CreditUsed):
                await self._carrier.link.note_failure(peer, ABOVE_LIMIT, self._clock.now())
            outcome = rejected.reject(self._ilp_address)
        except Unavailable as error:  # nothing was stored
            outcome = Reject(Code.INTERNAL_ERROR, self._ilp_address, str(error))
        except Exception:
            log.exception("a packet from peer %s failed", peer.name)
            outcome = Reject(Code.INTERNAL_ERROR, self._ilp_address)
        if isinstance(outcome, Unanswered):
            return NoReply.OUTCOME_UNKNOWN
        if isinstance(outcome, Reject):
            log.debug("a packet of %d from peer %s is answered with %s", prepare.amount, peer.name, outcome)
        if isinstance(outcome, Reject) and prepare.amount and request_id is not None:
            return await self._confirmed(request, prepare.expires_at, outcome)
        return encode_packet(outcome)

    async def _process(self, peer: InboundPeer, prepare: Prepare, request: Request) -> Outcome:
        """Raises PacketRejected, Unavailable. Rejections above the rate limit make senders slow down (RFC 29)."""
        if not self._in_flight.try_take(peer.id):
            raise PacketRejected(Code.CONNECTOR_BUSY, f"At most {MAX_PACKETS_IN_FLIGHT} packets may be in flight")
        try:
            if self._rate_limiter.take(peer.id):
                raise PacketRejected(Code.RATE_LIMITED, "Packets exceed the rate limit")
            self._check(peer, prepare)
            if prepare.destination == CONFIGURATION:
                return _configuration(peer, prepare)
            opened = self._credentials.open(prepare.destination)
            if opened is not None:
                return await receive(self._database, self._ilp_address, peer, prepare, opened, request)
            return await self._forward(peer, prepare, request)
        finally:
            self._in_flight.release(peer.id)

    def _check(self, peer: InboundPeer, prepare: Prepare) -> None:
        """The checks for every packet. Raises PacketRejected."""
        if self._clock.now() >= prepare.expires_at:
            raise PacketRejected(Code.TRANSFER_TIMED_OUT, "The packet has expired")
        most = peer.max_packet or MAX_LEDGER
        if prepare.amount > most:
            raise PacketRejected(Code.AMOUNT_TOO_LARGE, data=too_large_data(prepare.amount, most))
        if prepare.destination.startswith(NEIGHBOURS) and prepare.destination != CONFIGURATION:
            raise PacketRejected(Code.UNREACHABLE)

    async def _forward(self, peer: InboundPeer, prepare: Prepare, request: Request) -> Outcome:
        """The next peer's reply; Unanswered if the peer may repeat its request. Raises PacketRejected, Unavailable."""
        hop = await self._database.read(lambda work: next_hop(work, self._ilp_address, prepare, peer.asset, peer.id))
        try:
            async with self._next_links.slot(hop.peer.id, peer.id, seconds=SLOT_TIMEOUT_SECONDS):
                onward = msgspec.structs.replace(prepare, expires_at=self._onward_expiry(prepare))
                if prepare.amount:
                    outcome = await self._carrier.carry(Payer(peer.asset, request), onward)
                else:
                    outcome = await self._carrier.post(hop, onward, None)
        except SlotsBusy as busy:
            raise PacketRejected(
                Code.CONNECTOR_BUSY, "The link to the next peer has no room for more packets now"
            ) from busy
        if isinstance(outcome, Unanswered) and not (prepare.amount and request.request_id):
            # Nobody can ask again, so this is final. The money is held until the packet has expired.
            if self._clock.now() >= onward.expires_at:
                raise PacketRejected(Code.TRANSFER_TIMED_OUT, "The next peer did not answer in time")
            raise PacketRejected(Code.INTERNAL_ERROR, "The answer of the next peer was lost")
        return outcome

    def _onward_expiry(self, prepare: Prepare) -> int:
        """The packet's expiry at the next peer, in whole milliseconds. Raises PacketRejected."""
        now = self._clock.now()
        expires_at = min(prepare.expires_at - HOP_TIME, now + LONGEST_LIFE)
        if expires_at < now + SHORTEST_LIFE:
            raise PacketRejected(Code.INSUFFICIENT_TIMEOUT, "The packet expires too soon to be forwarded")
        return expires_at - expires_at % MILLISECOND

    async def _confirmed(self, request: Request, expires_at: int, reject: Reject) -> bytes | NoReply:
        """The Reject once it is stored, or the reply that the same request got before.

        Checked by the writer, after everything in its queue: for a peer that repeats a request, a Reject means that its
        packet was never fulfilled, and never will be. What cannot be stored is not answered.
        """
        unit = partial(confirm_reject, request=request, expires_at=expires_at, reject=reject)
        try:
            return await self._database.write(unit)
        except Unavailable:
            return NoReply.OUTCOME_UNKNOWN


def _configuration(peer: InboundPeer, prepare: Prepare) -> Fulfill:
    """The answer to a child's request for its address and the link's asset (RFC 31). Raises PacketRejected."""
    if prepare.amount or prepare.condition != CONFIGURATION_CONDITION:
        raise PacketRejected(Code.BAD_REQUEST, "A configuration request carries no money")
    data = oer.var_text(peer.ilp_address) + oer.uint8(peer.asset_scale) + oer.var_text(peer.asset_code)
    return Fulfill(CONFIGURATION_FULFILLMENT, data)
