"""Answers that are kept for peers that number their requests, so that a repeated request moves no money again.

The number is the Request-Id header of ILP over HTTP. A peer that has lost an answer repeats the request as it was, also
after the packet has expired, and learns what became of it.
"""

from typing import Final

import msgspec

from payres.clock import DAY
from payres.interledger.packets import decode_prepare
from payres.store import packets, peers
from payres.store.database import Transaction

KEPT_FOR: Final = 30 * DAY
PRUNED_EVERY: Final = 50  # answers; as many again are deleted at most, so that deleting keeps up with keeping
PRUNED_AT_ONCE: Final = 100


class NoAnswerYet(Exception):
    """The request was passed on and its outcome is not known yet; the peer should ask again."""


class RequestIdReused(Exception):
    """The peer used the Request-Id for another packet before."""


class Request(msgspec.Struct, frozen=True):
    """Who asks, under which number if any, and the condition of the packet."""

    peer_id: int
    request_id: str | None
    condition: bytes


class Answers:
    """Finds and keeps answers, inside the units that move the money that they are about."""

    def __init__(self) -> None:
        self._kept = 0

    def find(self, tx: Transaction, request: Request) -> bytes | None:
        """The answer that fulfilled this request before. Raises NoAnswerYet, RequestIdReused."""
        if request.request_id is None:
            return None
        found = peers.find_answer(tx, request.peer_id, request.request_id)
        if found is None:
            passed_on = packets.packet_of_request(tx, request.peer_id, request.request_id)
            if passed_on is None or passed_on.prepare is None:
                return None
            _check(request, decode_prepare(passed_on.prepare).condition)
            raise NoAnswerYet
        condition, reply = found
        _check(request, condition)
        return reply

    def keep(self, tx: Transaction, request: Request, reply: bytes, now: int) -> None:
        """Keeps the answer of a request that was fulfilled in this unit, and counts it for the peer."""
        peers.count_received(tx, request.peer_id)
        if request.request_id is None:
            return
        peers.insert_answer(tx, request.peer_id, request.request_id, request.condition, reply, now)
        self._kept += 1
        if self._kept % PRUNED_EVERY == 0:
            peers.delete_answers_before(tx, now - KEPT_FOR, PRUNED_AT_ONCE)


def _check(request: Request, condition: bytes) -> None:
    if request.condition != condition:
        raise RequestIdReused
