"""Counters since the start. Counting updates a dictionary, without a lock; `operator/monitoring.py` shows them on
`/metrics`, with figures of the database.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from typing import Final

# Upper bounds in seconds, from cached answers to those that wait for another server.
SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
UNITS: Final = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Histogram:
    """Counts of values up to each bound (the last count is of values above all bounds), and their sum."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value


class Metrics:
    """The counters of a server; labels are named as in docs/operating.md."""

    def __init__(self) -> None:
        self.requests: dict[tuple[str, str, int], Histogram] = {}  # seconds by route, method, status
        self.errors: Counter[str] = Counter()  # by code
        self.events: Counter[str] = Counter()  # by type
        self.deliveries: Counter[str] = Counter()  # to webhooks, by result
        self.packets: Counter[tuple[str, str, str]] = Counter()  # by peer, direction, result
        self.batch_sizes = Histogram(UNITS)  # units per commit
        self.transaction_seconds = Histogram(SECONDS)  # of writes, COMMIT included

    def count_request(self, route: str, method: str, status: int, seconds: float) -> None:
        found = self.requests.get((route, method, status))
        if found is None:
            found = self.requests[route, method, status] = Histogram(SECONDS)
        found.observe(seconds)
