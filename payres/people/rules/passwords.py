"""An owner's password: changing it, resetting it by a link from the operator, and signing out everywhere.

Setting a password signs out and forgets every other browser.
"""

from payres.core.protocol.errors import NotFound
from payres.core.protocol.identifiers import hash_secret
from payres.core.store import server, wallets
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Work
from payres.html.sign_in import Browser, SignedIn, open_session, wrong_password
from payres.html.store.sessions import OF_WALLETS, delete_sessions
from payres.operator.wallets import LINK_LIFETIME, set_password


def change_password(work: Work, verified: WalletRecord, password_hash: str, browser: Browser) -> SignedIn:
    """Replaces the password. `verified` is the wallet whose old password was checked; see hash_password.

    Raises SignInFailed if it was changed during the check.
    """
    if WALLETS.by_id(work, verified.id).password_hash != verified.password_hash:
        raise wrong_password()
    return _set_password(work, verified, password_hash, browser)


def open_link(work: Work, secret: str) -> WalletRecord:
    """The wallet of a reset link. Raises NotFound if the link is used, expired or unknown."""
    found = wallets.wallet_of_link(work, hash_secret(secret), work.now, LINK_LIFETIME)
    if found is None:
        raise NotFound("This link was used or has expired; `payres wallet reset-link` makes another")
    return found


def reset_password(work: Work, secret: str, password_hash: str, browser: Browser) -> SignedIn:
    """Sets the password of the link's wallet. Raises NotFound, see `open_link`."""
    wallet = open_link(work, secret)
    work.actor = wallet.actor
    return _set_password(work, wallet, password_hash, browser)


def sign_out_everywhere(work: Work, wallet: WalletRecord) -> None:
    """Ends every session of the owner, including the current one."""
    delete_sessions(work, OF_WALLETS, wallet.id)
    server.record(work, "wallet.sign_out", wallet.path)


def _set_password(work: Work, wallet: WalletRecord, password_hash: str, browser: Browser) -> SignedIn:
    changed = set_password(work, wallet.path, password_hash, forget_browsers=True)
    return open_session(work, OF_WALLETS, changed, browser)
