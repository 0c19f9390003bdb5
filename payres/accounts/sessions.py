"""Sessions of owners and operators, and the browsers that they are known by; stored as hashes only."""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Final

import msgspec

from payres.accounts import second_factors
from payres.accounts.guesses import wrong_password
from payres.accounts.notices import notify
from payres.accounts.passwords import Nobody
from payres.accounts.second_factors import Factors
from payres.accounts.second_step import signed_out
from payres.accounts.store import browsers, mail, sessions
from payres.accounts.store import second_factors as factor_store
from payres.accounts.store.browsers import KNOWN_BROWSERS, TRUSTED_LIFETIME
from payres.accounts.store.kinds import Account, Kind
from payres.accounts.store.owners import OF_OWNERS, account_at, closed_until
from payres.accounts.store.passkeys import passkeys_of
from payres.accounts.store.sessions import SessionRecord
from payres.accounts.store.sign_ins import NOWHERE, Seen, insert_sign_in
from payres.core.protocol.errors import InsufficientAccess, SignInFailed
from payres.core.protocol.identifiers import hash_secret
from payres.core.store.work import Work

# The secret in a cookie as a regular expression: 256 bits of URL-safe base64, as `new_secret` makes them.
COOKIE_VALUE: Final = rb"[A-Za-z0-9_-]{43}"


class Browser(msgspec.Struct, frozen=True):
    """The cookies of a browser: a session, secrets by the ids of the accounts that may know the browser, and the secret
    of a half sign-in."""

    session: str | None = None
    known: Mapping[int, str] = {}
    half: str | None = None


class SignedIn(msgspec.Struct, frozen=True):
    """The two secrets that a browser gets at sign-in; `known` is "" if it becomes none that the account knows."""

    account_id: int
    session: str
    known: str


class HalfSignIn(msgspec.Struct, frozen=True):
    """A right password that waits for a second step: its secret, the account, and what that has."""

    secret: str
    account: Account
    factors: Factors


def find_account(
    work: Work, kind: Kind, name: str, found: Account | None, browser: Browser
) -> tuple[Account, bytes | None]:
    """The account that was found by a name, or Nobody, and the hash of the browser if the account knows that."""
    if found is None:
        return Nobody(-int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:8], "big")), None
    return found, known_browser(work, kind, found.id, browser)


def begin(work: Work, kind: Kind, verified: Account, browser: Browser, seen: Seen) -> SignedIn | HalfSignIn:
    """Signs in who has given the password of `verified`, or waits for the second factor: an account that has one asks
    for it in browsers that it does not trust. Raises SignInFailed as open_session does."""
    _check_unchanged(work, kind, verified)
    _check_let_in(work, kind, verified, browser)
    second_factors.remove_if_due(work, kind, verified)
    if _trusted_until(work, kind, verified.id, browser) or not second_factors.has_factor(work, kind, verified.id):
        return open_session(work, kind, verified, browser, "password", seen=seen)
    return wait_for_step(work, kind, verified, browser, seen)


def find_half(work: Work, kind: Kind, secret: str) -> HalfSignIn | None:
    """The half sign-in with this secret, unless it is over."""
    found = factor_store.find_half_sign_in(work, kind, hash_secret(secret), work.now)
    account = found and account_at(work, kind, *found)
    return HalfSignIn(secret, account, second_factors.factors_of(work, kind, account.id)) if account else None


