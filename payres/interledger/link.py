"""The link to a peer: sends a packet and reads its answer in one HTTP exchange (ILP over HTTP, RFC 35)."""

import logging
import re
from functools import partial
from typing import Final

from payres.core.process.counters import Metrics
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import Unavailable
from payres.core.remote.connection import FetchFailed, Response
from payres.core.remote.http import GuardedClient
from payres.core.remote.transport import Bounds
from payres.core.store.database import Database
from payres.interledger.oer import CodecError
from payres.interledger.packets import Fulfill, Outcome, Unanswered, decode_reply
from payres.interledger.store import peers
from payres.interledger.store.peers import PeerRecord

# Wider than for unknown servers. Slots bound the packets to each peer before they are recorded; these bounds have room
# for all of them even if several peers hang.
BOUNDS: Final = Bounds(seconds=30.0, queue_seconds=2.0, per_host=512, in_all=512, idle=64, untrusted_hosts=False)
MEDIA_TYPE: Final = "application/octet-stream"

log = logging.getLogger("payres.interledger")

_TOKEN = re.compile(r"[!-~]+")
# A gateway may answer 408 or 5xx although the packet has reached the peer.
_PROCESSED_BY_NOBODY = frozenset(range(400, 500)) - {408}


class Link:
    """Posts packets to peers, over a client with BOUNDS. Raises nothing.

    Tokens are the peers' decrypted outgoing tokens. Failure texts never contain one.
    """

    def __init__(self, http: GuardedClient, database: Database, metrics: Metrics) -> None:
        self._http = http
        self._database = database
        self._packets = metrics.packets
        self._repeating: dict[int, bool] = {}

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
        self._packets[peer.name, "out", _word(outcome)] += 1
        return outcome, repeats

    async def note_failure(self, peer: PeerRecord, why: str, now: int) -> None:
        """Stores a peer's failure for the operator. If that fails, it is only logged."""
        if peer.last_error == why and peer.last_error_at is not None and 0 <= now - peer.last_error_at < SECOND:
            return
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
            return await self._http.request("POST", peer.url, headers, prepare, seconds)
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
