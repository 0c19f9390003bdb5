import asyncio
import threading
from collections.abc import Iterable

import pytest

from payres.clock import MINUTE, SECOND
from payres.errors import DomainError, SignInFailed, TooManyRequests
from payres.grants import sign_in
from payres.grants.sign_in import Guesser, SignInGuard
from payres.limits import (
    MAX_WRONG_PASSWORDS,
    MAX_WRONG_PASSWORDS_PER_ADDRESS,
    MAX_WRONG_PASSWORDS_PER_WALLET,
    PASSWORDS_AT_ONCE,
    PASSWORDS_WAITING,
)
from payres.store.wallets import WalletRecord
from tests.helpers import TIMEOUT, settle

NOBODY = Guesser()
NOW = 1_800_000_000 * SECOND


def wallet(number: int = 1, unlocked_at: int | None = None) -> WalletRecord:
    return WalletRecord(number, f"wallet{number}", None, 1, "USD", 2, 0, 0, number, "hash", "active", NOW, unlocked_at)


@pytest.fixture(autouse=True)
def _compare_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The right password is `right`, and saying so takes no time."""
    monkeypatch.setattr(sign_in, "verify_password", lambda wallet, password: password == "right")


async def status_of(guard: SignInGuard, password: str, now: int, number: int = 1, guesser: Guesser = NOBODY) -> int:
    try:
        await guard.check_password(wallet(number), password, now, guesser)
    except DomainError as refusal:
        return refusal.status
    return 200


async def test_check_password_says_when_to_come_back_and_keeps_its_word() -> None:
    guard = SignInGuard()
    for second in range(MAX_WRONG_PASSWORDS):
        await status_of(guard, "wrong", NOW + second * SECOND)
    with pytest.raises(DomainError) as caught:
        await guard.check_password(wallet(), "right", NOW + 10 * MINUTE, NOBODY)
    wait = int(caught.value.headers["Retry-After"])
    assert wait == 5 * 60
    assert "in 5 minutes" in str(caught.value)
    assert await status_of(guard, "right", NOW + 10 * MINUTE + wait * SECOND - 1) == 429
    assert await status_of(guard, "right", NOW + 10 * MINUTE + wait * SECOND) == 200


async def test_check_password_forgives_after_the_right_one() -> None:
    guard = SignInGuard()
    for password in ["wrong"] * (MAX_WRONG_PASSWORDS - 1) + ["right"] + ["wrong"] * MAX_WRONG_PASSWORDS:
        assert await status_of(guard, password, NOW) in {200, 401}
    assert await status_of(guard, "right", NOW) == 429


async def test_check_password_counts_guesses_that_come_at_once() -> None:
    guard = SignInGuard()
    statuses = await asyncio.gather(*(status_of(guard, "wrong", NOW) for _ in range(20)))
    assert sorted(statuses) == [401] * MAX_WRONG_PASSWORDS + [429] * (20 - MAX_WRONG_PASSWORDS)


class Hashing:
    """Passwords that are being checked until `release`; all are right."""

    def __init__(self) -> None:
        self.entered = threading.Semaphore(0)
        self.order: list[int] = []
        self.most = 0
        self._release = threading.Semaphore(0)
        self._lock = threading.Lock()
        self._running = 0

    def __call__(self, wallet: WalletRecord, password: str) -> bool:
        with self._lock:
            self.order.append(wallet.id)
            self._running += 1
            self.most = max(self.most, self._running)
        self.entered.release()
        assert self._release.acquire(timeout=TIMEOUT)
        with self._lock:
            self._running -= 1
        return True

    async def begun(self, number: int) -> None:
        """Returns once so many more have begun."""
        for _ in range(number):
            assert await asyncio.to_thread(self.entered.acquire, timeout=TIMEOUT)

    def release(self, number: int) -> None:
        self._release.release(number)


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Hashing:
    slow = Hashing()
    monkeypatch.setattr(sign_in, "verify_password", slow)
    return slow


Statuses = list["asyncio.Task[int]"]


def sign_ins(guard: SignInGuard, numbers: Iterable[int], known: bool = False) -> Statuses:
    """Somebody signs in to each of these wallets, from a browser of its own."""
    guessers = {number: Guesser(f"a{number}", b"%d" % number if known else None) for number in numbers}
    return [
        asyncio.create_task(status_of(guard, "right", NOW, number, guesser)) for number, guesser in guessers.items()
    ]


async def test_check_password_leaves_the_loop_free_and_hashes_a_few_at_once(hashing: Hashing) -> None:
    checks = sign_ins(SignInGuard(), range(6))
    await hashing.begun(PASSWORDS_AT_ONCE)
    assert not any(check.done() for check in checks)
    hashing.release(6)
    assert await asyncio.gather(*checks) == [200] * 6
    assert hashing.most == PASSWORDS_AT_ONCE


async def test_known_browsers_go_before_all_others_that_wait(hashing: Hashing) -> None:
    guard = SignInGuard()
    checks = sign_ins(guard, range(PASSWORDS_AT_ONCE + PASSWORDS_WAITING))
    await hashing.begun(PASSWORDS_AT_ONCE)
    checks += sign_ins(guard, [100, 101, 102], known=True)
    await settle()
    for _ in range(5):
        hashing.release(1)
        await hashing.begun(1)
    hashing.release(100)
    assert set(await asyncio.gather(*checks)) == {200}
    assert hashing.order[PASSWORDS_AT_ONCE : PASSWORDS_AT_ONCE + 3] == [100, 101, 102]
    assert hashing.order[PASSWORDS_AT_ONCE + 3 :] == [*range(PASSWORDS_AT_ONCE, PASSWORDS_AT_ONCE + PASSWORDS_WAITING)]


@pytest.mark.parametrize("known", [False, True])
async def test_sign_ins_beyond_the_queue_are_refused_and_not_counted(hashing: Hashing, known: bool) -> None:
    guard = SignInGuard()
    checks = sign_ins(guard, range(PASSWORDS_AT_ONCE + PASSWORDS_WAITING), known)
    await settle()
    late = Guesser("late", b"late" if known else None)
    for _ in range(2 * MAX_WRONG_PASSWORDS):
        with pytest.raises(DomainError) as caught:
            await guard.check_password(wallet(99), "right", NOW, late)
        assert (caught.value.status, caught.value.code) == (503, "unavailable")
        assert caught.value.headers == {"Retry-After": "5"}
    if not known:  # who is known can still queue
        checks += sign_ins(guard, [100], known=True)
    hashing.release(200)
    assert set(await asyncio.gather(*checks)) == {200}
    assert await status_of(guard, "right", NOW, 99, late) == 200, "no attempt was used up"


async def test_one_wallet_never_has_all_the_slots(hashing: Hashing) -> None:
    guard = SignInGuard()
    browsers = [Guesser("a", b"%d" % number) for number in range(10)]
    checks = [asyncio.create_task(status_of(guard, "right", NOW, 1, browser)) for browser in browsers]
    await hashing.begun(1)
    checks += sign_ins(guard, [2], known=True)
    await hashing.begun(1)
    assert hashing.order == [1, 2]
    hashing.release(11)
    assert set(await asyncio.gather(*checks)) == {200}


async def test_unlocked_wallet_counts_again_from_then_on() -> None:
    guard = SignInGuard()
    for _ in range(MAX_WRONG_PASSWORDS):
        await status_of(guard, "wrong", NOW, guesser=at("a"))
    unlocked = wallet(unlocked_at=NOW)
    for second in range(MAX_WRONG_PASSWORDS):
        with pytest.raises(SignInFailed):
            await guard.check_password(unlocked, "wrong", NOW + (1 + second) * SECOND, at("a"))
    with pytest.raises(TooManyRequests):
        await guard.check_password(unlocked, "right", NOW + MINUTE, at("a"))


async def test_clock_that_is_set_back_lets_nobody_guess_for_free() -> None:
    guard = SignInGuard()
    later = wallet(unlocked_at=NOW + 60 * MINUTE)
    for _ in range(MAX_WRONG_PASSWORDS):
        with pytest.raises(SignInFailed):
            await guard.check_password(later, "wrong", NOW, at("a"))
    with pytest.raises(TooManyRequests):
        await guard.check_password(later, "right", NOW, at("a"))


def at(address: str) -> Guesser:
    return Guesser(address)


async def test_guesses_are_counted_for_each_address_of_a_wallet() -> None:
    guard = SignInGuard()
    for _ in range(MAX_WRONG_PASSWORDS):
        assert await status_of(guard, "wrong", NOW, guesser=at("a")) == 401
    assert await status_of(guard, "right", NOW, guesser=at("a")) == 429
    assert await status_of(guard, "right", NOW, guesser=at("b")) == 200
    assert await status_of(guard, "right", NOW, number=2, guesser=at("a")) == 200


async def test_guesses_from_everywhere_are_limited_for_a_wallet() -> None:
    guard = SignInGuard()
    for number in range(MAX_WRONG_PASSWORDS_PER_WALLET):
        if number == MAX_WRONG_PASSWORDS_PER_WALLET - 1:
            assert await status_of(guard, "right", NOW, guesser=at("owner")) == 200
        assert await status_of(guard, "wrong", NOW, guesser=at(f"a{number}")) == 401
    assert await status_of(guard, "right", NOW, guesser=at("owner")) == 429
    assert await status_of(guard, "right", NOW + 15 * MINUTE, guesser=at("owner")) == 200


async def test_guesses_for_all_wallets_are_limited_for_an_address() -> None:
    guard = SignInGuard()
    for number in range(MAX_WRONG_PASSWORDS_PER_ADDRESS):
        assert await status_of(guard, "wrong", NOW, number, at("a")) == 401
    with pytest.raises(DomainError) as caught:
        await guard.check_password(wallet(99), "right", NOW, at("a"))
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "900"})
    assert "from your address" in str(caught.value)
    assert await status_of(guard, "right", NOW, 99, at("b")) == 200


async def test_guesses_from_other_browsers_do_not_lock_a_known_browser_out() -> None:
    guard = SignInGuard()
    for number in range(MAX_WRONG_PASSWORDS_PER_WALLET):
        await status_of(guard, "wrong", NOW, guesser=at(f"a{number % 7}"))
    assert await status_of(guard, "right", NOW, guesser=at("home")) == 429
    known = Guesser("home", b"browser")
    assert await status_of(guard, "right", NOW, guesser=known) == 200
    for _ in range(MAX_WRONG_PASSWORDS):
        assert await status_of(guard, "wrong", NOW, guesser=known) == 401
    assert await status_of(guard, "right", NOW, guesser=known) == 429
    assert await status_of(guard, "right", NOW, guesser=Guesser("home", b"another")) == 200
