"""The carrier of packets, and the links to peers over which it carries them.

A money packet is recorded before it leaves, and its money is posted or voided before its outcome is reported: the rows
always show what was sent and possibly sent. An unanswered packet stays in flight; its outcome is found out after it has
expired (`payres.interledger.unanswered`).

A peer that has lost a response repeats its request unchanged, even after the packet has expired, and gets the outcome:
responses are stored for peers that send a Request-Id (ILP over HTTP), so that no money moves twice. A Reject too: the
peer's payer has the money back, so a second copy of the request, from a proxy for example, must not be fulfilled.
"""

import logging
import re
from collections import Counter
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final

import msgspec

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import MILLISECOND, SECOND, Clock
from payres.core.protocol.errors import Unavailable
from payres.core.remote.connection import FetchFailed, Response
from payres.core.remote.http import GuardedClient, RemoteEffect
from payres.core.remote.transport import Bounds
from payres.core.store import retention
from payres.core.store.database import Database
from payres.core.store.work import Work
from payres.interledger import clearing
from payres.interledger.limits import MAX_REJECT_SECONDS
from payres.interledger.oer import CodecError, decode_prepare, decode_reply, encode_packet
from payres.interledger.packets import Code, Fulfill, Outcome, PacketRejected, Prepare, Reject, Unanswered
from payres.interledger.routing import Hop, next_hop
from payres.interledger.store import peers
from payres.interledger.store.packets import PACKETS, PacketRecord
from payres.interledger.store.peers import InboundPeer, PeerRecord

# Wider than for unknown servers. Slots bound the packets to each peer before they are recorded; these bounds have room
# for all of them even if several peers hang.
BOUNDS: Final = Bounds(seconds=30.0, queue_seconds=2.0, per_host=512, in_all=512, idle=64, untrusted_hosts=False)
MEDIA_TYPE: Final = "application/octet-stream"
PACKET: Final = RemoteEffect("packets", "they are answered, or expire")
MARGIN: Final = SECOND  # how long after its expiry our own packet may be answered
PURGE_INTERVAL: Final = 16  # milliseconds; each purge deletes up to 32
PacketCounts = Counter[tuple[str, str, str]]  # by peer, direction, result

log = logging.getLogger("payres.interledger")

_TOKEN = re.compile(r"[!-~]+")
# A gateway may answer 408 or 5xx although the packet has reached the peer.
_PROCESSED_BY_NOBODY = frozenset(range(400, 500)) - {408}


