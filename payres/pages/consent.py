"""Consent pages: where a wallet's owner signs in, reads what a client asks for and decides (RFC 9635 section 4.1).

Everything happens at the one address that the client sends its user to, and every answer is a page or leads to one.
"""

from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from payres.clock import MINUTE, SECOND
from payres.errors import (
    DomainError,
    InsufficientAccess,
    InvalidRequest,
    MethodNotAllowed,
    SignInFailed,
    TooManyRequests,
    WrongState,
)
from payres.grants import consent, wording
from payres.grants.consent import ConsentRequest
from payres.grants.intervals import describe_moment
from payres.grants.sign_in import Guesser, csrf_token, open_session
from payres.pages import forms, html
from payres.rate_limiter import address_of
from payres.routes.context import context_of
from payres.routes.exception_handlers import note_error
from payres.store.work import Work

# Seconds after which an open page looks again: where nobody can do anything but wait for the operator, and where the
# owner reads.
WAITING_SECONDS: Final = 5
READING_SECONDS: Final = 30


async def serve(request: Request) -> Response:
    """The endpoint, for every method."""
    fault = "The fault is not yours. Please try again in a while"
    return await html.serve_page(request, _answer, html.error_page, fault)


async def _answer(request: Request) -> Response:
    too_many = context_of(request).rate_limits.address_error(request.scope)
    if too_many is not None:
        sentence = "There were too many requests from your network address. Please wait a moment and open this again"
        raise TooManyRequests(sentence, retry_after=too_many.retry_after)
    if request.method in {"GET", "HEAD"}:
        return _show(request, await _find(request))
    if request.method != "POST":
        raise MethodNotAllowed(html.PAGE_METHODS)
    form = await forms.read_form(request)
    match form.get("choice"):
        case "sign-in":
            return await _sign_in(request, form)
        case "sign-out":
            return await _sign_out(request, form)
        case "approve" | "deny" as choice:
            return await _decide(request, form, approve=choice == "approve")
    raise InvalidRequest("This form is not one of this page's. Please open the request again", field="choice")


