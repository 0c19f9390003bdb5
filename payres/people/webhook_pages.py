"""Webhooks of one wallet: its owner has its events sent to a program."""

from collections.abc import Mapping
from typing import Final, Literal

from starlette.responses import Response

from payres.accounts.visits import Act
from payres.core.protocol.errors import InvalidRequest, WrongState, nothing_here
from payres.core.store.work import Work
from payres.html.forms import Form
from payres.html.html import redirect
from payres.html.language import marked
from payres.people.sign_in import SETTINGS_TAB, OwnerVisit
from payres.webhooks import rules
from payres.webhooks.limits import MAX_WEBHOOKS_OF_WALLET
from payres.webhooks.rules import Added, add_of_wallet
from payres.webhooks.sender import Sender
from payres.webhooks.store.webhooks import WEBHOOKS, WebhookRecord, list_attempts, webhooks_of

PATH: Final = "/settings/webhooks"
NOT_PUBLIC: Final = marked("This needs an address that begins with https:// and that all the internet can reach.")
TOO_MANY: Final = marked("You have {most} webhooks for this wallet. Remove one first.")
DONE: Final = {
    "removed": marked("The webhook is removed. Nothing is sent there any more."),
    "test": marked("A test was sent. The answer is below."),
    "pause": marked("It is paused. Its events wait, for 30 days."),
    "resume": marked("It gets its events again."),
}


async def show(visit: OwnerVisit, form: Mapping[str, str] = {}, problem: str = "", status: int = 200) -> Response:
    """GET /settings/webhooks."""
    found = await visit.read(lambda work: webhooks_of(work, visit.wallet.id))
    return visit.show(
        *("webhooks.html", status),
        tab=SETTINGS_TAB,
        done=visit.done(DONE),
        webhooks=found,
        problem=problem,
        given=form.get("url", ""),
        most=MAX_WEBHOOKS_OF_WALLET,
    )


async def add(visit: OwnerVisit, form: Form) -> Response:
    """Adds a webhook, and shows its secret."""
    url = form.get("url", "").strip()
    try:
        added = await visit.write(lambda work: add_of_wallet(work, visit.wallet, url))
    except InvalidRequest:
        return await show(visit, form, visit.language.say(NOT_PUBLIC), InvalidRequest.status)
    except WrongState:
        problem = visit.language.say(TOO_MANY, most=MAX_WEBHOOKS_OF_WALLET)
        return await show(visit, form, problem, WrongState.status)
    return await show_one(visit, added)


async def show_one(visit: OwnerVisit, added: Added | None = None) -> Response:
    """GET /settings/webhooks/{id}: the last deliveries, with their answers; the secret if it was just made."""

    def unit(work: Work) -> Mapping[str, object]:
        found = _own(work, visit) if added is None else added.webhook
        attempts = [(one, one.shown_answer) for one in list_attempts(work, found.id)]
        return {"hook": found, "attempts": attempts, "path": f"{PATH}/{found.id}"}

    secret = None if added is None else added.secret
    return await visit.show_found("webhook.html", unit, SETTINGS_TAB, secret=secret, done=visit.done(DONE))


async def send_test(visit: OwnerVisit, form: Form) -> Response:
    """Sends the event webhook.test now."""
    own = await visit.read(lambda work: _own(work, visit))
    await rules.test(visit, visit.context.part(Sender), own.id)
    return redirect(f"{PATH}/{visit.segments['id']}?done=test")


def _turning(state: Literal["active", "paused"], done: str) -> Act:
    """The action of a form that turns a webhook on or off."""

    async def act(visit: OwnerVisit, _: Form) -> Response:
        await visit.write(lambda work: rules.turn(work, _own(work, visit).id, state))
        return redirect(f"{PATH}/{visit.segments['id']}?done={done}")

    return act


pause = _turning("paused", "pause")  # its events wait
resume = _turning("active", "resume")  # those that have waited are sent


async def rotate(visit: OwnerVisit, form: Form) -> Response:
    """Shows a new secret; the old one also signs for a day."""
    added: Added = await visit.write(lambda work: rules.rotate(work, _own(work, visit).id))
    return await show_one(visit, added)


async def remove(visit: OwnerVisit, form: Form) -> Response:
    """Ends it for good."""
    await rules.remove(visit, (await visit.read(lambda work: _own(work, visit))).id)
    return redirect(f"{PATH}?done=removed")


def _own(work: Work, visit: OwnerVisit) -> WebhookRecord:
    """The webhook that the path names. Raises NotFound for that of another wallet."""
    found = WEBHOOKS.get(work, visit.segments["id"])
    if found is None or found.wallet_address_id != visit.wallet.id:
        raise nothing_here()
    return found
