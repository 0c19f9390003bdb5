"""Signing in of owners and operators: passwords, guesses, sessions, browsers and links.

Sessions, known browsers and links are stored as hashes only.
"""

import asyncio
import hashlib
import hmac
import unicodedata
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from functools import partial
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from payres.core.process.slots import Slots, SlotsBusy
from payres.core.protocol.clock import MINUTE, SECOND
from payres.core.protocol.errors import (
    InsufficientAccess,
    InvalidRequest,
    NotFound,
    SignInFailed,
    TooManyRequests,
    Unavailable,
)
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.limits import (
    MAX_COUNTED,
    MAX_PASSWORD_LENGTH,
    MAX_WRONG_PASSWORDS,
    MAX_WRONG_PASSWORDS_PER_ADDRESS,
    MAX_WRONG_PASSWORDS_PER_WALLET,
    MIN_PASSWORD_LENGTH,
    PASSWORDS_AT_ONCE,
    PASSWORDS_WAITING,
)
from payres.core.store.work import Work
from payres.html import second_factors
from payres.html.notices import notify
from payres.html.second_factors import Factors, Refused
from payres.html.store import mail, sessions
from payres.html.store import second_factors as factor_store
from payres.html.store.sessions import (
    NOWHERE,
    OF_OWNERS,
    TRUSTED_LIFETIME,
    Kind,
    Seen,
    SessionRecord,
)

BUSY_SECONDS: Final = 5  # in which a full queue is processed, also on a slow machine

T = TypeVar("T")


class Account(Protocol):
    """An account with a password, and the wallet that an owner sees first. Wrong passwords from before `unlocked_at` do
    not count."""

    @property
    def id(self) -> int: ...
    @property
    def wallet_id(self) -> int | None: ...
    @property
    def password_hash(self) -> str | None: ...
    @property
    def unlocked_at(self) -> int | None: ...


class Nobody(msgspec.Struct, frozen=True):
    """Stands for an account that does not exist, so that attempts are counted all the same."""

    id: int
    wallet_id: None = None
    password_hash: None = None
    unlocked_at: None = None


class PasswordGate:
    """All hashing of passwords in a server: PASSWORDS_AT_ONCE at a time, on threads of their own, one for each key; and
    one more of an operator who signs in, so that owners cannot keep operators waiting.

    Known browsers go straight to it; sign-ins from others and new passwords wait in queues of their own for their turn.
    """

    def __init__(self) -> None:
        self._slots, self._new = password_slots(), password_slots()
        self._of_operators = Slots(1, queue=PASSWORDS_WAITING)
        self._threads = ThreadPoolExecutor(PASSWORDS_AT_ONCE + 1, "passwords")

    async def verify(self, kind: Kind, account: Account, password: str) -> bool:
        """See verify_password. Raises SlotsBusy."""
        slots = self._slots if kind is OF_OWNERS else self._of_operators
        async with slots.slot((kind.noun, account.id)):
            return await self._run(partial(verify_password, account, password))

    async def hash(self, password: str, key: Hashable, check: Callable[[], Awaitable[object]]) -> str:
        """The hash of a new password, see hash_password. `check` raises when it is not to be set any more.

        Raises InvalidRequest, Unavailable if too many are waiting, and what `check` raises.
        """
        try:
            async with self._new.slot(key), self._slots.slot(key):
                await check()  # the wait may have been long
                return await self._run(partial(hash_password, password))
        except SlotsBusy as busy:
            raise too_busy() from busy

    def close(self) -> None:
        """Lets the threads end."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, function)


def password_slots() -> Slots:
    """Slots for passwords, one for each key, so that one account cannot take all of them."""
    return Slots(PASSWORDS_AT_ONCE, 1, queue=PASSWORDS_WAITING // PASSWORDS_AT_ONCE)


def too_busy() -> Unavailable:
    """The error when too many passwords wait."""
    sentence = "Too many passwords are waiting just now, so yours was not looked at. Try again shortly"
    return Unavailable(sentence, retry_after=BUSY_SECONDS)


def hash_password(password: str) -> str:
    """The encoded Argon2id hash of a password: parameters, salt and hash. Raises InvalidRequest."""
    from argon2 import PasswordHasher  # slow to load: longer than most commands run

    encoded = _encoded(password)
    if encoded is None or len(encoded.decode()) < MIN_PASSWORD_LENGTH or len(password) > MAX_PASSWORD_LENGTH:
        sentence = f"A password has {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH} characters of Unicode"
        raise InvalidRequest(sentence, field="password")
    return PasswordHasher().hash(encoded)


def verify_password(account: Account | None, password: str) -> bool:
    """Whether the password is the account's.

    Takes equally long if the account does not exist or has no password, so that the time reveals nothing.
    """
    from argon2 import PasswordHasher
    from argon2.exceptions import VerifyMismatchError

    hasher = PasswordHasher()
    attempt = _encoded(password[: MAX_PASSWORD_LENGTH + 1])
    stored = account.password_hash if account else None
    if stored is None or attempt is None:
        hasher.hash(attempt or b"")
        return False
    try:
        return hasher.verify(stored, attempt)
    except VerifyMismatchError:
        return False


def _encoded(password: str) -> bytes | None:
    """The password in NFC, the same for all keyboards (RFC 8265 section 4.2); None if not valid Unicode."""
    try:
        return unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        return None


WINDOW: Final = 15 * MINUTE
# The secret in a cookie as a regular expression: 256 bits of URL-safe base64, as `new_secret` makes them.
COOKIE_VALUE: Final = rb"[A-Za-z0-9_-]{43}"

Key = tuple[object, ...]  # that attempts are counted under


class Guesser(NamedTuple):
    """The source of a password attempt: the address, and the hash of the browser's secret if the account knows it."""

    address: str | None = None
    known_browser: bytes | None = None


