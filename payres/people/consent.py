"""Consent pages: a wallet's owner signs in, reads a client's request and decides (RFC 9635 section 4.1).

All steps use the one URL that the client sends its user to. Every response is a page or a redirect to one.
"""

from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from payres.core.grants import consent
from payres.core.grants.access import granted_access
from payres.core.grants.limits import Spending, spending_of
from payres.core.http.context import context_of
from payres.core.http.error_answers import note_error
from payres.core.protocol import visible
from payres.core.protocol.amounts import MAX_VALUE, Asset
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import (
    DomainError,
    InsufficientAccess,
    InvalidAmount,
    InvalidInteraction,
    InvalidRequest,
    MethodNotAllowed,
    SignInFailed,
    WrongState,
)
from payres.core.protocol.urls import canonical
from payres.core.store.work import Work
from payres.html import forms, html
from payres.html.amounts import Mistyped, typed_amount
from payres.html.error_sentences import problem_of
from payres.html.grant_words import length_words, limit_words, other_words
from payres.html.language import Language
from payres.html.sign_in import check_csrf, close_session, csrf_token
from payres.html.store.sessions import OF_WALLETS
from payres.people.account.visits import OWNER_SIGN_IN
from payres.people.rules import consent as rules
from payres.people.rules.apps import Budgets, budgets
from payres.people.rules.consent import ConsentRequest, Surroundings

# Refresh intervals in seconds: while only the operator can decide, and while the owner reads the request.
WAITING_SECONDS: Final = 5
READING_SECONDS: Final = 30
# Loads the page again every five seconds, to show a decision made in another place, until something is typed, clicked
# or loading; and not while a field has a text that was typed, as after the browser's Back.
LOOK_AGAIN: Final = (
    'let t=setInterval(()=>[...document.querySelectorAll("input")].some(i=>i.value!=i.defaultValue)||location.reload(),'
    '5e3);for(let e of["input","keydown","click","toggle","beforeunload"])addEventListener(e,()=>clearInterval(t),true)'
)


async def answer(request: Request) -> Response:
    """The response to every method."""
    if request.method in {"GET", "HEAD"}:
        return await _show(request, await _find(request))
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


