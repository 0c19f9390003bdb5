"""Wrong passwords: how many are taken, of whom and from where."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, NamedTuple

from payres.accounts.limits import MAX_WRONG_PASSWORDS, MAX_WRONG_PASSWORDS_PER_ADDRESS, MAX_WRONG_PASSWORDS_PER_WALLET
from payres.accounts.passwords import PasswordGate, password_slots, too_busy
from payres.accounts.store.kinds import Account, Kind
from payres.accounts.store.owners import OF_OWNERS
from payres.core.process.bounded_mapping import Newest
from payres.core.process.slots import SlotsBusy
from payres.core.protocol.clock import MINUTE, SECOND
from payres.core.protocol.errors import SignInFailed, TooManyRequests
from payres.core.protocol.limits import MAX_COUNTED

WINDOW: Final = 15 * MINUTE
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
        self._attempts, self._last = Newest[Key, list[int]](MAX_COUNTED), 0  # when each was made, microseconds UTC
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
            self._attempts[key] = [*moments, now]
        return list(limits)

    def _follow(self, now: int) -> None:
        """Lets what was counted be as old as it was, if the clock was set back: nobody may be locked out by that."""
        back = self._last - now
        if 0 <= back <= SECOND:  # requests that wait for one another differ by so much
            return
        if back > 0:
            for times in self._attempts.values():
                times[:] = [at - back for at in times]
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
