"""Sign-in with a password: how many wrong passwords are accepted in a period, and whose password is checked first."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from contextlib import AsyncExitStack
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
BUSY_SECONDS: Final = 5  # in which a full queue is processed, also on a slow machine


class Guesser(NamedTuple):
    """Who tries a password: the address, and the browser if the owner has signed in with it before."""

    address: str | None = None
    known_browser: bytes | None = None


class _Count(NamedTuple):
    """A key that attempts are counted under, how many may be wrong, and the words for it in errors."""

    key: tuple[object, ...]
    most: int
    what: str


class SignInGuard:
    """Limits wrong passwords in any 15 minutes, and checks only a few passwords at the same time.

    A browser that the owner has signed in with is counted separately and goes first, so that guesses from other
    browsers cannot lock the owner out. The counts are in memory, so a restart resets them: that helps a guesser less
    than writing each attempt would cost.
    """

    def __init__(self, what: str = "wallet") -> None:
        """`what` is the word for the accounts in sentences."""
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
            async with AsyncExitStack() as slots:
                if guesser.known_browser is None:  # known browsers pass all of this queue but the first
                    await slots.enter_async_context(self._others.slot(account.id))
                await slots.enter_async_context(self._hashing.slot(account.id))
                is_right = await asyncio.to_thread(verify_password, account, password)
        except SlotsBusy as busy:
            self._take_back(counts, now)
            sentence = "Too many people are signing in just now, so your password was not looked at. Try again shortly"
            raise Unavailable(sentence, retry_after=BUSY_SECONDS) from busy
        if not is_right:
            raise wrong_password(self._what)
        here, *wider = counts  # the wider counts are shared with others, so only this attempt is taken back
        self._attempts.pop(here.key, None)
        self._take_back(wider, now)

    def _count(self, counts: Sequence[_Count], now: int, since: int) -> None:
        """Counts the attempt as wrong until it is known to be right, so that many concurrent attempts cannot exceed the
        limit."""
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
    """Attempts before this time do not count, because the operator has cleared the counts."""
    unlocked_at = account.unlocked_at
    if unlocked_at is None or unlocked_at > now:  # the clock was set back; that must not make attempts free
        return now - WINDOW
    return max(now - WINDOW, unlocked_at)


def _counts(account: Account, guesser: Guesser, what: str) -> list[_Count]:
    """The counts that the attempt goes into, the narrowest first."""
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
    minutes = -(-wait // MINUTE)  # both rounded up, so that the next attempt is accepted after that time
    unit = "minute" if minutes == 1 else "minutes"
    return TooManyRequests(
        f"There were {count.most} wrong passwords {count.what}. Try again in {minutes} {unit}",
        retry_after=-(-wait // SECOND),
    )
