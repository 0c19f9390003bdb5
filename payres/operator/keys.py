"""Public keys of wallet addresses here: which signatures of their clients count."""

from payres.errors import NotFound, WrongState
from payres.operator.wallets import require_wallet
from payres.signatures.jwk import JWK
from payres.store import wallets
from payres.store.wallets import KeyRecord, WalletRecord
from payres.store.work import Work


def add_key(work: Work, path: str, jwk: JWK) -> KeyRecord:
    """Stores a public key of the wallet; it is served in jwks.json and good for signatures from now on.

    Raises NotFound, WrongState when the wallet has a valid key under this kid.
    """
    wallet = require_wallet(work, path)
    if _find_key(work, wallet, jwk.kid) is not None:
        raise WrongState(
            f"The wallet {wallet.path} has a valid key {jwk.kid}; revoke it first or choose another kid",
            kid=jwk.kid,
        )
    wallets.insert_key(work, wallet.id, jwk.kid, jwk.x, work.now)
    return KeyRecord(jwk.kid, jwk.x, work.now, None)


def revoke_key(work: Work, path: str, kid: str) -> KeyRecord:
    """Ends a key at once: the next request signed with it gets 401. Raises NotFound."""
    wallet = require_wallet(work, path)
    key = _find_key(work, wallet, kid)
    if key is None:
        raise NotFound(f"The wallet {wallet.path} has no valid key {kid}; `payres key list {wallet.path}` shows all")
    wallets.revoke_key(work, wallet.id, kid, work.now)
    return KeyRecord(key.kid, key.x, key.created_at, work.now)


def _find_key(work: Work, wallet: WalletRecord, kid: str) -> KeyRecord | None:
    return next((key for key in wallets.list_keys(work, wallet.id) if key.kid == kid), None)
