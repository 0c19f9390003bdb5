"""Passwords that wallet owners sign in with for consent: stored as Argon2id hashes (RFC 9106), never as they are.

They are checked in threads, a few at a time, and only so many wrong ones are accepted in a while.
"""

import asyncio
import unicodedata
from collections import OrderedDict
from typing import NamedTuple

from payres.clock import MINUTE, SECOND
from payres.errors import InvalidRequest, SignInFailed, TooManyRequests
from payres.limits import (
    MAX_COUNTED,
    MAX_PASSWORD_LENGTH,
    MAX_WRONG_PASSWORDS,
    MAX_WRONG_PASSWORDS_PER_ADDRESS,
    MAX_WRONG_PASSWORDS_PER_WALLET,
    PASSWORDS_AT_ONCE,
)
from payres.slots import Slots
from payres.store.wallets import WalletRecord

WINDOW = 15 * MINUTE


def hash_password(password: str) -> str:
    """What is stored of a password: parameters, salt and hash in one text. Raises InvalidRequest."""
    from argon2 import PasswordHasher  # not above: loading it costs more than most commands take altogether

    encoded = _encoded(password)
    if encoded is None or not 1 <= len(password) <= MAX_PASSWORD_LENGTH:
        raise InvalidRequest(f"A password has 1 to {MAX_PASSWORD_LENGTH} characters of Unicode", field="password")
    return PasswordHasher().hash(encoded)


def verify_password(wallet: WalletRecord | None, password: str) -> bool:
    """Whether this is the password of the wallet's owner.

    Takes as long for a wallet that does not exist or has no password, so that the time reveals nothing.
    """
    from argon2 import PasswordHasher
    from argon2.exceptions import VerifyMismatchError

    hasher = PasswordHasher()
    attempt = _encoded(password[: MAX_PASSWORD_LENGTH + 1])
    stored = wallet.password_hash if wallet else None
    if stored is None or attempt is None:
        hasher.hash(attempt or b"")
        return False
    try:
        return hasher.verify(stored, attempt)
    except VerifyMismatchError:
        return False


class Guesser(NamedTuple):
    """Who tries a password, as far as is known: the address, and a browser that the owner has used before."""

    address: str | None = None
    known_browser: bytes | None = None


class _Count(NamedTuple):
    """What attempts are counted by, how many may be wrong, and what they were in words."""

    key: tuple[object, ...]
    most: int
    what: str


class SignInGuard:
    """Accepts so many wrong passwords in any 15 minutes and then none for a while.

    A browser that the owner has signed in with is counted by itself, so that guesses from other browsers cannot lock
    the owner out of it. The counts are in memory: a restart resets them, which helps a guesser less than a table of
    attempts would cost everyone.
    """

    def __init__(self) -> None:
        self._attempts: OrderedDict[tuple[object, ...], list[int]] = OrderedDict()
        self._hashing = Slots(PASSWORDS_AT_ONCE)

    async def check_password(self, wallet: WalletRecord, password: str, now: int, guesser: Guesser) -> None:
        """Raises SignInFailed unless the password is the wallet's, and TooManyRequests."""
        counts = _counts(wallet, guesser)
        self._count(counts, now)
        async with self._hashing.slot():
            is_right = await asyncio.to_thread(verify_password, wallet, password)
        if not is_right:
            raise wrong_password()
        self._forgive(counts, now)

    def _count(self, counts: list[_Count], now: int) -> None:
        """Counts the attempt as wrong until it turns out right, so that many at once cannot slip through together."""
        recent = {count: [m for m in self._attempts.get(count.key, ()) if m > now - WINDOW] for count in counts}
        for count, moments in recent.items():
            if len(moments) >= count.most:
                raise _too_many(count, moments[-count.most] + WINDOW - now)
        for count, moments in recent.items():
            self._attempts.pop(count.key, None)
            self._attempts[count.key] = [*moments, now]
        while len(self._attempts) > MAX_COUNTED:
            self._attempts.popitem(last=False)

    def _forgive(self, counts: list[_Count], now: int) -> None:
        """The owner has signed in: the narrowest count starts again; the wider ones, which count others too, only lose
        this attempt."""
        here, *wider = counts
        self._attempts.pop(here.key, None)
        for count in wider:
            if now in self._attempts.get(count.key, ()):
                self._attempts[count.key].remove(now)


def _counts(wallet: WalletRecord, guesser: Guesser) -> list[_Count]:
    """The narrowest first."""
    for_wallet = "for this wallet"
    if guesser.known_browser is not None:
        return [_Count(("browser", wallet.id, guesser.known_browser), MAX_WRONG_PASSWORDS, for_wallet)]
    counts = [
        _Count(("wallet and address", wallet.id, guesser.address), MAX_WRONG_PASSWORDS, for_wallet),
        _Count(("wallet", wallet.id), MAX_WRONG_PASSWORDS_PER_WALLET, for_wallet),
    ]
    if guesser.address is not None:
        counts.append(_Count(("address", guesser.address), MAX_WRONG_PASSWORDS_PER_ADDRESS, "from your address"))
    return counts


def wrong_password() -> SignInFailed:
    """The password is not that of the wallet's owner."""
    return SignInFailed("This is not the password of this wallet", reason="wrong_password")


def _too_many(count: _Count, wait: int) -> TooManyRequests:
    minutes = -(-wait // MINUTE)  # both rounded up: after that time the next attempt is really taken
    unit = "minute" if minutes == 1 else "minutes"
    return TooManyRequests(
        f"There were {count.most} wrong passwords {count.what}. Try again in {minutes} {unit}",
        retry_after=-(-wait // SECOND),
    )


def _encoded(password: str) -> bytes | None:
    """One spelling of the same text from different keyboards (NFC, as in RFC 8265 section 4.2); None for no Unicode."""
    try:
        return unicodedata.normalize("NFC", password).encode()
    except UnicodeEncodeError:
        return None
