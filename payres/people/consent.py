"""The owner's decision on a grant: what the page shows of the request, and consent to exactly that."""

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from payres.accounts import cookies
from payres.accounts.second_factors import STEPS, alone
from payres.accounts.second_step import signed_out
from payres.accounts.sessions import HalfSignIn, SignedIn, check_csrf, close_session, csrf_token
from payres.accounts.sign_in import Entered
from payres.accounts.store.owners import OF_OWNERS
from payres.core.grants import consent
from payres.core.grants.access import granted_access
from payres.core.grants.spending_limits import Spending, spending_of
from payres.core.http.context import context_of
from payres.core.http.error_answers import note_error
from payres.core.payments.incoming import is_remote
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
from payres.core.store.grants import has_lapsed
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Work
from payres.html import forms, html
from payres.html.language import Language
from payres.html.sentences import length_words, limit_words, other_words, problem_of, what_it_reads
from payres.html.typed_amounts import Mistyped, typed_amount
from payres.people.apps import Budgets, budgets
from payres.people.consent_requests import (
    ConsentRequest,
    Surroundings,
    check_open,
    decide_as_owner,
    find_request,
    is_stale_for,
    shown_digest,
    surroundings,
)
from payres.people.remote_bills import ENDED_TROUBLES, TROUBLES, UNREAD_TROUBLE, stated_price, trouble_here
from payres.people.services import people_of
from payres.people.sign_in import OWNER_SIGN_IN
from payres.people.store.remote_bills import asks_for_itself

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
    if form.get("choice") in {"sign-in", *(one.choice for one in alone())}:
        return await _sign_in(request, form)
    if form.get("choice") in {one.choice for one in STEPS}:
        return await _complete(request, form)
    match form.get("choice"):
        case "sign-out":
            return await _sign_out(request, form)
        case "start-over":
            return _show_sign_in(request, await _find(request), form=form)
        case "verify":
            return await _verify(request, form)
        case "approve" | "any" | "deny" as choice:
            return await _decide(request, form, choice)
    raise InvalidRequest("This form is not one of this page's. Please open the request again", field="choice")


