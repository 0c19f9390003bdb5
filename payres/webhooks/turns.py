"""Turns: the wallets whose events wait for a webhook take turns, each in the order of its events."""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple


class Turn(NamedTuple):
    """An event that is next, by its sequence. `wallet_id` is 0 for an event of no wallet."""

    wallet_id: int
    sequence: int


class Turns:
    """Events that wait, by wallet. A storm of one wallet's events delays those of others by one event each."""

    def __init__(self) -> None:
        # The wallet whose turn is next comes first. Arrays, because a hundred thousand events take a megabyte of them.
        self._waiting: OrderedDict[int, array[int]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, turn: Turn) -> None:
        """Adds the wallet's last event."""
        self._waiting.setdefault(turn.wallet_id, array("q")).append(turn.sequence)
        self._count += 1

    def take(self, most: int) -> list[Turn]:
        """Takes up to so many events, one of each wallet in turn."""
        taken: list[Turn] = []
        while self._waiting and len(taken) < most:
            wallet_id, sequences = self._waiting.popitem(last=False)
            taken.append(Turn(wallet_id, sequences.pop(0)))
            if sequences:
                self._waiting[wallet_id] = sequences
        self._count -= len(taken)
        return taken

    def put_back(self, taken: Sequence[Turn]) -> None:
        """Makes these, which were taken together, the next ones again."""
        for turn in reversed(taken):
            self._waiting.setdefault(turn.wallet_id, array("q")).insert(0, turn.sequence)
            self._waiting.move_to_end(turn.wallet_id, last=False)
        self._count += len(taken)

    def first(self) -> int | None:
        """The lowest sequence that waits."""
        return min((sequences[0] for sequences in self._waiting.values()), default=None)
