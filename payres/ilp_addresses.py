"""ILP addresses (RFC 15)."""

import re
from functools import lru_cache
from typing import Final

MAX_ADDRESS: Final = 1023  # characters
_ADDRESS: Final = re.compile(r"(g|private|example|peer|self|test[1-3]?|local)([.][a-zA-Z0-9_~-]+)+")


def is_ilp_address(text: str) -> bool:
    """Whether packets can be addressed to it: a scheme, and at least one segment."""
    return len(text) <= MAX_ADDRESS and _is_well_formed(text)


@lru_cache(maxsize=256)  # all packets of a payment have the same
def _is_well_formed(text: str) -> bool:
    return _ADDRESS.fullmatch(text) is not None
