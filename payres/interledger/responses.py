"""Cached responses for peers that send a Request-Id (ILP over HTTP), so that a repeated request moves no money twice.

A peer that has lost a response repeats the request unchanged, also after the packet has expired, and learns the
outcome.
"""

from enum import Enum, auto
from typing import Final

import msgspec

from payres.clock import MILLISECOND
from payres.interledger.packets import Code, Fulfill, Rejected, decode_prepare, encode
from payres.store import peers, retention
from payres.store.work import Work

PURGE_INTERVAL: Final = 16  # milliseconds; 32 are then purged at once, twice as many as are cached meanwhile


class Request(msgspec.Struct, frozen=True):
    """The peer that asks, its Request-Id if any, and the condition of the packet."""

    peer_id: int
    request_id: str | None
    condition: bytes


class NoReply(Enum):
    """Why a request gets no reply packet."""

    OUTCOME_UNKNOWN = auto()  # it was forwarded and has no outcome yet: the peer should ask again
    REQUEST_ID_REUSED = auto()  # the peer used the Request-Id for another packet before


def find_response(work: Work, request: Request) -> bytes | NoReply | None:
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


def require_new(work: Work, request: Request) -> None:
    """Raises Rejected for a request that was fulfilled or forwarded before: `find_response` has its answer."""
    if find_response(work, request) is not None:
        raise Rejected(Code.INTERNAL_ERROR, "The request was made before")


def store_response(work: Work, request: Request, reply: Fulfill) -> None:
    """Caches the reply to a request that was fulfilled in this unit."""
    if request.request_id is None:
        return
    peers.insert_answer(work, request.peer_id, request.request_id, request.condition, encode(reply), work.now)
    # By the time, of which a peer cannot choose the moments that purge nothing.
    if work.now // MILLISECOND % PURGE_INTERVAL == 0:
        retention.purge(work, retention.ANSWERS, work.now)
