"""Consent pages: where a wallet's owner signs in, reads what a client asks for and decides (RFC 9635 section 4.1).

Everything happens at the one address that the client sends its user to, and every answer is a page or leads to one.
"""

import logging
from collections.abc import Callable
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from payres.clock import MINUTE, SECOND
from payres.errors import DomainError, InsufficientAccess, InvalidRequest, SignInFailed, WrongState
from payres.grants import consent, owner_session, wording
from payres.grants.consent import Decision
from payres.grants.intervals import describe_moment
from payres.grants.owner_session import ConsentRequest, OwnerDecision
from payres.grants.sign_in import Guesser
from payres.http.error_responses import ErrorResponse, error_response
from payres.routes.context import context_of
from payres.routes.forms import keep_session, read_form, session_cookie
from payres.routes.pages import redirect, refusal_page, render
from payres.store.database import Transaction
from payres.store.sessions import REMEMBERED
from payres.throttle import origin_of

log = logging.getLogger("payres.routes")


class ConsentPages:
    """The endpoint, for every method: even what is refused here, or fails, is told to a person."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            response = await _serve(request)
        except DomainError as error:
            refusal = error_response(error)
            context_of(request).rate_limits.count_failure(scope, refusal.status)
            response = refusal_page(request, refusal)
        except Exception:
            log.exception("%s of a consent page failed", request.method)  # its address is a secret
            fault = ErrorResponse(500, "internal_error", "The fault is not yours. Please try again in a while")
            response = refusal_page(request, fault)
        await response(scope, receive, send)


ROUTES: list[Route] = [Route("/interact/{id}/{nonce}", ConsentPages())]


async def _serve(request: Request) -> Response:
    if request.method in {"GET", "HEAD"}:
        return _show(request, await _find(request))
    if request.method != "POST":
        allow = {"Allow": "GET, HEAD, POST"}
        raise ErrorResponse(
            405, "method_not_allowed", "This page can be opened, and its form be sent; no more", headers=allow
        )
    form = await read_form(request)
    match form.get("choice"):
        case "sign-in":
            return await _sign_in(request, form)
        case "sign-out":
            return await _sign_out(request, form)
        case "approve" | "deny" as choice:
            return await _decide(request, form, approve=choice == "approve")
    raise InvalidRequest("This form is not one of this page's. Please open the request again", field="choice")


def _show(request: Request, found: ConsentRequest) -> Response:
    """The page that fits where the request and its owner stand."""
    if found.decided:
        return _show_decided(request, found, 200)
    context = context_of(request)
    owner_session.check_open(found, context.clock.now())
    return _show_sign_in(request, found) if found.session is None else _show_request(request, found, found.session)


async def _sign_in(request: Request, form: dict[str, str]) -> Response:
    context = context_of(request)
    found = await _find(request)
    if found.decided:
        return _show_decided(request, found, 409)
    now = context.clock.now()
    owner_session.check_open(found, now)
    if found.wallet.password_hash is None:
        return _show_sign_in(request, found, status=409)
    try:
        await context.sign_in.check_password(found.wallet, form.get("password", ""), now, _guesser(request, found))
        replaced = session_cookie(request)

        def unit(tx: Transaction) -> str:
            return owner_session.open_session(tx, found.wallet, replaced, context.identifiers, context.clock.now())

        session = await context.database.write(unit)
    except SignInFailed as error:
        return _show_sign_in(request, found, str(error), 401)
    except DomainError as error:
        return refusal_page(request, error_response(error), _path(request))
    response = redirect(_path(request))
    # The server ends the session much earlier; until then the cookie tells this browser from a stranger's.
    keep_session(request, response, session, REMEMBERED // SECOND)
    return response


def _guesser(request: Request, found: ConsentRequest) -> Guesser:
    return Guesser(origin_of(request.scope), found.known_browser)


async def _sign_out(request: Request, form: dict[str, str]) -> Response:
    context = context_of(request)
    found = await _find(request)
    await context.database.write(lambda tx: owner_session.close_session(tx, found, form.get("csrf", "")))
    response = redirect(_path(request))
    keep_session(request, response, "", 0)
    return response


async def _decide(request: Request, form: dict[str, str], approve: bool) -> Response:
    context = context_of(request)
    now = context.clock.now()
    given = OwnerDecision(approve, form.get("csrf", ""), form.get("shown", ""))

    find = _finder(request, now)

    def unit(tx: Transaction) -> Decision:
        found = find(tx)
        return owner_session.decide_as_owner(tx, context.urls, found, given, context.identifiers, now)

    try:
        decision = await context.database.write(unit)
    except (SignInFailed, InsufficientAccess, WrongState) as error:
        return await _explain(request, error_response(error))
    return redirect(decision.redirect or _path(request))


async def _explain(request: Request, refusal: ErrorResponse) -> Response:
    """Why a decision was not taken, with the way on."""
    found = await _find(request)
    if found.decided:
        return _show_decided(request, found, refusal.status)
    if refusal.status == 401:
        return _show_sign_in(request, found, refusal.description, 401)
    return refusal_page(request, refusal, _path(request))


def _show_sign_in(request: Request, found: ConsentRequest, problem: str | None = None, status: int = 200) -> Response:
    """The sign-in form, or for a wallet without a password the way around it."""
    return render(request, "sign_in.html", _parties(request, found) | {"problem": problem}, status)


def _show_request(request: Request, found: ConsentRequest, session: str) -> Response:
    wallet_address = context_of(request).urls.wallet(found.wallet.path)
    finish = found.pending.interaction.finish_uri
    # Chromium holds the whole chain of redirects after a form to form-action: the client's finish URI, and whatever
    # its server redirects to from there, which is why the policy cannot name origins here.
    chain = {"http": "'self' http: https:", "https": "'self' https:"}
    until = found.pending.interaction.expires_at
    values = {
        "access": wording.describe_access(found.grant.access, wallet_address),
        "subject": wording.describe_subject(found.grant.subject),
        "finish": wording.visible_url(finish) if finish else None,
        "until": describe_moment(until - until % MINUTE),
        "csrf": owner_session.csrf_token(session),
        "shown": owner_session.shown_digest(found),
    }
    form_action = chain[urlsplit(finish).scheme] if finish else "'self'"
    return render(request, "consent.html", _parties(request, found) | values, form_action=form_action)


def _show_decided(request: Request, found: ConsentRequest, status: int) -> Response:
    """What became of a request. Only its owner is told more than that, and is given the link that finishes it: whoever
    follows that link continues the grant in the client's eyes."""
    context = context_of(request)
    link = consent.finish_link(context.urls, found.pending) if found.session else None
    values = {
        "state": found.grant.state,
        "repeated": status == 409,
        "link": link,
        "finish": wording.visible_url(link) if link else None,
    }
    return render(request, "decided.html", _parties(request, found) | values, status)


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
    context = context_of(request)
    return await context.database.read(_finder(request, context.clock.now()))


def _finder(request: Request, now: int) -> Callable[[Transaction], ConsentRequest]:
    """The unit that finds what the page is about. What a stranger wrote is read here, before the unit keeps others
    waiting."""
    path, session = request.path_params, session_cookie(request)
    return lambda tx: owner_session.find_request(tx, path["id"], path["nonce"], session, now)


def _path(request: Request) -> str:
    """The page's own address, as a browser on any name of this server can follow it."""
    return f"/interact/{request.path_params['id']}/{request.path_params['nonce']}"