async def _show(request: Request, found: ConsentRequest) -> Response:
    """The page for the current state of the request and its owner.

    It refreshes itself to show decisions of the operator, or of the owner in another browser.
    """
    if found.decided:
        return _send_on(request, found) or _show_decided(request, found, 200)
    now = context_of(request).clock.now()
    try:
        rules.check_open(found, now)
    except (InvalidInteraction, WrongState) as error:
        return _explain(request, found, error)
    seconds = -(-(found.interaction.expires_at - now) // SECOND)
    if found.session is not None:
        response = await _show_request(request, found, found.session, script=LOOK_AGAIN)
        spending = spending_of(found.grant.access)
        if spending is None or spending.value is None:  # without a script, a refresh would clear a limit being typed
            seconds = READING_SECONDS
    elif found.wallet.password_hash is None:
        response, seconds = _show_sign_in(request, found), WAITING_SECONDS
    else:  # without a script, no refresh before expiry: it would clear a password being typed
        response = _show_sign_in(request, found, script=LOOK_AGAIN)
    response.headers["Refresh"] = str(seconds)
    return response


def _send_on(request: Request, found: ConsentRequest) -> Response | None:
    """The redirect to the client after an operator's decision. None after the owner's decision, which already
    redirected, and for an app's custom scheme, which browsers only open on a user's action."""
    link = _finish_link(request, found) if found.interaction.decided_by == "operator" else None
    return None if link is None or visible.visible_url(link).is_app else html.redirect(link)


def _finish_link(request: Request, found: ConsentRequest) -> str | None:
    """The link that returns the decision to the client, if this browser may follow it."""
    context = context_of(request)
    return consent.finish_link(context.urls, found, context.clock.now()) if found.may_finish else None


async def _sign_in(request: Request, form: dict[str, str]) -> Response:
    found = await _find(request)
    if found.decided:
        return _show_decided(request, found, 409)
    rules.check_open(found, context_of(request).clock.now())
    if found.wallet.password_hash is None:
        return _show_sign_in(request, found, 409)
    try:
        signed_in = await OWNER_SIGN_IN.open_session(request, found.wallet, found.known_browser, form)
    except InsufficientAccess as error:
        return _show_sign_in(request, found, error.status, note_error(request, error))
    except DomainError as error:
        return _explain(request, found, error)
    response = html.redirect(_path(request))
    forms.set_signed_in(request, response, signed_in)
    return response


async def _sign_out(request: Request, form: dict[str, str]) -> Response:
    session = (await _find(request)).session
    if session is not None:
        check_csrf(session, form.get("csrf", ""))
        await context_of(request).database.write(partial(close_session, kind=OF_WALLETS, session=session))
    response = html.redirect(_path(request))
    forms.set_signed_out(request, response)
    return response


async def _decide(request: Request, form: dict[str, str], approve: bool) -> Response:
    find, csrf, shown, limit = _finder(request), form.get("csrf", ""), form.get("shown", ""), form.get("limit")
    typed = None if limit is None else partial(_typed_limit, html.language_of(request), limit)
    try:
        finish = await context_of(request).database.write(
            lambda work: rules.decide_as_owner(work, find(work), approve, csrf, shown, typed)
        )
    except InvalidAmount as error:
        found = await _find(request)
        assert found.session is not None, "decide_as_owner requires a session"
        note_error(request, error)
        cause = error.__cause__
        return await _show_request(request, found, found.session, limit, str(cause) if cause else "")
    except (SignInFailed, InsufficientAccess, WrongState, InvalidInteraction) as error:
        return _explain(request, await _find(request), error)
    return html.redirect(finish or _path(request))


def _typed_limit(language: Language, text: str, asset: Asset) -> int:
    """Raises InvalidAmount from the sentence for the owner."""
    try:
        return typed_amount(language, text, asset, most=MAX_VALUE)  # an app may ask for more than any balance
    except Mistyped as error:
        raise InvalidAmount("The limit is not typed as an amount", field="limit") from error


def _explain(request: Request, found: ConsentRequest, error: DomainError) -> Response:
    """The page that says why nothing was decided, and what to do."""
    noted = note_error(request, error)
    if found.decided:
        return _show_decided(request, found, noted.status)
    if noted.status == 401:
        return _show_sign_in(request, found, 401, noted)
    # After expiry the link tells the client; otherwise the owner can open the request again.
    is_over, uri = isinstance(noted, InvalidInteraction), found.interaction.finish_uri
    expired = {"result": "grant_rejected", "message": "interaction expired"}  # clients know this result; Rafiki's words
    link = consent.finish_url(uri, expired) if is_over and uri else None
    problem = problem_of(html.language_of(request), noted)
    response = _end(request, found, "expired" if is_over else "failed", link, noted.status, problem)
    response.headers.update(noted.headers)
    return response


def _show_sign_in(
    request: Request, found: ConsentRequest, status: int = 200, error: DomainError | None = None, script: str = ""
) -> Response:
    """The sign-in form, or an explanation for a wallet without a password."""
    problem = problem_of(html.language_of(request), error) if error else None
    values = _parties(request, found) | {"problem": problem, "here": _path(request)}
    return forms.render_sign_in(request, "consent/sign_in.html", values, status, script=script)


async def _show_request(
    request: Request,
    found: ConsentRequest,
    session: str,
    refused: str | None = None,
    problem: str = "",
    script: str = "",
) -> Response:
    """The request and the decision form; `refused` is an invalid limit, and `problem` says why if it is not one."""
    context, language = context_of(request), html.language_of(request)

    def unit(work: Work) -> tuple[Surroundings, Budgets]:
        return rules.surroundings(work, found), budgets(work, found.wallet)

    around, running = await context.database.examine(unit)
    own, spending = context.urls.wallet(found.wallet.path), spending_of(found.grant.access)
    finish = found.interaction.finish_uri
    values: dict[str, object] = {
        "spending": spending,
        "most": limit_words(language, spending) if spending else None,
        "every": length_words(language, spending.interval) if spending and spending.interval else None,
        "tells_only": not granted_access(found.grant.access),
        "others": other_words(language, found.grant.access, found.grant.subject, own),
        "around": around,
        "running": running,
        "bill_note": visible.note_of(around.bill.metadata if around.bill else None),
        "receiver": visible.visible_url(spending.receiver) if spending and spending.receiver else None,
        "limit": _limit(spending, around, refused, language),
        "is_refused": refused is not None,
        "problem": problem,
        "here": _path(request),
        "finish": visible.visible_url(finish) if finish else None,
        "until": found.interaction.expires_at,
        "csrf": csrf_token(session),
        "shown": rules.shown_digest(found),
    }
    status = 400 if refused is not None else 200
    values |= _parties(request, found)
    return html.render(request, "consent/request.html", values, status, _form_action(finish), script)


def _limit(spending: Spending | None, around: Surroundings, refused: str | None, language: Language) -> str | None:
    """The value of the field for a lower limit; None if there is no limit, or a lower one would block the payment."""
    if spending is None or spending.value is None or spending.asset is None or (around.bill and not spending.interval):
        return None
    return language.decimal(spending.value, spending.asset) if refused is None else refused


def _form_action(finish: str | None) -> str:
    """The form-action source list of the Content-Security-Policy.

    Chromium applies it to all redirects after a form: the client's finish URI and any redirects from there. So it
    cannot list origins.
    """
    if finish is None:
        return "'self'"
    scheme = urlsplit(finish).scheme
    return "'self' http: https:" if scheme == "http" else f"'self' {scheme}:"


def _show_decided(request: Request, found: ConsentRequest, status: int) -> Response:
    """The outcome of a decided request."""
    lapsed = consent.has_lapsed(found.grant.state, found.interaction.decided_at, context_of(request).clock.now())
    return _end(request, found, "lapsed" if lapsed else found.grant.state, _finish_link(request, found), status)


def _end(
    request: Request, found: ConsentRequest, state: str, link: str | None, status: int, problem: str = ""
) -> Response:
    """The page of a request that cannot be decided now. Only the owner sees details."""
    spending = spending_of(found.grant.access) if found.decided and found.session is not None else None
    values = {
        "state": state,
        "problem": problem,
        "repeated": status == 409,
        "most": limit_words(html.language_of(request), spending) if spending else None,
        "link": link,
        "finish": visible.visible_url(link) if link else None,
        "again": None if found.decided else _path(request),
    }
    return html.render(request, "consent/end.html", _parties(request, found) | values, status)


def _parties(request: Request, found: ConsentRequest) -> dict[str, object]:
    client = found.client.wallet_address
    assert client is not None, "a client known by its key alone cannot ask for consent"
    wallet_address = context_of(request).urls.wallet(found.wallet.path)
    return {
        "client_name": visible.visible_name(found.grant.client_name, client),
        "client": visible.visible_url(client),
        "is_own": found.client.identity == canonical(wallet_address),
        "wallet": found.wallet,
        "wallet_address": wallet_address,
        "wallet_url": visible.visible_url(wallet_address),
        "signed_in": found.session is not None,
    }


async def _find(request: Request) -> ConsentRequest:
    return await context_of(request).database.read(_finder(request))


def _finder(request: Request) -> Callable[[Work], ConsentRequest]:
    """The unit that reads the request. Cookies are parsed here, outside the transaction."""
    path, browser = request.path_params, forms.browser_of(request)
    return partial(rules.find_request, interaction_id=path["id"], nonce=path["nonce"], browser=browser)


def _path(request: Request) -> str:
    """The page's own path, valid on every host name of this server."""
    return f"/interact/{request.path_params['id']}/{request.path_params['nonce']}"
