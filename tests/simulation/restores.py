"""A server that is restored from an older backup: by payres itself, as its operator does it, and what is lost then."""

import shutil
import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from payres.core.process.settings import Settings
from payres.core.store.connections import require_complete
from payres.core.store.runs import LostCommits, Position
from payres.core.store.work import Environment, Work
from payres.operator.upkeep import backup_and_restore, restored_rights
from tests.simulation.world import Violation

if TYPE_CHECKING:
    from tests.simulation.server import Server
    from tests.simulation.town import Town

T = TypeVar("T")

FILES: Final = ("", "-wal")
WATCHED: Final = "SELECT 1 FROM server_run WHERE token NOTNULL"
UNSURE: Final = 60_000_000  # microseconds that a commit may come after its request
# What is owed to each peer, but for what was paid outside; and what is under way to it and from it.
STANDING: Final = (
    "SELECT p.ilp_address, a.balance - coalesce((SELECT sum(iif(d.kind = 'external', t.amount, -t.amount))"
    " FROM movement m JOIN transfer t ON t.id = m.transfer_id JOIN account d ON d.id = t.debit_account_id"
    " JOIN peer q ON q.account_id = m.account_id WHERE q.ilp_address = p.ilp_address), 0),"
    " (SELECT coalesce(sum(amount), 0) FROM packet WHERE to_peer_id = p.id AND state IN ('prepared', 'doubtful'))"
    " FROM peer p JOIN account a ON a.id = p.account_id WHERE p.removed_at IS NULL"
)


# What a restore disturbs: a bill here, or a payment from here with its receiver, that has another state since or is
# under way; and payments from anywhere of which packets were under way meanwhile.
STATES: Final = (
    "SELECT id, '', received, completed_at FROM incoming_payment UNION ALL"
    " SELECT id, receiver, sent, state FROM outgoing_payment"
)
PACKETS: Final = "SELECT k.id, o.id, o.receiver FROM packet k JOIN outgoing_payment o ON o.id = k.outgoing_payment_id"


class Loss(NamedTuple):
    """What a restore has lost: the time between two moments of the world, in microseconds; of the money between the
    server and each of its peers, by name, at most so much; and the ids of the bills and payments that it changed."""

    since: int
    until: int
    bounds: Mapping[str, int]
    changed: Collection[str]
    is_blind: bool  # what was ended since is not known: a copy of the files was put back

    def has(self, moment: int) -> bool:
        return self.since - UNSURE <= moment <= self.until


class Archive:
    """The last backup of a server, and what was lost by restoring from it."""

    def __init__(self, folder: Path, name: str) -> None:
        self._file = folder / f"{name}.backup"
        self._made_at = self._made_in = 0
        self.losses: list[Loss] = []
        self.unsettled: list[Loss] = []  # those that its peers have not agreed on yet

    @property
    def is_empty(self) -> bool:
        return not self._made_at

    def make(self, server: "Server") -> None:
        backup_and_restore.make_backup(server.disk.path, self._file, True, server.now())
        self._made_at, self._made_in = server.world.microseconds, server.life
        for end in FILES:
            shutil.copyfile(f"{server.disk.path}{end}", f"{self._file}.copy{end}")

    def restore(self, server: "Server", database: Path, settings: Settings, *, is_copy: bool) -> None:
        """Puts the backup in the place of a database, with all that was ended since, and notes what that loses.

        Or somebody has put back a copy of the files, if they are of the same run: payres has to notice that.
        """
        before, then = _standings(database), _standings(self._file)
        states, states_then = _states(database), _states(self._file)
        environment = Environment.of(settings, server, actor="operator")

        def finish(tx: sqlite3.Connection, comparison: backup_and_restore.Comparison) -> None:
            work = Work(tx, environment)
            backup_and_restore.record_restore(work, Path(self._file.name))  # its folder is another one in each run
            restored_rights.end_again(work, comparison.ended)

        is_blind = is_copy and self._made_in == server.life - 1
        if not is_blind:
            backup_and_restore.restore_backup(self._file, database, server.now(), finish)
        elif self._lacks_commits(database):
            backup_and_restore.restore_backup(database, database, server.now(), finish)
        bounds = {}
        for peer in server.neighbours:
            (owed, out), (owed_then, out_then) = (found.get(f"test.{peer.name}", (0, 0)) for found in (before, then))
            coming = _standings(peer.disk.path).get(f"test.{server.name}", (0, 0))[1]
            bounds[peer.name] = abs(owed - owed_then) + out + out_then + coming
        again = {row for row in states_then if row[-1] == "sending"}
        changed = _ids(states ^ states_then | again)
        self.unsettled.append(Loss(self._made_at, server.world.microseconds, bounds, changed, is_blind))
        self.losses.append(self.unsettled[-1])

    def _lacks_commits(self, database: Path) -> bool:
        """Puts back the copy. Whether payres finds that something is missing; raises Violation if it does not."""
        reached = _read(database, _watched)
        for end in FILES:
            shutil.copyfile(f"{self._file}.copy{end}", f"{database}{end}")
        try:
            require_complete(str(database))
        except LostCommits:
            return True
        if reached is not None and not _read(database, Position.of).has(reached):
            raise Violation(f"nobody noticed that {database} lacks commits")
        return False


def _watched(tx: sqlite3.Connection) -> Position | None:
    """How far the commits have got, if payres could begin to watch them."""
    return Position.of(tx) if tx.execute(WATCHED).fetchone() else None


async def disturbed(town: "Town") -> None:
    """Notes what the restores of the day have disturbed, of which other oracles then ask less."""
    for loss in [one for server in town.servers for one in server.archive.unsettled]:
        town.disturbed.update(loss.changed)
        for server in town.servers:
            for packet, *about in await server.rows(PACKETS):
                if loss.has(town.world.moments[packet]):
                    town.disturbed.update(_ids([about]))


def _states(file: Path) -> Set[Any]:
    return _read(file, lambda tx: {*tx.execute(STATES)})


def _ids(rows: Iterable[Any]) -> Collection[str]:
    """Of payments and of their receivers."""
    return {text.rpartition("/")[2] for row in rows for text in row[:2]}


def _standings(file: Path) -> dict[str, tuple[int, int]]:
    return _read(file, lambda tx: {address: (owed, out) for address, owed, out in tx.execute(STANDING)})


def _read(file: Path, what: Callable[[sqlite3.Connection], T]) -> T:
    with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        return what(connection)
