"""The owner's settings: language, time zone, password, and receiving on a site."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from starlette.responses import Response

from payres.accounts.browser_names import seen_of
from payres.accounts.cookies import browser_of, set_signed_in
from payres.accounts.limits import MIN_PASSWORD_LENGTH
from payres.accounts.sign_in import check_typed_twice
from payres.core.http.error_answers import note_error
from payres.core.protocol.amounts import MAX_VALUE, describe_amount
from payres.core.protocol.errors import InvalidRequest, SignInFailed, TooManyRequests, Unavailable, WrongState
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.visible import is_visible
from payres.core.store import audit
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Work
from payres.html import preferences, typed_amounts
from payres.html.concurrent_edits import ChangedMeanwhile, Compared, filled, save_unchanged, sides_of
from payres.html.forms import Form
from payres.html.html import qr_code, redirect
from payres.html.language import LanguageCode, marked
from payres.html.sentences import problem_of
from payres.html.settings import PageSettings
from payres.people import wallet_names
from payres.people.sign_in import (
    OWNER_SIGN_IN,
    SECURITY,
    SETTINGS_TAB,
    OwnerVisit,
    change_password,
    new_password_problems,
)
from payres.people.store import activity

REGIONS: Final = {
    "Africa": marked("Africa"),
    "America": marked("America"),
    "Asia": marked("Asia"),
    "Atlantic": marked("Atlantic"),
    "Australia": marked("Australia"),
    "Europe": marked("Europe"),
    "Pacific": marked("Pacific"),
}

LONGEST_PUBLIC_NAME: Final = 200  # characters
DONE: Final = {"name": marked("Payers see this name from now on.")}
DO_NOT_ASK: Final = marked("Do not ask up to this limit")
# The languages by their names in themselves.
LANGUAGES: Final[Mapping[LanguageCode, str]] = {"en": "English", "de": "Deutsch", "es": "Español"}


async def show(visit: OwnerVisit) -> Response:
    """GET /settings."""
    clocks = preferences.clocks(visit.language.now)
    return visit.show(
        "settings.html",
        tab=SETTINGS_TAB,
        done=visit.request.query_params.get("done"),
        chosen=preferences.chosen_zone(visit.request),
        languages=LANGUAGES,
        chosen_language=preferences.chosen_language(visit.request),
        regions=[(visit.language.say(label), clocks[region]) for region, label in REGIONS.items()],
        usual=visit.context.settings.of(PageSettings).time_zone,
    )


async def choose_language(visit: OwnerVisit, form: Form) -> Response:
    """Stores the language of this browser in a cookie; an unknown one restores what the browser prefers."""
    response = redirect(f"{SETTINGS_TAB}?done=language")
    preferences.set_language(response, form.get("language", ""), secure=visit.context.urls.base.startswith("https:"))
    return response


async def show_receiving(
    visit: OwnerVisit, form: Form | None = None, problem: str = "", status: int = 200, rows: Sequence[Compared] = ()
) -> Response:
    """GET /settings/receive: the name that payers see, the wallet address and the Web Monetization link for the owner's
    site."""
    urls, path = visit.context.urls, visit.wallet.path
    address = urls.wallet(path)
    label = visit.language.say("QR code of this wallet address")
    values: dict[str, Any] = {"address": address, "pointer": urls.pointer(path), "qr": qr_code(address, label)}
    form = {**filled({"name": visit.wallet.public_name or ""}), **(form or {})}
    values |= {"form": form, "problem": problem, "rows": rows}
    return visit.show("receive.html", status, tab=SETTINGS_TAB, done=visit.done(DONE), **values)


async def rename(visit: OwnerVisit, form: Form) -> Response:
    """Gives the wallet another name, which payers see, unless that is read like that of another owner's wallet here or
    of the server."""
    name, wallet = form.get("name", "").strip(), visit.wallet
    if not 1 <= len(name) <= LONGEST_PUBLIC_NAME or not is_visible(name):
        problem = visit.language.say("A name has 1 to {most} characters that can be seen.", most=LONGEST_PUBLIC_NAME)
        return await show_receiving(visit, form, problem, 400)

    def present(work: Work) -> dict[str, str]:
        return {"name": WALLETS.by_id(work, wallet.id).public_name or ""}

    try:
        await save_unchanged(
            visit, {**form, "name": name}, present, partial(wallet_names.choose, wallet=wallet, name=name)
        )
    except ChangedMeanwhile as error:
        note_error(visit.request, error)
        rows = sides_of(error, {"name": visit.language.say("Name")})
        return await show_receiving(visit, error.merged(form), status=error.status, rows=rows)
    except WrongState as error:
        problem = visit.language.say("Another wallet here is called so, or nearly so. Choose another name.")
        if "wallet" not in error.details:
            problem = visit.language.say("This provider is called so, or nearly so. Choose another name.")
        return await show_receiving(visit, form, problem, 400)
    return redirect("/settings/receive?done=name")


async def show_password(visit: OwnerVisit, problems: Mapping[str, str] | None = None, status: int = 200) -> Response:
    """GET /settings/password."""
    return visit.show(
        "password.html", status, problems=problems or {}, least=MIN_PASSWORD_LENGTH, names=visit.owner.names
    )


async def change(visit: OwnerVisit, form: Form) -> Response:
    """Changes the password, which signs out every other browser."""
    request, owner = visit.request, visit.owner
    session = hash_secret(visit.session)  # a signed-in browser is exempt from the limit on guesses
    try:
        await OWNER_SIGN_IN.check_password(request, owner, form.get("current", ""), session)
        check_typed_twice(request, form)
        hashed = await OWNER_SIGN_IN.hash_password(request, owner, form, lambda: visit.read(lambda work: None))
    except (SignInFailed, TooManyRequests, Unavailable) as error:
        noted = note_error(request, error)
        return await show_password(visit, {"current": problem_of(visit.language, noted)}, noted.status)
    except InvalidRequest as error:
        return await show_password(visit, new_password_problems(visit.language, error), 400)
    browser, seen = browser_of(request), seen_of(request)
    signed_in = await visit.write(lambda work: change_password(work, owner, hashed, browser, seen))
    response = redirect(f"{SECURITY}?done=password")
    set_signed_in(request, response, signed_in)
    return response


async def show_limit(
    visit: OwnerVisit, form: Form | None = None, problem: str = "", status: int = 200, rows: Sequence[Compared] = ()
) -> Response:
    """GET /account/security/limit: up to which limit an app may spend without a second factor asked for."""
    form = {**filled(await visit.read(partial(_limit, visit))), **(form or {})}
    return visit.show("limit.html", status, form=form, problem=problem, rows=rows, label=DO_NOT_ASK)


def _limit(visit: OwnerVisit, work: Work) -> dict[str, str]:
    """What the form shows."""
    above = activity.asked_above(work, visit.wallet.id)
    return {"limit": visit.language.decimal(above, visit.wallet.asset) if above else ""}


async def set_limit(visit: OwnerVisit, form: Form) -> Response:
    """Stores the limit; an empty field removes it."""
    typed, asset = form.get("limit", ""), visit.wallet.asset
    try:
        above = typed_amounts.typed_amount(visit.language, typed, asset, most=MAX_VALUE) if typed.strip() else None
    except typed_amounts.Mistyped as error:
        return await show_limit(visit, form, str(error), 400)
    try:
        await save_unchanged(visit, form, partial(_limit, visit), partial(ask_above, wallet=visit.wallet, above=above))
    except ChangedMeanwhile as error:
        note_error(visit.request, error)
        rows = sides_of(error, {"limit": visit.language.say(DO_NOT_ASK)})
        return await show_limit(visit, error.merged(form), status=error.status, rows=rows)
    return redirect(SECURITY)


def ask_above(work: Work, wallet: WalletRecord, above: int | None) -> None:
    """Stores from what on apps need a second factor; None for all that is more than usual."""
    WALLETS.update(work, wallet.id, asked_above=above)
    limit = "none" if above is None else describe_amount(above, wallet.asset)
    audit.record(work, "wallet.ask_above", wallet.path, limit=limit)
