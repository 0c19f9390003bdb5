from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from payres.core.payments import ledger
from payres.core.process.settings import Settings
from payres.core.protocol.amounts import MAX_LEDGER, Asset
from payres.core.protocol.clock import DAY
from payres.core.store.accounts import find_operator_account
from payres.core.store.database import Database
from payres.core.store.wallets import require_wallet
from payres.core.store.work import Environment, Work
from payres.operator import wallets
from payres.operator.upkeep import daily_volume
from payres.operator.upkeep.daily_volume import DAYS, DailyVolume
from payres.testing.clock import MovableClock

USD = Asset("USD", 2)
START = 20_000 * DAY + 5


@pytest.fixture
def clock() -> MovableClock:
    return MovableClock(START, frozen=True)


@asynccontextmanager
async def opened(folder: Path, clock: MovableClock) -> AsyncIterator[Database]:
    """A database in which alice has 1,000,000.00 USD and bob nothing."""
    database = await Database.open(str(folder / "payres.db"), Environment.of(Settings(), clock))
    try:
        assert (await DailyVolume().look(database)).complete
        await database.write(open_wallets)
        assert (await DailyVolume().look(database)).paid == {}
        yield database
    finally:
        await database.close()


def open_wallets(work: Work) -> None:
    for path in ("alice", "bob"):
        wallets.create_wallet(work, path, "USD", 2, None, None)
    wallets.deposit(work, "alice", "1000000.00")


def pay(work: Work, amount: int, kind: str = "payment", payer: str = "alice", receiver: str = "bob") -> None:
    source, target = (require_wallet(work, path) for path in (payer, receiver))
    ledger.transfer(work, source.account_id, target.account_id, amount, kind)


async def test_volume_counts_each_payment_on_its_day_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: MovableClock
) -> None:
    monkeypatch.setattr(daily_volume, "BATCH", 3)
    async with opened(tmp_path, clock) as database:
        for day in range(DAYS + 2):
            await database.write(lambda work, day=day: pay(work, day + 1))  # type: ignore[misc]
            clock.advance(DAY // 1_000_000)
        clock.advance(-DAY // 1_000_000)
        await database.write(lambda work: pay(work, 500, "fee"))
        counted = DailyVolume()
        found = await counted.look(database)
        looks = 1
        while not found.complete:
            found, looks = await counted.look(database), looks + 1
        expected = list(range(3, DAYS + 3))
        assert found.paid == found.received == {USD: expected}
        assert found.first_day == START // DAY + 2
        assert looks == -(-(DAYS + 1) // 3), "three transfers a look, from the first of the 90 days on"

        await database.write(lambda work: pay(work, 1000))
        assert (await counted.look(database)).paid == {USD: [*expected[:-1], expected[-1] + 1000]}
        clock.advance(DAY // 1_000_000)
        assert (await counted.look(database)).paid == {USD: [*expected[1:-1], expected[-1] + 1000, 0]}


async def test_sums_may_pass_what_an_account_can_hold(tmp_path: Path, clock: MovableClock) -> None:
    most = MAX_LEDGER - 100_000_000

    def unit(work: Work) -> None:
        alice = require_wallet(work, "alice")
        external = find_operator_account(work, alice.asset_id, "external")
        assert external is not None
        ledger.transfer(work, external.id, alice.account_id, most, "deposit")
        for payer, receiver in (("alice", "bob"), ("bob", "alice")) * 2:
            pay(work, most, "payment", payer, receiver)

    async with opened(tmp_path, clock) as database:
        await database.write(unit)
        assert (await DailyVolume().look(database)).paid[USD][-1] == 4 * most
