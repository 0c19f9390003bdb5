"""ILP addresses (RFC 15): dotted names under an allocation scheme, compared by whole segments and by case."""

import re
from typing import Final

MAX_LENGTH: Final = 1023

_SCHEME = r"(?:g|private|example|peer|self|test[1-3]?|local)"
_ADDRESS = re.compile(_SCHEME + r"(?:\.[a-zA-Z0-9_~-]+)+")
_PREFIX = re.compile(_SCHEME + r"(?:\.[a-zA-Z0-9_~-]+)*")


def is_address(text: str) -> bool:
    """Whether packets can be addressed to it: a scheme, at least one segment, at most 1023 characters."""
    return len(text) <= MAX_LENGTH and _ADDRESS.fullmatch(text) is not None


def is_prefix(text: str) -> bool:
    """Whether packets can be routed by it: an address, or a scheme alone such as `g`."""
    return len(text) <= MAX_LENGTH and _PREFIX.fullmatch(text) is not None


def covers(prefix: str, address: str) -> bool:
    """Whether the address is the prefix or lies below it: `g.bank` covers `g.bank.alice`, never `g.banker`."""
    return address.startswith(prefix) and address[len(prefix) : len(prefix) + 1] in ("", ".")
