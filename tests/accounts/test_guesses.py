"""How many passwords may be wrong, from whom, and be looked at and set at a time."""

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterable

import pytest

from payres.accounts import passwords
from payres.accounts.guesses import Guesser, SignInGuard
from payres.accounts.limits import (
    MAX_WRONG_PASSWORDS,
    MAX_WRONG_PASSWORDS_PER_ADDRESS,
    MAX_WRONG_PASSWORDS_PER_WALLET,
    PASSWORDS_AT_ONCE,
    PASSWORDS_WAITING,
)
from payres.accounts.passwords import PasswordGate
from payres.accounts.store.owners import OwnerRecord
from payres.core.protocol.clock import DAY, MINUTE, SECOND
from payres.core.protocol.errors import DomainError, NotFound
from payres.operator.store.operators import OF_OPERATORS
from tests.helpers import TIMEOUT, settle

NOBODY = Guesser()
NOW = 1_800_000_000 * SECOND


def owner(number: int = 1, unlocked_at: int | None = None, password_hash: str | None = "hash") -> OwnerRecord:
    return OwnerRecord(number, f"wallet{number}", number, password_hash, unlocked_at)


# How many may be wrong


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch) -> SignInGuard:
    """The right password is `right`, and saying so takes no time."""
    monkeypatch.setattr(passwords, "verify_password", lambda wallet, password: password == "right")
    return SignInGuard(PasswordGate())


async def status_of(
    guard: SignInGuard, password: str, now: int = NOW, number: int = 1, guesser: Guesser = NOBODY
) -> int:
    try:
        await guard.check_password(owner(number), password, now, guesser)
    except DomainError as refusal:
        return refusal.status
    return 200


async def guess(guard: SignInGuard, times: int, number: int = 1, guesser: Guesser = NOBODY) -> None:
    """Tries a wrong password so often."""
    assert {await status_of(guard, "wrong", number=number, guesser=guesser) for _ in range(times)} == {401}


async def test_refusal_says_when_to_come_back_and_keeps_its_word(guard: SignInGuard) -> None:
    for second in range(MAX_WRONG_PASSWORDS):
        await status_of(guard, "wrong", NOW + second * SECOND)
    with pytest.raises(DomainError, match="in 5 minutes") as caught:
        await guard.check_password(owner(), "right", NOW + 10 * MINUTE, NOBODY)
    wait = int(caught.value.headers["Retry-After"])
    assert wait == 5 * 60
    assert await status_of(guard, "right", NOW + 10 * MINUTE + wait * SECOND - 1) == 429
    assert await status_of(guard, "right", NOW + 10 * MINUTE + wait * SECOND) == 200


async def test_wrong_passwords_are_told_with_their_addresses_until_the_wallet_is_unlocked(guard: SignInGuard) -> None:
    await guess(guard, MAX_WRONG_PASSWORDS, guesser=Guesser("192.0.2.1"))
    await guess(guard, 2, guesser=Guesser("192.0.2.2"))
    await guess(guard, 1, number=2)
    await guess(guard, 1, guesser=Guesser(known_browser=b"hers"))
    assert guard.wrong_tries(owner(), NOW) == (MAX_WRONG_PASSWORDS + 2, 2, NOW + 15 * MINUTE)
    assert guard.wrong_tries(owner(2), NOW) == (1, 1, None)
    assert guard.wrong_tries(owner(unlocked_at=NOW), NOW) == (0, 0, None)
    assert guard.wrong_tries(owner(), NOW + 15 * MINUTE) == (0, 0, None)


async def test_right_password_forgives_the_wrong_ones(guard: SignInGuard) -> None:
    await guess(guard, MAX_WRONG_PASSWORDS - 1)
    assert await status_of(guard, "right") == 200
    await guess(guard, MAX_WRONG_PASSWORDS)
    assert await status_of(guard, "right") == 429


async def test_guesses_while_the_clock_was_ahead_count_for_no_longer_than_others(guard: SignInGuard) -> None:
    for _ in range(MAX_WRONG_PASSWORDS):
        await status_of(guard, "wrong", NOW + 30 * DAY)
    with pytest.raises(DomainError, match="in 15 minutes"):
        await guard.check_password(owner(), "right", NOW, NOBODY)
    assert await status_of(guard, "right", NOW + 15 * MINUTE - 1) == 429
    assert await status_of(guard, "right", NOW + 15 * MINUTE) == 200


async def test_guesses_that_come_at_once_are_all_counted(guard: SignInGuard) -> None:
    statuses = await asyncio.gather(*(status_of(guard, "wrong") for _ in range(20)))
    assert sorted(statuses) == [401] * MAX_WRONG_PASSWORDS + [429] * (20 - MAX_WRONG_PASSWORDS)