def open_session(
    work: Work,
    kind: Kind,
    verified: Account,
    browser: Browser,
    way: str | None = None,
    *,
    verified_at: int | None = None,
    trusts: bool = False,
    seen: Seen = NOWHERE,
) -> SignedIn:
    """A session for who has proved to be `verified`, with a second factor at `verified_at`. `way` is noted as that of a
    sign-in.

    The account knows the browser from now on, an owner's not by a link, which whoever runs the server can make; it asks
    for a second factor there again unless the owner `trusts` it. The session replaces the browser's old one, which
    ends, and its half sign-in. All secrets are new, to prevent session fixation.

    Raises SignInFailed if the password was changed, or the account removed, while it was being checked; and in a new
    browser while the owner keeps these out.
    """
    _check_unchanged(work, kind, verified)
    if way is not None:
        _check_let_in(work, kind, verified, browser)
    is_new = way is not None and known_browser(work, kind, verified.id, browser) is None
    if browser.session is not None:
        close_session(work, kind, browser.session)
    known, own = "", {kind.column: verified.id}
    if way != "link" or kind is not OF_OWNERS:
        trusted_until = _trusted_until(work, kind, verified.id, browser)
        if trusts or not second_factors.has_factor(work, kind, verified.id):
            trusted_until = work.now + TRUSTED_LIFETIME
        if verified.id in browser.known:
            KNOWN_BROWSERS.delete(work, id_hash=hash_secret(browser.known[verified.id]), **own)
        known = work.new_secret()
        browsers.insert_browser(work, kind, hash_secret(known), verified.id, work.now, trusted_until)
    session = work.new_secret()
    id_hash, wallet_id = hash_secret(session), verified.wallet_id
    sessions.insert_session(work, kind, id_hash, verified.id, work.now, wallet_id, verified_at, seen)
    if way is not None:
        noted(work, kind, verified.id, way, seen)
    # Who has changed the password in this unit is notified of that alone.
    if is_new and kind is OF_OWNERS and verified.unlocked_at != work.now:
        where = {"session": id_hash.hex(), "known": hash_secret(known).hex() if known else None, **seen._asdict()}
        used = [one.name for one in passkeys_of(work, kind, verified.id) if one.last_used_at == work.now]
        notify(work, verified.id, "new_browser", way=way, name=used[0] if used else None, **where)
    if browser.half is not None:
        factor_store.HALF_SIGN_IN_TABLE.delete(work, id_hash=hash_secret(browser.half), **own)
        mail.withdraw(work, _alarm_of(browser.half, kind, verified.id))
    return SignedIn(verified.id, session, known)


def start_over(
    work: Work, kind: Kind, account: Account, browser: Browser, seen: Seen, change: Callable[[], object]
) -> SignedIn:
    """Makes a change of what one signs in with, ends every session of the account, and forgets every browser but this
    one; returns a new session for it, in which a second factor counts as given when it did before."""
    found = None if browser.session is None else find_session(work, kind, browser.session)
    is_trusted = _trusted_until(work, kind, account.id, browser) is not None
    change()
    sessions.end_access(work, kind, account.id)
    changed = account_at(work, kind, account.id, account.wallet_id) or account
    verified_at = found.verified_at if found else None
    opened = open_session(work, kind, changed, browser, verified_at=verified_at, trusts=is_trusted, seen=seen)
    if kind is OF_OWNERS and browser.session is not None:
        mail.follow_session(work, account.id, hash_secret(browser.session), hash_secret(opened.session))
    return opened


def noted(work: Work, kind: Kind, account_id: int, way: str, seen: Seen) -> None:
    """Notes a sign-in of an account, or one that failed, for the owner to look at."""
    insert_sign_in(work, kind, account_id, way, work.now, seen)


def _check_unchanged(work: Work, kind: Kind, verified: Account) -> None:
    account = kind.accounts.get(work, verified.id)
    if account is None or account.password_hash != verified.password_hash:
        raise wrong_password(kind.noun)


def _check_let_in(work: Work, kind: Kind, account: Account, browser: Browser) -> None:
    is_known = kind is not OF_OWNERS or known_browser(work, kind, account.id, browser) is not None
    if not is_known and closed_until(work, account.id, work.now):
        raise SignInFailed("The owner keeps new browsers out, by a link in a mail", reason="kept_out")


