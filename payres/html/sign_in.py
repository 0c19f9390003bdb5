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
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import msgspec

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
from payres.html.store import sessions
from payres.html.store.sessions import OF_OWNERS, Kind, SessionRecord

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
    """All hashing of passwords in a server: PASSWORDS_AT_ONCE at a time, on threads of their own, one for each key.

    Known browsers go straight to it; sign-ins from others and new passwords wait in queues of their own for their turn.
    """

    def __init__(self) -> None:
        self._slots, self._new = password_slots(), password_slots()
        self._threads = ThreadPoolExecutor(PASSWORDS_AT_ONCE, "passwords")

    async def verify(self, account: Account, password: str, key: Hashable) -> bool:
        """See verify_password. Raises SlotsBusy."""
        async with self._slots.slot(key):
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
        self._noun = kind.noun
        self._attempts: OrderedDict[Key, list[int]] = OrderedDict()  # when each was made, microseconds UTC
        self._others = password_slots()

    async def check_password(self, account: Account, password: str, now: int, guesser: Guesser) -> None:
        """Raises SignInFailed unless the password is correct, TooManyRequests, Unavailable if too many are waiting."""
        keys = self._count(account, guesser, now)
        try:
            async with AsyncExitStack() as slots:
                if guesser.known_browser is None:  # known browsers skip this queue, except for its head
                    await slots.enter_async_context(self._others.slot(account.id))
                is_right = await self._gate.verify(account, password, (self._noun, account.id))
        except SlotsBusy as busy:
            self._take_back(keys, now)
            raise too_busy() from busy
        if not is_right:
            raise wrong_password(self._noun)
        here, *wider = keys  # the wider counts are shared, so only this attempt is removed
        self._attempts.pop(here, None)
        self._take_back(wider, now)

    def wrong_tries(self, account: Account, now: int) -> WrongTries:
        """The wrong passwords from browsers that the account does not know."""
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
        since = _since(account, now)
        limits = _limits(account, guesser)
        for key in limits.keys() & self._attempts.keys():  # the clock was set back: nobody may be locked out
            self._attempts[key] = [min(moment, now) for moment in self._attempts[key]]
        recent = {key: [moment for moment in self._attempts.get(key, ()) if moment > since] for key in limits}
        for key, moments in recent.items():
            if len(moments) >= limits[key]:
                whose = "from your address" if key[0] == "address" else f"for this {self._noun}"
                raise _too_many(f"{limits[key]} wrong passwords {whose}", moments[-limits[key]] + WINDOW - now)
        for key, moments in recent.items():
            self._attempts.pop(key, None)
            self._attempts[key] = [*moments, now]
        while len(self._attempts) > MAX_COUNTED:
            self._attempts.popitem(last=False)
        return list(limits)

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
    """The cookies of a browser: a session, and secrets by the ids of the accounts that may know the browser. `name` and
    `address` are for its owner to know it by, see `browser_name` and `address_of`."""

    session: str | None = None
    known: Mapping[int, str] = {}
    name: str | None = None
    address: str | None = None


class SignedIn(msgspec.Struct, frozen=True):
    """The two secrets that a browser gets at sign-in."""

    account_id: int
    session: str
    known: str


def find_account(
    work: Work, kind: Kind, name: str, found: Account | None, browser: Browser
) -> tuple[Account, bytes | None]:
    """The account that was found by a name, or Nobody, and the hash of the browser if the account knows that."""
    if found is None:
        return Nobody(-int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:8], "big")), None
    return found, known_browser(work, kind, found.id, browser)


def open_session(work: Work, kind: Kind, verified: Account, browser: Browser) -> SignedIn:
    """A session for who has given the password of `verified`; the account knows the browser from now on.

    It replaces the browser's old one, which ends. Both secrets are always new, to prevent session fixation. Raises
    SignInFailed if the password was changed, or the account removed, while it was being checked.
    """
    account = kind.accounts.get(work, verified.id)
    if account is None or account.password_hash != verified.password_hash:
        raise wrong_password(kind.noun)
    if browser.session is not None:
        close_session(work, kind, browser.session)
    if verified.id in browser.known:
        sessions.delete_browser(work, kind, hash_secret(browser.known[verified.id]), verified.id)
    signed_in = SignedIn(verified.id, work.new_secret(), work.new_secret())
    sessions.insert_browser(work, kind, hash_secret(signed_in.known), verified.id, work.now)
    opened = verified.wallet_id, browser.name, browser.address
    sessions.insert_session(work, kind, hash_secret(signed_in.session), verified.id, work.now, *opened)
    return signed_in


def find_session(work: Work, kind: Kind, session: str) -> SessionRecord | None:
    """The session of a browser, unless it has ended."""
    return sessions.find_session(work, kind, hash_secret(session), work.now)


def authenticate(work: Work, kind: Kind, session: str) -> str:
    """Who is signed in, as the audit log names the actor. Raises SignInFailed for a session that has ended."""
    found = find_session(work, kind, session)
    if found is None:
        raise signed_out()
    actor: str = kind.accounts.by_id(work, found.account_id).actor
    return actor


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
) -> SignedIn:
    """Signs in to the link's account with a new password (see hash_password).

    `set_password` stores it for the account, and ends the link. Raises NotFound as `open_link` does.
    """
    account = open_link(work, kind, secret)
    work.actor = account.actor
    set_password(work, account, password_hash)
    return open_session(work, kind, kind.accounts.by_id(work, account.id), browser)


def known_browser(work: Work, kind: Kind, account_id: int, browser: Browser) -> bytes | None:
    """The hash of the browser's secret for the account, None unless that knows the browser."""
    secret = browser.known.get(account_id)
    known = hash_secret(secret) if secret is not None else None
    return known if known and sessions.knows_browser(work, kind, known, account_id, work.now) else None


def csrf_token(session: str) -> str:
    """The CSRF token of a session."""
    return keyed(session, "csrf")


def check_csrf(session: str, token: str) -> None:
    """Raises InsufficientAccess if the token is not of this session."""
    if not hmac.compare_digest(csrf_token(session).encode(), token.encode()):
        raise InsufficientAccess(
            "This form belongs to an earlier visit, or your browser takes no cookies. Nothing was done; try again",
            reason="csrf",
        )


def keyed(session: str, purpose: str, content: bytes = b"") -> str:
    """A digest that only the holder of the session can compute."""
    return hmac.new(session.encode(), purpose.encode() + b"\n" + content, hashlib.sha256).hexdigest()
