"""A disposable payres for tests in any language, or several peers, which share a token, a clock and resets."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

import msgspec

from payres.core.process.logs import RequestLog
from payres.core.process.settings import Settings, SettingsError
from payres.core.process.worker import RUNNING
from payres.core.protocol.identifiers import new_secret
from payres.core.store.events import last_sequence
from payres.core.store.work import EVENTS, Work
from payres.operator import api_keys
from payres.operator.admin_hosts import AdminHosts
from payres.operator.peers import add_peer
from payres.operator.settings import OperatorSettings
from payres.settings import settings_with
from payres.testing import set_up
from payres.testing.answers import Line
from payres.testing.clock import SandboxClock
from payres.testing.peering import peers_of
from payres.testing.request_rules import ConsentRule
from payres.testing.server import SandboxServer
from payres.testing.set_up import BALANCE, CLIENT, CLIENT_NAME, FIRST_WALLETS, SETTINGS
from payres.webhooks.rounds import is_all_sent

ROOT: Final = "/_sandbox"
CREDIT_LIMIT: Final = "1000000.00"
SETTLE_SECONDS: Final = 5
LOOK_SECONDS: Final = 0.005


ControlAnswer = tuple[int, object]  # status and content of the control API


class SandboxOptions(msgspec.Struct, frozen=True):
    """Options of the command. `settings` are values by name, `control_from` comma-separated addresses and networks,
    `webhook` a URL that gets all events. Without `token` one is generated."""

    consent: Literal["ask", "approve", "deny"] = "ask"
    token: str | None = None
    control_from: str = ""
    webhook: str | None = None
    settings: dict[str, str] = {}


class Made(NamedTuple):
    """A request of the control API with an Idempotency-Key, and the task that answers it."""

    path: str
    body: bytes
    task: asyncio.Task[ControlAnswer]


class Sandbox:
    """The servers and their shared state. The `line` of the first is what the command prints for tests."""

    def __init__(
        self, folder: Path, base_urls: Sequence[str], options: SandboxOptions, request_log: RequestLog | None = None
    ) -> None:
        """Raises SettingsError."""
        self.token = options.token or new_secret()
        self.clock = SandboxClock()
        self.generation = 1
        self._webhook = options.webhook
        self.under_way: set[asyncio.Task[ControlAnswer]] = set()  # control requests
        self.made: dict[tuple[SandboxServer, str], Made] = {}  # by Idempotency-Key
        self._changing = asyncio.Lock()
        names = {urlsplit(url).hostname or "" for url in base_urls}
        admin_hosts = ",".join(filter(None, [options.control_from, *sorted(names)]))
        always = None if options.consent == "ask" else ConsentRule(decision=options.consent)
        self.servers: list[SandboxServer] = []
        for number, url in enumerate(base_urls, start=1):
            settings = _settings(
                options.settings,
                base_url=url,
                database=str(folder / f"payres-{number}.db"),
                ilp_address=f"test.payres-{number}",
                admin_hosts=admin_hosts,
            )
            self.servers.append(SandboxServer(settings, self.clock, always, request_log))
        self.hosts = AdminHosts(self.servers[0].settings.of(OperatorSettings).admin_hosts)

    @asynccontextmanager
    async def run(self) -> AsyncIterator[None]:
        """Runs the servers, with their wallets and clients, until the block ends."""
        try:
            for server in self.servers:
                await server.open()
                server.line = await server.write(partial(self._furnish, server=server))
            for one, other in combinations(self.servers, 2):
                terms = peers_of(one.settings, other.settings, set_up.DOLLARS, CREDIT_LIMIT)
                for server, new in zip((one, other), terms, strict=True):
                    await server.write(partial(add_peer, **new))
            first, *others = (server.line for server in self.servers)
            first.peers = others
            await self.keep_baseline()
            yield
        finally:
            for server in self.servers:
                await server.close()

    async def close(self) -> None:
        """Ends what the servers do; afterwards their files can be removed."""
        async with self._changing:
            await asyncio.gather(*(server.close() for server in self.servers))

    async def keep_baseline(self) -> None:
        """Makes the current state the target of resets."""
        async with self._changing:
            for server in self.servers:
                server.last_event = await server.read(last_sequence)
                await asyncio.to_thread(server.keep_baseline)

    async def reset(self) -> int:
        """Restores the baseline and real time, and returns the new generation."""
        async with self._changing:
            for task in self.under_way:
                task.cancel()
            self.made.clear()
            await asyncio.gather(*(server.close() for server in self.servers))
            self.clock.reset()
            for server in self.servers:
                await asyncio.to_thread(server.return_to_baseline)
            self.generation += 1  # before anything is answered: cursors of before are not of this data
            await asyncio.gather(*(server.open() for server in self.servers))
            return self.generation

    async def do_due_work(self) -> bool:
        """Wakes every timer, and waits until all due work is done. False if some is left after 5 seconds."""
        for worker in RUNNING:
            worker.wake()
        for server in self.servers:
            server.context.changes.notify((EVENTS,))
        end = asyncio.get_running_loop().time() + SETTLE_SECONDS
        while not await self._is_all_done():
            if asyncio.get_running_loop().time() >= end:
                return False
            await asyncio.sleep(LOOK_SECONDS)
        return True

    async def _is_all_done(self) -> bool:
        return all(worker.is_resting for worker in RUNNING) and all(
            [await server.read(is_all_sent) for server in self.servers]
        )

    def _furnish(self, work: Work, server: SandboxServer) -> Line:
        for path, name in FIRST_WALLETS.items():
            set_up.set_wallet(work, path, set_up.WalletState(name=name, balance=BALANCE))
        server.api_key = api_keys.create_api_key(work, "sandbox", [*api_keys.SCOPES]).key
        base_url = server.settings.base_url
        shown = {path: set_up.read_wallet(work, path) for path in FIRST_WALLETS}
        client = set_up.open_client(work, CLIENT, CLIENT_NAME)
        line = Line(base_url, base_url + ROOT, self.token, shown, client, peers=[])
        if self._webhook is not None:  # all servers sign with the secret of the first
            first = line if server is self.servers[0] else self.servers[0].line
            line.webhook = set_up.add_webhook(work, self._webhook, first.webhook.secret if first.webhook else None)
        return line


def _settings(given: Mapping[str, str], **own: str) -> Settings:
    """The settings of a server; `own` ones cannot be given. Raises SettingsError."""
    if fixed := own.keys() & given.keys():
        raise SettingsError(f"{min(fixed)} is the sandbox's own and cannot be set")
    return settings_with({**SETTINGS, **given, **own})