@pytest.mark.parametrize("unlocked_at", [NOW, NOW + 60 * MINUTE], ids=["by now", "later: the clock was set back"])
async def test_guesses_count_again_after_the_operator_unlocked_the_wallet(guard: SignInGuard, unlocked_at: int) -> None:
    if unlocked_at == NOW:
        await guess(guard, MAX_WRONG_PASSWORDS)
    statuses = []
    for second in range(MAX_WRONG_PASSWORDS + 1):
        with pytest.raises(DomainError) as caught:
            await guard.check_password(owner(unlocked_at=unlocked_at), "wrong", NOW + (1 + second) * SECOND, NOBODY)
        statuses.append(caught.value.status)
    assert statuses == [401] * MAX_WRONG_PASSWORDS + [429]


async def test_guesses_are_counted_for_each_address_of_a_wallet(guard: SignInGuard) -> None:
    await guess(guard, MAX_WRONG_PASSWORDS, guesser=Guesser("a"))
    assert await status_of(guard, "right", guesser=Guesser("a")) == 429
    assert await status_of(guard, "right", guesser=Guesser("b")) == 200
    assert await status_of(guard, "right", number=2, guesser=Guesser("a")) == 200


async def test_guesses_from_everywhere_are_limited_for_a_wallet(guard: SignInGuard) -> None:
    owner = Guesser("owner")
    for number in range(MAX_WRONG_PASSWORDS_PER_WALLET):
        if number == MAX_WRONG_PASSWORDS_PER_WALLET - 1:
            assert await status_of(guard, "right", guesser=owner) == 200
        await guess(guard, 1, guesser=Guesser(f"a{number}"))
    assert await status_of(guard, "right", guesser=owner) == 429
    assert await status_of(guard, "right", NOW + 15 * MINUTE, guesser=owner) == 200


async def test_guesses_for_all_wallets_are_limited_for_an_address(guard: SignInGuard) -> None:
    for number in range(MAX_WRONG_PASSWORDS_PER_ADDRESS):
        await guess(guard, 1, number, Guesser("a"))
    with pytest.raises(DomainError, match="from your address") as caught:
        await guard.check_password(owner(99), "right", NOW, Guesser("a"))
    assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "900"})
    assert await status_of(guard, "right", number=99, guesser=Guesser("b")) == 200


async def test_guesses_from_other_browsers_do_not_lock_a_known_browser_out(guard: SignInGuard) -> None:
    for number in range(MAX_WRONG_PASSWORDS_PER_WALLET):
        await guess(guard, 1, guesser=Guesser(f"a{number % 7}"))
    assert await status_of(guard, "right", guesser=Guesser("home")) == 429
    known = Guesser("home", b"browser")
    assert await status_of(guard, "right", guesser=known) == 200
    await guess(guard, MAX_WRONG_PASSWORDS, guesser=known)
    assert await status_of(guard, "right", guesser=known) == 429
    assert await status_of(guard, "right", guesser=Guesser("home", b"another")) == 200


# How many are looked at at a time


class Hashing:
    """Passwords that are being looked at until `release`; all are right."""

    def __init__(self) -> None:
        self.order: list[int] = []
        self._entered, self._release = threading.Semaphore(0), threading.Semaphore(0)

    def __call__(self, wallet: OwnerRecord, password: str) -> bool:
        self.order.append(wallet.id)
        self._entered.release()
        return self._release.acquire(timeout=TIMEOUT)

    async def begun(self, number: int) -> None:
        """Returns once so many more have begun."""
        for _ in range(number):
            assert await asyncio.to_thread(self._entered.acquire, timeout=TIMEOUT)

    def release(self, number: int) -> None:
        self._release.release(number)


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Hashing:
    slow = Hashing()
    monkeypatch.setattr(passwords, "verify_password", slow)
    return slow


def sign_ins(guard: SignInGuard, numbers: Iterable[int], known: bool = False) -> list["asyncio.Task[int]"]:
    """Somebody signs in to each of these wallets, from a browser of its own."""
    guessers = {number: Guesser(f"a{number}", b"%d" % number if known else None) for number in numbers}
    return [
        asyncio.create_task(status_of(guard, "right", NOW, number, guesser)) for number, guesser in guessers.items()
    ]


async def test_known_browsers_go_before_all_others_that_wait(hashing: Hashing) -> None:
    guard = SignInGuard(PasswordGate())
    checks = sign_ins(guard, range(PASSWORDS_AT_ONCE + PASSWORDS_WAITING))
    await hashing.begun(PASSWORDS_AT_ONCE)
    checks += sign_ins(guard, [100, 101, 102], known=True)
    await settle()
    assert len(hashing.order) == PASSWORDS_AT_ONCE, "so many are looked at at once, and the loop is free meanwhile"
    for _ in range(3 + PASSWORDS_WAITING):  # one by one: two threads that begin together may append in either order
        hashing.release(1)
        await hashing.begun(1)
    hashing.release(PASSWORDS_AT_ONCE)
    assert set(await asyncio.gather(*checks)) == {200}
    assert hashing.order[PASSWORDS_AT_ONCE : PASSWORDS_AT_ONCE + 3] == [100, 101, 102]
    assert hashing.order[PASSWORDS_AT_ONCE + 3 :] == [*range(PASSWORDS_AT_ONCE, PASSWORDS_AT_ONCE + PASSWORDS_WAITING)]


