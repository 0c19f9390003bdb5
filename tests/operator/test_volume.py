from pathlib import Path

import pytest

from payres import ledger
from payres.amounts import MAX_LEDGER, Asset
from payres.clock import DAY, MovableClock
from payres.operator import volume, wallets
from payres.operator.volume import DAYS, DailyVolume
from payres.settings import Settings
from payres.store.accounts import find_operator_account
from payres.store.database import Database
from payres.store.wallets import WalletRecord
from payres.store.work import Environment, Work

USD = Asset("USD", 2)
START = 20_000 * DAY + 5


def pay(work: Work, amount: int, kind: str = "payment") -> None:
    payer, receiver = (_wallet(work, path) for path in ("alice", "bob"))
    ledger.transfer(work, payer.account_id, receiver.account_id, amount, kind)


def _wallet(work: Work, path: str) -> WalletRecord:
    return wallets.require_wallet(work, path)


def open_wallets(work: Work) -> None:
    for path in ("alice", "bob"):
        wallets.create_wallet(work, path, "USD", 2, None, None)
    wallets.deposit(work, "alice", "1000000.00")


async def test_volume_counts_each_payment_on_its_day_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(volume, "BATCH", 3)
    clock = MovableClock(START, frozen=True)
    database = await Database.open(str(tmp_path / "payres.db"), Environment.of(Settings(), clock))
    try:
        await database.write(open_wallets)
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
    finally:
        await database.close()


async def test_volume_of_nothing_is_nothing(tmp_path: Path) -> None:
    database = await Database.open(str(tmp_path / "payres.db"))
    try:
        found = await DailyVolume().look(database)
        assert (found.paid, found.received, found.complete) == ({}, {}, True)
        await database.write(open_wallets)
        assert (await DailyVolume().look(database)).paid == {}
    finally:
        await database.close()


async def test_sums_may_pass_what_an_account_can_hold(tmp_path: Path) -> None:
    database = await Database.open(str(tmp_path / "payres.db"))

    def unit(work: Work) -> None:
        open_wallets(work)
        payer, receiver = _wallet(work, "alice"), _wallet(work, "bob")
        external = find_operator_account(work, payer.asset_id, "external")
        assert external is not None
        most = MAX_LEDGER - 100_000_000
        ledger.transfer(work, external.id, payer.account_id, most, "deposit")
        for source, target in ((payer, receiver), (receiver, payer)) * 2:
            ledger.transfer(work, source.account_id, target.account_id, most, "payment")

    try:
        await database.write(unit)
        found = await DailyVolume().look(database)
        assert found.paid[USD][-1] == 4 * (MAX_LEDGER - 100_000_000)
    finally:
        await database.close()
