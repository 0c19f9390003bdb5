"""A payres instance that runs in a thread of the test's process."""

import asyncio
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import Future
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from time import monotonic, sleep
from typing import Any, ClassVar, Self, TypeVar

import httpx2
import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.types import Receive, Scope, Send

from payres.accounts.passwords import hash_password
from payres.application import create_app
from payres.client import Client, Grant, access, money
from payres.client.methods import checked
from payres.core.http.connections import connections_of
from payres.core.http.context import Context
from payres.core.http.server import settings_of
from payres.core.process.logs import RequestLog
from payres.core.protocol.errors import NotFound
from payres.core.protocol.gnap import Access
from payres.core.protocol.urls import is_http_url
from payres.core.protocol.wire import IncomingPayment, OutgoingPayment, WalletAddress
from payres.core.store import representations
from payres.core.store.outgoing_payments import OUTGOING
from payres.core.store.wallets import find_with_wallet, require_wallet
from payres.core.store.work import Transaction, Work
from payres.operator import wallets, webhooks
from payres.operator.upkeep import invariant_checks
from payres.settings import settings_with
from payres.testing import set_up
from payres.testing.clock import MovableClock, SandboxClock
from payres.testing.faults import FaultRule, Interference
from payres.testing.journal import Journal
from payres.testing.request_rules import Decision, KeptRule

T = TypeVar("T")
START_SECONDS = 60
KEPT_REQUESTS = 100
GRACE_SECONDS = 5  # for requests in progress when a test ends
POLL_SECONDS = 0.01
TICK_SECONDS = 0.1  # uvicorn renews its Date header every tenth tick
FINISH_URI = "http://127.0.0.1/finished"  # never opened
CLIENT_SECONDS = 60  # for a response, on a busy machine


