import asyncio
import threading

import pytest

from payres.clock import MINUTE, SECOND
from payres.errors import DomainError
from payres.grants import passwords
from payres.grants.passwords import Guesser, SignInGuard
from payres.http.error_responses import error_response
from payres.limits import (
    MAX_WRONG_PASSWORDS,
    MAX_WRONG_PASSWORDS_PER_ADDRESS,
    MAX_WRONG_PASSWORDS_PER_WALLET,
    PASSWORDS_AT_ONCE,
)
from payres.store.wallets import WalletRecord
from tests.helpers import TIMEOUT

NOBODY = Guesser()
NOW = 1_800_000_000 * SECOND


def wallet(number: int = 1) -> WalletRecord:
    return WalletRecord(number, f"wallet{number}", None, 1, "USD", 2, number, "hash", "active", NOW)


@pytest.fixture(autouse=True)
def _compare_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The right password is `right`, and saying so takes no time."""
    monkeypatch.setattr(passwords, "verify_password", lambda wallet, password: password == "right")


async def status_of(guard: SignInGuard, password: str, now: int, number: int = 1, guesser: Guesser = NOBODY) -> int:
    try:
        await guard.check_password(wallet(number), password, now, guesser)
    except DomainError as refusal:
        return error_response(refusal).status
    return 200


async def test_check_password_refuses_the_sixth_guess_and_then_the_right_one_too() -> None:
    guard = SignInGuard()

    assert [await status_of(guard, "wrong", NOW) for _ in range(MAX_WRONG_PASSWORDS + 1)] == [
        401
    ] * MAX_WRONG_PASSWORDS + [429]
    assert await status_of(guard, "right", NOW) == 429
    assert await status_of(guard, "right", NOW, number=2) == 200


async def test_check_password_says_when_to_come_back_and_keeps_its_word() -> None:
    guard = SignInGuard()
    for second in range(MAX_WRONG_PASSWORDS):
        await status_of(guard, "wrong", NOW + second * SECOND)

    with pytest.raises(DomainError) as caught:
        await guard.check_password(wallet(), "right", NOW + 10 * MINUTE, NOBODY)

    wait = int(error_response(caught.value).headers["Retry-After"])
    assert wait == 5 * 60
    assert "in 5 minutes" in error_response(caught.value).hint
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


async def test_check_password_leaves_the_loop_free_and_hashes_a_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    entered, release, lock = threading.Semaphore(0), threading.Event(), threading.Lock()
    running = most = 0

    def slow(wallet: WalletRecord, password: str) -> bool:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        entered.release()
        assert release.wait(TIMEOUT)
        with lock:
            running -= 1
        return True

    monkeypatch.setattr(passwords, "verify_password", slow)
    guard = SignInGuard()
    checks = [asyncio.create_task(status_of(guard, "right", NOW, number)) for number in range(6)]
    for _ in range(PASSWORDS_AT_ONCE):
        assert await asyncio.to_thread(entered.acquire, timeout=TIMEOUT)
    assert not any(check.done() for check in checks)
    release.set()

    assert await asyncio.gather(*checks) == [200] * 6
    assert most == PASSWORDS_AT_ONCE


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
    assert (error_response(caught.value).status, error_response(caught.value).headers) == (429, {"Retry-After": "900"})
    assert "from your address" in error_response(caught.value).hint
    assert await status_of(guard, "right", NOW, 99, at("b")) == 200


async def test_guesses_of_strangers_do_not_lock_a_known_browser_out() -> None:
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


async def test_guard_remembers_so_many_guessers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passwords, "MAX_COUNTED", 10)
    guard = SignInGuard()
    for number in range(30):
        await status_of(guard, "wrong", NOW, number, at(f"a{number}"))
    assert len(guard._attempts) == 10
