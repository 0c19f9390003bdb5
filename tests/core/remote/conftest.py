"""Servers on the loopback interface that answer with the bytes of a test, or by a script."""

import asyncio
import socket
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from payres.core.process.rate_limiter import requested_by
from payres.core.remote import http, ip_addresses
from payres.core.remote.connection import FetchFailed
from payres.core.remote.http import GuardedClient
from payres.core.remote.transport import Bounds
from tests.helpers import TIMEOUT
from tests.internet import Internet
from tests.tls import Tls

HURRY = Bounds(seconds=0.2, queue_seconds=0.2)  # for what never ends, and so for nothing that is to succeed
UNHURRIED = Bounds(seconds=60)

Handler = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
Start = Callable[[Talk, ssl.SSLContext | None], Awaitable[int]]
Serve = Callable[..., Awaitable[int]]
OpenSite = Callable[[], Awaitable["Site"]]
Elapse = Callable[[float], None]


class Request(msgspec.Struct, frozen=True):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def number(self) -> str | None:
        """What tells a packet from the others of its peer."""
        return self.headers.get("request-id")


class Answer(msgspec.Struct, frozen=True):
    """`content` is sent as JSON, bytes as they are; `pause` is waited for before."""

    content: Any = b""
    status: int = 200
    headers: dict[str, str] = {}
    pause: Callable[[], Awaitable[object]] | None = None


Script = Callable[[Request], Answer]


class Site:
    """Notes what it is asked. `pages` maps a method and target such as "GET /alice" to answers; a list gives one after
    another.
    """

    def __init__(self, port: int) -> None:
        self.base = f"http://127.0.0.1:{port}"
        self.pages: dict[str, Answer | list[Answer] | Script] = {}
        self.requests: list[Request] = []

    def asked(self, method: str) -> list[Request]:
        return [request for request in self.requests if request.method == method]

    def answer(self, request: Request) -> Answer:
        page = self.pages.get(f"{request.method} {request.target}", Answer({"error": {}}, 404))
        if isinstance(page, list):
            return page.pop(0)
        return page if isinstance(page, Answer) else page(request)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await read_request(reader)
        self.requests.append(request)
        answer = self.answer(request)
        if answer.pause is not None:
            await answer.pause()
        content = answer.content if isinstance(answer.content, bytes) else msgspec.json.encode(answer.content)
        headers = {"Content-Length": str(len(content)), "Connection": "close", **answer.headers}
        lines = [f"HTTP/1.1 {answer.status} Scripted", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*lines, "", ""]).encode() + content)
        await writer.drain()


async def read_request(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    method, target, _ = head[0].split(" ")
    lines = [line.partition(":") for line in head[1:] if line]
    headers = {name.lower(): value.strip() for name, _, value in lines}
    assert len(headers) == len(lines), "a header came twice"
    return Request(method, target, headers, await reader.readexactly(int(headers.get("content-length", "0"))))


@pytest.fixture
async def elapse() -> Elapse:
    """Lets seconds pass for the loop at once: what is due by then comes next."""
    loop = asyncio.get_running_loop()
    time, passed = loop.time, 0.0

    def move(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    setattr(loop, "time", lambda: time() + passed)  # noqa: B010 - a method is replaced
    return move


@pytest.fixture(autouse=True)
def nobody() -> Iterator[None]:
    """No test leaves its requester to the next."""
    yield
    requested_by.set(None)


async def failure_of(client: GuardedClient, url: str) -> FetchFailed:
    async with client:
        with pytest.raises(FetchFailed) as caught:
            await client.get_json(url)
    return caught.value


def loopback(bounds: Bounds | None = None) -> GuardedClient:
    return GuardedClient(allow_private_hosts=True, bounds=bounds)


class NameServers:
    """Silent for names with `slow` in them until they are told to speak; names with `none` in them are not known."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.spoken = threading.Event()
        self._heard = threading.Semaphore(0)

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        self._heard.release()
        if "slow" in host:
            assert self.spoken.wait(TIMEOUT)
        if "none" in host:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return ["93.184.216.34"]

    def wait_for(self, count: int) -> None:
        """Returns once they have been asked so often."""
        assert all(self._heard.acquire(timeout=TIMEOUT) for _ in range(count))


@pytest.fixture
def internet(monkeypatch: pytest.MonkeyPatch) -> Internet:
    return Internet(monkeypatch)


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tls:
    """Certificates, which are trusted in place of the system's."""
    made = Tls(tmp_path)
    monkeypatch.setattr(http, "system_tls", lambda: made.client)
    return made


@pytest.fixture
def name_servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[NameServers]:
    made = NameServers()
    monkeypatch.setattr(ip_addresses, "find_addresses", made)
    yield made
    made.spoken.set()


@asynccontextmanager
async def open_servers() -> AsyncIterator[Start]:
    """Starts servers and gives their ports; in the end they and what they do are ended."""
    servers: list[asyncio.Server] = []
    tasks: set[asyncio.Task[None]] = set()

    async def start(talk: Talk, tls: ssl.SSLContext | None) -> int:
        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            tasks.add(task)
            try:
                with suppress(asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
                    await talk(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(connected, "127.0.0.1", 0, ssl=tls)
        servers.append(server)
        port: int = server.sockets[0].getsockname()[1]
        return port

    yield start
    for server in servers:
        server.close()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for server in servers:
        await server.wait_closed()


@pytest.fixture
async def serve() -> AsyncIterator[Serve]:
    """Starts servers and gives their ports. A handler gets the head of each request; bytes are sent as they are."""
    async with open_servers() as start:

        async def serve(handler: Handler | bytes, tls: ssl.SSLContext | None = None) -> int:
            async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    if isinstance(handler, bytes):
                        writer.write(handler)
                        await writer.drain()
                        return
                    await handler(head, writer)

            return await start(talk, tls)

        yield serve


@pytest.fixture
async def open_site() -> AsyncIterator[OpenSite]:
    """Opens scripted servers, each at a port of its own."""
    async with open_servers() as start:

        async def open_one() -> Site:
            opened = Site(await start(lambda *ends: opened.serve(*ends), None))
            return opened

        yield open_one


@pytest.fixture
async def site(open_site: OpenSite) -> Site:
    """One scripted server."""
    return await open_site()
