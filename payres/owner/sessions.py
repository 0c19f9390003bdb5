"""The owner of a wallet who is signed in, or wants to."""

import hashlib
from typing import Final, NamedTuple

from payres.clock import HOUR, MINUTE
from payres.errors import InvalidReceiver, SignInFailed
from payres.grants.sign_in import SESSION_LIFETIME, Browser, known_browser
from payres.identifiers import hash_secret
from payres.owner.sending import typed_url
from payres.store import wallets
from payres.store.browsers import OF_WALLETS
from payres.store.wallets import WALLETS, WalletRecord, find_wallet
from payres.store.work import Work

# A session that is used is made longer, at most once in five minutes, and until it is so old.
RENEWAL: Final = 5 * MINUTE
LONGEST_SESSION: Final = 12 * HOUR


class Owner(NamedTuple):
    """A signed-in owner; `is_renewal_due` says that the session is in use and should last longer."""

    wallet: WalletRecord
    is_renewal_due: bool


def find_account(work: Work, name: str, browser: Browser) -> tuple[WalletRecord, bytes | None]:
    """The wallet that a name, a wallet address or a payment pointer names, and the hash of the browser if it is known.

    What nobody has gets a wallet without a password, whose attempts are counted all the same.
    """
    path = wallet_path(work, name)
    found = find_wallet(work, path)
    if found is not None:
        return found, known_browser(work, OF_WALLETS, found.id, browser)
    number = int.from_bytes(hashlib.sha256(path.encode("utf-8", "replace")).digest()[:8], "big")
    return WalletRecord(-number, path, None, 0, "", 0, 0, 0, 0, None, "inactive", 0), None


def wallet_path(work: Work, name: str) -> str:
    """The path that a person means by `alice`, `pay.example/alice`, `$pay.example/alice` or the wallet address.

    A payment pointer without a path names the wallet of the whole host (paymentpointers.org).
    """
    try:
        path = work.urls.wallet_path(typed_url(work.urls, name))
    except InvalidReceiver:
        path = None
    return name.strip().lower() if path is None else path


def find_session(work: Work, session: str) -> Owner | None:
    """The owner whom a session has signed in."""
    found = wallets.find_session(work, hash_secret(session), work.now)
    if found is None:
        return None
    is_due = found.expires_at - work.now < SESSION_LIFETIME - RENEWAL and work.now < found.created_at + LONGEST_SESSION
    return Owner(WALLETS.by_id(work, found.wallet_address_id), is_due)


def authenticate(work: Work, session: str) -> str:
    """The owner of a session, as the audit log names the actor. Raises SignInFailed for one that has ended."""
    owner = find_session(work, session)
    if owner is None:
        raise signed_out()
    return f"owner:{owner.wallet.path}"


def signed_out() -> SignInFailed:
    """The error for who is not signed in any more."""
    return SignInFailed("You are signed out by now. Sign in again", reason="signed_out")


def renew_session(work: Work, session: str) -> None:
    """Makes a session that is in use last longer."""
    wallets.extend_session(work, hash_secret(session), work.now + SESSION_LIFETIME)


def close_session(work: Work, session: str) -> None:
    """Signs the browser out. It stays known."""
    wallets.delete_session(work, hash_secret(session))
