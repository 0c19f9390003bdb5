"""Public keys of the owner's own programs, which request grants as the wallet itself."""

import re
from collections.abc import Collection, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from payres.core.protocol.clock import DAY
from payres.core.protocol.errors import InvalidRequest, WrongState, nothing_here
from payres.core.protocol.limits import MAX_JWKS_KEYS
from payres.core.protocol.urls import canonical
from payres.core.protocol.visible import visible_name
from payres.core.signatures.jwk import JWK, jwk_from_pem, jwk_json, parse_jwk, thumbprint
from payres.core.store import clients, grants, wallets
from payres.core.store.wallets import KEYS, KeyRecord, WalletRecord
from payres.core.store.work import Work
from payres.operator import grants as grant_operations
from payres.operator import keys as operations
from payres.people.rules import apps
from payres.people.rules.apps import App

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
    running = apps.running(work, wallet)
    found = []
    for key in reversed(wallets.list_keys(work, wallet.id)):
        last, spent, finish_uri = None, 0, None
        if client is not None:
            finish_uri = grants.finish_uri_with_key(work, client.id, wallet.id, key.kid)
            last = grants.key_used_at(work, client.id, wallet.id, key.kid)
            spent = grants.spent_with_key(work, client.id, wallet.id, key.kid, work.now - RECENT)
        its_apps = [app for app in running if app.who.key == key]
        found.append(OwnKey(key, last, spent, its_apps, apps.is_extension(finish_uri)))
    return found


def add(work: Work, wallet: WalletRecord, text: str, nickname: str) -> KeyRecord:
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
    return operations.add_key(work, wallet.path, jwk, name)


def revoke(work: Work, wallet: WalletRecord, key_ids: Collection[int]) -> Sequence[KeyRecord]:
    """Revokes keys and the grants requested with them, and returns the keys. Revoked keys are left unchanged.

    Raises NotFound if one does not belong to the wallet.
    """
    found = [key for key in wallets.list_keys(work, wallet.id, revoked=True) if key.id in key_ids]
    if len(found) != len(set(key_ids)):
        raise nothing_here()
    running = apps.running(work, wallet)
    for key in found:
        if key.revoked_at is None:
            for app in running:
                if app.who.key == key:
                    grant_operations.revoke(work, app.grant.id)
            operations.revoke_key(work, wallet.path, key.kid)
    return [KEYS.by_id(work, key.id) for key in found]


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
