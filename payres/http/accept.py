"""Accept (RFC 9110 section 12.5.1): a request that rules JSON out is answered 406 before it does anything."""

import re
from collections.abc import Sequence
from typing import Final

from payres.errors import NotAcceptable
from payres.http.request_head import Headers
from payres.http.responses import JSON
from payres.limits import MAX_ACCEPT_BYTES

# What nearly all clients send, so that nothing need be parsed.
COMMON: Final = ("*/*", JSON, "")
MEDIA_RANGE: Final = re.compile(r"\*/\*|[\w!#$%&'+.^`|~-]+/(?:\*|[\w!#$%&'+.^`|~-]+)", re.ASCII)
RANGES_OF_JSON: Final = (JSON, "application/*", "*/*")
ZERO_QUALITY: Final = re.compile(r"q=0(?:\.0*)?")


def check_accept(headers: Headers, types: Sequence[str] = ()) -> None:
    """Raises 406 for headers that take neither JSON nor one of the other types."""
    accept = _accept(headers)
    if accept not in COMMON and not accepts(accept, types):
        raise NotAcceptable(f"The answer is {JSON}: name it in Accept, or leave Accept out")


def asks_for(headers: Headers, media_type: str) -> bool:
    """Whether the headers name this very media type as one that the client takes."""
    return bool(_ranges(_accept(headers)).get(media_type))


def accepts(accept: str, types: Sequence[str] = ()) -> bool:
    """Whether an Accept header takes JSON, or names one of the other types. What is malformed in it is passed over."""
    ranges = _ranges(accept)
    if not ranges or any(ranges.get(media_type) for media_type in types):
        return True
    # The most specific range decides.
    return next((ranges[name] for name in RANGES_OF_JSON if name in ranges), False)


def _accept(headers: Headers) -> str:
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
