"""Requests to other servers as sent, their limits, and whom failures count for."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from payres.core.process.rate_limiter import RateLimiter, Requester, requested_by
from payres.core.process.worker import cancel_all
from payres.core.protocol.errors import TooManyRequests
from payres.core.protocol.limits import (
    BURST_SECONDS,
    FAILED_SERVER_SECONDS,
    MAX_EXCHANGES,
    MAX_EXCHANGES_OF_CLIENT,
    MAX_EXCHANGES_OF_KEY,
    MAX_LOOKUPS_OF_CLIENT,
    MAX_LOOKUPS_OF_REQUESTS,
)
from payres.core.remote import transport
from payres.core.remote.connection import FetchFailed, GuardedConnection, SilentServer
from payres.core.remote.http import NOTHING, GuardedClient
from payres.core.remote.transport import Bounds, open_connection
from payres.testing.clock import MovableClock
from tests.core.remote.conftest import HURRY, UNHURRIED, Answer, Elapse, NameServers, Serve, Site, failure_of, loopback
from tests.helpers import settle
from tests.internet import Internet
from tests.tls import Tls

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
OK_ONCE = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
ADDRESS, CLIENT = ("203.0.113.1",), ("https://shop.example/alice",)
KEY: Requester = ("203.0.113.1", "thumbprint")


async def test_get_json_asks_for_json_without_coding_cookies_or_credentials(site: Site) -> None:
    site.pages["GET /alice?b=1"] = Answer({"a": [1]}, headers={"Set-Cookie": "mark=1; Path=/"})
    async with loopback() as client:
        for _ in range(2):
            assert (await client.get_json(f"{site.base}/alice?b=1"))[0] == {"a": [1]}
            sent = {"host": site.base[7:], "accept": "application/json", "accept-encoding": "identity"}
            assert site.requests.pop().headers == sent | {"user-agent": "payres"}


async def test_request_sends_method_headers_and_body_and_returns_any_status(site: Site) -> None:
    site.pages["POST /"] = Answer(b"gone", 404, {"X-One": "a\r\nX-ONE: b"})
    headers = {"Content-Type": "application/json", "Content-Length": "2", "Signature": "sig1=:AA==:"}
    async with loopback() as client:
        response = await client.request("POST", f"{site.base}/", headers, b"{}", makes=NOTHING)
    assert (response.status, response.headers["x-one"], response.body) == (404, "a, b", b"gone")
    [sent] = site.requests
    assert (sent.method, sent.headers["content-length"], sent.body) == ("POST", "2", b"{}")
    assert sent.headers["signature"] == "sig1=:AA==:"


@pytest.mark.parametrize("header", ["a\r\nX-Other: b", "a\nb", "\u2603", "a\x00"])
async def test_header_value_that_would_be_several_is_not_sent(site: Site, header: str) -> None:
    async with loopback() as client:
        with pytest.raises(FetchFailed, match="cannot be written as HTTP") as caught:
            await client.request("GET", f"{site.base}/", {"Authorization": header})
    assert (caught.value.unsent, caught.value.retryable, site.requests) == (True, False, [])


async def test_proxies_of_the_environment_are_ignored(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    port, proxy = await serve(OK), await serve(b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"proxy"')
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
    async with loopback() as client:
        assert (await client.get_json(f"http://127.0.0.1:{port}/"))[0] == {}


# Time, and whether the request may have left


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("ftp://wallet.example/", "not an absolute http or https URL"),
        ("http://wallet.example/", "must start with https://"),
        ("https://none.example/", "has no public address"),
        ("https://inside.example/", "has no public address"),
        ("https://2852039166/", "has no public address"),
        *(
            (f"https://{host}/", "has no public address") for host in ("a..b", ".a.example", "a" * 64)
        ),  # no lookup takes
        ("https://slow.example/", "slow.example did not answer within 0.2 seconds"),
        ("https://refusing.example/", "The connection to refusing.example failed"),
        ("https://silent.example/", "silent.example did not answer within 0.2 seconds"),
    ],
)
async def test_request_that_had_no_connection_has_not_left(
    name_servers: NameServers, internet: Internet, tls: Tls, url: str, words: str
) -> None:
    internet.point("inside.example", ["10.0.0.1"])
    internet.point("silent.example", ["1.1.1.1"])
    internet.silent = ["1.1.1.1"]
    bounds = HURRY if "did not answer within" in words else UNHURRIED
    failure = await failure_of(GuardedClient(False, bounds), url)
    assert words in failure.sentence
    assert failure.unsent


async def test_request_may_have_less_time_than_the_bounds_give(serve: Serve, elapse: Elapse) -> None:
    async def silent(head: bytes, writer: asyncio.StreamWriter) -> None:
        elapse(60)
        await asyncio.Event().wait()

    url = f"http://127.0.0.1:{await serve(silent)}/"
    async with loopback(UNHURRIED) as client:
        for seconds, sentence, unsent in (
            (30, "within 30 seconds", False),
            (600, "within 60 seconds", False),
            (None, "within 60 seconds", False),
            (0, "within 0 seconds", True),
        ):
            with pytest.raises(FetchFailed) as caught:
                await client.request("GET", url, seconds=seconds)
            assert caught.value.sentence.endswith(sentence)
            assert caught.value.unsent is unsent


# How many at a time


HOSTS = [f"127.1.{number // 200}.{number % 200 + 1}" for number in range(3 * MAX_EXCHANGES)]
Asked = Callable[..., Awaitable[int]]


@pytest.fixture
async def asked(internet: Internet) -> AsyncIterator[Asked]:
    """Asks so many hosts, or one so often, where nobody answers; how many of the requests are then in progress."""
    internet.silent = HOSTS
    client = loopback(Bounds(seconds=60, queue_seconds=0))
    tasks: list[asyncio.Task[object]] = []

    async def ask(requester: Requester | None, count: int = 1, host: str | None = None) -> int:
        requested_by.set(requester)
        hosts = [host or HOSTS[number] for number in range(len(tasks), len(tasks) + count)]
        new = [asyncio.create_task(client.get_json(f"http://{host}/")) for host in hosts]
        await settle()
        tasks.extend(new)
        failures = [task.exception() for task in new if task.done()]
        for failure in failures:
            assert isinstance(failure, FetchFailed)
            assert (failure.reason, failure.retryable, failure.unsent) == ("busy", True, True)
        return count - len(failures)

    yield ask
    await cancel_all(tasks)


async def test_exchanges_are_limited_for_whoever_asks(asked: Asked) -> None:
    assert await asked(KEY, MAX_EXCHANGES_OF_KEY + 1) == MAX_EXCHANGES_OF_KEY
    left = MAX_EXCHANGES_OF_CLIENT - MAX_EXCHANGES_OF_KEY
    assert await asked(ADDRESS, left + 1) == left
    assert await asked(CLIENT, MAX_EXCHANGES_OF_CLIENT + 1) == MAX_EXCHANGES_OF_CLIENT


async def test_payments_have_exchanges_of_their_own(asked: Asked) -> None:
    for number in range(8):
        assert await asked((f"192.0.2.{number}",), MAX_EXCHANGES // 8) == MAX_EXCHANGES // 8
    assert await asked(CLIENT) == 0
    assert await asked(None, MAX_EXCHANGES + 1) == MAX_EXCHANGES


async def test_one_who_asks_has_half_of_the_exchanges_with_a_host(asked: Asked) -> None:
    for requester, sent in ((ADDRESS, 2), (CLIENT, 2), (("192.0.2.1",), 0), (None, 4)):
        assert await asked(requester, 5, HOSTS[0]) == sent


async def test_exchanges_beyond_the_limit_wait_a_few_at_a_time(serve: Serve) -> None:
    running = most = 0
    four, go = asyncio.Event(), asyncio.Event()

    async def handler(head: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        if running == 4:
            four.set()
        await go.wait()
        running -= 1
        writer.write(OK)

    port = await serve(handler)
    async with loopback() as client:
        tasks = [asyncio.create_task(client.get_json(f"http://127.0.0.1:{port}/{n}")) for n in range(20)]
        await four.wait()
        go.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    assert most == 4
    assert [result[0] for result in results if isinstance(result, tuple)] == [{}] * 16
    assert {(r.reason, r.unsent) for r in results if isinstance(r, FetchFailed)} == {("busy", True)}


async def test_known_hosts_are_shared_by_all(serve: Serve) -> None:
    requested_by.set(KEY)
    port = await serve(OK_ONCE)
    count = 2 * MAX_EXCHANGES_OF_CLIENT
    async with loopback(Bounds(per_host=count, in_all=count, queue_seconds=0, untrusted_hosts=False)) as http:
        found = await asyncio.gather(*(http.get_json(f"http://127.0.0.1:{port}/") for _ in range(count)))
    assert [content for content, _ in found] == [{}] * count


# Servers that have just failed


class Server:
    """One that fails in a way that may change, and a client that asks it."""

    def __init__(self, elapse: Elapse) -> None:
        self.port, self.elapse = 0, elapse
        self.failing: str | None = None
        self.asked = 0
        self.client = loopback(UNHURRIED)

    async def open(self, protocol: Callable[[], GuardedConnection], address: str, port: int) -> object:
        self.asked += 1
        if self.failing == "refuses":
            raise ConnectionRefusedError
        if self.failing == "silent":
            self.elapse(UNHURRIED.seconds)
            await asyncio.Event().wait()
        return await open_connection(protocol, address, self.port)

    async def answer(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        if self.failing == "slow":
            self.elapse(UNHURRIED.seconds)
        else:
            writer.write(b"nonsense\r\n\r\n" if self.failing == "nonsense" else OK_ONCE)

    async def is_asked(self, requester: Requester | None, failing: str | None = None, port: int = 1) -> bool:
        """Whether a request was sent; it fails in this way."""
        self.failing, asked = failing, self.asked
        requested_by.set(requester)
        (outcome,) = await asyncio.gather(
            self.client.request("GET", f"http://127.0.0.1:{port}/"), return_exceptions=True
        )
        if self.asked == asked:
            assert isinstance(outcome, SilentServer)
            assert (outcome.reason, outcome.unsent, outcome.retryable) == ("unreachable", True, True)
            assert outcome.sentence == f"127.0.0.1:{port} did not answer a moment ago; try again in a few seconds"
        return self.asked > asked


@pytest.fixture
async def server(serve: Serve, elapse: Elapse, monkeypatch: pytest.MonkeyPatch) -> Server:
    made = Server(elapse)
    made.port = await serve(made.answer)
    monkeypatch.setattr(transport, "open_connection", made.open)
    return made


@pytest.mark.parametrize("failing", ["refuses", "silent"])
async def test_server_that_cannot_be_reached_is_not_asked_again_for_requests_a_while(
    server: Server, elapse: Elapse, failing: str
) -> None:
    assert await server.is_asked(ADDRESS, failing)
    elapse(FAILED_SERVER_SECONDS - 0.1)
    assert not await server.is_asked(CLIENT, failing)
    assert await server.is_asked(CLIENT, port=2)
    elapse(0.2)
    assert await server.is_asked(CLIENT, failing)


async def test_payment_asks_a_server_that_failed_and_its_failure_stops_no_request(server: Server) -> None:
    assert await server.is_asked(None, "refuses")
    assert await server.is_asked(ADDRESS, "refuses")
    assert await server.is_asked(None, "refuses")
    assert not await server.is_asked(ADDRESS)


async def test_server_that_is_slow_for_one_is_asked_for_others(server: Server) -> None:
    """What one asks for may take long where nothing else does."""
    assert await server.is_asked(ADDRESS, "slow")
    assert not await server.is_asked(ADDRESS, "slow")
    assert await server.is_asked(CLIENT, "slow")


async def test_server_that_answers_is_asked_again(server: Server) -> None:
    assert await server.is_asked(ADDRESS, "nonsense")
    assert await server.is_asked(ADDRESS, "refuses")
    assert await server.is_asked(None)
    assert await server.is_asked(ADDRESS, "nonsense")
    assert await server.is_asked(ADDRESS)


# Failures that count for a client


async def test_failed_requests_of_a_client_are_limited(serve: Serve) -> None:
    port = await serve(b"HTTP/1.1 404 Not Found\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}")
    clock = MovableClock(0, frozen=True)
    async with GuardedClient(True, failed_reads=RateLimiter(1, clock)) as client:
        for requester in (ADDRESS, ("", "thumbprint")):
            requested_by.set(requester)
            for _ in range(BURST_SECONDS):
                assert (await client.request("GET", f"http://127.0.0.1:{port}/")).status == 404
            with pytest.raises(TooManyRequests):
                await client.request("GET", f"http://127.0.0.1:{port}/")
        for other in (CLIENT, ("",), None):
            requested_by.set(other)
            for _ in range(2 * BURST_SECONDS if other != CLIENT else 1):
                assert (await client.request("GET", f"http://127.0.0.1:{port}/")).status == 404


async def test_lookups_that_others_have_filled_count_for_nobody(name_servers: NameServers) -> None:
    """Whoever names hosts whose lookup hangs would else have the failures of all others be taken for guesses."""
    failed_reads = RateLimiter(1, MovableClock(0, frozen=True))
    async with GuardedClient(True, UNHURRIED, failed_reads=failed_reads) as client:
        filling = []
        for number in range(MAX_LOOKUPS_OF_REQUESTS):
            requested_by.set((f"192.0.2.{number // MAX_LOOKUPS_OF_CLIENT}",))
            filling.append(asyncio.create_task(client.get_json(f"https://{number}.slow.example/")))
        await asyncio.to_thread(name_servers.wait_for, MAX_LOOKUPS_OF_REQUESTS)
        requested_by.set(CLIENT)
        for _ in range(2 * BURST_SECONDS):
            with pytest.raises(FetchFailed) as caught:
                await client.get_json("https://wallet.example/")
            assert (caught.value.reason, caught.value.unsent) == ("busy", True)
        await cancel_all(filling)
