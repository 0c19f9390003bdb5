"""What was measured, as it is kept in files: one figure for each round."""

from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import msgspec

# The small payres, the bare application, payres with the large database, with a webhook, with one that fails.
Side = Literal["payres", "bare", "grown", "webhook", "undelivered"]
Replayed = Literal["read", "create", "list", "quote"]
Measure = (
    Replayed
    | Literal["pay", "pay beside", "pay alone", "packet", "remote", "wide", "cold read", "cold list"]
    | Literal["start", "memory", "fresh pay", "fresh create"]
)
# Requests, packets or payments per second; microseconds of processor time for each; milliseconds; seconds; megabytes.
Quantity = Literal["rate", "processor", "p50", "p99", "start", "memory"]


class Series(NamedTuple):
    """What was measured of which server."""

    measure: Measure
    side: Side
    quantity: Quantity


class Figures(msgspec.Struct):
    """A run: `taken` is its time, as in a file's name; `payments` is the size of the grown database."""

    taken: str
    node: str
    machine: str
    quick: bool
    payments: int
    rounds: dict[Measure, dict[Side, dict[Quantity, list[float]]]] = {}

    def add(self, measure: Measure, side: Side, quantity: Quantity, figure: float) -> None:
        self.rounds.setdefault(measure, {}).setdefault(side, {}).setdefault(quantity, []).append(figure)

    def of(self, series: Series) -> Sequence[float]:
        """The figure of each round; none of what was not measured."""
        return self.rounds.get(series.measure, {}).get(series.side, {}).get(series.quantity, [])

    def ratios(self, of: Series, over: Series) -> Sequence[float]:
        """Of each round, one figure divided by the other."""
        return [one / other for one, other in zip(self.of(of), self.of(over), strict=True)]

    def median(self, series: Series) -> float | None:
        found = self.of(series)
        return median(found) if found else None


def store(cache: Path, figures: Figures) -> Path:
    """Writes them into a file of their own."""
    file = cache / f"{_kind(figures)}-{figures.taken}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    return file


def load(file: Path) -> Figures:
    """Raises ValueError when they are of a version that measured something else."""
    return msgspec.json.decode(file.read_bytes(), type=Figures)


def last_before(cache: Path, figures: Figures) -> Figures | None:
    """The last run that is kept there of the same machine, length and size of the large database."""
    for file in sorted(cache.glob(f"{_kind(figures)}-*.json"), reverse=True):
        try:
            found = load(file)
        except ValueError:
            continue
        if found.node == figures.node and found.taken < figures.taken:
            return found
    return None


def _kind(figures: Figures) -> str:
    return f"{'quick' if figures.quick else 'full'}-{figures.payments}"