async def _show(request: Request, found: ConsentRequest) -> Response:
    """The page for the current state of the request and its owner.

    It refreshes itself to show decisions of the operator, or of the owner in another browser.
    """
    if found.decided:
        return _send_on(request, found) or _show_decided(request, found, 200)
    now = context_of(request).clock.now()
    try:
        check_open(found, now)
    except (InvalidInteraction, WrongState) as error:
        return _explain(request, found, error)
    seconds = -(-(found.interaction.expires_at - now) // SECOND)
    if found.session is not None:
        response = await _show_request(request, found, found.session, script=LOOK_AGAIN)
        if spending_of(found.grant.access) is None:  # without a script, a refresh would clear a limit being typed
            seconds = READING_SECONDS
    elif (half := await OWNER_SIGN_IN.asking.find_half(request)) is not None and half.account.id == found.owner.id:
        response = OWNER_SIGN_IN.asking.half(request, _path(request), half)
    elif found.owner.password_hash is None:
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
    check_open(found, context_of(request).clock.now())
    if found.owner.password_hash is None:
        return _show_sign_in(request, found, 409)
    only, known = found.owner, found.known_browser
    try:
        if form["choice"] != "sign-in":
            return await _enter(request, OWNER_SIGN_IN.by_step(request, form, _path(request), only=only), form)
        return await _enter(request, OWNER_SIGN_IN.by_password(request, only, known, form), form)
    except (InsufficientAccess, InvalidRequest) as error:
        return _show_sign_in(request, found, error.status, note_error(request, error), form=form)
    except DomainError as error:
        return _explain(request, found, error, form)


async def _enter(request: Request, way: Awaitable[Entered], form: Mapping[str, str]) -> Response:
    """The page in the session that was opened, with the limit that was typed before; nothing is allowed unseen."""
    entered, limit = await way, forms.carried(form).get("limit")
    response: Response = html.redirect(_path(request))
    if isinstance(entered, HalfSignIn) and limit is not None:
        response = OWNER_SIGN_IN.asking.half(request, _path(request), entered, form=form)
    elif isinstance(entered, SignedIn) and limit is not None:
        found = await _find(request, entered.session)
        if found.session is not None and not found.decided:
            response = await _show_request(request, found, found.session, kept=limit)
    return OWNER_SIGN_IN.enter(request, response, entered)


async def _complete(request: Request, form: dict[str, str]) -> Response:
    try:
        return await _enter(request, OWNER_SIGN_IN.by_step(request, form, _path(request)), form)
    except DomainError as error:
        return _explain(request, await _find(request), error, form)


async def _verify(request: Request, form: dict[str, str]) -> Response:
    """The decision that the second factor was given for."""
    found = await _find(request)
    if found.session is None:
        return _explain(request, found, signed_out(), _typed(request, found, forms.carried(form).get("limit")))
    check_csrf(found.session, form.get("csrf", ""))
    try:
        leads_away = found.interaction.finish_uri is not None
        decision = await OWNER_SIGN_IN.asking.verified(request, found.session, form, leads_away)
    except WrongState as error:
        return _explain(request, found, error)
    return decision if isinstance(decision, Response) else await _decide(request, decision, decision.get("choice", ""))


async def _sign_out(request: Request, form: dict[str, str]) -> Response:
    session = (await _find(request)).session
    if session is not None:
        check_csrf(session, form.get("csrf", ""))
        await context_of(request).database.write(partial(close_session, kind=OF_OWNERS, session=session))
    response = html.redirect(_path(request))
    cookies.set_signed_out(request, response)
    return response


async def _decide(request: Request, form: Mapping[str, str], choice: str) -> Response:
    find, csrf, shown = _finder(request), form.get("csrf", ""), form.get("shown", "")
    limit = form.get("limit") if choice == "approve" else None
    typed = None if limit is None else partial(_typed_limit, html.language_of(request), limit)

    def unit(work: Work) -> str | ConsentRequest | None:
        found = find(work)
        check_open(found, work.now)
        if choice != "deny" and is_stale_for(work, found, typed):
            return found
        return decide_as_owner(work, found, choice != "deny", csrf, shown, typed)

    try:
        finish = await context_of(request).database.write(unit)
    except InvalidAmount as error:
        found = await _find(request)
        assert found.session is not None, "decide_as_owner requires a session"
        note_error(request, error)
        cause = error.__cause__
        return await _show_request(request, found, found.session, limit, str(cause) if cause else "")
    except (SignInFailed, InsufficientAccess, WrongState, InvalidInteraction) as error:
        found = await _find(request)
        return _explain(request, found, error, _typed(request, found, limit))
    if isinstance(finish, ConsentRequest):  # it is approved once a second factor was given
        assert finish.session is not None, "is_stale_for requires a session"
        check_csrf(finish.session, csrf)
        leads_away = finish.interaction.finish_uri is not None
        return await OWNER_SIGN_IN.asking.again(request, finish.session, form, leads_away=leads_away)
    return html.redirect(finish or _path(request))


def _typed_limit(language: Language, text: str, asset: Asset) -> int:
    """Raises InvalidAmount from the sentence for the owner."""
    try:
        return typed_amount(language, text, asset, most=MAX_VALUE)  # an app may ask for more than any balance
    except Mistyped as error:
        raise InvalidAmount("The limit is not typed as an amount", field="limit") from error


def _typed(request: Request, found: ConsentRequest, limit: str | None) -> dict[str, str]:
    """What the sign-in form carries along of a decision: a limit that is not the one asked for."""
    asked = _asked(spending_of(found.grant.access), html.language_of(request))
    return {} if limit in {None, asked} else forms.carrying({"limit": limit or ""})


def _explain(request: Request, found: ConsentRequest, error: DomainError, form: Mapping[str, str] = {}) -> Response:
    """The page that says why nothing was decided, and what to do."""
    noted = note_error(request, error)
    if found.decided:
        return _show_decided(request, found, noted.status)
    if noted.status == 401:
        return _show_sign_in(request, found, 401, noted, form=form)
    # After expiry the link tells the client; otherwise the owner can open the request again.
    is_over, uri = isinstance(noted, InvalidInteraction), found.interaction.finish_uri
    expired = {"result": "grant_rejected", "message": "interaction expired"}  # clients know this result; Rafiki's words
    link = consent.finish_url(uri, expired) if is_over and uri else None
    problem = problem_of(html.language_of(request), noted)
    response = _end(request, found, "expired" if is_over else "failed", link, noted.status, problem)
    response.headers.update(noted.headers)
    return response


def _show_sign_in(
    request: Request,
    found: ConsentRequest,
    status: int = 200,
    error: DomainError | None = None,
    script: str = "",
    form: Mapping[str, str] = {},
) -> Response:
    """The sign-in form, which goes on carrying what `form` does; or an explanation for a wallet without a password."""
    problem = problem_of(html.language_of(request), error) if error else None
    is_password = error is not None and error.details.get("field") != "passkey"
    values = _parties(request, found) | {"problem": problem, "is_password": is_password, "here": _path(request)}
    steps = alone() if values["can_sign_in"] else ()
    return cookies.render_sign_in(
        request, "consent/sign_in.html", values, status, script=script, steps=steps, form=form
    )


async def _show_request(
    request: Request,
    found: ConsentRequest,
    session: str,
    refused: str | None = None,
    problem: str = "",
    script: str = "",
    kept: str | None = None,
) -> Response:
    """The request and the decision form; `refused` is an invalid limit, and `problem` says why if it is not one; `kept`
    is a limit that was typed before a sign-in."""
    context, language = context_of(request), html.language_of(request)
    own, spending = context.urls.wallet(found.wallet.path), spending_of(found.grant.access)
    receiver, silent, bills = spending and spending.receiver, None, people_of(context).remote_bills
    if receiver and is_remote(context.urls, receiver):
        if found.bill is not None:
            silent = await bills.read_again(context, found.grant.id, receiver, found.wallet)
        else:
            silent = await bills.read(context, found.grant.id, receiver, found.wallet)
            found = await _find(request, session)

    def unit(work: Work) -> tuple[Surroundings, Budgets, int | None, str | None]:
        around = surroundings(work, found)
        trouble = trouble_here(work, receiver) if around.bill and receiver else silent
        return around, budgets(work, found.wallet), stated_price(work, found.bill, spending, found.wallet), trouble

    around, running, price, trouble = await context.database.examine(unit)
    finish, shown = found.interaction.finish_uri, visible.visible_url(receiver) if receiver else None
    can_lower = price is None and trouble not in ENDED_TROUBLES
    values = _parties(request, found) | {
        "spending": spending,
        "most": limit_words(language, spending) if spending else None,
        "every": length_words(language, spending.interval) if spending and spending.interval else None,
        "renews_at": spending.interval.renews_at(language.now) if spending and spending.interval else None,
        "reads": what_it_reads(found.grant.access, own),
        "tells_only": not granted_access(found.grant.access),
        "others": other_words(language, found.grant.access, found.grant.subject, own, found.wallet.name),
        "around": around,
        "running": running,
        "bill_note": visible.note_of(around.bill.metadata if around.bill else None),
        "receiver": shown,
        "remote_bill": found.bill,
        "price": price,
        "is_exchanged": price is not None and found.bill is not None and found.bill.asset != found.wallet.asset,
        "trouble": language.say(TROUBLES.get(trouble, UNREAD_TROUBLE), host=shown and shown.host) if trouble else None,
        "is_over": trouble in ENDED_TROUBLES,
        "asks_for_itself": spending is not None and asks_for_itself(found.client.identity, spending.receiver),
        "limit": _limit(spending, around, refused if kept is None else kept, language) if can_lower else None,
        "lack": _lack(spending, around, found.wallet),
        "is_refused": refused is not None,
        "is_kept": kept is not None,
        "problem": problem,
        "here": _path(request),
        "finish": visible.visible_url(finish) if finish else None,
        "until": found.interaction.expires_at,
        "csrf": csrf_token(session),
        "shown": shown_digest(found),
    }
    status = 400 if refused is not None else 200
    return html.render(request, "consent/request.html", values, status, finish is not None, script)


def _limit(spending: Spending | None, around: Surroundings, typed: str | None, language: Language) -> str | None:
    """The value of the field for a limit, empty if none was asked for; None if a lower one would block the payment."""
    if spending is None or (around.bill and not spending.interval):
        return None
    return _asked(spending, language) if typed is None else typed


def _asked(spending: Spending | None, language: Language) -> str:
    """The limit that is asked for, as the field for it has it; empty if none is."""
    if spending is None or spending.value is None or spending.asset is None:
        return ""
    return language.decimal(spending.value, spending.asset)


def _lack(spending: Spending | None, around: Surroundings, wallet: WalletRecord) -> int:
    """How much the free balance lacks for one window's limit; 0 without one in the wallet's asset."""
    if spending is None or spending.value is None or spending.asset != wallet.asset:
        return 0
    return max(spending.value - around.free, 0)


def _show_decided(request: Request, found: ConsentRequest, status: int) -> Response:
    """The outcome of a decided request."""
    state: str = found.grant.state
    if found.outcome == "completed" or (found.outcome == "failed" and state == "revoked"):
        state = "paid" if found.outcome == "completed" else "unpaid"
    elif has_lapsed(state, found.interaction.decided_at, context_of(request).clock.now()):
        state = "lapsed"
    return _end(request, found, state, _finish_link(request, found), status)


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
        "remote_bill": found.bill,
        "link": link,
        "finish": visible.visible_url(link) if link else None,
        "again": None if found.decided or state == "expired" else _path(request),
    }
    return html.render(request, "consent/end.html", _parties(request, found) | values, status)


