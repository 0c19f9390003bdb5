"""The link to a peer: sends packets and reads their answers in one exchange of ILP over HTTP (RFC 35)."""

import logging
import re
from functools import partial
from typing import Final

import msgspec

from payres.clock import SECOND
from payres.counters import Metrics
from payres.errors import Unavailable
from payres.federation.connection import FetchFailed, Response
from payres.federation.http import Bounds, GuardedClient
from payres.interledger.oer import CodecError
from payres.interledger.packets import Fulfill, Lost, Reply, decode_reply
from payres.store import peers
from payres.store.database import Database
from payres.store.peers import PeerRecord

# Wider than for unknown servers. Slots bound the packets to each peer before they are recorded; these bounds have room
# for all of them when several peers hang, at one host or at many.
BOUNDS: Final = Bounds(seconds=30.0, queue_seconds=2.0, per_host=512, in_all=512, idle=64, untrusted_hosts=False)
MEDIA_TYPE: Final = "application/octet-stream"
REQUEST_ID: Final = "request-id"

log = logging.getLogger("payres.interledger")

_TOKEN = re.compile(r"[!-~]+")
# A gateway may answer 408 or 5xx for a packet that has reached the peer.
_PROCESSED_BY_NOBODY = frozenset(range(400, 500)) - {408}


class Answered(msgspec.Struct, frozen=True):
    """The peer's reply.

    `repeatable` says that it repeated our Request-Id: it answers a repeated request as it did the first one.
    """

    reply: Reply
    repeatable: bool


class NotSent(msgspec.Struct, frozen=True):
    """The peer has not processed the packet and will not."""

    why: str


class Link:
    """Posts packets to peers, over a client with BOUNDS. The text of a failure never contains a token."""

    def __init__(self, http: GuardedClient, database: Database, metrics: Metrics) -> None:
        self._http = http
        self._database = database
        self._packets = metrics.packets
        self._repeating: dict[int, bool] = {}

    async def post(
        self, peer: PeerRecord, token: str, prepare: bytes, request_id: str | None, seconds: float
    ) -> Answered | NotSent | Lost:
        """Sends a Prepare and waits up to `seconds` for its answer.

        Raises nothing. `token` is the peer's outgoing token, decrypted; with a `request_id` the request may be
        repeated.
        """
        outcome = await self._post(peer, token, prepare, request_id, seconds)
        self._packets[peer.name, "out", _result(outcome)] += 1
        return outcome

    async def _post(
        self, peer: PeerRecord, token: str, prepare: bytes, request_id: str | None, seconds: float
    ) -> Answered | NotSent | Lost:
        if not _TOKEN.fullmatch(token):  # checked here, because libraries quote in their errors what they cannot write
            return NotSent("The outgoing token cannot be written as a header")
        headers = {"Authorization": f"Bearer {token}", "Content-Type": MEDIA_TYPE, "Accept": MEDIA_TYPE}
        if request_id is not None:
            headers["Request-Id"] = request_id
        try:
            response = await self._http.request("POST", peer.url, headers, prepare, seconds)
        except FetchFailed as error:
            return NotSent(error.sentence) if error.unsent else Lost(error.sentence)
        result = _outcome(response, request_id)
        if request_id is not None and isinstance(result, Answered):
            await self._store_repeatable(peer, result.repeatable)
        return result

    async def _store_repeatable(self, peer: PeerRecord, repeatable: bool) -> None:
        """Stores whether the peer repeats answers: only then may it be asked again after a crash."""
        if self._repeating.get(peer.id, bool(peer.repeats_answers)) != repeatable:
            self._repeating[peer.id] = repeatable
            try:
                await self._database.write(partial(peers.set_repeats_answers, peer_id=peer.id, repeats=repeatable))
            except Unavailable:  # the answer matters more; the next one tries again
                del self._repeating[peer.id]


async def note_failure(database: Database, peer: PeerRecord, why: str, now: int) -> None:
    """Stores what went wrong with a peer, for the operator to see. If that fails, it is only logged."""
    if peer.last_error == why and peer.last_error_at is not None and now - peer.last_error_at < SECOND:
        return
    try:
        await database.write(partial(peers.note_error, peer_id=peer.id, error=why, now=now))
    except Unavailable as error:
        log.warning("the failure of peer %s could not be stored: %s", peer.name, error)


def _result(outcome: Answered | NotSent | Lost) -> str:
    if isinstance(outcome, Answered):
        return "fulfilled" if isinstance(outcome.reply, Fulfill) else "rejected"
    return "unknown" if isinstance(outcome, Lost) else "unsent"


def _outcome(response: Response, request_id: str | None) -> Answered | NotSent | Lost:
    status = response.status
    if status in _PROCESSED_BY_NOBODY:
        return NotSent(f"The peer answered with HTTP status {status}")
    if status != 200:
        return Lost(f"The peer answered with HTTP status {status}")
    try:
        reply = decode_reply(response.body)
    except CodecError as error:
        return Lost(f"The peer's answer is no ILP packet: {error}")
    repeatable = request_id is not None and response.headers.get(REQUEST_ID) == request_id
    return Answered(reply, repeatable)
