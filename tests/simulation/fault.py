"""A fault of a simulated world. Each has an id, by which a run can have it or leave it out."""

from typing import NamedTuple


class Fault(NamedTuple):
    """A fault that happened."""

    at: float
    kind: str
    name: str

    @property
    def id(self) -> str:
        """What it is called in every run of the seed."""
        return f"{self.kind}: {self.name}"

    def __str__(self) -> str:
        return f"{self.at:8.3f} s  {self.id}"
