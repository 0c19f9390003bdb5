"""Recovery: finds out what became of packets in flight that nobody waits for any more, after a crash or a lost answer.

The rows are the backlog: each second it looks at packets in flight, and takes up those that have expired and so can no
longer be fulfilled. Only peers that repeat their answers are asked, because others might take the money twice. What
they cannot say, for an hour at most, `payres.interledger.reconciliation` finds out for a payment of ours, and a packet
from another peer is released.
"""

import asyncio
import logging
from collections.abc import Hashable
from contextlib import suppress
from functools import partial
from typing import Final

from payres.clock import SECOND, Clock
from payres.federation.incoming_payments import RemoteReceivers
from payres.interledger import balances
from payres.interledger.carrying import Carrier, land_forwarded
from payres.interledger.link import BOUNDS
from payres.interledger.packets import (
    Code,
    Fulfill,
    Outcome,
    Reject,
    Rejected,
    Unanswered,
    decode_prepare,
    fulfills,
)
from payres.interledger.reconciliation import GIVE_UP_AFTER, LONGEST_WAIT, next_look, reconcile
from payres.payments.settlement import payment_of
from payres.slots import Slots
from payres.store import packets, peers
from payres.store.database import Database
from payres.store.packets import PacketRecord
from payres.store.peers import PeerRecord
from payres.store.work import Work
from payres.worker import cancel_all, retry

MARGIN: Final = SECOND  # after a packet's expiry: the peer's clock may be a little behind
# Requests in flight to one peer; and about packets of one payment or from one peer.
ASKED_AT_ONCE: Final = 16
ASKED_AT_ONCE_OF_ONE: Final = 8
TICK_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 5.0
PAGE: Final = 512  # rows that are looked at in a second
NOT_REPEATED: Final = Unanswered("The peer does not repeat answers")

log = logging.getLogger("payres.interledger")


class Recovery:
    """Call `run`. A case is a payment of ours with its packets in flight, or one packet from another peer."""

    def __init__(self, database: Database, clock: Clock, carrier: Carrier, receivers: RemoteReceivers) -> None:
        self._database = database
        self._clock = clock
        self._carrier = carrier
        self._receivers = receivers
        self._slots = Slots(None, ASKED_AT_ONCE, ASKED_AT_ONCE_OF_ONE)
        self._after = ""  # the last packet of the page before
        self._due: dict[str, int] = {}  # when to look again at cases that were looked at
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Until cancelled, or the database is in fail-stop."""
        try:
            while not self._database.stopped:
                name = "the search for unresolved packets"
                await pause(self._clock, await retry(name, self._database, self._look, RETRY_SECONDS))
        finally:
            await cancel_all(self._tasks.values())

    async def settled(self, payment_id: str) -> None:
        """Returns when no packet of the payment is in flight."""
        while True:
            if not await self._database.read(lambda work: packets.packets_of_payment(work, payment_id, "prepared")):
                return
            await asyncio.sleep(TICK_SECONDS)

    async def _look(self) -> int | None:
        """Begins with the cases of one page that are due; when the next one is, None while packets have tasks."""
        page = await self._database.read(partial(packets.prepared_packets, limit=PAGE, after=self._after))
        self._after = page[-1].id if len(page) == PAGE else ""
        now, later = self._clock.now(), []
        self._due = {case: due for case, due in self._due.items() if due > now - LONGEST_WAIT}
        for packet in page:
            case = packet.outgoing_payment_id or packet.id
            if case in self._tasks or packet.id in self._carrier.awaited:
                continue
            due = max(self._due.get(case, 0), packet.expires_at + MARGIN)
            slot = packet.to_peer_id, packet.outgoing_payment_id or packet.from_peer_id
            if due > now:
                later.append(due)
            elif self._slots.try_take(*slot):
                self._tasks[case] = asyncio.create_task(self._take_up(case, packet, slot))
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
        """When to look again at the case of a packet; None when all of it has its outcome."""
        payment_id, found = packet.outgoing_payment_id, [packet]
        if payment_id is not None:
            found = [*await self._database.read(lambda work: packets.packets_of_payment(work, payment_id, "prepared"))]
        expired_at = max((one.expires_at for one in found), default=0) + MARGIN
        if self._clock.now() < expired_at:
            return expired_at
        for one in found:
            outcome, may_change = await self._ask(one)
            if isinstance(outcome, Unanswered) and may_change:
                return next_look(self._clock.now(), one.expires_at)
            with suppress(Rejected):  # it was given up meanwhile
                await self._database.write(partial(_end, packet=one, outcome=outcome))
        if payment_id is None:
            return None
        return await reconcile(self._database, self._clock, self._receivers, payment_id)

    async def _ask(self, packet: PacketRecord) -> tuple[Outcome, bool]:
        """What became of an expired packet, and whether asking again may say more. Raises Unavailable."""
        found = await self._database.read(partial(_peer_and_token, peer_id=packet.to_peer_id))
        if packet.outgoing_payment_id is None and packet.from_request_id is None:
            return Unanswered("The peer before does not number its requests"), False  # and waits for no answer
        if found is None:
            return Unanswered("The peer was removed"), False
        peer, token = found
        if not peer.repeats_answers or packet.prepare is None:
            return NOT_REPEATED, False
        outcome, repeats = await self._carrier.link.post(peer, token, packet.prepare, packet.id, BOUNDS.seconds)
        if isinstance(outcome, Unanswered):
            return outcome, self._clock.now() < packet.expires_at + GIVE_UP_AFTER
        if isinstance(outcome, Fulfill) and fulfills(outcome.fulfillment, decode_prepare(packet.prepare).condition):
            return outcome, False  # the preimage is enough, also from a peer that does not repeat answers
        return (Reject(Code.TRANSFER_TIMED_OUT), False) if repeats else (NOT_REPEATED, False)


async def pause(clock: Clock, due: int | None) -> None:
    """Waits for the next look: a second, or less when something is due."""
    seconds = TICK_SECONDS if due is None else (due - clock.now()) / SECOND
    await asyncio.sleep(min(max(seconds, 0), TICK_SECONDS))


def _end(work: Work, packet: PacketRecord, outcome: Outcome) -> None:
    """Posts or voids the money of a packet. Of a payment, one that stays unanswered is left to reconciliation."""
    is_own = packet.outgoing_payment_id is not None
    if isinstance(outcome, Fulfill):
        if is_own:
            balances.fulfil(work, packet.id, _expected(work, packet))
        else:
            land_forwarded(work, packet, outcome)
    elif isinstance(outcome, Reject):
        balances.reject(work, packet.id)
    elif not is_own and balances.reject(work, packet.id):
        note = f"Packet {packet.id} over {packet.amount} was released unanswered. {outcome.why}"
        peers.note_error(work, packet.to_peer_id, note, work.now)
        log.warning("%s", note)


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
