"""Events that wait for a webhook, wallet by wallet."""

from array import array
from collections import OrderedDict
from collections.abc import Sequence
from heapq import heappop, heappush
from typing import Final

from payres.webhooks.store.webhooks import Turn

# Events examined at a time. A cursor so far behind is stored even if no event was wanted.
READ_AT_ONCE: Final = 256
NONE: Final = (0,)  # no event has this sequence


class Turns:
    """Events that wait, by wallet. A storm of one wallet's events delays those of others by one event each."""

    def __init__(self) -> None:
        # The wallet whose turn is next comes first. Arrays, because a hundred thousand events take a megabyte of them.
        self._waiting: OrderedDict[int, array[int]] = OrderedDict()
        self._count = 0
        self._firsts: list[Turn] = []  # a heap with the first event of each wallet, and some that were taken

    def __len__(self) -> int:
        return self._count

    def add(self, turn: Turn) -> None:
        """Adds the wallet's last event."""
        if turn.wallet_id not in self._waiting:
            self._note_first(turn)
        self._waiting.setdefault(turn.wallet_id, array("q")).append(turn.sequence)
        self._count += 1

    def take(self, most: int) -> list[Turn]:
        """Takes up to so many events, one of each wallet in turn."""
        taken: list[Turn] = []
        while self._waiting and len(taken) < most:
            wallet_id, sequences = self._waiting.popitem(last=False)
            taken.append(Turn(sequences.pop(0), wallet_id))
            if sequences:
                self._waiting[wallet_id] = sequences
                self._note_first(Turn(sequences[0], wallet_id))
        self._count -= len(taken)
        return taken

    def put_back(self, taken: Sequence[Turn]) -> None:
        """Makes these, which were taken together, the next ones again."""
        for turn in reversed(taken):
            self._waiting.setdefault(turn.wallet_id, array("q")).insert(0, turn.sequence)
            self._waiting.move_to_end(turn.wallet_id, last=False)
            self._note_first(turn)
        self._count += len(taken)

    def first(self) -> int | None:
        """The lowest sequence that waits."""
        while self._firsts and self._waiting.get(self._firsts[0].wallet_id, NONE)[0] != self._firsts[0].sequence:
            heappop(self._firsts)
        return self._firsts[0].sequence if self._firsts else None

    def _note_first(self, turn: Turn) -> None:
        if len(self._firsts) > 2 * len(self._waiting) + READ_AT_ONCE:
            self._firsts = sorted(Turn(sequences[0], one) for one, sequences in self._waiting.items())
        heappush(self._firsts, turn)
