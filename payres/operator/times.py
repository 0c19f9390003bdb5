"""Times as an operator writes them."""

import re
from typing import Final

from payres.clock import parse_time
from payres.errors import InvalidRequest

DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def require_time(text: str, field: str) -> int:
    """Microseconds UTC of an RFC 3339 time, or of the beginning of a day. Raises InvalidRequest, naming the field."""
    try:
        return parse_time(f"{text}T00:00:00Z" if DAY.fullmatch(text) else text)
    except ValueError as error:
        raise InvalidRequest(f"{field}: {error}", field=field) from error
