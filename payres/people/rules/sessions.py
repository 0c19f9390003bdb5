"""Sign-in, sessions and password of a wallet's owner."""

from typing import Final

from payres.core.protocol.clock import MINUTE
from payres.core.protocol.errors import InvalidReceiver
from payres.core.protocol.identifiers import hash_secret
from payres.core.store import server
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Work
from payres.html.sign_in import Browser, SignedIn, find_session, open_session, wrong_password
from payres.html.store.sessions import OF_WALLETS, delete_sessions, extend_session
from payres.operator.wallets import set_password
from payres.people.rules.sending import typed_url

# A session in use is extended, at most every five minutes, up to the longest lifetime.
RENEWAL: Final = 5 * MINUTE


def wallet_path(work: Work, name: str) -> str:
    """The path meant by `alice`, `pay.example/alice`, `$pay.example/alice` or the wallet address.

    A payment pointer without a path names the wallet of the whole host (paymentpointers.org).
    """
    try:
        path = work.urls.wallet_path(typed_url(work.urls, name))
    except InvalidReceiver:
        path = None
    return name.strip().lower() if path is None else path


def find_owner(work: Work, session: str) -> tuple[WalletRecord, bool] | None:
    """The wallet of a session, and whether the session is due for renewal."""
    found = find_session(work, OF_WALLETS, session)
    if found is None:
        return None
    is_used = found.expires_at - work.now < OF_WALLETS.lifetime - RENEWAL
    is_due = is_used and work.now < found.created_at + OF_WALLETS.longest
    return WALLETS.by_id(work, found.account_id), is_due


def renew_session(work: Work, session: str) -> None:
    """Extends a session."""
    extend_session(work, OF_WALLETS, hash_secret(session), work.now)


def change_password(work: Work, verified: WalletRecord, password_hash: str, browser: Browser) -> SignedIn:
    """Replaces the password, which signs out and forgets every other browser. `verified` is the wallet whose old
    password was checked; see hash_password.

    Raises SignInFailed if it was changed during the check.
    """
    if WALLETS.by_id(work, verified.id).password_hash != verified.password_hash:
        raise wrong_password()
    changed = set_password(work, verified.path, password_hash, forget_browsers=True)
    return open_session(work, OF_WALLETS, changed, browser)


def sign_out_everywhere(work: Work, wallet: WalletRecord) -> None:
    """Ends every session of the owner, including the current one."""
    delete_sessions(work, OF_WALLETS, wallet.id)
    server.record(work, "wallet.sign_out", wallet.path)
