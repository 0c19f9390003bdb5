"""The town: servers that are peers of each other in a line, a star or a ring, and the wallets of its people."""

from collections import Counter
from collections.abc import Mapping
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from payres.core.protocol.amounts import Asset, format_decimal
from payres.core.store.work import Work
from payres.operator import assets, wallets
from payres.operator.peers import add_peer
from tests.simulation import switches
from tests.simulation.currencies import TOWNS, minor, rate_of
from tests.simulation.foreign import Abroad, Foreign
from tests.simulation.server import Server
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.apps import App
    from tests.simulation.mails import Post
    from tests.simulation.operators import Movement, Operator, Refund
    from tests.simulation.payers import Payer
    from tests.simulation.rights import Keepers
    from tests.simulation.standing_orders import Order
    from tests.simulation.visitors import Visit
    from tests.simulation.webhooks import Hooks

FEE: Final = (1, 50)  # of the first currency at first: cents, and basis points
# About so many cents:
CREDITS: Final = (100_000_000, 100_000_000, 100_000_000, 4000)  # what each peer may owe the other
BALANCES: Final = (1_000_000, 1_000_000, 1_000_000, 900)  # of each wallet at first
LIQUIDITY: Final = (1_000_000, 1_000_000, 1_000_000, 3000, 500)  # in each asset at first
OWNERS: Final = 2  # wallets of each server
MAIL_HOST: Final = "mail.test"
MAILING: Final = {"smtp_host": MAIL_HOST, "smtp_security": "none", "mail_from": "bank@mail.test"}
MAIL: Final = 0.2  # of the servers send mail
BACKUPS: Final = 0.12  # of the towns have a server that is restored
FOREIGN: Final = 0.4  # of the others have a server that is not payres
PACKETS: Final = (5, 20, 100)  # the largest packet that a server takes
EXCHANGED: Final = (100, 150)  # the same where currencies change: what is rounded of less costs more than payers take


class Wallet(NamedTuple):
    """The wallet of an owner."""

    server: Server
    path: str
    asset: Asset

    @property
    def url(self) -> str:
        return f"{self.server.base_url}/{self.path}"


class Bill(NamedTuple):
    """An incoming payment whose creation was acknowledged; `value` is None for any amount. It `expires_at` this time of
    the server's clock, after so many seconds. An app knows what it was answered."""

    wallet: Wallet
    id: str
    value: int | None
    expires_at: int
    seconds: int

    @property
    def url(self) -> str:
        return f"{self.wallet.server.base_url}/incoming-payments/{self.id}"


class Sent(NamedTuple):
    """An outgoing payment whose creation was acknowledged. `terms` are what its payer was told that it debits, and
    delivers."""

    wallet: Wallet
    id: str
    receiver: str
    terms: tuple[int, int]


class Told(NamedTuple):
    """What was acknowledged, or `may` have been done: how often it has an event of this type with `about` as its
    subject or reference, whose data have these facts."""

    server: Server
    at: int
    type: str
    about: str
    times: tuple[int, ...] = (1,)
    facts: Mapping[str, Any] = {}


class Setting(msgspec.Struct):
    """What an operator asked a server to set, which took effect after `asked_at`, if ever, and before `done_at`."""

    value: Any
    asked_at: int = 0
    done_at: int = 0
    is_made: bool = True


