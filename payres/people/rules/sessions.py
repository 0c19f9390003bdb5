"""Sign-in and sessions of a wallet's owner."""

from typing import Final

from payres.core.protocol.clock import MINUTE
from payres.core.protocol.errors import InvalidReceiver
from payres.core.protocol.identifiers import hash_secret
from payres.core.store.wallets import WALLETS, WalletRecord, find_wallet
from payres.core.store.work import Work
from payres.html import sign_in
from payres.html.sign_in import Account, Browser
from payres.html.store.sessions import OF_WALLETS, extend_session
from payres.people.rules.sending import typed_url

# A session in use is extended, at most every five minutes, up to the longest lifetime.
RENEWAL: Final = 5 * MINUTE


def find_account(work: Work, name: str, browser: Browser) -> tuple[Account, bytes | None]:
    """The wallet with a name, wallet address or payment pointer, or Nobody; and the browser's hash, if it is known."""
    path = wallet_path(work, name)
    return sign_in.find_account(work, OF_WALLETS, path, find_wallet(work, path), browser)


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
    found = sign_in.find_session(work, OF_WALLETS, session)
    if found is None:
        return None
    is_used = found.expires_at - work.now < OF_WALLETS.lifetime - RENEWAL
    is_due = is_used and work.now < found.created_at + OF_WALLETS.longest
    return WALLETS.by_id(work, found.account_id), is_due


def renew_session(work: Work, session: str) -> None:
    """Extends a session."""
    extend_session(work, OF_WALLETS, hash_secret(session), work.now)
