"""The page of a wallet's keys, for its owner."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final, NamedTuple

from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.protocol.clock import DAY
from payres.core.protocol.errors import DomainError, nothing_here
from payres.core.protocol.limits import MAX_JWKS_KEYS
from payres.core.protocol.urls import canonical
from payres.core.store import clients, wallets
from payres.core.store.wallets import KeyRecord, WalletRecord
from payres.core.store.work import Work
from payres.html.forms import Form, shown_again
from payres.html.html import redirect
from payres.html.language import marked
from payres.people import apps
from payres.people.apps import App, revoke_keys
from payres.people.keys import add_key
from payres.people.sign_in import SETTINGS_TAB, OwnerVisit
from payres.people.store.apps import KeyUse, use_of_key

RECENT: Final = 30 * DAY
PATH: Final = "/settings/developer-keys"
MOST_DIGITS: Final = 18  # of an id
NONE_TICKED: Final = marked("Mark the keys to revoke first.")
PROBLEMS: Final = {
    "unreadable": marked("This is not a whole key. Copy it again, from its first character to its last."),
    "private_key": marked(
        "This is a private key, which nobody but the app may have. It was not stored. Anyone who has seen it can act as"
        " that app: make a new pair there, and paste the public key."
    ),
    "several_keys": marked("These are several keys. Paste one at a time."),
    "other_kind": marked("This key is of another kind. Only Ed25519 keys work here."),
    "known_key": marked("You have this key already: {name}."),
    "kid_used": marked("You have another key with the same id. Revoke that first, or make a new key in the app."),
    "too_many_keys": marked("You have {most} keys, and that is the most. Revoke one that you do not use."),
    "nickname": marked("Give it a name of 1 to 60 characters."),
}


class OwnKey(NamedTuple):
    """A valid key: its last use, the amount paid with it in the last 30 days, its active grants, and whether the Web
    Monetization extension uses it."""

    key: KeyRecord
    last_used_at: int | None
    spent: int
    apps: Sequence[App]
    is_extension: bool


def own_keys(work: Work, wallet: WalletRecord) -> Sequence[OwnKey]:
    """The wallet's valid keys, newest first."""
    client = clients.CLIENTS.find(work, identity=canonical(work.urls.wallet(wallet.path)))
    running = apps.running_apps(work, wallet)
    found = []
    for key in reversed(wallets.list_keys(work, wallet.id)):
        use = KeyUse(None, 0, None)
        if client is not None:
            use = use_of_key(work, client.id, wallet.id, key.kid, work.now - RECENT)
        its_apps = [app for app in running if app.who.key == key]
        found.append(OwnKey(key, use.last_at, use.spent, its_apps, apps.is_extension(use.finish_uri)))
    return found


async def show(
    visit: OwnerVisit, problems: dict[str, str] | None = None, given: Form | None = None, status: int = 200
) -> Response:
    """GET /settings/developer-keys."""
    found = await visit.read(lambda work: own_keys(work, visit.wallet))
    query = visit.request.query_params
    added = next((one.key for one in found if str(one.key.id) == query.get("added")), None)
    return visit.show(
        "keys.html",
        status,
        tab=SETTINGS_TAB,
        keys=found,
        added=added,
        revoked="revoked" in query,
        was_extension="extension" in query,
        problems=problems or {},
        given=shown_again(given or {}),
        address=context_of(visit.request).urls.wallet(visit.wallet.path),
    )


async def show_typed(visit: OwnerVisit, form: Form) -> Response:
    """The form as it was filled in when the session had ended."""
    return await show(visit, given=form)


async def add(visit: OwnerVisit, form: Form) -> Response:
    """Stores the pasted key."""
    text, nickname = form.get("key", ""), form.get("nickname", "")
    try:
        key = await visit.write(lambda work: add_key(work, visit.wallet, text, nickname))
    except DomainError as error:
        details = error.details
        problem, field = details.get("problem"), details.get("field")
        if problem not in PROBLEMS:
            raise
        said = visit.language.say(PROBLEMS[problem], name=details.get("name", ""), most=MAX_JWKS_KEYS)
        return await show(visit, {str(field): said}, form, error.status)
    return redirect(f"{PATH}?added={key.id}")


async def revoke(visit: OwnerVisit, form: Form) -> Response:
    """Revokes the ticked keys."""
    ticked = form.get("key_id", "").split()
    if not ticked:
        return await show(visit, {"key_id": visit.language.say(NONE_TICKED)}, status=HTTPStatus.BAD_REQUEST)
    if not all(one.isascii() and one.isdecimal() and len(one) <= MOST_DIGITS for one in ticked):
        raise nothing_here()

    def unit(work: Work) -> bool:
        ids = {int(one) for one in ticked}
        is_extension = any(one.is_extension for one in own_keys(work, visit.wallet) if one.key.id in ids)
        revoke_keys(work, visit.wallet, ids)
        return is_extension

    is_extension = await visit.write(unit)
    return redirect(f"{PATH}?revoked={len(set(ticked))}{'&extension=1' if is_extension else ''}")
