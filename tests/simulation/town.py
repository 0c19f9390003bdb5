"""The town: servers that are peers of each other in a line, a star or a ring, and the wallets of its people."""

from collections import Counter
from pathlib import Path
from typing import Final, NamedTuple

from payres.core.protocol.amounts import Asset
from payres.core.store.work import Work
from payres.operator import assets, wallets
from payres.operator.peers import add_peer
from payres.testing.peering import peers_of
from tests.simulation.server import Server
from tests.simulation.world import World

USD: Final = Asset("USD", 2)
EUR: Final = Asset("EUR", 2)
RATE: Final = "0.92"  # euros for a dollar
CREDIT: Final = "1000000.00"
BALANCE: Final = "10000.00"  # of each wallet, and of the liquidity in each asset, at first
OWNERS: Final = 2  # wallets of each server
PACKETS: Final = (5, 20, 100)  # the largest packet that a server takes, in minor units


class Wallet(NamedTuple):
    """The wallet of an owner."""

    server: Server
    path: str
    asset: Asset

    @property
    def url(self) -> str:
        return f"{self.server.base_url}/{self.path}"


class Bill(NamedTuple):
    """An incoming payment whose creation was acknowledged; `value` is None for any amount."""

    wallet: Wallet
    id: str
    value: int | None

    @property
    def url(self) -> str:
        return f"{self.wallet.server.base_url}/incoming-payments/{self.id}"


class Sent(NamedTuple):
    """An outgoing payment whose creation was acknowledged."""

    wallet: Wallet
    id: str
    receiver: str


class Town:
    """The journals are what servers have acknowledged: `bills`, `sent`, and what was `given` from outside, net, in the
    minor units of each asset."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.draws = draws = world.dice("town")
        names = "abcde"[: draws.choice((2, 3, 3, 3, 4, 5))]
        self.servers = [Server(world, name, number + 1, folder) for number, name in enumerate(names)]
        self.links: list[tuple[Server, Server]] = _links(draws.choice(("line", "star", "ring")), self.servers)
        for one, other in self.links:
            one.neighbours.append(other)
            other.neighbours.append(one)
        self.wallets: list[Wallet] = []
        self.bills: list[Bill] = []
        self.sent: list[Sent] = []
        self.given: Counter[Asset] = Counter()

    async def build(self) -> None:
        """Starts the servers, opens their wallets, and makes them peers."""
        for server in self.servers:
            server.begin()
            await server.started()
        for server in self.servers:
            for number in range(OWNERS):
                asset = EUR if number and self.draws.random() < 0.5 else USD
                await self._open_wallet(Wallet(server, f"owner{number}", asset))
            await server.write(_trade)
            self.given.update({USD: 10_000_00, EUR: 10_000_00})
        largest = self.draws.choice(PACKETS)
        for one, other in self.links:
            await self._make_peers(one, other, largest)

    async def _open_wallet(self, wallet: Wallet) -> None:
        def make(work: Work) -> None:
            wallets.create_wallet(work, wallet.path, wallet.asset.code, wallet.asset.scale, wallet.path, None)
            wallets.deposit(work, wallet.path, BALANCE)

        await wallet.server.write(make)
        self.wallets.append(wallet)
        self.given[wallet.asset] += 10_000_00

    async def _make_peers(self, one: Server, other: Server, largest: int) -> None:
        of_one, of_other = peers_of(
            one.context.settings, other.context.settings, USD, CREDIT, max_packet=largest, routes=_beyond(one, other)
        )
        of_other["routes"] = _beyond(other, one)
        await one.write(lambda work: add_peer(work, **of_one) and None)
        await other.write(lambda work: add_peer(work, **of_other) and None)


def _trade(work: Work) -> None:
    """Both currencies, with their rate and liquidity."""
    assets.open_asset(work, USD.code, USD.scale)
    assets.open_asset(work, EUR.code, EUR.scale)
    assets.set_rate(work, USD.code, EUR.code, RATE)
    assets.set_fee(work, USD.code, USD.scale, "0", 50)
    for asset in (USD, EUR):
        assets.deposit_liquidity(work, asset.code, asset.scale, BALANCE)


def _links(shape: str, servers: list[Server]) -> list[tuple[Server, Server]]:
    first, *others = servers
    if shape == "star":
        return [(first, other) for other in others]
    pairs = list(zip(servers, others, strict=False))
    return [*pairs, (others[-1], first)] if shape == "ring" and len(others) > 1 else pairs


def _beyond(here: Server, neighbour: Server) -> list[str]:
    """The ILP addresses that `here` reaches best through a neighbour."""
    first_hops: dict[Server, Server] = {one: one for one in here.neighbours}
    reached = [here, *here.neighbours]
    for server in reached:  # it grows meanwhile: nearest first
        for beyond in server.neighbours:
            if beyond not in reached:
                first_hops[beyond] = first_hops[server]
                reached.append(beyond)
    return [f"test.{one.name}" for one, hop in first_hops.items() if hop is neighbour and one is not neighbour]
