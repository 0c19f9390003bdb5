"""Public keys of the owner's own programs, which request grants as the wallet itself."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final, NamedTuple

import msgspec
from starlette.responses import Response

from payres.core.http.context import context_of
from payres.core.protocol.clock import DAY
from payres.core.protocol.errors import DomainError, InvalidRequest, WrongState, nothing_here
from payres.core.protocol.limits import MAX_JWKS_KEYS
from payres.core.protocol.urls import canonical
from payres.core.protocol.visible import visible_name
from payres.core.signatures.jwk import JWK, jwk_from_pem, jwk_json, parse_jwk, thumbprint
from payres.core.store import clients, wallets
from payres.core.store.wallets import KeyRecord, WalletRecord
from payres.core.store.work import Work
from payres.html.html import redirect
from payres.html.language import marked
from payres.html.visits import Form
from payres.operator import keys as key_operations
from payres.operator.store import all_grants
from payres.people import apps
from payres.people.apps import App, revoke_keys
from payres.people.sessions import SETTINGS_TAB, OwnerVisit

MAX_NICKNAME: Final = 60
RECENT: Final = 30 * DAY
# A private key: in PEM, also without its first line (RFC 8410), or in JSON, also in malformed JSON.
PRIVATE: Final = re.compile(r"""PRIVATE KEY|MC4CAQAwBQYDK2Vw|["']d["']\s*:""")


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
    client = clients.find_client(work, canonical(work.urls.wallet(wallet.path)))
    running = apps.running_apps(work, wallet)
    found = []
    for key in reversed(wallets.list_keys(work, wallet.id)):
        last, spent, finish_uri = None, 0, None
        if client is not None:
            finish_uri = all_grants.finish_uri_with_key(work, client.id, wallet.id, key.kid)
            last = all_grants.key_used_at(work, client.id, wallet.id, key.kid)
            spent = all_grants.spent_with_key(work, client.id, wallet.id, key.kid, work.now - RECENT)
        its_apps = [app for app in running if app.who.key == key]
        found.append(OwnKey(key, last, spent, its_apps, apps.is_extension(finish_uri)))
    return found


def add_key(work: Work, wallet: WalletRecord, text: str, nickname: str) -> KeyRecord:
    """Stores a program's public key under the owner's name for it.

    Raises InvalidRequest, or WrongState for a duplicate or too many keys; both with the details `field` and `problem`.
    """
    jwk, name = read_key(text), visible_name(nickname, None)
    if name is None or len(name) > MAX_NICKNAME:
        raise InvalidRequest("The name cannot be used", field="nickname", problem="nickname")
    valid = wallets.list_keys(work, wallet.id)
    for one in valid:
        if one.x == jwk.x:
            raise WrongState("The wallet has this key", field="key", problem="known_key", name=one.name or one.kid)
        if one.kid == jwk.kid:
            raise WrongState("The wallet has another key with this id", field="key", problem="kid_used")
    if len(valid) >= MAX_JWKS_KEYS:  # other servers read no more
        raise WrongState("The wallet has too many keys", field="key", problem="too_many_keys")
    return key_operations.add_key(work, wallet.path, jwk, name)


def read_key(text: str) -> JWK:
    """Parses a public key: a JWK or a JWK set of one, as JSON or base64 of JSON, or PEM.

    The kid of a PEM is its thumbprint (RFC 7638). Raises InvalidRequest with the problem private_key, several_keys,
    other_kind or unreadable.
    """
    data = jwk_json(text.strip().encode("utf-8", "replace"))
    if PRIVATE.search(text) or PRIVATE.search(data.decode("utf-8", "replace")):
        raise _refused("private_key")
    return _key_of_pem(data) if b"-----BEGIN" in data else _only_key(data)


def _key_of_pem(data: bytes) -> JWK:
    try:
        jwk = jwk_from_pem("pem", data)
    except ValueError as error:
        raise _refused("other_kind" if "another type" in str(error) else "unreadable") from error
    return msgspec.structs.replace(jwk, kid=thumbprint(jwk))


def _only_key(data: bytes) -> JWK:
    try:
        found: Any = msgspec.json.decode(data)
    except (ValueError, RecursionError) as error:
        raise _refused("unreadable") from error
    if isinstance(found, dict) and isinstance(found.get("keys"), list):
        if len(found["keys"]) > 1:
            raise _refused("several_keys")
        found = next(iter(found["keys"]), None)
    if not isinstance(found, dict):
        raise _refused("unreadable")
    try:
        return parse_jwk(found)
    except ValueError as error:
        is_other = "kty" in found and (found["kty"], found.get("crv")) != ("OKP", "Ed25519")
        raise _refused("other_kind" if is_other else "unreadable") from error


def _refused(problem: str) -> InvalidRequest:
    """The error, without the pasted text, which may be secret."""
    return InvalidRequest("The text is no public key that can be used", field="key", problem=problem)


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
        key = await visit.write(lambda work: add_key(work, visit.wallet, text, nickname))
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
        is_extension = any(one.is_extension for one in own_keys(work, visit.wallet) if one.key.id in ids)
        revoke_keys(work, visit.wallet, ids)
        return is_extension

    is_extension = await visit.write(unit)
    return redirect(f"{PATH}?revoked={len(set(ticked))}{'&extension=1' if is_extension else ''}")


async def _show(
    visit: OwnerVisit, problems: dict[str, str] | None = None, given: Form | None = None, status: int = 200
) -> Response:
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
        given=given or {},
        address=context_of(visit.request).urls.wallet(visit.wallet.path),
    )
