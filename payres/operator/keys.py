"""Public keys of wallet addresses here, which verify the signatures of their clients."""

from payres.errors import WrongState, require
from payres.operator.inputs import check_name
from payres.operator.wallets import require_wallet
from payres.signatures.jwk import JWK
from payres.store import audit, wallets
from payres.store.wallets import KEYS, KeyRecord, WalletRecord
from payres.store.work import Work


def add_key(work: Work, path: str, jwk: JWK, name: str | None = None) -> KeyRecord:
    """Stores a public key of the wallet; it is served in jwks.json and good for signatures from now on.

    `name` is the operator's own. If the key exists, only its name changes, if one is given. Raises NotFound,
    InvalidRequest for the name, WrongState when the wallet has another valid key under this kid.
    """
    if name is not None:
        check_name(name, "key's")
    wallet = require_wallet(work, path)
    found = _find_key(work, wallet, jwk.kid)
    if found is None:
        columns = {"kid": jwk.kid, "x": jwk.x, "name": name, "created_at": work.now}
        key_id = KEYS.create(work, wallet_address_id=wallet.id, **columns)
        audit.record(work, "key.add", wallet.path, kid=jwk.kid, name=name)
        return KEYS.by_id(work, key_id)
    if found.x != jwk.x:
        raise WrongState(
            f"The wallet {wallet.path} has a valid key {jwk.kid}; revoke it first or choose another kid",
            kid=jwk.kid,
        )
    if name is None:
        return found
    KEYS.update(work, found.id, name=name)
    audit.record(work, "key.rename", wallet.path, kid=jwk.kid, name=name)
    return KEYS.by_id(work, found.id)


def revoke_key(work: Work, path: str, kid: str) -> KeyRecord:
    """Ends a key at once: the next request signed with it gets 401. Raises NotFound."""
    wallet = require_wallet(work, path)
    sentence = f"The wallet {wallet.path} has no valid key {kid}; `payres key list {wallet.path}` shows all"
    key = require(_find_key(work, wallet, kid), sentence)
    KEYS.update(work, key.id, revoked_at=work.now)
    audit.record(work, "key.revoke", wallet.path, kid=kid)
    return KEYS.by_id(work, key.id)


def _find_key(work: Work, wallet: WalletRecord, kid: str) -> KeyRecord | None:
    return next((key for key in wallets.list_keys(work, wallet.id) if key.kid == kid), None)
