"""What SQLite runs for units of work, and units and commits that are held up or fail."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, cast

from payres.core.store.database import Database
from payres.core.store.work import Transaction, Work
from tests.helpers import TIMEOUT


def trace(work: Work, report: Callable[[str], Any] | None) -> None:
    """Reports each statement on the unit's connection from now on; None ends that."""
    connection: sqlite3.Connection = cast("Any", work.execute).__self__
    connection.set_trace_callback(report)


def break_commit(tx: Transaction) -> None:
    """Refers to an owner who does not exist; the constraint is first looked at by COMMIT."""
    tx.execute("PRAGMA defer_foreign_keys = ON")
    tx.execute("INSERT INTO known_browser (id_hash, owner_id, expires_at) VALUES (x'00', 404, 1)")


class Gate:
    """Holds a thread from the moment it is reached until it is opened: that of a commit, or that of a long unit."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.opened = threading.Event()

    def unit(self, tx: Transaction) -> None:
        """For `Database.examine`: other units run on the event loop's thread, which must not be held up."""
        tx.execute("SELECT count(*) FROM secret").fetchone()
        self.hold()

    def hold(self) -> None:
        self.reached.set()
        assert self.opened.wait(TIMEOUT)

    async def wait(self) -> None:
        """Until something is held."""
        assert await asyncio.to_thread(self.reached.wait, TIMEOUT)


@asynccontextmanager
async def commit_held(database: Database) -> AsyncIterator[Gate]:
    """Inside the block every commit waits for the gate, as for a slow disk."""
    gate = Gate()
    gate.opened.set()  # for the commit of this very unit
    await database.write(lambda work: trace(work, lambda sql: gate.hold() if sql == "COMMIT" else None))
    gate.reached.clear()
    gate.opened.clear()
    try:
        yield gate
    finally:
        gate.opened.set()
        await database.write(lambda work: trace(work, None))