class Link:
    """Posts packets to peers, over a client with BOUNDS. Raises nothing.

    Tokens are the peers' decrypted outgoing tokens. Failure texts never contain one.
    """

    def __init__(self, http: GuardedClient, database: Database, counts: PacketCounts) -> None:
        self._http = http
        self._database = database
        self._counts = counts
        self._repeating: dict[int, bool] = {}
        self._noted: dict[int, tuple[str, int]] = {}  # the last failure of each peer, and when it was stored

    async def post(
        self, peer: PeerRecord, token: str, prepare: bytes, request_id: str | None, seconds: float
    ) -> tuple[Outcome, bool]:
        """Sends a Prepare and waits up to `seconds` for its answer. With a `request_id` the request may be repeated.

        Returns the outcome, and whether the peer echoed our Request-Id: then it repeats its answers.
        """
        response = await self._request(peer, token, prepare, request_id, seconds)
        outcome = response if isinstance(response, Unanswered) else _outcome(response)
        repeats = False
        if request_id is not None and not isinstance(response, Unanswered) and not isinstance(outcome, Unanswered):
            repeats = response.headers.get("request-id") == request_id
            await self._store_repeats(peer, repeats)
        self._counts[peer.name, "out", _word(outcome)] += 1
        return outcome, repeats

    async def note_failure(self, peer: InboundPeer, why: str, now: int) -> None:
        """Stores a peer's failure for the operator, the same once a second. If that fails, it is only logged."""
        noted, at = self._noted.get(peer.id, ("", 0))
        if noted == why and 0 <= now - at < SECOND:
            return
        self._noted[peer.id] = why, now
        try:
            await self._database.write(partial(peers.note_error, peer_id=peer.id, error=why, now=now))
        except Unavailable as error:
            log.warning("the failure of peer %s could not be stored: %s", peer.name, error)

    async def _request(
        self, peer: PeerRecord, token: str, prepare: bytes, request_id: str | None, seconds: float
    ) -> Response | Unanswered:
        if not _TOKEN.fullmatch(token):  # because libraries quote invalid headers in their errors
            return Unanswered("The outgoing token cannot be sent as a header", sent=False)
        headers = {"Authorization": f"Bearer {token}", "Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE}
        if request_id is not None:
            headers["Request-Id"] = request_id
        try:
            return await self._http.request("POST", peer.url, headers, prepare, seconds, PACKET)
        except FetchFailed as error:
            return Unanswered(error.sentence, sent=not error.unsent)

    async def _store_repeats(self, peer: PeerRecord, repeats: bool) -> None:
        """Stores whether the peer repeats answers, which allows repeating requests after a crash."""
        if self._repeating.get(peer.id, bool(peer.repeats_answers)) != repeats:
            self._repeating[peer.id] = repeats
            try:
                await self._database.write(partial(peers.set_repeats_answers, peer_id=peer.id, repeats=repeats))
            except Unavailable:  # the next answer tries again
                del self._repeating[peer.id]


def _outcome(response: Response) -> Outcome:
    if response.status != 200:
        sent = response.status not in _PROCESSED_BY_NOBODY
        return Unanswered(f"The peer answered with HTTP status {response.status}", sent)
    try:
        return decode_reply(response.body)
    except CodecError as error:
        return Unanswered(f"The peer's answer is no ILP packet: {error}")


def _word(outcome: Outcome) -> str:
    if isinstance(outcome, Unanswered):
        return "unknown" if outcome.sent else "unsent"
    return "fulfilled" if isinstance(outcome, Fulfill) else "rejected"


class Request(msgspec.Struct, frozen=True):
    """The requesting peer, its Request-Id if any, and the packet's condition."""

    peer_id: int
    request_id: str | None
    condition: bytes


class NoReply(Enum):
    """Why a request gets no reply packet."""

    OUTCOME_UNKNOWN = auto()  # it was forwarded and has no outcome yet: the peer should ask again
    REQUEST_ID_REUSED = auto()  # the peer used the Request-Id for another packet before


def land_forwarded(work: Work, packet: PacketRecord, fulfill: Fulfill) -> None:
    """Posts the money of a forwarded packet, and caches the response for the peer that sent it.

    Raises PacketRejected if the packet was given up before.
    """
    assert packet.from_peer_id is not None
    assert packet.prepare is not None
    if clearing.fulfil(work, packet.id, 0):
        peers.count_received(work, packet.from_peer_id)
        condition = decode_prepare(packet.prepare).condition
        store_response(work, Request(packet.from_peer_id, packet.from_request_id, condition), fulfill)
        return
    ended = PACKETS.get(work, packet.id)
    if ended is None or ended.state != "fulfilled":
        raise PacketRejected(Code.TRANSFER_TIMED_OUT, "The packet was given up before its fulfillment arrived")


class Payer(msgspec.Struct, frozen=True):
    """The payer of a packet, in `asset`: the peer that sent it with this request, or our own payment.

    A payment has a `check`, run in the unit that records a packet, and its own `land`, run in the unit that posts its
    money. Both raise Rejected.
    """

    asset: Asset
    request: Request | None = None
    payment_id: str | None = None
    check: Callable[[Work, Hop], None] | None = None
    land: Callable[[Work, PacketRecord, Fulfill], None] = land_forwarded
    minimum: int = 0  # what the receiver of a payment demands of the packet

    @property
    def peer_id(self) -> int | None:
        """The peer that sent the packet, to which it never returns."""
        return self.request.peer_id if self.request else None


class Carrier:
    """Sends packets to the next peer. `awaited` are the ids of recorded packets whose answer a task awaits."""

    def __init__(self, database: Database, link: Link, clock: Clock, ilp_address: str) -> None:
        self.database = database
        self.link = link
        self.clock = clock
        self.ilp_address = ilp_address
        self.awaited: set[str] = set()

    async def carry(self, payer: Payer, prepare: Prepare) -> Outcome:
        """The outcome of a money packet, which is posted or voided by then. Raises PacketRejected, Unavailable."""
        hop, packet = await self.database.write(partial(self._record, payer=payer, prepare=prepare))
        # A peer that cannot repeat its request needs the final outcome now, so no fulfillment may be fetched later: the
        # next peer gets no Request-Id.
        number = packet.id if payer.request is None or payer.request.request_id is not None else None
        self.awaited.add(packet.id)
        try:
            outcome = await self.post(hop, prepare, number, MARGIN if payer.request is None else 0)
            if isinstance(outcome, Fulfill):
                await self.database.write(lambda work: payer.land(work, packet, outcome))
            elif isinstance(outcome, Reject):
                await self.database.write(partial(clearing.reject, packet_id=packet.id))
            return outcome
        finally:
            self.awaited.discard(packet.id)

    async def post(
        self, hop: Hop, prepare: Prepare, request_id: str | None, margin: int = 0, link: Link | None = None
    ) -> Outcome:
        """The outcome of a packet that is recorded, or moves no money. Failures are stored with the peer.

        `prepare` has the payer's amount. The answer may arrive until `margin` after its expiry.
        """
        raw = encode_packet(msgspec.structs.replace(prepare, amount=hop.amount))
        now = self.clock.now()
        outcome: Outcome = Unanswered("The packet had expired before it was sent", sent=False)
        if now < prepare.expires_at:
            seconds = (prepare.expires_at + margin - now) / SECOND
            outcome, _ = await (link or self.link).post(hop.peer, hop.token, raw, request_id, seconds)
        if isinstance(outcome, Fulfill) and not outcome.fits(prepare.condition):
            await self.link.note_failure(hop.peer, "A fulfillment does not fit its condition", self.clock.now())
            return Reject(Code.WRONG_CONDITION, self.ilp_address)
        if isinstance(outcome, Unanswered):
            await self.link.note_failure(hop.peer, outcome.why, self.clock.now())
            if not outcome.sent:
                return Reject(Code.PEER_UNREACHABLE, self.ilp_address, "The next peer could not be reached")
        short = Code.INSUFFICIENT_LIQUIDITY, hop.peer.ilp_address
        if isinstance(outcome, Reject) and (outcome.code, outcome.triggered_by) == short:
            await self.link.note_failure(hop.peer, clearing.SHORT_THERE, self.clock.now())
        return outcome

    def _record(self, work: Work, payer: Payer, prepare: Prepare) -> tuple[Hop, PacketRecord]:
        """In one unit, finds the route and the rate, and holds the money. Raises PacketRejected."""
        hop = next_hop(work, self.ilp_address, prepare, payer.asset, payer.peer_id)
        packet = PacketRecord(
            id=work.new_id(),
            to_peer_id=hop.peer.id,
            outgoing_payment_id=payer.payment_id,
            from_peer_id=payer.peer_id,
            from_request_id=payer.request.request_id if payer.request else None,
            source_amount=prepare.amount,
            amount=hop.amount,
            prepare=encode_packet(msgspec.structs.replace(prepare, amount=hop.amount)),
            expires_at=prepare.expires_at,
            state="prepared",
            minimum=payer.minimum,
        )
        if payer.request is not None:
            require_new(work, payer.request)
        if payer.check is not None:
            payer.check(work, hop)
        clearing.prepare(work, packet, hop.peer)
        return hop, packet


def find_response(work: Work, request: Request) -> bytes | NoReply | None:
    """The stored reply to a request, or the reason why there is none yet; None for a new request."""
    if request.request_id is None:
        return None
    found = peers.find_request(work, request.peer_id, request.request_id)
    if found is None:
        return None
    condition, packet = found
    if (decode_prepare(packet).condition if condition is None else condition) != request.condition:
        return NoReply.REQUEST_ID_REUSED
    return NoReply.OUTCOME_UNKNOWN if condition is None else packet


def require_new(work: Work, request: Request) -> None:
    """Raises PacketRejected if the request was answered or forwarded before: `find_response` has its answer."""
    if find_response(work, request) is not None:
        raise PacketRejected(Code.INTERNAL_ERROR, "The request was made before")


def store_response(work: Work, request: Request, reply: Fulfill) -> None:
    """Stores the reply to a request that was fulfilled in this unit."""
    if request.request_id is None:
        return
    of, encoded = (request.peer_id, request.request_id, request.condition), encode_packet(reply)
    peers.insert_reply(work, peers.ANSWERS, *of, encoded, work.now)
    # By time, so that a peer cannot choose moments when nothing is purged.
    if work.now // MILLISECOND % PURGE_INTERVAL == 0:
        retention.purge(work, peers.ANSWERS, work.now)


def confirm_reject(work: Work, request: Request, expires_at: int, reject: Reject) -> bytes | NoReply:
    """The reply to a packet that is rejected: the Reject, stored until the packet expires, or the earlier reply."""
    found, reply = find_response(work, request), encode_packet(reject)
    if found is not None:
        return found
    if request.request_id is None or work.now >= expires_at:
        return reply
    retention.purge(work, peers.REJECTS, work.now)
    purge_at = min(expires_at, work.now + MAX_REJECT_SECONDS * SECOND)
    of = request.peer_id, request.request_id, request.condition
    peers.insert_reply(work, peers.REJECTS, *of, reply, purge_at)
    return reply
