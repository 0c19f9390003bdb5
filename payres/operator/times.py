"""Times in the operator's requests."""

from payres.clock import complete_day, parse_time
from payres.errors import InvalidRequest


def require_time(text: str, field: str) -> int:
    """Microseconds UTC of an RFC 3339 time, or of the beginning of a day. Raises InvalidRequest, naming the field."""
    try:
        return parse_time(complete_day(text))
    except ValueError as error:
        raise InvalidRequest(f"{field}: {error}", field=field) from error
