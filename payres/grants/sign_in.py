"""Signing in with a wallet's password: checked in threads, a few at a time, and only so many wrong ones in a while."""

import asyncio
from collections import OrderedDict
from typing import NamedTuple

from payres.clock import MINUTE, SECOND
from payres.errors import SignInFailed, TooManyRequests
from payres.grants.passwords import verify_password
from payres.limits import (
    MAX_COUNTED,
    MAX_WRONG_PASSWORDS,
    MAX_WRONG_PASSWORDS_PER_ADDRESS,
    MAX_WRONG_PASSWORDS_PER_WALLET,
    PASSWORDS_AT_ONCE,
)
from payres.store.wallets import WalletRecord

WINDOW = 15 * MINUTE


class Guesser(NamedTuple):
    """Who tries a password, as far as that can be told: the address, and a browser that the owner has used before."""

    address: str | None = None
    known_browser: bytes | None = None


class _Count(NamedTuple):
    """What attempts are counted by, how many may be wrong, and what they were in words."""

    key: tuple[object, ...]
    most: int
    what: str


class SignInGuard:
    """Takes so many wrong passwords in any 15 minutes and then none for a while.

    A browser that the owner has signed in with is counted by itself, so that a stranger's guesses cannot lock the owner
    out of it. It counts in memory: a restart forgets, which helps a guesser less than a table of attempts would cost
    everyone.
    """

    def __init__(self) -> None:
        self._attempts: OrderedDict[tuple[object, ...], list[int]] = OrderedDict()
        self._hashing = asyncio.Semaphore(PASSWORDS_AT_ONCE)

    async def check_password(self, wallet: WalletRecord, password: str, now: int, guesser: Guesser) -> None:
        """Returns when the password is the wallet's. Refuses with 401 another, with 429 one attempt too many."""
        counts = _counts(wallet, guesser)
        self._count(counts, now)
        async with self._hashing:
            is_right = await asyncio.to_thread(verify_password, wallet, password)
        if not is_right:
            raise wrong_password()
        self._forgive(counts, now)

    def _count(self, counts: list[_Count], now: int) -> None:
        """Counts the attempt as wrong until it proves right, so that many at once cannot slip through together."""
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
        """The owner was it: what was wrong before is forgiven here, but not what others tried elsewhere."""
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
