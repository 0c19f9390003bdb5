"""How the client of Open Payments fares through the client for URLs that others name."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from payres.client import AsyncClient, errors
from payres.core.process.rate_limiter import RateLimiter, requested_by
from payres.core.protocol.errors import TooManyRequests, Unavailable
from payres.core.protocol.limits import BURST_SECONDS
from payres.core.remote.http import GuardedClient
from payres.core.remote.transport import Bounds
from payres.interledger.client_transport import MAX_ANSWER_BYTES
from payres.interledger.identity import OwnIdentity
from payres.testing.clock import MovableClock
from tests.core.remote.conftest import UNHURRIED, Answer, Elapse, Serve, Site, loopback

OWN = "http://own.example/.well-known/pay"
LONG = b" " * MAX_ANSWER_BYTES


@asynccontextmanager
async def asking(http: GuardedClient) -> AsyncIterator[AsyncClient]:
    """The client of a server that asks through this."""
    identity = OwnIdentity(OWN, bytes(range(32)), MovableClock())
    async with http:
        try:
            yield identity.client(http, {})
        finally:
            await identity.aclose()


async def test_requests_are_those_of_the_guarded_client(site: Site) -> None:
    """The scripted server takes no header twice."""
    document = {"id": f"{site.base}/w", "assetCode": "USD", "assetScale": 2, "authServer": "a", "resourceServer": "r"}
    site.pages["GET /w"] = Answer(document, headers={"Set-Cookie": "a=b", "Content-Type": "text/plain"})
    async with asking(loopback()) as client:
        for _ in range(2):
            assert (await client.wallet_address.get(f"{site.base}/w")).id == document["id"]
    for request in site.requests:
        assert request.headers["host"] == site.base.removeprefix("http://")
        assert request.headers["accept-encoding"] == "identity"
        assert request.headers["user-agent"].startswith("payres-client/")
        assert not {"connection", "cookie"} & request.headers.keys()


async def test_each_guarded_client_has_its_own() -> None:
    http, other = loopback(), loopback()
    identity = OwnIdentity(OWN, bytes(range(32)), MovableClock())
    async with http, other:
        first = identity.client(http, {})
        assert identity.client(other, {}) is not first is identity.client(http, {})
        await identity.aclose()


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", errors.AnswerLost),
        (b"", errors.AnswerLost),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", errors.InvalidAnswer),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n{}", errors.InvalidAnswer),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 8194\r\n\r\n{}" + LONG, errors.InvalidAnswer),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1/\r\nContent-Length: 0\r\n\r\n", errors.InvalidAnswer),
    ],
)
async def test_answer_that_cannot_be_used(serve: Serve, answer: bytes, kind: type[Exception]) -> None:
    async with asking(loopback()) as client:
        with pytest.raises(kind):
            await client.wallet_address.get(f"http://127.0.0.1:{await serve(answer)}/w")


async def test_silence_is_an_answer_that_was_lost(serve: Serve, elapse: Elapse) -> None:
    async def silent(*_: object) -> None:
        elapse(UNHURRIED.seconds)
        await asyncio.Event().wait()

    async with asking(loopback(UNHURRIED)) as client:
        with pytest.raises(errors.AnswerLost):
            await client.wallet_address.get(f"http://127.0.0.1:{await serve(silent)}/w")


@pytest.mark.parametrize(
    ("guarded", "url", "kind"),
    [
        (loopback, "http://127.0.0.1:1/w", errors.NotSent),
        (lambda: GuardedClient(False), "https://127.0.0.1/w", errors.NotSent),
        (lambda: GuardedClient(False), "http://wallet.example/w", errors.ConfigurationError),
        (loopback, "http://user:secret@127.0.0.1/w", errors.ConfigurationError),
        (loopback, "javascript:alert(1)", errors.ConfigurationError),
    ],
)
async def test_what_was_never_sent(guarded: Callable[[], GuardedClient], url: str, kind: type[Exception]) -> None:
    async with asking(guarded()) as client:
        with pytest.raises(kind):
            await client.wallet_address.get(url)


async def test_server_that_is_busy_says_so_as_itself(serve: Serve) -> None:
    reached = asyncio.Event()

    async def silent(*_: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    url = f"http://127.0.0.1:{await serve(silent)}/w"
    async with asking(loopback(Bounds(seconds=60, queue_seconds=0, per_host=1))) as client:
        first = asyncio.create_task(client.wallet_address.get(url))
        await reached.wait()
        with pytest.raises(Unavailable):
            await client.wallet_address.get(url)
        first.cancel()
        with suppress(asyncio.CancelledError):
            await first


async def test_requester_that_fails_too_often_asks_no_more() -> None:
    requested_by.set(("somebody",))
    http = GuardedClient(True, failed_reads=RateLimiter(1, MovableClock(frozen=True)))
    async with asking(http) as client:
        for port in range(1, 1 + BURST_SECONDS):
            with pytest.raises(errors.NotSent):
                await client.wallet_address.get(f"http://127.0.0.1:{port}/w")
        with pytest.raises(TooManyRequests):
            await client.wallet_address.get("http://127.0.0.1:1/w")
