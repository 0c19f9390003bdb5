"""Public keys of the owner's own programs, which request grants as the wallet itself."""

from typing import Final

import msgspec

from payres.accounts.notices import notify
from payres.core.protocol.errors import InvalidRequest, WrongState, require
from payres.core.protocol.limits import MAX_JWKS_KEYS
from payres.core.protocol.visible import visible_name
from payres.core.signatures.jwk import JWK, has_private_key, jwk_from_pem, jwk_json, parse_jwk, thumbprint
from payres.core.store import audit, wallets
from payres.core.store.wallets import KEYS, KeyRecord, WalletRecord
from payres.core.store.work import Work

MAX_NICKNAME: Final = 60


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
    return store_key(work, wallet, jwk, name)


def store_key(work: Work, wallet: WalletRecord, jwk: JWK, name: str | None) -> KeyRecord:
    """Stores a key, or gives the one that is there another name, if one is given. Raises WrongState if the wallet has
    another valid key with this kid."""
    found = wallets.find_valid_key(work, wallet.id, jwk.kid)
    if found is None:
        columns = {"kid": jwk.kid, "x": jwk.x, "name": name, "created_at": work.now}
        key_id = KEYS.create(work, wallet_address_id=wallet.id, **columns)
        audit.record(work, "key.add", wallet.path, kid=jwk.kid, name=name)
        notify(work, wallet.owner_id, "key_added", wallet=wallet.path, name=name or jwk.kid, key_id=key_id)
        return KEYS.by_id(work, key_id)
    if found.x != jwk.x:
        raise WrongState(
            f"The wallet {wallet.path} has a valid key {jwk.kid}; revoke it first or choose another kid", kid=jwk.kid
        )
    if name is not None:
        KEYS.update(work, found.id, name=name)
        audit.record(work, "key.rename", wallet.path, kid=jwk.kid, name=name)
    return KEYS.by_id(work, found.id)


def revoke_key(work: Work, wallet: WalletRecord, kid: str) -> KeyRecord:
    """Requests that are signed with the key are refused from now on. Raises NotFound."""
    sentence, advice = f"The wallet {wallet.path} has no valid key {kid}", f"`payres key list {wallet.path}` shows all"
    key = require(wallets.find_valid_key(work, wallet.id, kid), sentence, advice)
    KEYS.update(work, key.id, revoked_at=work.now)
    audit.record(work, "key.revoke", wallet.path, kid=kid)
    return KEYS.by_id(work, key.id)


def read_key(text: str) -> JWK:
    """Parses a public key: a JWK or a JWK set of one, as JSON or base64 of JSON, or PEM.

    The kid of a PEM is its thumbprint (RFC 7638). Raises InvalidRequest with the problem private_key, several_keys,
    other_kind or unreadable.
    """
    if has_private_key(text):
        raise _refused("private_key")
    data = jwk_json(text.strip().encode("utf-8", "replace"))
    return _key_of_pem(data) if b"-----BEGIN" in data else _only_key(data)


def _key_of_pem(data: bytes) -> JWK:
    try:
        jwk = jwk_from_pem("pem", data)
    except ValueError as error:
        raise _refused("other_kind" if "another type" in str(error) else "unreadable") from error
    return msgspec.structs.replace(jwk, kid=thumbprint(jwk))


def _only_key(data: bytes) -> JWK:
    try:
        found: object = msgspec.json.decode(data)
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