def _alarm_of(half: str, kind: Kind, account_id: int) -> str:
    """What the key of the mail about a half sign-in begins with: who completes just that one withdraws it."""
    return f"half:{hash_secret(half).hex()}:{kind.noun}:{account_id}"


def wait_for_step(work: Work, kind: Kind, account: Account, browser: Browser, seen: Seen) -> HalfSignIn:
    """A half sign-in, for which the browser's session ends; the browser's own if it waits for the same account, so that
    there is one alarm."""
    if browser.session is not None:
        close_session(work, kind, browser.session)
    half = None if browser.half is None else find_half(work, kind, browser.half)
    if half is not None and (half.account.id, half.account.wallet_id) == (account.id, account.wallet_id):
        return half
    secret = work.new_secret()
    factor_store.insert_half_sign_in(work, kind, hash_secret(secret), account.id, account.wallet_id, work.now)
    if kind is OF_OWNERS:  # who has only the password gets no further: the owner should know
        key, send_at = f"{_alarm_of(secret, kind, account.id)}:mail", work.now + factor_store.HALF_LIFETIME
        notify(work, account.id, "half_sign_in", key=key, send_at=send_at, **seen._asdict())
    return HalfSignIn(secret, account, second_factors.factors_of(work, kind, account.id))


def is_stale(work: Work, kind: Kind, session: str) -> bool:
    """Whether a second factor must be given before what needs a fresh one. Raises SignInFailed without a session."""
    found = _require_session(work, kind, session)
    has_factor = second_factors.has_factor(work, kind, found.account_id)
    return has_factor and not second_factors.is_fresh(found.verified_at, work.now)


def verified_now(work: Work, kind: Kind, session: str) -> None:
    """Notes that a second factor was given in the session just now."""
    sessions.change_session(work, kind, hash_secret(session), verified_at=work.now)


def _require_session(work: Work, kind: Kind, session: str) -> SessionRecord:
    found = find_session(work, kind, session)
    if found is None:
        raise signed_out()
    return found


def find_session(work: Work, kind: Kind, session: str) -> SessionRecord | None:
    """The session of a browser, unless it has ended."""
    return sessions.find_session(work, kind, hash_secret(session), work.now)


def account_of_session(work: Work, kind: Kind, session: str) -> Account:
    """The account that is signed in. Raises SignInFailed for a session that has ended."""
    return kind.accounts.by_id(work, _require_session(work, kind, session).account_id)


def close_session(work: Work, kind: Kind, session: str) -> None:
    """Signs the browser out. It stays known."""
    sessions.delete_session(work, kind, hash_secret(session))


def known_browser(work: Work, kind: Kind, account_id: int, browser: Browser) -> bytes | None:
    """The hash of the browser's secret for the account, None unless that knows the browser."""
    known = hash_secret(browser.known[account_id]) if account_id in browser.known else None
    return known if known and browsers.knows_browser(work, kind, known, account_id, work.now) else None


def _trusted_until(work: Work, kind: Kind, account_id: int, browser: Browser) -> int | None:
    """Until when the account asks for no second factor in the browser; None if it does."""
    secret = browser.known.get(account_id)
    return None if secret is None else browsers.trusted_until(work, kind, hash_secret(secret), account_id, work.now)


def csrf_token(session: str) -> str:
    """The CSRF token of a session."""
    return keyed(session, "csrf")


def check_csrf(session: str, token: str) -> None:
    """Raises InsufficientAccess if the token is not of this session; what follows a period in it is not checked."""
    if not hmac.compare_digest(csrf_token(session).encode(), token.partition(".")[0].encode()):
        too_old = "This page is too old. Nothing was done; try again. If it comes back, allow cookies"
        raise InsufficientAccess(too_old, reason="csrf")


def keyed(session: str, purpose: str, content: bytes = b"") -> str:
    """A digest that only the holder of the session can compute."""
    return hmac.new(session.encode(), purpose.encode() + b"\n" + content, hashlib.sha256).hexdigest()
