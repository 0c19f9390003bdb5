"""The agenda: work that is due by its rows, begun one row at a time, for one party after the other.

A part declares a kind of due work as a `DueKind`, beside its table. The kind's step does what one row says, and stores
in one unit what came of it and when the row is due next: so the rows alone say what is left to do, also after a crash.
A step that raises puts off its own row, by a row in `fault`, and after MOST_FAULTS in a row sets it aside, until an
operator or another due time gives it a new try. A failure of storage is nobody's fault. `operator/store/due_work.py`
lists all kinds.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextvars import Context
from functools import cache, partial
from typing import Any, Final, NamedTuple

import msgspec

from payres.core.process.bounded_mapping import Newest
from payres.core.process.worker import Pause, Worker, cancel_all, retry
from payres.core.protocol.clock import CORRECTION, DAY, HOUR, MILLISECOND, MINUTE, SECOND
from payres.core.protocol.errors import Unavailable
from payres.core.store.database import Database
from payres.core.store.events import Changes
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import Table
from payres.core.store.work import Work

FAULT_PAUSES: Final = (10 * SECOND, MINUTE, 10 * MINUTE, HOUR)
MOST_FAULTS: Final = len(FAULT_PAUSES) + 1  # of a row, after which it is set aside
MANY_FAULTS: Final = 20  # of any rows, one after the other: after a rest, one row at a time is tried
REST_SECONDS: Final = 60
RETRY_SECONDS: Final = 5  # after a failure of storage
LOOK_SECONDS: Final = 1  # between searches for what other processes made due
PAUSE: Final = 100 * MILLISECOND  # between searches for more parties while some are known
PASS_SECONDS: Final = 10  # between passes through all that is due, where that is more than a page
LAG: Final = SECOND  # the longest from a unit's time to its commit
PAGE: Final = 256  # due rows in which parties are searched at a time
MOST_PARTIES: Final = 4096  # that take turns
QUICK_SECONDS: Final = 2  # half of the slots are for parties whose last step took less
CORRECTED_AT_ONCE: Final = 64

DueKey = tuple[Any, ...]
# Does what a row says, given its key. Returns seconds for which no step of the kind would succeed; 0 after a part of
# the work, with which the row may be due as before.
Step = Callable[..., Awaitable[Pause | None]]

log = logging.getLogger("payres.agenda")


class DueKind(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """A kind of due work: the rows of a table with a time in the column `due`, by their `key`.

    `party` is for whom a row is, and `where` holds for those that are done, in SQL on `source`. Two indexes begin with
    `due` and the key, and with the party and `due`. No pause is longer than `longest`: what is due later was stored
    while the clock was ahead, and is due. `ahead` selects what else such a clock has done.
    """

    name: str
    table: str
    due: str
    key: tuple[str, ...]
    party: str
    at_once: int
    of_party: int
    longest: int | None
    source: str = ""
    where: str = "1"
    ahead: str = ""
    label: str = ""  # the key as one text, where it is not one text

    @property
    def changed(self) -> str:
        """What a unit appends to `Work.changed` if it makes a row due."""
        return f"due {self.name}"


class FaultRecord(msgspec.Struct, frozen=True):
    """A row of `fault`: a row of a kind whose step has failed, by its label. It is tried again at `again_at`, or not at
    all if that is None; at once if it is due at another time than `was_due_at`."""

    kind: str
    label: str
    party: Hashable
    faults: int
    failing_since: int
    again_at: int | None
    was_due_at: int
    error: str


class DueRow(NamedTuple):
    """A row that is due; with its fault it has `faults` so far."""

    party: Hashable
    due_at: int
    label: str
    faults: int
    key: DueKey


class _Found(NamedTuple):
    """Due rows by party, the parties in turn, the last row of a full page, and when the next row is due."""

    rows: dict[Hashable, list[DueRow]]
    parties: Iterable[Hashable] = ()
    last: DueKey = ()
    now: int = 0
    next_at: int | None = None
    is_ahead: bool = False


FAULTS: Final = Table(FaultRecord, "fault")
KEPT: Final = Rule("fault", "failing_since", "kind, label", after=30 * DAY)


@cache
def _sql(kind: DueKind) -> dict[str, str]:
    source, due, own = kind.source or kind.table, f"{kind.table}.{kind.due}", ", ".join(kind.key)
    columns, marks = (", ".join(f"{of}{one}" for one in kind.key) for of in (f"{kind.table}.", ":"))
    label = kind.label or columns
    fault = f"FROM fault f WHERE f.kind = :kind AND f.label = {label}"
    waits = "(f.again_at IS NULL OR f.again_at > :now AND f.again_at <= :latest)"
    held = f"SELECT 1 {fault} AND f.was_due_at = {due} AND {waits}"
    is_due = f"{due} <= :now AND {kind.where} AND NOT EXISTS ({held})"
    too_late = f"FROM {source} WHERE {due} > :ahead AND {kind.where} LIMIT {CORRECTED_AT_ONCE}"
    return {
        "page": f"SELECT {kind.party}, {due}, {columns} FROM {source} WHERE ({due}, {columns}) > (:after, {marks})"
        f" AND {is_due} ORDER BY {due}, {columns} LIMIT {PAGE}",
        "of party": f"SELECT {kind.party}, {due}, {label}, coalesce((SELECT f.faults {fault}), 0), {columns}"
        f" FROM {source} WHERE {kind.party} = :party AND {is_due} ORDER BY {due} LIMIT {2 * kind.of_party}",
        "next": f"SELECT {due} FROM {source} WHERE {due} > :now AND {kind.where} ORDER BY {due} LIMIT 1",
        "parties again": f"SELECT party FROM fault WHERE kind = :kind AND again_at <= :now LIMIT {PAGE}",
        "next again": "SELECT min(again_at) FROM fault WHERE kind = :kind AND again_at > :now",
        "ahead": kind.ahead or f"SELECT 1 {too_late}",
        "correct": f"UPDATE {kind.table} SET {kind.due} = :now WHERE ({own}) IN (SELECT {columns} {too_late})",
        "due": f"SELECT {kind.due} FROM {kind.table} WHERE ({own}) = ({marks}) AND {kind.due} IS NOT NULL",
    }


def forget_fault(work: Work, kind: DueKind, label: str) -> None:
    """Lets nothing delay the row any more but its due time."""
    work.execute("DELETE FROM fault WHERE kind = ? AND label = ?", (kind.name, label))
    work.changed.append(kind.changed)


def _note_fault(work: Work, kind: DueKind, row: DueRow, error: str) -> bool:
    """Puts off a row, unless it is no longer due at any time. Whether it is set aside."""
    before = FAULTS.find(work, kind=kind.name, label=row.label)
    forget_fault(work, kind, row.label)
    purge(work, KEPT, work.now)
    due = work.execute(_sql(kind)["due"], _marks(kind, row.key)).fetchone()
    if due is None:
        return False
    faults, since = (1, work.now) if before is None else (before.faults + 1, min(before.failing_since, work.now))
    again_at = None if faults >= MOST_FAULTS else work.now + FAULT_PAUSES[faults - 1]
    FAULTS.insert(work, FaultRecord(kind.name, row.label, row.party, faults, since, again_at, due[0], error[:300]))
    return again_at is None


def _marks(kind: DueKind, key: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(kind.key, key or [""] * len(kind.key), strict=True))


class Agenda(Worker):
    """Does what is due of a kind. `run` until cancelled. `correct` finds what undoes what a clock that was ahead has
    done."""

    def __init__(
        self,
        kind: DueKind,
        database: Database,
        changes: Changes,
        step: Step,
        correct: Callable[[], Awaitable[Callable[[Work], None]]] | None = None,
    ) -> None:
        super().__init__(f"the agenda: {kind.name}", database, self._search, RETRY_SECONDS)
        self.kind: Final = kind
        self._database = database
        self._changes = changes
        self._do_row = step
        self._correct = correct
        self._running: dict[DueKey, asyncio.Task[None]] = {}
        self._count = Counter[Hashable]()  # of those, by party
        self._quick = Newest[Hashable, None](MOST_PARTIES + PAGE)  # parties whose last step was quick
        self._turns = Newest[Hashable, None](MOST_PARTIES + PAGE)  # parties with something due, the next one first
        self._after: DueKey = ()  # the last row in which parties were searched
        self._is_passing = False  # the last page was full
        self._pass_began = self._searched_at = self._rests_until = Pause(0)
        self._news = asyncio.Event()
        self._ended: set[DueKey] = set()  # during a search, which may have read them as they were before
        self._done = Newest[DueKey, int](MOST_PARTIES)  # when the last ones that were done had been due
        self._faults = 0  # of any rows, one after the other

    @property
    def is_resting(self) -> bool:
        return super().is_resting and not self._running

    async def run(self) -> None:
        # What is set aside is tried once, because this may be a version without the fault.
        again = "UPDATE fault SET again_at = ? WHERE kind = ? AND again_at IS NULL"
        with self._changes.watch(self.kind.changed, self.woken), self._changes.watch(self.kind.changed, self._news):
            try:
                await self._write(lambda work: work.execute(again, (work.now, self.kind.name)) and None)
                await super().run()
            finally:
                await cancel_all(self._running.values())

    async def _search(self) -> Pause:
        """Begins what is due, as far as there are slots. Returns the seconds until the next search."""
        moment = asyncio.get_running_loop().time()
        free = (1 if self._faults >= MANY_FAULTS else self.kind.at_once) - len(self._running)
        if self._rests_until > moment or free <= 0:
            return max(self._rests_until - moment, 0) or LOOK_SECONDS
        pause = max(self._searched_at + PAUSE / SECOND - moment, 0)
        pages = self._is_passing or self._news.is_set() or not self._turns or not pause
        if pages := pages and len(self._turns) < MOST_PARTIES:
            self._news.clear()
            self._searched_at, pause = moment, LOOK_SECONDS
            if not self._is_passing and moment >= self._pass_began + PASS_SECONDS:
                self._after, self._pass_began = (), moment
        elif not any(map(self._may_begin, self._turns)):
            return pause or LOOK_SECONDS
        self._ended.clear()
        found = await self._database.read(partial(self._look, free=free, pages=pages))
        if found.is_ahead:
            log.warning("%s: the clock was ahead; what it made too late is due", self.kind.name)
            await self._write(self._make_due if self._correct is None else await self._correct())
            return 0
        if pages:
            self._turns |= dict.fromkeys(one for one in found.parties if one not in self._turns)
            self._is_passing = bool(found.last)
            if found.last or self._after:  # once all pages were read, what becomes due follows
                self._after = found.last or (found.now - LAG, *_marks(self.kind, ()).values())
        begun = self._begin(found.rows, free)
        if (pages and self._is_passing) or 0 < begun < free:
            return 0
        return pause if found.next_at is None else min(pause, max(found.next_at - found.now, 0) / SECOND)

    def _look(self, work: Work, *, free: int, pages: bool) -> _Found:
        kind, sql, page, next_at = self.kind, _sql(self.kind), list[Any](), None
        after, *key = self._after or (-1,)
        values = {"kind": kind.name, "now": work.now, "after": after, **_marks(kind, key)}
        values |= {"latest": work.now + FAULT_PAUSES[-1] + CORRECTION, "ahead": self._ahead(work)}
        parties: dict[Hashable, None] = dict.fromkeys(self._turns)
        if pages:
            if (kind.ahead or kind.longest is not None) and work.execute(sql["ahead"], values).fetchone():
                return _Found({}, is_ahead=True)
            page = work.execute(sql["page"], values).fetchall()
            parties |= dict.fromkeys(row[0] for row in (*page, *work.execute(sql["parties again"], values)))
            times = [*work.execute(sql["next"], values), *work.execute(sql["next again"], values)]
            next_at = min((at for (at,) in times if at is not None), default=None)
        rows: dict[Hashable, list[DueRow]] = {}
        for party in parties:
            if len(rows) < free and self._may_begin(party):
                due = work.execute(sql["of party"], values | {"party": party})
                rows[party] = [DueRow(*row[:4], tuple(row[4:])) for row in due]  # type: ignore[call-arg]
        return _Found(rows, parties, tuple(page[-1][1:]) if len(page) == PAGE else (), work.now, next_at)

    def _may_begin(self, party: Hashable) -> bool:
        """Whether there is a slot for the party. Those that are new, or whose last step was slow, share a half."""
        if self._count[party] >= self.kind.of_party:
            return False
        slow = sum(count for one, count in self._count.items() if one not in self._quick)
        return party in self._quick or slow < self.kind.at_once - self.kind.at_once // 2

    def _begin(self, rows: dict[Hashable, list[DueRow]], free: int) -> int:
        """Begins the first row of each party, then the second. Returns how many."""
        begun = 0
        for party, found in rows.items():
            if not found and not self._count[party]:
                self._turns.pop(party, None)
            found[:] = [row for row in found if row.key not in self._running and row.key not in self._ended]
        for place in range(self.kind.of_party):
            for party, found in rows.items():
                if place < len(found) and begun < free and self._may_begin(party):
                    row, begun = found[place], begun + 1
                    self._count[party] += 1
                    self._turns[party] = None
                    # In a new context: its requests to other servers count for no client.
                    self._running[row.key] = asyncio.create_task(self._do(row), context=Context())
        return begun

    async def _do(self, row: DueRow) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            await self._try(row)
        finally:
            del self._running[row.key]
            self._ended.add(row.key)
            self._count -= Counter([row.party])
            self._quick.pop(row.party, None)
            if loop.time() - began < QUICK_SECONDS:
                self._quick[row.party] = None
            self.wake()

    async def _try(self, row: DueRow) -> None:
        try:
            if self._done.pop(row.key, None) == row.due_at:
                raise RuntimeError("its step has left it due")
            seconds = await self._do_row(*row.key)
        except Unavailable:  # storage has failed, or stops
            await asyncio.sleep(RETRY_SECONDS)
        except Exception as error:
            if not self._database.stopped:
                await self._note(row, error)
        else:
            self._faults = 0
            self._rest_for(seconds or 0)
            if seconds is None:
                self._done[row.key] = row.due_at
            if row.faults:
                await self._write(partial(forget_fault, kind=self.kind, label=row.label))

    async def _note(self, row: DueRow, error: Exception) -> None:
        self._faults += 1
        if self._faults >= MANY_FAULTS:
            self._rest_for(REST_SECONDS)
        text = f"{type(error).__name__}: {error}"
        is_aside = await self._write(partial(_note_fault, kind=self.kind, row=row, error=text))
        what = "set aside" if is_aside else "put off"
        log.error("%s: %s failed, and is %s", self.kind.name, row.label, what, exc_info=error)

    def _rest_for(self, seconds: Pause) -> None:
        self._rests_until = max(self._rests_until, asyncio.get_running_loop().time() + seconds)

    def _ahead(self, work: Work) -> int:
        """The latest time at which a row may be due."""
        return work.now + (self.kind.longest or 0) + CORRECTION

    def _make_due(self, work: Work) -> None:
        work.execute(_sql(self.kind)["correct"], {"now": work.now, "ahead": self._ahead(work)})

    async def _write(self, unit: Callable[[Work], Any]) -> Any:
        return await retry("the agenda", self._database, partial(self._database.write, unit), RETRY_SECONDS)
