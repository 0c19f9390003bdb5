"""A payres server in a world: the real application behind uvicorn's protocol, from one kill to the next."""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar, cast

from uvicorn import Config
from uvicorn.server import ServerState

from payres.application import create_app
from payres.core.http.context import Context
from payres.core.http.protocol import HttpProtocol
from payres.core.http.server import settings_of
from payres.core.process.settings import Settings
from payres.core.protocol.errors import DomainError, Unavailable
from payres.core.store.connections import connect_writer
from payres.core.store.work import Work
from payres.interledger.node import Node as Interledger
from payres.interledger.node import node_of
from payres.settings import settings_with
from payres.testing.set_up import SETTINGS
from tests.simulation.disk import RESTART_SECONDS, Disk, InlineConnection
from tests.simulation.restores import UNSURE, Archive
from tests.simulation.world import Node, World, until

T = TypeVar("T")

START_SECONDS: Final = 300.0
OPERATORS: Final = "10.0.1."  # the network of their machines


@cache
def new_database() -> bytes:
    """The file of a new database. To copy it takes a tenth of the time that running schema.sql takes."""
    with closing(connect_writer(":memory:")) as made:
        made.execute("UPDATE authorization_revision SET revision = 1")  # it is random, and outside all worlds
        return made.serialize()


class ServerDied(Exception):
    """The server was killed before the answer."""


class Server(Node):
    """Is started again after each end. `neighbours` are its peers."""

    lost = ServerDied
    commit_faults: Mapping[str, float] = {}  # the share of its commits that fail in each way

    def __init__(self, world: World, name: str, number: int, folder: Path, **settings: Any) -> None:
        super().__init__(world, name, f"10.0.0.{number}")
        self.base_url = f"http://{name}.test"
        self.neighbours: list[Server] = []
        self.life = 0
        self.context: Context
        self.disk: Disk
        self.archive = Archive(folder, name)
        self.wrong: list[tuple[int, int, int]] = []  # from when to when the clock was far from right, and by how much
        self.wrong_until = 0.0
        self.keeps_backups = False
        self._restores, self._folder, self._settings = False, folder, settings
        self._stopping: asyncio.Event
        self._down_for = 0.0

    def begin(self) -> None:
        if not self.life:
            self._take_disk()
        loop = self.boot()
        self._stopping = asyncio.Event()
        loop.spawn(self._serve()).add_done_callback(self._ended)

    def kill(self, down: float) -> None:
        """Ends the process between two callbacks. It starts again after some seconds."""
        if self.loop is not None and not self.loop.is_dead:
            self.world.note("killed", self.name)
            self.die(down)

    def die(self, down: float) -> None:
        super().die(down)
        self._take_disk()

    def stop(self, down: float) -> None:
        if self.is_up and self.loop is not None:
            self._down_for = down
            self.loop.call_soon(self._stopping.set)

    async def started(self) -> None:
        await until(lambda: self.is_up, START_SECONDS, f"{self.name} starts")

    def back_up(self) -> None:
        if self.is_up:
            self.archive.make(self)

    def restore(self, down: float) -> None:
        if self.is_up and not self.archive.is_empty:
            self._restores = True
            self.kill(down)

    def was_wrong(self, moment: int) -> bool:
        """Whether its clock was far from right about that moment of the world."""
        return any(since - UNSURE <= moment <= until + UNSURE for since, until, _ in self.wrong)

    def set_wrong(self, by: int, seconds: float) -> None:
        """Sets the clock wrong by so many microseconds, for a while: then somebody sees it."""
        since = self.world.microseconds
        self.offset += by

        def mend() -> None:
            self.offset -= by
            self.wrong.append((since, self.world.microseconds, by))

        self.wrong_until = max(self.wrong_until, self.world.now + seconds)
        self.world.at(self.world.now + seconds, mend)

    def may_have_purged(self, moment: int) -> bool:
        """Whether its clock was far ahead since a moment of the world: what it keeps for a while may be gone."""
        return any(moment <= until + UNSURE for _, until, by in self.wrong if by > 0)

    def has_lost(self, moment: int) -> bool:
        """Whether what it was asked for at this moment of the world may be lost by a restore."""
        return any(loss.has(moment) for loss in self.archive.losses)

    def was_restored_after(self, moment: int) -> bool:
        """Whether what began at this moment of the world may have changed since, and that was lost."""
        return any(moment <= loss.until for loss in self.archive.losses)

    async def ask(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """The result of a coroutine on the server's loop. Raises what it raises, and ServerDied."""
        if not self.is_up:
            raise ServerDied(self.name)
        return await self.run(make())

    async def write(self, unit: Callable[[Work], T]) -> T:
        return await self.ask(lambda: self.context.database.write(unit))

    async def read(self, unit: Callable[[Work], T]) -> T:
        return await self.ask(lambda: self.context.database.read(unit))

    async def rows(self, sql: str, *values: object) -> list[Any]:
        return await self.read(lambda work: work.execute(sql, values).fetchall())

    @property
    def interledger(self) -> Interledger:
        return node_of(self.context)

    async def _serve(self) -> None:
        settings = self._settings_on(self.disk.path)
        app = create_app(settings, self, connection=InlineConnection)
        config = Config(app, lifespan="off", **settings_of())
        config.load()
        state = ServerState()
        async with app.router.lifespan_context(app):
            self.context = app.state.context
            self.protocol = lambda: HttpProtocol(config=config, server_state=state, app_state={})
            await self._stopping.wait()
            self.protocol = None
            for connection in sorted(cast("set[HttpProtocol]", state.connections), key=lambda one: one.client or ("",)):
                connection.shutdown()
            while state.tasks:
                await asyncio.sleep(0.01)

    def _settings_on(self, database: Path) -> Settings:
        defaults = {"base_url": self.base_url, "database": str(database), "ilp_address": f"test.{self.name}"}
        defaults["admin_hosts"] = f"{OPERATORS}0/24,{self.name}.test"
        return settings_with({**SETTINGS, **defaults, **self._settings})

    def _ended(self, task: "asyncio.Task[None]") -> None:
        failure = task.exception()
        if failure is not None and not isinstance(failure, Unavailable | sqlite3.Error):
            self.world.trouble.append(f"{self.name} ended: {failure!r}")
        self.die(RESTART_SECONDS if failure else self._down_for)

    def _take_disk(self) -> None:
        """The files of the next life: a copy, since the process that is gone has the others open."""
        self.life += 1
        path = self._folder / f"{self.name}-{self.life}.db"
        if self.life > 1:
            self.disk.leave_to(path, is_replaced=self._restores)
        else:
            path.write_bytes(new_database())
        if self._restores:
            self._restores = False
            is_copy = self.world.draw(f"copy {self.name} {self.life}") < 0.5
            self.archive.restore(self, path, self._settings_on(path), is_copy=is_copy)
        self.disk = Disk(self, path)


REFUSED: Final = (DomainError, ServerDied)  # what a caller from outside has to expect of any server