@pytest.mark.parametrize("known", [False, True])
async def test_sign_ins_beyond_the_queue_are_refused_and_not_counted(hashing: Hashing, known: bool) -> None:
    guard = SignInGuard(PasswordGate())
    checks = sign_ins(guard, range(PASSWORDS_AT_ONCE + PASSWORDS_WAITING), known)
    await settle()
    late = Guesser("late", b"late" if known else None)
    for _ in range(2 * MAX_WRONG_PASSWORDS):
        with pytest.raises(DomainError) as caught:
            await guard.check_password(owner(99), "right", NOW, late)
        assert (caught.value.status, caught.value.code) == (503, "unavailable")
        assert caught.value.headers == {"Retry-After": "5"}
    if not known:  # who is known can still queue
        checks += sign_ins(guard, [100], known=True)
    hashing.release(200)
    assert set(await asyncio.gather(*checks)) == {200}
    assert await status_of(guard, "right", NOW, 99, late) == 200, "no attempt was used up"


async def test_one_wallet_never_has_all_the_slots(hashing: Hashing) -> None:
    guard = SignInGuard(PasswordGate())
    browsers = [Guesser("a", b"%d" % number) for number in range(10)]
    checks = [asyncio.create_task(status_of(guard, "right", NOW, 1, browser)) for browser in browsers]
    await hashing.begun(1)
    checks += sign_ins(guard, [2], known=True)
    await hashing.begun(1)
    assert hashing.order == [1, 2]
    hashing.release(11)
    assert set(await asyncio.gather(*checks)) == {200}


# New passwords pass the same gate


async def set_password(gate: PasswordGate, number: int = 1, check: Callable[[], Awaitable[object]] = settle) -> int:
    try:
        await gate.hash("battery staple", number, check)
    except DomainError as refusal:
        return refusal.status
    return 200


@pytest.fixture
def setting(hashing: Hashing, monkeypatch: pytest.MonkeyPatch) -> Hashing:
    """As `hashing`, where each new password is number 0."""
    monkeypatch.setattr(passwords, "hash_password", lambda password: hashing(owner(0), password))
    return hashing


async def test_all_kinds_of_passwords_share_the_slots(setting: Hashing) -> None:
    gate = PasswordGate()
    owners, operators = SignInGuard(gate), SignInGuard(gate, OF_OPERATORS)
    new = [asyncio.create_task(set_password(gate, number)) for number in range(PASSWORDS_AT_ONCE + PASSWORDS_WAITING)]
    await setting.begun(PASSWORDS_AT_ONCE)
    known = sign_ins(owners, [100], known=True) + sign_ins(operators, [200], known=True)
    await settle()
    assert await set_password(gate, 99) == 503
    await setting.begun(1)
    assert setting.order == [0] * PASSWORDS_AT_ONCE + [200], "operators do not wait for owners"
    setting.release(PASSWORDS_AT_ONCE)
    await setting.begun(PASSWORDS_AT_ONCE)
    setting.release(100)
    assert set(await asyncio.gather(*new, *known)) == {200}
    assert set(setting.order[: 3 * PASSWORDS_AT_ONCE]) == {0, 100, 200}, "sign-ins do not wait for all new passwords"


async def test_threads_of_passwords_are_no_others(setting: Hashing) -> None:
    """What else runs on threads goes on, however many passwords wait."""
    before, gate = threading.enumerate(), PasswordGate()  # servers of other tests may have gates of their own
    new = [asyncio.create_task(set_password(gate, number)) for number in range(PASSWORDS_AT_ONCE + PASSWORDS_WAITING)]
    await setting.begun(PASSWORDS_AT_ONCE)
    threads = await asyncio.to_thread(threading.enumerate)
    assert len([one for one in threads if one not in before and one.name.startswith("passwords")]) == PASSWORDS_AT_ONCE
    setting.release(100)
    assert set(await asyncio.gather(*new)) == {200}
    gate.close()


async def test_nothing_is_hashed_that_may_not_be_set_any_more(setting: Hashing) -> None:
    gate, used = PasswordGate(), asyncio.Event()

    async def check() -> None:
        if used.is_set():
            raise NotFound("This link was used")

    first = asyncio.create_task(set_password(gate, check=check))
    await setting.begun(1)
    others = [asyncio.create_task(set_password(gate, check=check)) for _ in range(40)]
    await settle()
    used.set()
    setting.release(1)
    assert await first == 200
    waited = PASSWORDS_WAITING // PASSWORDS_AT_ONCE
    assert sorted(await asyncio.gather(*others)) == [404] * waited + [503] * (40 - waited)
    assert setting.order == [0]
