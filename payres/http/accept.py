"""Accept (RFC 9110 section 12.5.1): a request that rules JSON out is answered 406 before it does anything."""

import re
from collections.abc import Sequence
from typing import Final

from payres.errors import NotAcceptable
from payres.http.responses import JSON
from payres.limits import MAX_ACCEPT_BYTES

# What nearly all clients send, so that nothing need be parsed.
COMMON: Final = frozenset({b"*/*", JSON.encode(), b""})
MEDIA_RANGE: Final = re.compile(r"\*/\*|[\w!#$%&'+.^`|~-]+/(?:\*|[\w!#$%&'+.^`|~-]+)", re.ASCII)
RANGES_OF_JSON: Final = (JSON, "application/*", "*/*")
ZERO_QUALITY: Final = re.compile(r"q=0(?:\.0*)?")


def check_accept(headers: Sequence[tuple[bytes, bytes]], types: Sequence[str] = ()) -> None:
    """Raises 406 for headers that take neither JSON nor one of the other types. A very long Accept is ignored."""
    for name, value in headers:
        if name == b"accept" and value not in COMMON:
            break
    else:
        return
    if not accepts(_joined(headers), types):
        raise NotAcceptable(f"The answer is {JSON}: name it in Accept, or leave Accept out")


def asks_for(headers: Sequence[tuple[bytes, bytes]], media_type: str) -> bool:
    """Whether the headers name this very media type as one that the client takes."""
    wanted = media_type.encode()
    if not any(name == b"accept" and wanted in value.lower() for name, value in headers):
        return False  # nearly always, so that nothing need be parsed
    return bool(_ranges(_joined(headers)).get(media_type))


def accepts(accept: str, types: Sequence[str] = ()) -> bool:
    """Whether an Accept header takes JSON, or names one of the other types. What is malformed in it is passed over."""
    ranges = _ranges(accept)
    if not ranges or any(ranges.get(media_type) for media_type in types):
        return True
    # The most specific range decides.
    return next((ranges[name] for name in RANGES_OF_JSON if name in ranges), False)


def _joined(headers: Sequence[tuple[bytes, bytes]]) -> str:
    """All lines of Accept as one; nothing, as if there were none, when that is longer than anyone needs."""
    joined = b",".join([value for name, value in headers if name == b"accept"])
    return joined.decode("latin-1") if len(joined) <= MAX_ACCEPT_BYTES else ""


def _ranges(accept: str) -> dict[str, bool]:
    """The media ranges of an Accept header in lower case, and whether each is taken or ruled out."""
    ranges: dict[str, bool] = {}
    for member in accept.lower().split(","):
        media_range, *parameters = [part.strip() for part in member.split(";")]
        if MEDIA_RANGE.fullmatch(media_range):
            taken = not any(ZERO_QUALITY.fullmatch(parameter) for parameter in parameters)
            ranges[media_range] = ranges.get(media_range, False) or taken
    return ranges
