"""Signing in with a wallet's password: checked in threads, a few at a time, and not to be guessed at leisure."""

import asyncio

from payres.clock import MINUTE, SECOND
from payres.errors import Refusal
from payres.grants.passwords import verify_password
from payres.store.wallets import WalletRecord

MAX_WRONG = 5
WINDOW = 15 * MINUTE
HASHING_AT_ONCE = 2  # each check takes 64 MiB and a core for some tens of milliseconds


class SignInGuard:
    """Takes five wrong passwords for a wallet in any 15 minutes and then none for a while.

    It counts in memory: a restart forgets, which helps a guesser less than a table of attempts would cost everyone.
    """

    def __init__(self) -> None:
        self._attempts: dict[int, list[int]] = {}
        self._hashing = asyncio.Semaphore(HASHING_AT_ONCE)

    async def check_password(self, wallet: WalletRecord, password: str, now: int) -> None:
        """Returns when the password is the wallet's. Refuses with 401 another, with 429 one attempt too many."""
        self._count(wallet.id, now)
        async with self._hashing:
            is_right = await asyncio.to_thread(verify_password, wallet, password)
        if not is_right:
            raise wrong_password()
        self._attempts.pop(wallet.id, None)

    def _count(self, wallet_id: int, now: int) -> None:
        """Counts the attempt as wrong until it proves right, so that many at once cannot slip through together."""
        recent = [moment for moment in self._attempts.get(wallet_id, []) if moment > now - WINDOW]
        if len(recent) >= MAX_WRONG:
            raise _too_many(recent[0] + WINDOW - now)
        self._attempts[wallet_id] = [*recent, now]


def wrong_password() -> Refusal:
    """The password is not that of the wallet's owner."""
    return Refusal(401, "request_denied", "This is not the password of this wallet", {"reason": "wrong_password"})


def _too_many(wait: int) -> Refusal:
    minutes = -(-wait // MINUTE)  # both rounded up: after that time the next attempt is really taken
    unit = "minute" if minutes == 1 else "minutes"
    return Refusal(
        429,
        "too_many_requests",
        f"There were {MAX_WRONG} wrong passwords for this wallet. Try again in {minutes} {unit}",
        headers={"Retry-After": str(-(-wait // SECOND))},
    )
