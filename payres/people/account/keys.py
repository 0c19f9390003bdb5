"""Keys of the wallet's own programs: adding, revoking, and how to connect the Web Monetization extension."""

from http import HTTPStatus
from typing import Final

from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.protocol.errors import DomainError, nothing_here
from payres.core.store.work import Work
from payres.html.html import redirect
from payres.html.language import marked
from payres.html.visits import Form
from payres.people.account.visits import OwnerVisit
from payres.people.rules import keys

PATH: Final = "/settings/developer-keys"
SETTINGS: Final = "/settings"
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
    "too_many_keys": marked("You have as many keys as other servers read. Revoke one that you do not use."),
    "nickname": marked("Give it a name of 1 to 60 characters."),
}


async def show(visit: OwnerVisit) -> Response:
    """GET /settings/developer-keys."""
    return await _show(visit)


async def add(visit: OwnerVisit, form: Form) -> Response:
    """Stores the pasted key."""
    text, nickname = form.get("key", ""), form.get("nickname", "")
    try:
        key = await visit.write(lambda work: keys.add(work, visit.wallet, text, nickname))
    except DomainError as error:
        details = error.details
        problem, field = details.get("problem"), details.get("field")
        if problem not in PROBLEMS:
            raise
        said = visit.language.say(PROBLEMS[problem], name=details.get("name", ""))
        given = {"nickname": nickname, "key": "" if problem == "private_key" else text}
        return await _show(visit, {str(field): said}, given, error.status)
    return redirect(f"{PATH}?added={key.id}")


async def revoke(visit: OwnerVisit, form: Form) -> Response:
    """Revokes the ticked keys."""
    ticked = form.get("key_id", "").split()
    if not ticked:
        return await _show(visit, {"key_id": visit.language.say(NONE_TICKED)}, status=HTTPStatus.BAD_REQUEST)
    if not all(one.isascii() and one.isdecimal() and len(one) <= MOST_DIGITS for one in ticked):
        raise nothing_here()

    def unit(work: Work) -> bool:
        ids = {int(one) for one in ticked}
        is_extension = any(one.is_extension for one in keys.own_keys(work, visit.wallet) if one.key.id in ids)
        keys.revoke(work, visit.wallet, ids)
        return is_extension

    is_extension = await visit.write(unit)
    return redirect(f"{PATH}?revoked={len(set(ticked))}{'&extension=1' if is_extension else ''}")


async def _show(
    visit: OwnerVisit, problems: dict[str, str] | None = None, given: Form | None = None, status: int = 200
) -> Response:
    found = await visit.read(lambda work: keys.own_keys(work, visit.wallet))
    query = visit.request.query_params
    added = next((one.key for one in found if str(one.key.id) == query.get("added")), None)
    return visit.show(
        "keys.html",
        status,
        tab=SETTINGS,
        keys=found,
        added=added,
        revoked="revoked" in query,
        was_extension="extension" in query,
        problems=problems or {},
        given=given or {},
        address=context_of(visit.request).urls.wallet(visit.wallet.path),
    )
