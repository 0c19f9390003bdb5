"""Cookies of owners and operators."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from payres.accounts.second_factors import STEPS
from payres.accounts.second_step import SIGN_IN, SecondStep
from payres.accounts.sessions import COOKIE_VALUE, Browser, SignedIn, check_csrf, csrf_token
from payres.accounts.store.browsers import BROWSER_LIFETIME
from payres.accounts.store.kinds import Kind
from payres.accounts.store.owners import OF_OWNERS
from payres.accounts.store.second_factors import HALF_LIFETIME
from payres.core.http.context import context_of
from payres.core.protocol.clock import SECOND
from payres.core.protocol.identifiers import new_secret
from payres.html.cookies import SameSite, read_cookies, set_cookie
from payres.html.forms import carried, carrying
from payres.html.html import read_template, render

# Over https, browsers refuse cookies with this prefix if another host or http sets them (RFC 6265bis).
HOST_PREFIX: Final = "__Host-"
FORM: Final = "payres_form"  # a secret that binds forms without a session to this browser
NAMES: Final = rb"payres_(?:session|form|half|admin_half|(?:admin_)?known_[0-9]{1,19}+|admin)"


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
    kind: Kind = OF_OWNERS,
    steps: Sequence[SecondStep] = (),
    form: Mapping[str, str] = {},
) -> Response:
    """A page with a form that needs no session. Its CSRF token is bound to a cookie, so that another site cannot sign
    this browser in to an account of its own. These steps can be answered there, by accounts of the kind. What the
    `form` that was sent carries along goes on to be: nothing of it is stored."""
    secret = form_secret(request) or new_secret()
    asked = asked_of(request, steps, kind, secret, SIGN_IN)
    script = "\n".join(filter(None, (script, scripts_of(asked))))
    values = {**values, "csrf": csrf_token(secret), "asked": asked, "typed": carrying(carried(form))}
    response = render(request, template, values, status, leads_away, script)
    # Lax: opening a page by a link from another site must not replace the secret of open pages.
    _set(request, response, FORM, secret, None, "lax")
    return response


def asked_of(
    request: Request, steps: Sequence[SecondStep], kind: Kind, browser: str, purpose: str
) -> Mapping[str, str | None]:
    """What a page asks the browser for, by the names of the steps; None of one that cannot be used there."""
    return {one.name: one.asked(request, kind, browser, purpose) for one in steps}


def scripts_of(asked: Mapping[str, str | None]) -> str:
    """The scripts of the steps that a page asks the browser for."""
    return "\n".join(_script(one.script) for one in STEPS if one.script and asked.get(one.name))


@cache
def _script(file: str) -> str:
    return read_template(file)


def form_secret(request: Request) -> str | None:
    """The browser's secret for forms without a session."""
    return _read(request).get(FORM)


def check_sign_in(request: Request, form: Mapping[str, str]) -> None:
    """Raises InsufficientAccess for a form that was not shown to this browser."""
    check_csrf(form_secret(request) or new_secret(), form.get("csrf", ""))


def browser_of(request: Request, cookies: Cookies = OWNER) -> Browser:
    """The secrets in the cookies. Malformed ones are ignored; the last of a name counts."""
    found, prefix = _read(request), cookies.known
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


def _read(request: Request) -> dict[str, str]:
    """Our cookies by their names without the prefix."""
    return read_cookies(request, NAMES, COOKIE_VALUE, HOST_PREFIX if _is_secure(request) else "")


def _set(
    request: Request, response: Response, name: str, value: str, lifetime: int | None, same_site: SameSite
) -> None:
    secure, seconds = _is_secure(request), None if lifetime is None else lifetime // SECOND
    set_cookie(response, f"{HOST_PREFIX}{name}" if secure else name, value, seconds, secure, same_site)


def _is_secure(request: Request) -> bool:
    return context_of(request).urls.base.startswith("https:")
