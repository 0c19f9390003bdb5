"""What all who live in a town have in common: draws of their own, pauses, and for some a machine that speaks HTTP."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar, Final

import httpx2
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tests.simulation.server import REFUSED
from tests.simulation.world import Node, moments

if TYPE_CHECKING:
    from tests.simulation.town import Town


class Resident:
    """Does something after random pauses, of `pause` seconds on average."""

    pause: ClassVar[float]
    refusals: ClassVar[tuple[type[Exception], ...]] = REFUSED  # which change nothing

    def __init__(self, town: "Town", name: str) -> None:
        self.town, self.world, self.draws = town, town.world, town.world.dice(name)

    async def prepare(self) -> None:
        """What comes once, in peace."""

    async def live(self, seconds: float) -> None:
        """Lives through a storm as if it were an ordinary day, and returns after its seconds."""
        await self.spend(seconds)

    async def spend(self, seconds: float) -> None:
        async for _ in moments(self.world, self.draws, self.pause, seconds):
            await self.try_to(self.act())

    async def act(self) -> None:
        """Does one thing."""

    async def try_to(self, do: Awaitable[object]) -> None:
        """Whatever is refused."""
        try:
            await do
        except self.refusals as refused:
            self.world.counts[f"refused: {type(refused).__name__}"] += 1


class Caller(Resident):
    """Has a machine of its own, and loses an answer after seconds of `patience`."""

    def __init__(self, town: "Town", name: str, machine: str, address: str, patience: float) -> None:
        super().__init__(town, name)
        self.node: Final = Node(town.world, machine, address)
        self.http = http_client(patience)

    async def live(self, seconds: float) -> None:
        await self.node.run(self.spend(seconds))


def http_client(patience: float) -> httpx2.AsyncClient:
    return httpx2.AsyncClient(timeout=patience, verify=False, trust_env=False)


def listening(app: Any) -> Callable[[], HttpToolsProtocol]:
    """What accepts connections for an ASGI application."""
    config = Config(app, interface="asgi3", lifespan="off", ws="none", log_config=None, access_log=False)
    config.load()
    return lambda: HttpToolsProtocol(config=config, server_state=ServerState(), app_state={})
