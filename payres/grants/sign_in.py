"""Sign-in with a password: how many wrong ones are accepted in a while, and whose password is checked first."""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final, NamedTuple

from payres.clock import MINUTE, SECOND
from payres.errors import SignInFailed, TooManyRequests, Unavailable
from payres.grants.passwords import Account, verify_password
from payres.limits import (
    MAX_COUNTED,
    MAX_WRONG_PASSWORDS,
    MAX_WRONG_PASSWORDS_PER_ADDRESS,
    MAX_WRONG_PASSWORDS_PER_WALLET,
    PASSWORDS_AT_ONCE,
    PASSWORDS_WAITING,
)
from payres.slots import Slots, SlotsBusy

WINDOW: Final = 15 * MINUTE
BUSY_SECONDS: Final = 5  # in which a full queue is worked off, also on a slow machine


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
    """Accepts so many wrong passwords in any 15 minutes and then none for a while, and checks a few at a time.

    A browser that the owner has signed in with is counted by itself and goes first, so that guesses from other browsers
    cannot lock the owner out of it. The counts are in memory: a restart resets them, which helps a guesser less than a
    table of attempts would cost everyone.
    """

    def __init__(self, what: str = "wallet") -> None:
        """`what` the accounts are in sentences."""
        self._what = what
        self._attempts: OrderedDict[tuple[object, ...], list[int]] = OrderedDict()
        # One password of an account at a time, so that one owner cannot take all the slots.
        queue = PASSWORDS_WAITING // PASSWORDS_AT_ONCE
        self._others = Slots(PASSWORDS_AT_ONCE, 1, queue=queue)
        self._hashing = Slots(PASSWORDS_AT_ONCE, 1, queue=queue)

    async def check_password(self, account: Account, password: str, now: int, guesser: Guesser) -> None:
        """Raises SignInFailed unless the password is the account's, TooManyRequests, Unavailable when too many wait."""
        counts = _counts(account, guesser, self._what)
        self._count(counts, now, _counted_since(account, now))
        try:
            async with self._turn(account, guesser):
                is_right = await asyncio.to_thread(verify_password, account, password)
        except SlotsBusy as busy:
            self._take_back(counts, now)
            sentence = "Too many people are signing in just now, so your password was not looked at. Try again shortly"
            raise Unavailable(sentence, retry_after=BUSY_SECONDS) from busy
        if not is_right:
            raise wrong_password(self._what)
        here, *wider = counts  # the wider counts are of others too, and only lose this attempt
        self._attempts.pop(here.key, None)
        self._take_back(wider, now)

    @asynccontextmanager
    async def _turn(self, account: Account, guesser: Guesser) -> AsyncIterator[None]:
        """Holds a slot for the check of a password. Raises SlotsBusy.

        Other browsers queue before they may queue with the known ones, so these pass all but the first of them.
        """
        async with AsyncExitStack() as stack:
            if guesser.known_browser is None:
                await stack.enter_async_context(self._others.slot(account.id))
            await stack.enter_async_context(self._hashing.slot(account.id))
            yield

    def _count(self, counts: Sequence[_Count], now: int, since: int) -> None:
        """Counts the attempt as wrong until it turns out right, so that many at once cannot slip through together."""
        recent = {count: [m for m in self._attempts.get(count.key, ()) if m > since] for count in counts}
        for count, moments in recent.items():
            if len(moments) >= count.most:
                raise _too_many(count, moments[-count.most] + WINDOW - now)
        for count, moments in recent.items():
            self._attempts.pop(count.key, None)
            self._attempts[count.key] = [*moments, now]
        while len(self._attempts) > MAX_COUNTED:
            self._attempts.popitem(last=False)

    def _take_back(self, counts: Sequence[_Count], now: int) -> None:
        """Counts the attempt as if it had not been made."""
        for count in counts:
            if now in self._attempts.get(count.key, ()):
                self._attempts[count.key].remove(now)


def wrong_password(what: str = "wallet") -> SignInFailed:
    """The password is not the account's."""
    return SignInFailed(f"This is not the password of this {what}", reason="wrong_password")


def _counted_since(account: Account, now: int) -> int:
    """When the attempts that count for an account begin: the operator may have cleared the counts."""
    unlocked_at = account.unlocked_at
    if unlocked_at is None or unlocked_at > now:  # the clock was set back, which shall not let anyone guess for free
        return now - WINDOW
    return max(now - WINDOW, unlocked_at)


def _counts(account: Account, guesser: Guesser, what: str) -> list[_Count]:
    """The narrowest first."""
    for_this = f"for this {what}"
    if guesser.known_browser is not None:
        return [_Count(("browser", account.id, guesser.known_browser), MAX_WRONG_PASSWORDS, for_this)]
    counts = [
        _Count(("account and address", account.id, guesser.address), MAX_WRONG_PASSWORDS, for_this),
        _Count(("account", account.id), MAX_WRONG_PASSWORDS_PER_WALLET, for_this),
    ]
    if guesser.address is not None:
        counts.append(_Count(("address", guesser.address), MAX_WRONG_PASSWORDS_PER_ADDRESS, "from your address"))
    return counts


def _too_many(count: _Count, wait: int) -> TooManyRequests:
    minutes = -(-wait // MINUTE)  # both rounded up: after that time the next attempt is really taken
    unit = "minute" if minutes == 1 else "minutes"
    return TooManyRequests(
        f"There were {count.most} wrong passwords {count.what}. Try again in {minutes} {unit}",
        retry_after=-(-wait // SECOND),
    )
