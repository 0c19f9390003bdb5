"""What a browser sends of itself: a form filled in on one of our own pages, and the cookie of the owner's session."""

import re
from functools import lru_cache
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import InsufficientAccess, InvalidRequest
from payres.grants import owner_session
from payres.http.error_responses import ErrorResponse
from payres.limits import MAX_FORM_BYTES, MAX_FORM_FIELDS
from payres.routes.context import context_of
from payres.routes.messages import read_body
from payres.urls import normalise

MEDIA_TYPE = "application/x-www-form-urlencoded"


async def read_form(request: Request) -> dict[str, str]:
    """The fields of a form that was sent from a page of this server.

    Refuses with 400 what is no form, with 403 one of another site's, with 413 a long one, with 415 another media type.
    """
    _check_origin(request)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != MEDIA_TYPE:
        raise ErrorResponse(415, "unsupported_media_type", f"This page takes forms only, as {MEDIA_TYPE}")
    body = await read_body(request, MAX_FORM_BYTES)
    try:
        pairs = parse_qsl(
            body.decode("ascii"),
            keep_blank_values=True,
            strict_parsing=True,
            errors="strict",
            max_num_fields=MAX_FORM_FIELDS,
        )
    except ValueError as error:
        raise _malformed() from error
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise _malformed()
    return fields


def session_cookie(request: Request) -> str | None:
    """The session that the browser says it has; None for what cannot be one of ours.

    Read here and not by http.cookies, which before Python 3.11.10 takes seconds for some thousand escaped quotes.
    """
    cookie = _session_in_cookies(_cookie_name(_is_secure(request)))
    lines = [value for name, value in request.scope["headers"] if name == b"cookie"]
    found = cookie.findall(b";".join(lines))
    return found[-1].decode("ascii") if found else None


def keep_session(request: Request, response: Response, session: str, seconds: int) -> None:
    """Hands the browser its session for so many seconds; 0 takes it back."""
    secure = _is_secure(request)
    # Lax, because the owner arrives by a link on the client's site and should still be signed in; forms that other
    # sites send come without it.
    response.set_cookie(
        _cookie_name(secure), session, max_age=seconds, path="/", secure=secure, httponly=True, samesite="lax"
    )


def _cookie_name(secure: bool) -> str:
    """Over https the prefix makes browsers refuse a cookie that another host, or http, would plant (RFC 6265bis)."""
    return "__Host-payres_session" if secure else "payres_session"


@lru_cache
def _session_in_cookies(name: str) -> re.Pattern[bytes]:
    """Finds the cookie among `name=value; name=value` (RFC 6265bis), in time linear in their length."""
    return re.compile(rb"(?:^|;)[ \t]*+%b=(%b)(?=[ \t]*+(?:;|$))" % (name.encode(), owner_session.VALUE))


def _is_secure(request: Request) -> bool:
    return context_of(request).urls.base.startswith("https:")


def _check_origin(request: Request) -> None:
    """Browsers say where a form comes from. Under the pages' Referrer-Policy the Origin of our own is `null`, so it is
    Sec-Fetch-Site that tells; a browser without either is left to the token in the form."""
    site = request.headers.get("sec-fetch-site", "same-origin")
    origin = request.headers.get("origin", "null")
    if site not in {"same-origin", "none"} or (
        origin != "null" and normalise(origin) != context_of(request).urls.normal_base
    ):
        raise InsufficientAccess("It came from another site. Nothing was decided", reason="cross_site")


def _malformed() -> InvalidRequest:
    return InvalidRequest("The form that arrived cannot be read. Please open the request again", field="body")
