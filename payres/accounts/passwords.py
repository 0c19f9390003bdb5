"""Passwords: hashing, and the gate that all hashing passes."""

import asyncio
import unicodedata
from collections.abc import Awaitable, Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final, TypeVar

import msgspec

from payres.accounts.limits import MAX_PASSWORD_LENGTH, MIN_PASSWORD_LENGTH, PASSWORDS_AT_ONCE, PASSWORDS_WAITING
from payres.accounts.store.kinds import Account, Kind
from payres.accounts.store.owners import OF_OWNERS
from payres.core.process.slots import Slots, SlotsBusy
from payres.core.protocol.errors import InvalidRequest, Unavailable

BUSY_SECONDS: Final = 5  # in which a full queue is processed, also on a slow machine
T = TypeVar("T")


class Nobody(msgspec.Struct, frozen=True):
    """Stands for an account that does not exist, so that attempts are counted all the same."""

    id: int
    name: str = ""
    actor: str = "no such account"
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

    check_password(password)
    return PasswordHasher().hash(_encoded(password) or b"")


def check_password(password: str) -> str:
    """The password. Raises InvalidRequest unless it can be one."""
    encoded = _encoded(password)
    if encoded is None or len(encoded.decode()) < MIN_PASSWORD_LENGTH or len(password) > MAX_PASSWORD_LENGTH:
        sentence = f"A password has {MIN_PASSWORD_LENGTH} to {MAX_PASSWORD_LENGTH} characters of Unicode"
        raise InvalidRequest(sentence, field="password")
    return password


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
