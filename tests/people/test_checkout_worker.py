"""Which payments from other wallets are continued, and when."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from payres.core.protocol.clock import SECOND
from payres.core.protocol.limits import MAX_CHECKOUTS_OF_SERVER
from payres.core.store.work import Work
from payres.interledger.store.checkouts import CHECKOUTS, LEASE, CheckoutRecord, change_checkout, insert_checkout
from payres.people import checkout_steps, checkout_worker
from payres.people.checkout import Desk
from payres.people.checkout_worker import BATCH
from tests.helpers import last_segment, receiver_of, wait_until
from tests.instance import Instance, run_instance


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Instance]:
    monkeypatch.setattr(checkout_worker, "POLL_SECONDS", 0.02)
    with run_instance(tmp_path / "payres.db") as found:
        found.clock.freeze(True)
        yield found


def add(shop: Instance, host: str, count: int, due_in: int) -> None:
    """So many checkouts of payers at a host."""
    bill = last_segment(receiver_of(shop, 100))

    def unit(work: Work) -> None:
        for number in range(count):
            name, payer = f"{host}{number}".encode(), f"https://{host}/{number}"
            record = CheckoutRecord(name, bill, name, payer, 100, "asked", work.now)
            insert_checkout(work, record, "pending")
            change_checkout(work, record, "returned", work.now, due_at=work.now + due_in)

    shop.write(unit)


def test_slow_server_does_not_delay_the_payers_of_others(shop: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def advance(_: Desk, id_hash: bytes) -> None:
        if b".example" not in id_hash:  # of another server in this process
            return
        asked.append(id_hash.decode())
        if id_hash.startswith(b"slow"):
            await asyncio.Event().wait()

    monkeypatch.setattr(checkout_steps, "advance", advance)
    add(shop, "slow.example", 2 * BATCH, SECOND)
    add(shop, "quick.example", 2, 2 * SECOND)
    shop.clock.advance(2)
    wait_until(lambda: len([one for one in asked if one.startswith("quick")]) == 2)
    assert len(asked) == MAX_CHECKOUTS_OF_SERVER + 2


def test_one_whose_step_failed_is_due_again(shop: Instance, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []

    async def advance(_: Desk, id_hash: bytes) -> None:
        if b".example" in id_hash:  # not of another server in this process
            asked.append(id_hash)
        raise RuntimeError("a fault of our own")

    monkeypatch.setattr(checkout_steps, "advance", advance)
    add(shop, "wallet.example", 1, 0)
    wait_until(lambda: len(asked) == 1)
    [record] = shop.read(lambda tx: CHECKOUTS.list(tx, "WHERE due_at IS NOT NULL"))
    assert record.due_at == shop.clock.now() + LEASE
    shop.clock.advance(LEASE / SECOND)
    wait_until(lambda: len(asked) == 2)