class WrongTries(NamedTuple):
    """How many wrong passwords an account had in the last 15 minutes, from how many addresses; with `until`, more are
    refused until then from one address at least."""

    wrong: int
    addresses: int
    until: int | None


class SignInGuard:
    """Limits wrong passwords in any 15 minutes.

    Known browsers are counted separately and go first, so that guesses from other browsers cannot lock the owner or
    operator out. The counts are in memory and reset by a restart: that helps a guesser less than storing each attempt
    would cost.
    """

    def __init__(self, gate: PasswordGate, kind: Kind = OF_OWNERS) -> None:
        self._gate = gate
        self._kind = kind
        self._attempts, self._last = OrderedDict[Key, list[int]](), 0  # when each was made, microseconds UTC
        self._others = password_slots()

    async def check_password(self, account: Account, password: str, now: int, guesser: Guesser) -> None:
        """Raises SignInFailed unless the password is correct, TooManyRequests, Unavailable if too many are waiting."""
        keys = self._count(account, guesser, now)
        try:
            async with AsyncExitStack() as slots:
                if guesser.known_browser is None:  # known browsers skip this queue, except for its head
                    await slots.enter_async_context(self._others.slot(account.id))
                is_right = await self._gate.verify(self._kind, account, password)
        except SlotsBusy as busy:
            self._take_back(keys, now)
            raise too_busy() from busy
        if not is_right:
            raise wrong_password(self._kind.noun)
        here, *wider = keys  # the wider counts are shared, so only this attempt is removed
        self._attempts.pop(here, None)
        self._take_back(wider, now)

    def wrong_tries(self, account: Account, now: int) -> WrongTries:
        """The wrong passwords from browsers that the account does not know."""
        self._follow(now)
        since, wrong, addresses, until = _since(account, now), 0, 0, list[int]()
        limits = {"account and address": MAX_WRONG_PASSWORDS, "account": MAX_WRONG_PASSWORDS_PER_WALLET}
        for key, all_moments in self._attempts.items():
            moments = [moment for moment in all_moments if moment > since]
            if key[0] in limits and key[1] == account.id and moments:
                limit = limits[str(key[0])]
                until += [moments[-limit] + WINDOW] if len(moments) >= limit else []
                if len(key) > 2:
                    wrong, addresses = wrong + len(moments), addresses + 1
        return WrongTries(wrong, addresses, max(until, default=None))

    def _count(self, account: Account, guesser: Guesser, now: int) -> Sequence[Key]:
        """Counts the attempt as wrong until it succeeds, so that concurrent attempts cannot exceed the limit. Returns
        the keys that it was counted under, narrowest first."""
        self._follow(now)
        since = _since(account, now)
        limits = _limits(account, guesser)
        recent = {key: [moment for moment in self._attempts.get(key, ()) if moment > since] for key in limits}
        for key, moments in recent.items():
            if len(moments) >= limits[key]:
                whose = "from your address" if key[0] == "address" else f"for this {self._kind.noun}"
                raise _too_many(f"{limits[key]} wrong passwords {whose}", moments[-limits[key]] + WINDOW - now)
        for key, moments in recent.items():
            self._attempts.pop(key, None)
            self._attempts[key] = [*moments, now]
        while len(self._attempts) > MAX_COUNTED:
            self._attempts.popitem(last=False)
        return list(limits)

    def _follow(self, now: int) -> None:
        """Lets what was counted be as old as it was, if the clock was set back: nobody may be locked out by that."""
        back = self._last - now
        if 0 <= back <= SECOND:  # requests that wait for one another differ by so much
            return
        if back > 0:
            self._attempts = OrderedDict((key, [at - back for at in times]) for key, times in self._attempts.items())
        self._last = now

    def _take_back(self, keys: Sequence[Key], now: int) -> None:
        """Removes the attempt from the counts."""
        for key in keys:
            if now in self._attempts.get(key, ()):
                self._attempts[key].remove(now)