class Instance:
    """A running payres with wallets `alice` and `bob` of 1000.00 USD each, and `client`, whose wallet is `shop`."""

    clock_type: ClassVar[type[MovableClock]] = SandboxClock

    def __init__(self, server: "_Server", context: Context, clock: MovableClock, requests: deque[str]) -> None:
        self._server = server
        self._requests = requests
        self.context = context
        self.clock = clock
        self.base_url = context.urls.base
        journal = Journal(self.base_url, clock, context.database)
        self.faults = Interference(context.database, context.settings.max_body_bytes, journal)
        self.faults.attach(context)
        server.faults = self.faults
        for path, name in set_up.FIRST_WALLETS.items():
            self.create_wallet(path, name=name, deposit=set_up.BALANCE)
        set_up.shorten_timeouts(context)
        self._clients: list[Client] = []
        self.client = self.new_client(set_up.CLIENT, name=set_up.CLIENT_NAME)

    @classmethod
    @contextmanager
    def run(cls, database: Path, **settings: Any) -> Iterator[Self]:
        """Runs payres on a free loopback port until the block ends. `settings` are settings of the server; the port
        stands in for that of a `base_url` such as `http://localhost:0`, where browsers take passkeys."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            base_url = settings.get("base_url", "http://127.0.0.1:0")
            if base_url.endswith(":0"):
                settings["base_url"] = f"{base_url[:-1]}{listener.getsockname()[1]}"
            defaults = {"database": str(database), **set_up.SETTINGS}
            clock = cls.clock_type()
            requests = _Requests()
            app = create_app(settings_with(defaults | settings), clock, requests, is_disposable=True)
            server = _Server(app, listener)
            context = server.start()
            try:
                with closing(cls(server, context, clock, requests.kept)) as instance:
                    yield instance
            finally:
                server.stop()

    @property
    def requests(self) -> deque[str]:
        """The log lines of the newest requests."""
        if self._server.is_running:
            self._server.call(asyncio.sleep(0))  # the last line is written just after its answer
        return self._requests

    def wallet(self, path: str) -> str:
        """The wallet address at a path, such as `http://127.0.0.1:41234/alice`."""
        return self.context.urls.wallet(path)

    @checked
    def create_wallet(
        self,
        path: str,
        asset: str = "USD",
        scale: int = 2,
        name: str | None = None,
        deposit: str | None = None,
        password: str | None = None,
    ) -> str:
        """Opens a wallet, deposits `deposit` (a decimal), and returns its wallet address."""
        hashed = None if password is None else hash_password(password)

        def unit(work: Work) -> None:
            wallets.create_wallet(work, path, asset, scale, name, hashed)
            if deposit is not None:
                wallets.deposit(work, path, deposit)

        self.write(unit)
        return self.wallet(path)

    @checked
    def new_app(self, path: str, name: str | None = None, kid: str = "key-1") -> dict[str, Any]:
        """Opens a wallet with a key, and returns the arguments for `Client(**app)`."""
        return msgspec.structs.asdict(self.write(lambda work: set_up.open_client(work, path, name, kid)))

    def new_client(self, path: str, name: str | None = None, kid: str = "key-1") -> Client:
        """A client with its own wallet address and registered key."""
        # Loopback is plain HTTP, and loading the machine's certificates is slow.
        transport = httpx2.HTTPTransport(verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        options: dict[str, Any] = {"transport": transport, "timeout": CLIENT_SECONDS, "strict": True}
        client = Client(**self.new_app(path, name, kid), clock=self.clock, **options)
        self._clients.append(client)
        return client

    def grant(self, *items: Access | Mapping[str, Any]) -> Grant:
        """A grant of `client` for these access items, with the owner's consent if needed."""
        finish = {"method": "redirect", "uri": FINISH_URI, "nonce": "payres.testing"}
        interact = {"start": ["redirect"], "finish": finish}
        found = self.client.grant.request(f"{self.base_url}/", *items, interact=interact)
        if isinstance(found, Grant):
            return found
        return self.client.grant.finish(found, self.approve(found.redirect) or "")

    @checked
    def bill(self, wallet: str | WalletAddress, amount: str | None = None, **members: Any) -> IncomingPayment:
        """Creates an incoming payment into a wallet, by its path or address, of an amount such as "5.00", or of any
        amount."""
        wallet = self._read(wallet)
        grant = self.grant(access.incoming_payment("create", identifier=wallet.id))
        asked = None if amount is None else money(amount, wallet)
        return self.client.incoming_payment.create(wallet, grant, incoming_amount=asked, **members)

    @checked
    def pay(
        self, wallet: str | WalletAddress, receiver: str | IncomingPayment, amount: str | None = None
    ) -> OutgoingPayment:
        """Pays a local or remote incoming payment from a wallet, by its path or address, with its owner's consent.

        `amount` is the debit amount, needed if the incoming payment has no amount.
        """
        wallet = self._read(wallet)
        receiver = receiver if isinstance(receiver, str) else receiver.id
        asked = None if amount is None else money(amount, wallet)
        quoting = self.grant(access.quote("create", identifier=wallet.id))
        quote = self.client.quote.create(wallet, quoting, receiver=receiver, debit_amount=asked)
        spending = access.outgoing_payment("create", identifier=wallet.id, debit_amount=quote.debit_amount)
        return self.client.outgoing_payment.create(wallet, self.grant(spending), quote_id=quote.id)

    @checked
    def approve(self, redirect: str) -> str | None:
        """Approves a grant as the wallet's owner, and returns the finish URL, if any."""
        return self._decide(redirect, "approve")

    @checked
    def deny(self, redirect: str) -> str | None:
        """Denies a grant as the wallet's owner, and returns the finish URL, if any."""
        return self._decide(redirect, "deny")

    def fault(self, fault: str, **members: Any) -> KeptRule[FaultRule]:
        """Lets something go wrong in the next request that matches, or in several, as docs/sandbox.md says of faults.
        `used` of the result is how often it has happened.

        Raises InvalidRequest and ValueError for what could never happen.
        """
        try:
            rule = msgspec.convert({"fault": fault, **members}, FaultRule)
        except msgspec.ValidationError as error:
            raise ValueError(f"{error}. The options are: {', '.join(FaultRule.__struct_fields__)}") from error
        return self._server.call(self.faults.add(self.context, rule))

    @checked
    def webhook(self, url: str, *events: str) -> str:
        """Sends events to an endpoint of the app from now on: all, or those of types and patterns such as
        `incoming_payment.*`. Returns the secret that they are signed with."""
        return self.write(lambda work: webhooks.add(work, url, events=events, private=True)).secret

    @checked
    def wait_for(self, payment: OutgoingPayment, seconds: float = 10) -> OutgoingPayment:
        """Waits until an outgoing payment to another server has ended, and returns it.

        Raises AssertionError if it is still in progress after `seconds`, and NotFound for one of another server.
        """
        return self._ended(payment.id, seconds)

    @checked
    def balance(self, path: str) -> str:
        """A wallet's balance, as a decimal."""
        return self.read(lambda work: wallets.wallet(work, require_wallet(work, path)).balance)

    def check_ledger(self) -> None:
        """Checks all invariants of the ledger. Raises AssertionError with the first broken one."""
        broken = invariant_checks.first_broken(self.read(invariant_checks.check))
        assert broken is None, broken

    def write(self, unit: Callable[[Work], T]) -> T:
        """Runs a function in a write transaction of the instance's database."""
        return self._server.call(self.context.database.write(unit))

    def read(self, unit: Callable[[Work], T]) -> T:
        """Runs a function in a read transaction of the instance's database."""
        return self._server.call(self.context.database.read(unit))

    def close(self) -> None:
        for client in self._clients:
            client.close()

    def _read(self, wallet: str | WalletAddress) -> WalletAddress:
        if isinstance(wallet, WalletAddress):
            return wallet
        if not is_http_url(wallet):
            wallet = self.wallet(self.read(partial(require_wallet, wallet=wallet)).path)
        return self.client.wallet_address.get(wallet)

    def _ended(self, url: str, seconds: float) -> OutgoingPayment:
        id = self.context.urls.resource_id("outgoing-payments", url) or ""

        def unit(tx: Transaction) -> tuple[bool, OutgoingPayment]:
            found = find_with_wallet(tx, OUTGOING, id)
            if found is None:
                raise NotFound(f"{url} is no outgoing payment of this server")
            record, wallet = found
            return record.state == "sending", representations.outgoing_payment(self.context.urls, wallet, record)

        end = monotonic() + seconds
        while (read := self.read(unit))[0]:
            if monotonic() >= end:
                raise AssertionError(f"{url} is still in progress after {seconds:g} s: {read[1]}")
            sleep(POLL_SECONDS)
        return read[1]

    def _decide(self, redirect: str, decision: Decision) -> str | None:
        given = set_up.Decided(redirect=redirect, decision=decision)
        shown, asked = self.write(partial(set_up.decide, given=given))
        return self.faults.redirect(shown.redirect, asked)


