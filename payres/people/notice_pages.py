"""The page of notices: an owner's address, and what is written about; and the page of the link that ends the latter."""

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final, get_args

from starlette.requests import Request
from starlette.responses import Response

from payres.accounts import notices
from payres.accounts.notices import CODE_LIFETIME, MOST_WRONG
from payres.accounts.settings import MailSettings
from payres.accounts.store import mail
from payres.accounts.store.mail import ADDRESSES, MailRate
from payres.core.http.context import context_of
from payres.core.http.error_answers import note_error
from payres.core.protocol.clock import lasts
from payres.core.protocol.errors import InvalidRequest, MethodNotAllowed, TooManyRequests, nothing_here
from payres.core.store import audit
from payres.core.store.work import Work
from payres.html.concurrent_edits import ChangedMeanwhile, filled, save_unchanged, sides_of
from payres.html.forms import Form
from payres.html.html import PAGE_METHODS, redirect, render
from payres.html.language import marked
from payres.html.mail_addresses import mail_address
from payres.html.sentences import problem_of
from payres.people.sign_in import NOTICES, SETTINGS_TAB, OwnerVisit

DONE: Final = {
    "saved": marked("Saved."),
    "confirmed": marked("Confirmed. Notices go there from now on."),
    "test": marked("A test is on its way."),
    "forgotten": marked("Nothing is sent any more."),
}
NO_ADDRESS: Final = marked("This is no e-mail address. Write it like alice@mail.example.")
NOT_ASCII: Final = marked("Addresses with letters such as ü before the @ are not taken here. Write another one.")
TOO_MANY: Final = marked("There were too many wrong codes, so none of before is taken any more. Have a new one sent.")
WRONG_CODE: Final = marked(
    "This is not the code that was sent last, or it is older than an hour. Look again, or have a new one sent."
)
# What an owner is notified of only if wanted, and how soon.
LABELS: Final = {
    "money": marked("Money arrived"),
    "failed": marked("A payment did not go through"),
    "app": marked("An app was allowed"),
}
RATES: Final = {"once": marked("At once"), "hour": marked("Once an hour"), "off": marked("Never"), "": marked("Never")}


async def show(
    visit: OwnerVisit,
    form: Mapping[str, str] = {},
    problems: dict[str, str] | None = None,
    status: int = 200,
    changed: ChangedMeanwhile | None = None,
) -> Response:
    """GET /account/notices."""
    _check_on(visit)
    say = visit.language.say
    labels = {kind: say(label) for kind, label in LABELS.items()}
    words = {kind: {rate: say(label) for rate, label in RATES.items()} for kind in LABELS}

    def unit(work: Work) -> Mapping[str, object]:
        address = ADDRESSES.get(work, visit.owner.id)
        until = None if address is None else address.code_until
        is_asked = until is not None and lasts(until, work.now, CODE_LIFETIME)
        return {
            "email": address and _shown(address.email or ""),
            "pending": _shown(address.pending or "") if address is not None and is_asked else "",
            "form": changed.merged({}) if changed else filled(_wanted(visit, work)),
            "last": mail.last_mail(work, visit.owner.id),
        }

    return await visit.show_found(
        *("notices.html", unit, SETTINGS_TAB, status),
        done=visit.done(DONE),
        problems=problems or {},
        given=form.get("email", ""),
        labels=labels,
        rates=words["money"],
        rows=sides_of(changed, labels, words) if changed else (),
        is_changing="change" in visit.request.query_params or "email" in (problems or {}),
    )


async def ask(visit: OwnerVisit, form: Form) -> Response:
    """Sends a code to a new address."""
    _check_on(visit)
    given = form.get("email", "").strip()
    try:
        await visit.write(lambda work: notices.ask(work, visit.owner.id, given, visit.language))
    except InvalidRequest as error:
        is_other = given.isascii() or mail_address(f"x@{given.rpartition('@')[2]}") is None
        problem = visit.language.say(NO_ADDRESS if is_other else NOT_ASCII)
        return await show(visit, form, {"email": problem}, error.status)
    except TooManyRequests as error:
        noted = note_error(visit.request, error)
        return await show(visit, form, {"email": problem_of(visit.language, noted)}, noted.status)
    return redirect(NOTICES)


async def confirm(visit: OwnerVisit, form: Form) -> Response:
    """Takes the new address, if the code is right."""

    def unit(work: Work) -> str:
        if notices.confirm(work, visit.owner.id, form.get("code", ""), visit.language):
            audit.record(work, "wallet.change_notices", visit.wallet.path, address="confirmed")
            return ""
        address = ADDRESSES.get(work, visit.owner.id)
        return TOO_MANY if address and address.wrong >= MOST_WRONG else WRONG_CODE

    if problem := await visit.write(unit):
        return await show(visit, {}, {"code": visit.language.say(problem)}, 400)
    return redirect(f"{NOTICES}?done=confirmed")


async def save(visit: OwnerVisit, form: Form) -> Response:
    """Stores what the owner wants to be notified of."""
    wanted = {kind: _rate(form.get(kind, "off")) for kind in notices.CHOICES}
    change = partial(notices.choose, owner_id=visit.owner.id, wanted=wanted, language=visit.language)
    try:
        await save_unchanged(visit, form, partial(_wanted, visit), change)
    except ChangedMeanwhile as error:
        note_error(visit.request, error)
        return await show(visit, status=error.status, changed=error)
    return redirect(f"{NOTICES}?done=saved")


async def send_test(visit: OwnerVisit, form: Form) -> Response:
    """Sends a mail that says that it works."""
    await visit.write(lambda work: notices.send_test(work, visit.owner.id))
    return redirect(f"{NOTICES}?done=test")


async def forget(visit: OwnerVisit, form: Form) -> Response:
    """Takes the address away."""

    def unit(work: Work) -> None:
        notices.forget(work, visit.owner.id)
        audit.record(work, "wallet.change_notices", visit.wallet.path, address="none")

    await visit.write(unit)
    return redirect(f"{NOTICES}?done=forgotten")


async def answer_stop(request: Request) -> Response:
    """The page of a link that ends notices about money. Programs of mail services send its form too (RFC 8058)."""
    database, token = context_of(request).database, request.path_params["secret"]
    if request.method == "POST":
        await database.write(lambda work: notices.stop(work, token))
    elif request.method in {"GET", "HEAD"}:
        await database.read(lambda work: notices.address_of_token(work, token))
    else:
        raise MethodNotAllowed(PAGE_METHODS)
    return render(request, "notices_stop.html", {"is_done": request.method == "POST"})


def _wanted(visit: OwnerVisit, work: Work) -> dict[str, str]:
    """What the form shows: a box that is not ticked sends nothing."""
    rates = mail.rates(work, visit.owner.id)
    found: dict[str, str] = {kind: rates.get(kind, "once") for kind in LABELS}
    return found | {kind: "" for kind in ("failed", "app") if found[kind] == "off"}


def _rate(text: str) -> MailRate:
    return next((rate for rate in get_args(MailRate) if rate == text), "off")


def _shown(address: str) -> str:
    """The address with its domain as people write it."""
    name, _, domain = address.rpartition("@")
    if "xn--" in domain:
        import idna  # rarely needed

        with suppress(idna.IDNAError):
            return f"{name}@{idna.decode(domain)}"
    return address


def _check_on(visit: OwnerVisit) -> None:
    if not visit.context.settings.of(MailSettings).smtp_host:
        raise nothing_here()
