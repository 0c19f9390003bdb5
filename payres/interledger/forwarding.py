"""Forwarding: sends a peer's packet on to the next peer, with its money held before and posted after."""

from typing import Final

import msgspec

from payres.clock import MILLISECOND, SECOND, Clock
from payres.interledger.carrying import Carrier, InboundPayer
from payres.interledger.packets import Code, Outcome, Prepare, Rejected, Unanswered
from payres.interledger.responses import Request
from payres.interledger.routing import next_hop, peer_towards
from payres.limits import MAX_PASSED_ON, MAX_PASSED_ON_OF_PEER
from payres.slots import Slots, SlotsBusy
from payres.store.database import Database
from payres.store.peers import InboundPeer

# The answer must be back and stored before the packet expires at the peer that it came from.
HOP_TIME: Final = SECOND
LONGEST_LIFE: Final = 30 * SECOND
SHORTEST_LIFE: Final = SECOND
# For a slot on the next link: enough for a burst; after it the rejection makes senders slow down.
SLOT_TIMEOUT_SECONDS: Final = 2.0


class Forwarder:
    """Forwards packets. Replies come from the next peer; rejections of its own are raised as Rejected."""

    def __init__(self, database: Database, clock: Clock, ilp_address: str, carrier: Carrier) -> None:
        self._database = database
        self._clock = clock
        self._ilp_address = ilp_address
        self._carrier = carrier
        self._slots = Slots(None, MAX_PASSED_ON, MAX_PASSED_ON_OF_PEER)

    async def forward(self, peer: InboundPeer, prepare: Prepare, request: Request) -> Outcome:
        """The next peer's reply; Unanswered when the peer may ask again. Raises Rejected, Unavailable."""
        next_peer = await self._database.read(
            lambda work: peer_towards(work, self._ilp_address, prepare.destination, peer.asset, peer.id)
        )
        try:
            async with self._slots.slot(next_peer.id, peer.id, seconds=SLOT_TIMEOUT_SECONDS):
                onward = msgspec.structs.replace(prepare, expires_at=self._onward_expiry(prepare))
                outcome = await self._carry(peer, onward, request)
        except SlotsBusy as busy:
            raise Rejected(Code.CONNECTOR_BUSY, "The link to the next peer takes no more packets now") from busy
        if isinstance(outcome, Unanswered) and not (prepare.amount and request.request_id):
            # Nobody can ask again, so this is the end of it. Money is held until the packet has expired.
            if self._clock.now() >= onward.expires_at:
                raise Rejected(Code.TRANSFER_TIMED_OUT, "The next peer did not answer in time")
            raise Rejected(Code.INTERNAL_ERROR, "The answer of the next peer was lost")
        return outcome

    async def _carry(self, peer: InboundPeer, onward: Prepare, request: Request) -> Outcome:
        if onward.amount:
            return await self._carrier.carry(InboundPayer(peer, request), onward)
        hop = await self._database.read(lambda work: next_hop(work, self._ilp_address, onward, peer.asset, peer.id))
        return await self._carrier.post(hop, onward, None)

    def _onward_expiry(self, prepare: Prepare) -> int:
        """When the packet expires at the next peer, in whole milliseconds. Raises Rejected."""
        now = self._clock.now()
        expires_at = min(prepare.expires_at - HOP_TIME, now + LONGEST_LIFE)
        if expires_at < now + SHORTEST_LIFE:
            raise Rejected(Code.INSUFFICIENT_TIMEOUT, "The packet expires too soon to be passed on")
        return expires_at - expires_at % MILLISECOND
