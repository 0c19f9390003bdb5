"""Cookies of owners and operators."""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from payres.accounts.passkeys import SIGN_IN, options_to_sign
from payres.accounts.sessions import COOKIE_VALUE, Browser, SignedIn, check_csrf, csrf_token
from payres.accounts.store.second_factors import HALF_LIFETIME
from payres.accounts.store.sessions import BROWSER_LIFETIME, OF_OWNERS, Kind
from payres.core.http.context import context_of
from payres.core.protocol.clock import SECOND
from payres.core.protocol.identifiers import new_secret
from payres.html.html import read_template, render

SameSite = Literal["lax", "strict"]


# Over https, browsers refuse cookies with this prefix if another host or http sets them (RFC 6265bis).
HOST_PREFIX: Final = "__Host-"


FORM: Final = "payres_form"  # a secret that binds forms without a session to this browser


# The script of a form for a passkey: it asks the browser for one, or for a new one, and sends the form with the answer.
# Where browsers offer passkeys while a name is typed, it asks for that at once; there is one request at a time. It
# fetches nothing. Without it, or in a browser too old for it, the form is sent without an answer.
SCRIPT: Final = read_template("passkey.js")


class Cookies(NamedTuple):
    """The cookies of a kind of account. `known` is a prefix, followed by the account's id; `half` has the secret of a
    half sign-in, so that a page which is loaded again asks for the second factor and not for the name."""

    kind: Kind
    session: str
    known: str
    half: str
    same_site: SameSite


# Lax: the session is sent when an owner follows a link on the client's site, but not with forms of other sites.
OWNER: Final = Cookies(OF_OWNERS, "payres_session", "payres_known_", "payres_half", "lax")


def render_sign_in(
    request: Request,
    template: str,
    values: Mapping[str, object],
    status: int,
    leads_away: bool = False,
    script: str = "",
    passkeys: Kind | None = None,
) -> Response:
    """A page with a form that needs no session. Its CSRF token is bound to a cookie, so that another site cannot sign
    this browser in to an account of its own. Accounts of the kind `passkeys` can also sign in with a passkey."""
    secret = form_secret(request) or new_secret()
    values = {**values, "csrf": csrf_token(secret)}
    if passkeys is not None:
        values["passkey"] = options_to_sign(request, passkeys, secret, SIGN_IN)
        script = f"{script}\n{SCRIPT}" if values["passkey"] else script
    response = render(request, template, values, status, leads_away, script)
    # Lax: opening a page by a link from another site must not replace the secret of open pages.
    _set(request, response, FORM, secret, None, "lax")
    return response


def form_secret(request: Request) -> str | None:
    """The browser's secret for forms without a session."""
    return _cookies(request).get(FORM)


def check_sign_in(request: Request, form: Mapping[str, str]) -> None:
    """Raises InsufficientAccess for a form that was not shown to this browser."""
    check_csrf(form_secret(request) or new_secret(), form.get("csrf", ""))


def browser_of(request: Request, cookies: Cookies = OWNER) -> Browser:
    """The secrets in the cookies. Malformed ones are ignored; the last of a name counts."""
    found, prefix = _cookies(request), cookies.known
    known = {int(name.removeprefix(prefix)): value for name, value in found.items() if name.startswith(prefix)}
    return Browser(found.get(cookies.session), known, found.get(cookies.half))


def set_signed_in(request: Request, response: Response, signed_in: SignedIn, cookies: Cookies = OWNER) -> None:
    """Sets the cookies of a sign-in: the session's, and the one that makes the browser known to the account."""
    _set(request, response, cookies.session, signed_in.session, cookies.kind.longest, cookies.same_site)
    if signed_in.known:  # strict: only the sign-in form needs it
        _set(request, response, f"{cookies.known}{signed_in.account_id}", signed_in.known, BROWSER_LIFETIME, "strict")


def set_half(request: Request, response: Response, secret: str, cookies: Cookies) -> None:
    """Sets the cookie of a half sign-in."""
    _set(request, response, cookies.half, secret, HALF_LIFETIME, cookies.same_site)


def set_signed_out(request: Request, response: Response, cookies: Cookies = OWNER) -> None:
    """Deletes the session's cookie; the browser stays known."""
    _set(request, response, cookies.session, "", 0, cookies.same_site)


def _cookies(request: Request) -> dict[str, str]:
    """Our cookies by their names without the prefix.

    Not parsed by Python's SimpleCookie, which before Python 3.11.10 takes seconds for some thousand escaped quotes.
    """
    lines = [value for name, value in request.scope["headers"] if name == b"cookie"]
    pairs = _pattern(_is_secure(request)).findall(b";".join(lines))
    return {name.decode("ascii"): value.decode("ascii") for name, value in pairs}


@lru_cache
def _pattern(secure: bool) -> re.Pattern[bytes]:
    """Matches our cookies in `name=value; name=value` (RFC 6265bis), in linear time.

    The groups are the name without the prefix, and the value.
    """
    prefix = HOST_PREFIX.encode() if secure else b""
    names = rb"payres_(?:session|form|half|admin_half|(?:admin_)?known_[0-9]{1,19}+|admin)"
    return re.compile(rb"(?:^|;)[ \t]*+%b(%b)=(%b)(?=[ \t]*+(?:;|$))" % (prefix, names, COOKIE_VALUE))


def _set(
    request: Request, response: Response, name: str, value: str, lifetime: int | None, same_site: SameSite
) -> None:
    secure = _is_secure(request)
    response.set_cookie(
        f"{HOST_PREFIX}{name}" if secure else name,
        value,
        max_age=None if lifetime is None else lifetime // SECOND,
        path="/",
        secure=secure,
        httponly=True,
        samesite=same_site,
    )


def _is_secure(request: Request) -> bool:
    return context_of(request).urls.base.startswith("https:")
