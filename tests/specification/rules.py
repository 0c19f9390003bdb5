"""The rules of docs/specification.md, read from its lists."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

DOCUMENT: Final = (Path(__file__).parents[2] / "docs/specification.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Rule:
    """A sentence of the specification. `unbreakable` says why no request can break it; most can be broken."""

    number: str
    sentence: str
    unbreakable: str

    @property
    def part(self) -> str:
        return self.number.rpartition(".")[0]


PARTS: Final = tuple(re.findall(r"^## ([\d.]+) ", DOCUMENT, re.MULTILINE))
RULES: Final = tuple(
    Rule(*found) for found in re.findall(r"^- ([\d.]+): (.+?)(?: \*\((.+)\)\*)?$", DOCUMENT, re.MULTILINE)
)
