"""Cookies of this server: read in linear time, and set so that no script reads them.

Python's SimpleCookie, which does not read them, takes seconds before Python 3.11.10 for some thousand escaped quotes.
"""

import re
from functools import lru_cache
from typing import Literal

from starlette.requests import Request
from starlette.responses import Response

SameSite = Literal["lax", "strict"]


def read_cookies(request: Request, names: bytes, value: bytes, prefix: str = "") -> dict[str, str]:
    """The cookies whose names and values match, by their names without the prefix; the last of a name counts."""
    lines = [value for name, value in request.scope["headers"] if name == b"cookie"]
    pairs = _pattern(prefix.encode(), names, value).findall(b";".join(lines))
    return {name.decode("ascii"): value.decode("ascii") for name, value in pairs}


@lru_cache
def _pattern(prefix: bytes, names: bytes, value: bytes) -> re.Pattern[bytes]:
    """Matches in `name=value; name=value` (RFC 6265bis). The groups are the name without the prefix, and the value."""
    return re.compile(rb"(?:^|;)[ \t]*+%b(%b)=(%b)(?=[ \t]*+(?:;|$))" % (prefix, names, value))


def set_cookie(
    response: Response, name: str, value: str, seconds: int | None, secure: bool, same_site: SameSite = "lax"
) -> None:
    """Sets a cookie for so many seconds, or while the browser is open; for none, deletes it."""
    response.set_cookie(name, value, max_age=seconds, path="/", secure=secure, httponly=True, samesite=same_site)