run_instance = Instance.run


class _Requests(RequestLog):
    """Keeps the newest lines in memory, and writes none."""

    def __init__(self) -> None:
        super().__init__("text")
        self.kept: deque[str] = deque(maxlen=KEPT_REQUESTS)

    def write(self, *request: Any) -> None:
        super().write(*request)
        self.flush()

    def flush(self) -> None:
        self.kept.extend(line.decode().rstrip() for line in self._lines)
        self._lines.clear()


class _Server(uvicorn.Server):
    """uvicorn in a thread."""

    def __init__(self, app: Starlette, listener: socket.socket) -> None:
        super().__init__(uvicorn.Config(self._answer, interface="asgi3", **settings_of()))
        self._app = app
        self.faults: Interference | None = None
        self._listener = listener
        self._loop: Future[asyncio.AbstractEventLoop] = Future()  # once it is ready
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run_in_thread, name="payres", daemon=True)

    def start(self) -> Context:
        """Starts the server and returns the application's context. Raises RuntimeError if it fails to start."""
        self._thread.start()
        self._loop.result(START_SECONDS)
        context: Context = self._app.state.context
        return context

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.faults is None or scope["type"] != "http":
            await self._app(scope, receive, send)
        else:
            await self.faults.serve(self._app, scope, receive, send)

    @property
    def is_running(self) -> bool:
        return self._thread.is_alive()

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Runs a coroutine on the server's loop. Raises RuntimeError on that loop, as inside a unit of work."""
        if threading.current_thread() is self._thread:
            raise RuntimeError("A unit of work cannot ask the instance: ask before, and hand the result to the unit")
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop.result()).result()

    def stop(self) -> None:
        """Stops the server and waits until its database is closed."""
        self.should_exit = True
        self._loop.result().call_soon_threadsafe(self._stopping.set)
        self._thread.join()

    async def main_loop(self) -> None:
        """Like uvicorn's, but `stop` ends it at once, not at the next tick."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += 1
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), TICK_SECONDS)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Like uvicorn's, but polls the connections more often than every tenth of a second."""
        connections_of(self.server_state, self.config).is_stopping = True
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(GRACE_SECONDS):
                while self.server_state.connections or self.server_state.tasks:  # noqa: ASYNC110 - no event tells
                    await asyncio.sleep(POLL_SECONDS)
        for task in self.server_state.tasks:
            task.cancel()
        await self.lifespan.shutdown()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._loop.set_result(asyncio.get_running_loop())

    def _run_in_thread(self) -> None:
        try:
            self.run(sockets=[self._listener])
        finally:
            if not self._loop.done():
                self._loop.set_exception(RuntimeError("payres did not start; its log says why"))