def _show(request: Request, found: ConsentRequest) -> Response:
    """The page that fits where the request and its owner stand.

    While it is open it notices what the operator, or the owner elsewhere, decides.
    """
    if found.decided:
        return _send_on(request, found) or _show_decided(request, found, 200)
    now = context_of(request).clock.now()
    consent.check_open(found, now)
    if found.session is not None:
        response, seconds = _show_request(request, found, found.session), READING_SECONDS
    elif found.wallet.password_hash is None:
        response, seconds = _show_sign_in(request, found), WAITING_SECONDS
    else:  # no sooner than a password that is being typed is good for nothing
        response, seconds = _show_sign_in(request, found), -(-(found.interaction.expires_at - now) // SECOND)
    response.headers["Refresh"] = str(seconds)
    return response


def _send_on(request: Request, found: ConsentRequest) -> Response | None:
    """To the client with what the operator decided, as after a form of the owner; None for what the owner decided, who
    was sent already, and for an application, which a browser opens for nobody but its user."""
    link = _finish_link(request, found) if found.interaction.decided_by == "operator" else None
    return None if link is None or wording.visible_url(link).is_app else html.redirect(link)


def _finish_link(request: Request, found: ConsentRequest) -> str | None:
    """The link that informs the client, if this browser may have it: following it continues the grant."""
    context = context_of(request)
    return consent.finish_link(context.urls, found, context.clock.now()) if found.may_finish else None


async def _sign_in(request: Request, form: dict[str, str]) -> Response:
    context = context_of(request)
    found = await _find(request)
    if found.decided:
        return _show_decided(request, found, 409)
    now = context.clock.now()
    consent.check_open(found, now)
    if found.wallet.password_hash is None:
        return _show_sign_in(request, found, status=409)
    guesser = Guesser(address_of(request.scope), found.known_browser)
    try:
        forms.check_sign_in(request, form)
        await context.sign_in.check_password(found.wallet, form.get("password", ""), now, guesser)
        unit = partial(open_session, verified=found.wallet, browser=forms.browser_of(request))
        signed_in = await context.database.write(unit)
    except InsufficientAccess as error:
        return _show_sign_in(request, found, str(note_error(request, error)), error.status)
    except DomainError as error:
        return _explain(request, found, error)
    response = html.redirect(_path(request))
    forms.set_signed_in(request, response, signed_in)
    return response


async def _sign_out(request: Request, form: dict[str, str]) -> Response:
    context = context_of(request)
    found = await _find(request)
    await context.database.write(lambda tx: consent.close_session(tx, found, form.get("csrf", "")))
    response = html.redirect(_path(request))
    forms.set_signed_out(request, response)
    return response


async def _decide(request: Request, form: dict[str, str], approve: bool) -> Response:
    find, csrf, shown = _finder(request), form.get("csrf", ""), form.get("shown", "")
    try:
        finish = await context_of(request).database.write(
            lambda work: consent.decide_as_owner(work, find(work), approve, csrf, shown)
        )
    except (SignInFailed, InsufficientAccess, WrongState) as error:
        return _explain(request, await _find(request), error)
    return html.redirect(finish or _path(request))


def _explain(request: Request, found: ConsentRequest, error: DomainError) -> Response:
    """Why a form was not accepted, with the way on."""
    noted = note_error(request, error)
    if found.decided:
        return _show_decided(request, found, noted.status)
    if noted.status == 401:
        return _show_sign_in(request, found, str(noted), 401)
    return html.error_page(request, noted, _path(request))


def _show_sign_in(request: Request, found: ConsentRequest, problem: str | None = None, status: int = 200) -> Response:
    """The sign-in form, or for a wallet without a password the way around it."""
    values = _parties(request, found) | {"problem": problem, "here": _path(request)}
    return forms.render_sign_in(request, "consent/sign_in.html", values, status, html.OLD_STYLE_SHEETS)


def _show_request(request: Request, found: ConsentRequest, session: str) -> Response:
    wallet_address = context_of(request).urls.wallet(found.wallet.path)
    finish = found.interaction.finish_uri
    until = found.interaction.expires_at
    values = {
        "access": wording.describe_access(found.grant.access, wallet_address),
        "subject": wording.describe_subject(found.grant.subject),
        "finish": wording.visible_url(finish) if finish else None,
        "until": describe_moment(until - until % MINUTE),
        "csrf": csrf_token(session),
        "shown": consent.shown_digest(found),
    }
    action = _form_action(finish)
    return html.render(
        request,
        "consent/request.html",
        _parties(request, found) | values,
        form_action=action,
        style_sheets=html.OLD_STYLE_SHEETS,
    )


def _form_action(finish: str | None) -> str:
    """Where the form may lead, as a Content-Security-Policy names it.

    Chromium holds the whole chain of redirects after a form to it: the client's finish URI, and whatever its server
    redirects to from there, which is why it cannot name origins.
    """
    if finish is None:
        return "'self'"
    scheme = urlsplit(finish).scheme
    return "'self' http: https:" if scheme == "http" else f"'self' {scheme}:"


def _show_decided(request: Request, found: ConsentRequest, status: int) -> Response:
    """What became of a request. Only its owner sees more than that."""
    link = _finish_link(request, found)
    lapsed = consent.has_lapsed(found.grant, found.interaction, context_of(request).clock.now())
    values = {
        "state": "lapsed" if lapsed else found.grant.state,
        "repeated": status == 409,
        "link": link,
        "finish": wording.visible_url(link) if link else None,
    }
    return html.render(
        request, "consent/decided.html", _parties(request, found) | values, status, style_sheets=html.OLD_STYLE_SHEETS
    )


def _parties(request: Request, found: ConsentRequest) -> dict[str, object]:
    client = found.client.wallet_address
    assert client is not None, "a client known by its key alone cannot ask for consent"
    wallet_address = context_of(request).urls.wallet(found.wallet.path)
    return {
        "client_name": wording.visible_name(found.grant.client_name, client),
        "client": wording.visible_url(client),
        "wallet": found.wallet,
        "wallet_address": wallet_address,
        "wallet_url": wording.visible_url(wallet_address),
        "grant_id": found.grant.id,
        "signed_in": found.session is not None,
    }


async def _find(request: Request) -> ConsentRequest:
    return await context_of(request).database.read(_finder(request))


def _finder(request: Request) -> Callable[[Work], ConsentRequest]:
    """The unit that finds what the page is about. The cookies are parsed here, before the unit makes others wait."""
    path, browser = request.path_params, forms.browser_of(request)
    return partial(consent.find_request, interaction_id=path["id"], nonce=path["nonce"], browser=browser)


def _path(request: Request) -> str:
    """The page's own address, as a browser on any name of this server can follow it."""
    return f"/interact/{request.path_params['id']}/{request.path_params['nonce']}"
