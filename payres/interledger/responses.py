"""Cached responses for peers that send a Request-Id (ILP over HTTP), so that a repeated request moves no money twice.

A peer that has lost a response repeats the request unchanged, also after the packet has expired, and learns the
outcome.
"""

from enum import Enum, auto
from typing import Final

import msgspec

from payres.clock import DAY
from payres.interledger.packets import decode_prepare
from payres.store import peers
from payres.store.work import Work

RETENTION: Final = 30 * DAY
# One response in sixteen purges twice as many as are cached meanwhile.
PURGES_IN_256: Final = 16
PURGED_AT_ONCE: Final = 32


class Request(msgspec.Struct, frozen=True):
    """The peer that asks, its Request-Id if any, and the condition of the packet."""

    peer_id: int
    request_id: str | None
    condition: bytes


class NoReply(Enum):
    """Why a request gets no reply packet."""

    OUTCOME_UNKNOWN = auto()  # it was forwarded and has no outcome yet: the peer should ask again
    REQUEST_ID_REUSED = auto()  # the peer used the Request-Id for another packet before


def find(work: Work, request: Request) -> bytes | NoReply | None:
    """The reply that fulfilled this request before, or why there is none yet; None for a new request."""
    if request.request_id is None:
        return None
    found = peers.find_request(work, request.peer_id, request.request_id)
    if found is None:
        return None
    condition, packet = found
    if (decode_prepare(packet).condition if condition is None else condition) != request.condition:
        return NoReply.REQUEST_ID_REUSED
    return NoReply.OUTCOME_UNKNOWN if condition is None else packet


def store(work: Work, request: Request, reply: bytes) -> None:
    """Caches the reply to a request that was fulfilled in this unit."""
    if request.request_id is None:
        return
    peers.insert_answer(work, request.peer_id, request.request_id, request.condition, reply, work.now)
    # Conditions are hashes, so their first byte is as good as random, and the same when a unit runs twice.
    if request.condition[0] < PURGES_IN_256:
        peers.delete_answers_before(work, work.now - RETENTION, PURGED_AT_ONCE)