def _since(account: Account, now: int) -> int:
    """From when on wrong passwords count."""
    # A time in the future means that the clock was set back since; that must not make attempts free.
    if account.unlocked_at is not None and account.unlocked_at <= now:
        return max(now - WINDOW, account.unlocked_at)  # the operator cleared the counts
    return now - WINDOW


def _limits(account: Account, guesser: Guesser) -> dict[Key, int]:
    """The limit of wrong attempts for each key that this one is counted under, narrowest first."""
    if guesser.known_browser is not None:
        return {("browser", account.id, guesser.known_browser): MAX_WRONG_PASSWORDS}
    limits: dict[Key, int] = {
        ("account and address", account.id, guesser.address): MAX_WRONG_PASSWORDS,
        ("account", account.id): MAX_WRONG_PASSWORDS_PER_WALLET,
    }
    if guesser.address is not None:
        limits["address", guesser.address] = MAX_WRONG_PASSWORDS_PER_ADDRESS
    return limits


def _too_many(wrong: str, wait: int) -> TooManyRequests:
    minutes = -(-wait // MINUTE)  # both rounded up, so that the next attempt is accepted by then
    unit = "minute" if minutes == 1 else "minutes"
    says = f"There were {wrong}. Try again in {minutes} {unit}"
    return TooManyRequests(says, retry_after=-(-wait // SECOND))


def wrong_password(noun: str = "wallet") -> SignInFailed:
    """The error for a wrong password."""
    return SignInFailed(f"This is not the password of this {noun}", reason="wrong_password")


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
    """A right password that waits for a second factor: its secret, the account, and why a code was not taken."""

    secret: str
    account: Any
    factors: Factors
    refused: str = ""


# With what somebody signs in, or tried to.
SignInWay = Literal["password", "password and code", "recovery code", "passkey", "link", "wrong password", "wrong code"]


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
    second_factors.remove_if_due(work, kind, verified)
    if _trusted_until(work, kind, verified.id, browser) or not second_factors.has_factor(work, kind, verified.id):
        return open_session(work, kind, verified, browser, "password", seen=seen)
    return _wait(work, kind, verified, browser, seen)


def complete(
    work: Work, kind: Kind, secret: str, code: str, trusts: bool, browser: Browser, seen: Seen
) -> SignedIn | HalfSignIn:
    """Signs in who gives the second factor that a half sign-in waits for; the browser is not asked for it again for 30
    days if the owner `trusts` it. A code that is not taken leaves it half, and a wrong one is counted.

    Raises SignInFailed when it is over.
    """
    half = find_half(work, kind, secret)
    if half is None:
        raise signed_out()
    way = second_factors.verify(work, kind, half.account.id, code)
    if way is None:
        refused = refused_code(work, kind, half.account.id, code, seen)
        return replace(half, factors=second_factors.factors_of(work, kind, half.account.id), refused=refused)
    browser = replace(browser, half=secret)
    return open_session(work, kind, half.account, browser, way, verified_at=work.now, trusts=trusts, seen=seen)


def find_half(work: Work, kind: Kind, secret: str) -> HalfSignIn | None:
    """The half sign-in with this secret, unless it is over."""
    found = factor_store.find_half_sign_in(work, kind, hash_secret(secret), work.now)
    account = found and sessions.account_at(work, kind, *found)
    return HalfSignIn(secret, account, second_factors.factors_of(work, kind, account.id)) if account else None


def open_session(
    work: Work,
    kind: Kind,
    verified: Account,
    browser: Browser,
    way: SignInWay | None = None,
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

    Raises SignInFailed if the password was changed, or the account removed, while it was being checked.
    """
    _check_unchanged(work, kind, verified)
    is_new = way is not None and known_browser(work, kind, verified.id, browser) is None
    # Who has changed the password in this unit is told of that alone.
    if is_new and kind is OF_OWNERS and verified.unlocked_at != work.now:
        notify(work, verified.id, "new_browser", browser=seen.browser or "")
    if browser.session is not None:
        close_session(work, kind, browser.session)
    known = ""
    if way != "link" or kind is not OF_OWNERS:
        trusted_until = _trusted_until(work, kind, verified.id, browser)
        if trusts or not second_factors.has_factor(work, kind, verified.id):
            trusted_until = work.now + TRUSTED_LIFETIME
        if verified.id in browser.known:
            sessions.delete_browser(work, kind, hash_secret(browser.known[verified.id]), verified.id)
        known = work.new_secret()
        sessions.insert_browser(work, kind, hash_secret(known), verified.id, work.now, trusted_until)
    session = work.new_secret()
    id_hash, wallet_id = hash_secret(session), verified.wallet_id
    sessions.insert_session(work, kind, id_hash, verified.id, work.now, wallet_id, verified_at, seen)
    if way is not None:
        noted(work, kind, verified.id, way, seen)
    if browser.half is not None:
        factor_store.delete_half_sign_in(work, kind, hash_secret(browser.half), verified.id)
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
    changed = sessions.account_at(work, kind, account.id, account.wallet_id)
    verified_at = found.verified_at if found else None
    return open_session(work, kind, changed, browser, verified_at=verified_at, trusts=is_trusted, seen=seen)


def noted(work: Work, kind: Kind, account_id: int, way: SignInWay, seen: Seen) -> None:
    """Notes a sign-in of an account, or one that failed, for the owner to look at."""
    sessions.insert_sign_in(work, kind, account_id, way, work.now, seen)


def _check_unchanged(work: Work, kind: Kind, verified: Account) -> None:
    account = kind.accounts.get(work, verified.id)
    if account is None or account.password_hash != verified.password_hash:
        raise wrong_password(kind.noun)


def _alarm_of(half: str, kind: Kind, account_id: int) -> str:
    """What the key of the mail about a half sign-in begins with: who completes just that one withdraws it."""
    return f"half:{hash_secret(half).hex()}:{kind.noun}:{account_id}"


def _wait(work: Work, kind: Kind, account: Account, browser: Browser, seen: Seen) -> HalfSignIn:
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
        notify(work, account.id, "half_sign_in", key=key, send_at=send_at)
    return HalfSignIn(secret, account, second_factors.factors_of(work, kind, account.id))


def is_stale(work: Work, kind: Kind, session: str) -> bool:
    """Whether a second factor must be given before what needs a fresh one. Raises SignInFailed without a session."""
    found = _require_session(work, kind, session)
    has_factor = second_factors.has_factor(work, kind, found.account_id)
    return has_factor and not second_factors.is_fresh(found.verified_at, work.now)


def verify(work: Work, kind: Kind, session: str, code: str, seen: Seen) -> str:
    """Why the code is not taken; "" if it is, and then the second factor counts as given in the session. A wrong one is
    counted, so a unit must not raise after it. A second click needs none. Raises SignInFailed without a session."""
    found = _require_session(work, kind, session)
    if is_stale(work, kind, session):
        if second_factors.verify(work, kind, found.account_id, code) is None:
            return refused_code(work, kind, found.account_id, code, seen)
        verified_now(work, kind, session)
    return ""


def refused_code(work: Work, kind: Kind, account_id: int, code: str, seen: Seen) -> Refused:
    """Why a code was not taken; a wrong one is noted."""
    why = second_factors.why_refused(work, kind, account_id, code)
    if why == "wrong code":
        noted(work, kind, account_id, why, seen)
    return why


def verified_now(work: Work, kind: Kind, session: str) -> None:
    """Notes that a second factor was given in the session just now."""
    sessions.verify_session(work, kind, hash_secret(session), work.now)


def _require_session(work: Work, kind: Kind, session: str) -> SessionRecord:
    found = find_session(work, kind, session)
    if found is None:
        raise signed_out()
    return found


def find_session(work: Work, kind: Kind, session: str) -> SessionRecord | None:
    """The session of a browser, unless it has ended."""
    return sessions.find_session(work, kind, hash_secret(session), work.now)


def account_of_session(work: Work, kind: Kind, session: str) -> Any:
    """The account that is signed in. Raises SignInFailed for a session that has ended."""
    return kind.accounts.by_id(work, _require_session(work, kind, session).account_id)


def close_session(work: Work, kind: Kind, session: str) -> None:
    """Signs the browser out. It stays known."""
    sessions.delete_session(work, kind, hash_secret(session))


def signed_out() -> SignInFailed:
    """The error for who is not signed in any more."""
    return SignInFailed("You are signed out by now, so nothing was done. Sign in again", reason="signed_out")


def make_link(work: Work, kind: Kind, account_id: int) -> tuple[str, int]:
    """A link that sets the account's password once, in place of an earlier one: its secret, and when it expires."""
    secret, expires_at = work.new_secret(), work.now + kind.link_lifetime
    sessions.replace_link(work, kind, hash_secret(secret), account_id, expires_at)
    return secret, expires_at


def open_link(work: Work, kind: Kind, secret: str) -> Any:
    """The account of a link. Raises NotFound for one that was used, has expired or never existed."""
    account_id = sessions.account_of_link(work, kind, hash_secret(secret), work.now)
    if account_id is None:
        raise NotFound(f"This link was used or has expired; `{kind.link_command}` makes another")
    return kind.accounts.by_id(work, account_id)


def follow_link(
    work: Work,
    kind: Kind,
    secret: str,
    password_hash: str,
    browser: Browser,
    set_password: Callable[[Work, Any, str], object],
    seen: Seen = NOWHERE,
) -> SignedIn | HalfSignIn:
    """Gives the link's account a new password (see hash_password) and signs in, as far as a password does: it stands in
    for no second factor.

    `set_password` stores it for the account, and ends the link. Raises NotFound as `open_link` does.
    """
    account = open_link(work, kind, secret)
    work.actor = account.actor
    set_password(work, account, password_hash)
    account = kind.accounts.by_id(work, account.id)
    second_factors.remove_if_due(work, kind, account)
    if second_factors.has_factor(work, kind, account.id):
        return _wait(work, kind, account, browser, seen)
    return open_session(work, kind, account, browser, "link", seen=seen)


def known_browser(work: Work, kind: Kind, account_id: int, browser: Browser) -> bytes | None:
    """The hash of the browser's secret for the account, None unless that knows the browser."""
    known = hash_secret(browser.known[account_id]) if account_id in browser.known else None
    return known if known and sessions.knows_browser(work, kind, known, account_id, work.now) else None


def _trusted_until(work: Work, kind: Kind, account_id: int, browser: Browser) -> int | None:
    """Until when the account asks for no second factor in the browser; None if it does."""
    secret = browser.known.get(account_id)
    return None if secret is None else sessions.trusted_until(work, kind, hash_secret(secret), account_id, work.now)


def csrf_token(session: str) -> str:
    """The CSRF token of a session."""
    return keyed(session, "csrf")


def check_csrf(session: str, token: str) -> None:
    """Raises InsufficientAccess if the token is not of this session; what follows a period in it is not checked."""
    if not hmac.compare_digest(csrf_token(session).encode(), token.partition(".")[0].encode()):
        raise InsufficientAccess(
            "This form belongs to an earlier visit, or your browser takes no cookies. Nothing was done; try again",
            reason="csrf",
        )


def keyed(session: str, purpose: str, content: bytes = b"") -> str:
    """A digest that only the holder of the session can compute."""
    return hmac.new(session.encode(), purpose.encode() + b"\n" + content, hashlib.sha256).hexdigest()
