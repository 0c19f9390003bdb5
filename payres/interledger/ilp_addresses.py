"""ILP addresses (Interledger RFC 15)."""

import re
from functools import lru_cache
from typing import Final

MAX_ILP_ADDRESS: Final = 1023  # characters
_ILP_ADDRESS: Final = re.compile(r"(g|private|example|peer|self|test[1-3]?|local)([.][a-zA-Z0-9_~-]+)+")


def is_ilp_address(text: str) -> bool:
    """Whether a text is one: a scheme, and at least one segment."""
    return len(text) <= MAX_ILP_ADDRESS and _is_well_formed(text)


@lru_cache(maxsize=256)  # shared by all packets of a payment
def _is_well_formed(text: str) -> bool:
    return _ILP_ADDRESS.fullmatch(text) is not None