def _parties(request: Request, found: ConsentRequest) -> dict[str, object]:
    client = found.client.wallet_address
    assert client is not None, "a client known by its key alone cannot ask for consent"
    wallet_address, spending = context_of(request).urls.wallet(found.wallet.path), spending_of(found.grant.access)
    return {
        "client_name": visible.visible_name(found.grant.client_name, client),
        "client": visible.visible_url(client),
        "is_own": found.client.identity == canonical(wallet_address),
        "wallet": found.wallet,
        "can_sign_in": found.owner.password_hash is not None,
        "wallet_address": wallet_address,
        "wallet_url": visible.visible_url(wallet_address),
        "is_bill": spending is not None and spending.is_for_a_bill,
        "signed_in": found.session is not None,
    }


async def _find(request: Request, session: str | None = None) -> ConsentRequest:
    return await context_of(request).database.read(_finder(request, session))


def _finder(request: Request, session: str | None = None) -> Callable[[Work], ConsentRequest]:
    """The unit that reads the request, in this session or that of the browser. Cookies are parsed here, outside the
    transaction."""
    path, browser = request.path_params, cookies.browser_of(request)
    browser = replace(browser, session=session or browser.session)
    return partial(find_request, interaction_id=path["id"], nonce=path["nonce"], browser=browser)


def _path(request: Request) -> str:
    """The page's own path, valid on every host name of this server."""
    return f"/interact/{request.path_params['id']}/{request.path_params['nonce']}"