class Town:
    """The journals are what servers have acknowledged: `bills`, `sent`, `orders`, `visits`; and what operators asked
    for: `movements`, `refunds`. What was `given` from outside, net, in the minor units of each asset, is what the
    people were `endowed` with and what operators moved since."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.draws = draws = world.dice("town")
        names, shape = "abcde"[: draws.choice((2, 3, 3, 3, 4, 5))], draws.choice(("line", "star", "ring"))
        self.servers = [
            Server(world, name, number + 1, folder, **(MAILING if world.draw(f"mail {name}") < MAIL else {}))
            for number, name in enumerate(names)
        ]
        self.servers[-1].keeps_backups = draws.random() < BACKUPS
        has_foreign = not self.servers[-1].keeps_backups and world.dice("abroad").random() < FOREIGN
        self.foreign = Foreign(world) if has_foreign else None
        self.links: list[tuple[Server, Server]] = _links(shape, self.servers)
        currencies = world.dice("currencies")
        self.assets: tuple[Asset, ...] = world.dice("assets").choice(TOWNS)
        self.pairs = [  # of which operators set rates
            (one.code, other.code) if currencies.random() < 0.5 else (other.code, one.code)
            for one, other in combinations(self.assets, 2)
        ]
        self.currencies: dict[frozenset[str], Asset] = {}  # in which two peers, by their names, count
        for one, other in self.links:
            one.neighbours.append(other)
            other.neighbours.append(one)
            self.currencies[frozenset((one.name, other.name))] = currencies.choice((self.assets[0], *self.assets))
        self.wallets: list[Wallet] = []
        self.bills: list[Bill] = []
        self.completed: dict[Bill, int] = {}  # by owners, with what they had received
        self.sent: list[Sent] = []
        self.endowed: Counter[Asset] = Counter()
        self.given: Counter[Asset] = Counter()
        self.fee = decimal(FEE[0], self.assets[0]), FEE[1]
        self.credit, self.liquidity = draws.choice(CREDITS), draws.choice(LIQUIDITY)
        self.balance = world.dice("balance").choice(BALANCES)
        self.terms: dict[tuple[str, str], dict[str, Any]] = {}  # of each peer, by the server's name and the peer's
        self.settings: dict[tuple[str, ...], list[Setting]] = {}  # by the server's name and what it is
        self.operators: list[Operator] = []
        self.apps: list[App] = []
        self.hooks: Hooks
        self.post: Post
        self.payer: Payer | None = None
        self.keepers: Keepers | None = None
        self.orders: list[Order] = []
        self.visits: list[Visit] = []
        self.told: list[Told] = []  # what else must have an event
        self.movements: list[Movement] = []
        self.refunds: list[Refund] = []
        self.put_forward_at = 0  # when all clocks were put forward last
        self.disturbed: set[str] = set()  # bills and payments, by restores
        self.missing: Counter[tuple[Server, Server]] = Counter()  # by which books of peers differ since a restore
        self.resolved: set[str] = set()  # packets that were resolved as delivered: their payers have the money back

    @property
    def abroad(self) -> list[Abroad]:
        """The wallets of the foreign server."""
        return [*self.foreign.wallets.values()] if self.foreign else []

    def is_abroad(self, url: str) -> bool:
        return self.foreign is not None and url.startswith(f"{self.foreign.base_url}/")

    def currency_of(self, one: Server, other: Server | Foreign) -> Asset:
        """In which two peers count."""
        return self.currencies[frozenset((one.name, other.name))]

    def may_be_lost(self, server: Server, id: str) -> bool:
        """Whether what a server has acknowledged, with an id of that moment, may be lost by a restore of it."""
        return server.has_lost(moment_of(id))

    def is_disturbed(self, id: str) -> bool:
        """Whether a restore may have changed the bill or the payment that has this id."""
        return id in self.disturbed

    def in_force(self, server: Server, *what: str, since: int, until: int) -> list[Any]:
        """What an operator's setting may have been between two moments of the world. A restore undoes the lost ones."""
        made = self.settings[server.name, *what]

        def is_over(one: Setting) -> bool:
            kept = [later for later in made if later.is_made and not server.has_lost(later.asked_at)]
            return any(one.done_at < later.asked_at and later.done_at <= since for later in kept)

        return [one.value for one in made if one.asked_at <= until and not is_over(one)]

    def rates(self, server: Server, source: Asset, target: Asset, since: int, until: int) -> list[tuple[int, int]]:
        """What a minor unit of an asset was worth in another one between two moments, as fractions."""
        found, is_back = ["1"], (server.name, "rate", target.code, source.code) in self.settings
        if source.code != target.code:
            pair = (target.code, source.code) if is_back else (source.code, target.code)
            found = self.in_force(server, "rate", *pair, since=since, until=until)
        digits = [(int(text.replace(".", "")), 10 ** len(text.partition(".")[2])) for text in found]
        one, other = 10**target.scale, 10**source.scale
        return [(low * one, high * other) if is_back else (high * one, low * other) for high, low in digits]

    def put_forward(self, microseconds: int) -> None:
        """Puts all clocks forward."""
        self.world.skipped += microseconds
        self.put_forward_at = self.world.microseconds

    async def build(self) -> None:
        """Starts the servers, opens their wallets, and makes them peers."""
        for server in self.servers:
            server.begin()
            await server.started()
        for server in self.servers:
            for number in range(OWNERS):
                asset = self.draws.choice(self.assets[1:]) if number and self.draws.random() < 0.5 else self.assets[0]
                await self._open_wallet(Wallet(server, f"owner{number}", asset))
            await server.write(self._trade)
            self.endowed.update({asset: minor(self.liquidity, asset) for asset in self.assets})
            self.settings |= {(server.name, "rate", *pair): [Setting(rate_of(*pair))] for pair in self.pairs}
            self.settings[server.name, "fee", self.assets[0].code] = [Setting(self.fee)]
        is_one = len({*self.currencies.values(), *(wallet.asset for wallet in self.wallets)}) == 1
        largest = self.draws.choice(PACKETS if is_one else EXCHANGED)
        for one, other in self.links:
            await self._make_peers(one, other, largest)

    def _trade(self, work: Work) -> None:
        """All currencies, with their rates and liquidity."""
        for asset in self.assets:
            assets.open_asset(work, asset.code, asset.scale)
            assets.deposit_liquidity(work, asset.code, asset.scale, decimal(self.liquidity, asset))
        for pair in self.pairs:
            assets.set_rate(work, *pair, rate_of(*pair))
        assets.set_fee(work, self.assets[0].code, self.assets[0].scale, *self.fee)

    async def _open_wallet(self, wallet: Wallet) -> None:
        def make(work: Work) -> None:
            wallets.create_wallet(work, wallet.path, wallet.asset.code, wallet.asset.scale, wallet.path, None)
            wallets.deposit(work, wallet.path, decimal(self.balance, wallet.asset))

        await wallet.server.write(make)
        self.wallets.append(wallet)
        self.endowed[wallet.asset] += minor(self.balance, wallet.asset)

    async def _make_peers(self, one: Server, other: Server, largest: int) -> None:
        asset, tokens = self.currency_of(one, other), [self.draws.randbytes(24).hex() for _ in range(2)]
        about = asset, decimal(self.credit, asset)
        for here, there, pair in ((one, other, tokens), (other, one, tokens[::-1])):
            more: dict[str, Any] = {"max_packet": minor(largest, asset), "routes": _beyond(here, there)}
            terms = self.terms[here.name, f"test.{there.name}"] = peer_terms(there.name, *about, *pair, **more)
            await here.write(partial(add_peer, **terms))


def peer_terms(name: str, asset: Asset, credit: str, outgoing: str, incoming: str, **more: Any) -> dict[str, Any]:
    """What `add_peer` takes for the machine of this name, with the tokens that are shown to it, and by it."""
    machine = {"name": f"test.{name}", "ilp_address": f"test.{name}", "url": f"http://{name}.test/ilp"}
    unit = {"asset_code": asset.code, "asset_scale": asset.scale, "credit_limit": credit}
    return machine | unit | {"outgoing_token": outgoing, "incoming_token": incoming} | more


def decimal(cents: int, asset: Asset) -> str:
    return format_decimal(minor(cents, asset), asset)


def moment_of(id: str) -> int:
    """When an id was made, in microseconds of the world; its own time is that of its server's clock."""
    assert switches.world is not None
    return switches.world.moments[id]


def exchanged(amount: int, rate: tuple[int, int], *, is_up: bool = False) -> int:
    """An amount at a rate, in whole units: rounded down unless it `is_up`."""
    return -(-amount * rate[0] // rate[1]) if is_up else amount * rate[0] // rate[1]


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
