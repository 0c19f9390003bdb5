"""The cookies of pages: the session of a signed-in owner or operator, and of each wallet that knows this browser."""

import re
from functools import lru_cache
from typing import Final, Literal

from starlette.requests import Request
from starlette.responses import Response

from payres.clock import SECOND
from payres.grants.sign_in import COOKIE_VALUE, SESSION_LIFETIME, Browser, SignedIn
from payres.operator.operators import SESSION_LIFETIME as OPERATOR_SESSION_LIFETIME
from payres.routes.context import context_of
from payres.store.wallets import BROWSER_LIFETIME

# Over https the prefix makes browsers refuse a cookie that another host, or http, would plant (RFC 6265bis).
HOST_PREFIX: Final = "__Host-"
SESSION: Final = "payres_session"
KNOWN: Final = "payres_known_"
OPERATOR: Final = "payres_admin"


def browser_of(request: Request) -> Browser:
    """What the browser shows of itself; nothing of what cannot be a cookie of ours. The last of one name counts."""
    found = _cookies(request)
    known = {int(name.removeprefix(KNOWN)): value for name, value in found.items() if name.startswith(KNOWN)}
    return Browser(found.get(SESSION), known)


def operator_session_of(request: Request) -> str | None:
    """The session of the admin pages."""
    return _cookies(request).get(OPERATOR)


def set_operator_session(request: Request, response: Response, session: str) -> None:
    """Sets the cookie of an operator's session; an empty one deletes it."""
    _set(request, response, OPERATOR, session, OPERATOR_SESSION_LIFETIME if session else 0, "strict")


def set_signed_in(request: Request, response: Response, signed_in: SignedIn) -> None:
    """Sets the cookies of a sign-in: the session's, and the one by which the wallet knows this browser from now on."""
    # Lax, because the owner arrives by a link on the client's site and should still be signed in; forms that other
    # sites send come without it. The other one is for our own sign-in form only.
    _set(request, response, SESSION, signed_in.session, SESSION_LIFETIME, "lax")
    _set(request, response, f"{KNOWN}{signed_in.wallet_id}", signed_in.known, BROWSER_LIFETIME, "strict")


def set_signed_out(request: Request, response: Response) -> None:
    """Deletes the session's cookie; the browser stays known."""
    _set(request, response, SESSION, "", 0, "lax")


def _cookies(request: Request) -> dict[str, str]:
    """Our cookies by their names without the prefix.

    Read here and not by http.cookies, which before Python 3.11.10 takes seconds for some thousand escaped quotes.
    """
    lines = [value for name, value in request.scope["headers"] if name == b"cookie"]
    pairs = _pattern(_is_secure(request)).findall(b";".join(lines))
    return {name.decode("ascii"): value.decode("ascii") for name, value in pairs}


@lru_cache
def _pattern(secure: bool) -> re.Pattern[bytes]:
    """Finds ours among `name=value; name=value` (RFC 6265bis), in time linear in their length.

    The groups are the name without the prefix, and the value.
    """
    prefix = HOST_PREFIX.encode() if secure else b""
    names = rb"payres_session|payres_known_[0-9]{1,19}+|payres_admin"
    return re.compile(rb"(?:^|;)[ \t]*+%b(%b)=(%b)(?=[ \t]*+(?:;|$))" % (prefix, names, COOKIE_VALUE))


def _set(
    request: Request, response: Response, name: str, value: str, lifetime: int, same_site: Literal["lax", "strict"]
) -> None:
    secure = _is_secure(request)
    response.set_cookie(
        f"{HOST_PREFIX}{name}" if secure else name,
        value,
        max_age=lifetime // SECOND,
        path="/",
        secure=secure,
        httponly=True,
        samesite=same_site,
    )


def _is_secure(request: Request) -> bool:
    return context_of(request).urls.base.startswith("https:")
