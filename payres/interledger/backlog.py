"""Packets that were passed on and have no outcome yet: when each is to be asked about next.

A peer that is away leaves thousands for an hour, so what waits is a few bytes of each, and only those that are due get
a task.
"""

from collections.abc import Iterator
from heapq import heappop, heappush
from typing import Final, NamedTuple

from payres.slots import Slots

# Packets that are looked after at a time to one peer; and those among them that came from one.
AT_ONCE: Final = 16
AT_ONCE_FROM_PEER: Final = 8


class Waiting(NamedTuple):
    """A packet, the time when to ask about it (microseconds), and how long to wait after that if it is no use."""

    due: int
    packet_id: str
    wait: int
    to_peer_id: int
    from_peer_id: int


class Backlog:
    """What waits, for each pair of peers on its own, so that packets between two of them delay no others."""

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, int], list[Waiting]] = {}
        self._slots = Slots(None, AT_ONCE, AT_ONCE_FROM_PEER)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, packet: Waiting) -> None:
        """The packet waits until it is due."""
        heappush(self._waiting.setdefault((packet.to_peer_id, packet.from_peer_id), []), packet)

    def take_due(self, now: int) -> Iterator[Waiting]:
        """Takes out what is due and has a slot, the first due first. `release` each afterwards."""
        for pair, waiting in list(self._waiting.items()):
            while waiting and waiting[0].due <= now and self._slots.try_take(*pair):
                yield heappop(waiting)
            if not waiting:
                del self._waiting[pair]

    def release(self, packet: Waiting) -> None:
        """The packet was asked about: its slot is free again."""
        self._slots.release(packet.to_peer_id, packet.from_peer_id)
