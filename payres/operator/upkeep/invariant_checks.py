"""Invariant checks: that the money in the database adds up and its file is sound.

An operator checks them all in one snapshot; a server checks them repeatedly in the background.
"""

import asyncio
import logging
import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Final

import msgspec

from payres.core.payments.ledger import LedgerBroken
from payres.core.process.worker import Worker
from payres.core.store.copies import StepNote
from payres.core.store.database import Database
from payres.core.store.work import Transaction, Work
from payres.operator.store import invariants
from payres.operator.store.invariants import FILE, LEDGER_INVARIANTS, MAX_BREACHES, Invariant, RowKey

BATCH_ROWS: Final = 1000
BATCH_ACCOUNTS: Final = 100_000  # the accounts whose transfers are summed in memory at once
MAX_PAGES: Final = 16_384  # the largest file that is checked in the background; a larger one would take seconds
PAUSE_SECONDS: Final = 60.0
RECENT_SHARE: Final = 100  # checking recent rows takes at most one part in this many of the time
ALL_SHARE: Final = 50

log = logging.getLogger("payres.operator")


class Finding(msgspec.Struct, frozen=True):
    """The result for one invariant: how many rows of which kind were examined, and the first few breaches as text."""

    name: str
    claim: str
    examined: int
    unit: str
    breaches: Sequence[str]

    @property
    def holds(self) -> bool:
        return not self.breaches


class Scan:
    """One invariant, checked a batch of rows with each step until `done`; the steps may share a transaction or not."""

    def __init__(self, invariant: Invariant) -> None:
        self.invariant = invariant
        self.done = False
        self._after: RowKey | None = None

    def step(self, tx: Transaction) -> Sequence[str]:
        keys = self.invariant.keys
        batch = None if keys is None else invariants.next_batch(tx, keys, self._after, BATCH_ROWS)
        self.done = batch is None
        if batch is None:
            return invariants.breaches(tx, self.invariant) if keys is None else []
        first, self._after = batch
        return invariants.breaches(tx, self.invariant, first, self._after)


class BalancesScan(Scan):
    """The scan of the balances. No index leads from an account to its transfers, so all transfers, which never change,
    are summed a batch at a time. The step that reads the last of them compares the balances."""

    def __init__(self, invariant: Invariant) -> None:
        super().__init__(invariant)
        self._first_account = self._last_transfer = 0
        self._sums = Counter[int]()

    def step(self, tx: Transaction) -> Sequence[str]:
        accounts = range(self._first_account, self._first_account + BATCH_ACCOUNTS)
        moved = invariants.transfers_after(tx, self._last_transfer, BATCH_ROWS)
        for transfer_id, debit, credit, amount in moved:
            self._last_transfer = transfer_id
            if debit in accounts:
                self._sums[debit] -= amount
            if credit in accounts:
                self._sums[credit] += amount
        if len(moved) == BATCH_ROWS:
            return []
        for account_id, balance in invariants.balances(tx, accounts[0], accounts[-1]):
            self._sums[account_id] -= balance
        missed = [
            f"account {account_id} has a balance that differs from its transfers by {difference} minor units"
            for account_id, difference in self._sums.items()
            if difference
        ]
        self._first_account = accounts.stop
        self.done = invariants.next_batch(tx, ("account", "id"), accounts[-1], 1) is None
        self._last_transfer = 0
        self._sums.clear()
        return missed[:MAX_BREACHES]


def check(tx: Transaction, note: StepNote = lambda *_: None, *, only_ledger: bool = False) -> Sequence[Finding]:
    """One finding for each invariant, of the ledger first and then, unless `only_ledger`, of the file. Only reads."""
    found = ledger_scans() if only_ledger else scans(tx)
    findings, groups = list[Finding](), [list(group) for _, group in groupby(found, lambda scan: scan.invariant.name)]
    for group in groups:
        note("Checking the ledger", len(findings), len(groups))
        findings.append(_find(tx, group))
    return findings


def note(work: Work, findings: Sequence[Finding], checked_at: int) -> None:
    broken = first_broken(findings)
    invariants.note_check(work, checked_at, None if broken is None else broken.name)


def first_broken(findings: Sequence[Finding]) -> Finding | None:
    return next((finding for finding in findings if not finding.holds), None)


def scans(tx: Transaction) -> Sequence[Scan]:
    """A scan for each invariant, of the ledger first and then of the file; the scans of foreign keys share one name."""
    return [*ledger_scans(), *map(Scan, invariants.reference_invariants(tx)), Scan(FILE)]


def ledger_scans() -> Sequence[Scan]:
    return [(BalancesScan if one.name == "balances" else Scan)(one) for one in LEDGER_INVARIANTS]


def _find(tx: Transaction, group: Sequence[Scan]) -> Finding:
    """The combined finding of scans with one name."""
    invariant, examined, breaches = group[0].invariant, 0, list[str]()
    try:
        examined = invariants.examined(tx, invariant)
        for scan in group:
            while not scan.done and len(breaches) < MAX_BREACHES:
                breaches += scan.step(tx)
    except sqlite3.OperationalError:
        raise  # the query did not run, which says nothing about the money
    except sqlite3.DatabaseError as error:
        breaches = [f"the database file cannot be read: {error}"]
    return Finding(invariant.name, invariant.claim, examined, invariant.rows, breaches[:MAX_BREACHES])


class BackgroundCheck:
    """Stops all writing when an invariant no longer holds, also if another program changed the database.

    `run` lasts until it is cancelled.

    Once a minute it checks the balances, the holds and the recent rows. Beside that it goes through all invariants in
    short steps with long pauses: through a small database every minute, through one with a million payments in half an
    hour. This delays neither checkpoints of the write-ahead log nor requests.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self, delay: float = 0) -> None:
        await asyncio.sleep(delay)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.repeat(self.check_recent, RECENT_SHARE))
            tasks.create_task(self.repeat(self.check_all, 0))

    async def check_recent(self) -> None:
        """Checks what takes constant time for any number of payments, and the recent rows."""
        for invariant in LEDGER_INVARIANTS:
            unit = partial(invariants.recent_breaches, invariant=invariant)
            self._judge(invariant, await self._database.examine(unit))

    async def check_all(self) -> None:
        """Checks every invariant once, and stops at the first breach; if all hold, stores the time. A large file is
        left out: its one step would take seconds."""
        began_at, pages, found = await self._database.examine(
            lambda work: (work.now, invariants.examined(work, FILE), scans(work))
        )
        for scan in found if pages <= MAX_PAGES else found[:-1]:
            while not scan.done and not self._database.stopped:
                began = asyncio.get_running_loop().time()
                self._judge(scan.invariant, await self._database.examine(scan.step))
                await asyncio.sleep(ALL_SHARE * (asyncio.get_running_loop().time() - began))
        if not self._database.stopped:
            await self._database.write(partial(invariants.note_check, checked_at=began_at))

    async def repeat(self, checking: Callable[[], Awaitable[None]], share: int) -> None:
        """Checks until the database is in fail-stop, for at most one part in `share` of the time; 0 is no limit."""

        async def step() -> float:
            began = asyncio.get_running_loop().time()
            await checking()
            return max(PAUSE_SECONDS, share * (asyncio.get_running_loop().time() - began))

        name = "the background invariant check"
        await Worker(name, self._database, step, PAUSE_SECONDS, is_timed=False).run()

    def _judge(self, invariant: Invariant, breaches: Sequence[str]) -> None:
        if breaches:
            self._database.fail_stop(LedgerBroken(f"it no longer holds that {invariant.claim}: {'; '.join(breaches)}"))
