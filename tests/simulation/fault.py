"""A fault of a simulated world. Each has an id, by which a run can have it or leave it out."""

import re
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

    @property
    def places(self) -> tuple[str, ...]:
        """The machines that it is about."""
        return tuple(re.findall("[a-z][a-z0-9-]*", self.name))

    def __str__(self) -> str:
        return f"{self.at:8.3f} s  {self.id}"
