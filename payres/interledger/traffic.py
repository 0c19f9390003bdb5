"""How much a peer may send: packets a second, and packets under way at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from payres.interledger.declined import Declined
from payres.interledger.packets import Code
from payres.limits import MAX_PACKETS_IN_FLIGHT
from payres.throttle import Throttle


class Traffic:
    """Counts the packets of each peer. Senders slow down when a packet is declined for it (RFC 29)."""

    def __init__(self, throttle: Throttle) -> None:
        self._throttle = throttle
        self._under_way: dict[int, int] = {}

    @contextmanager
    def packet(self, peer_id: int) -> Iterator[None]:
        """A packet is under way inside the block. Raises Declined with T03 or T05 when it is one too many."""
        under_way = self._under_way.get(peer_id, 0)
        if under_way >= MAX_PACKETS_IN_FLIGHT:
            raise Declined(Code.CONNECTOR_BUSY, f"{MAX_PACKETS_IN_FLIGHT} packets at a time are taken")
        if self._throttle.take(peer_id):
            raise Declined(Code.RATE_LIMITED, "Packets come faster than they are taken")
        self._under_way[peer_id] = under_way + 1
        try:
            yield
        finally:
            left = self._under_way[peer_id] - 1
            if left:
                self._under_way[peer_id] = left
            else:
                del self._under_way[peer_id]
