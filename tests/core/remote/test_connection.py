"""Which answers are read, which are refused, and when a connection is reused."""

import asyncio
import gzip
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.core.remote.connection import MAX_FRAMING_BYTES, FetchFailed
from payres.core.remote.http import NOTHING, GuardedClient
from payres.core.remote.transport import KEEPALIVE_SECONDS, Bounds
from tests.core.remote.conftest import HURRY, UNHURRIED, Elapse, Serve, failure_of, loopback, open_servers
from tests.helpers import examples

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
# By words of its sentence: the reason, and whether the exchange may be repeated.
FAILURES = {
    "instead of 200": ("unreachable", False),
    "500 instead of 200": ("unreachable", True),
    "did not answer with JSON": ("bad_content", False),
    "more than 65536 bytes": ("bad_content", False),
    "broke off": ("unreachable", True),
    "is not valid HTTP": ("bad_content", True),
    "has longer headers": ("bad_content", True),
    "a content coding": ("bad_content", True),
    "did not answer within": ("unreachable", True),
}


async def check_failure(client: GuardedClient, port: int, words: str) -> None:
    failure = await failure_of(client, f"http://127.0.0.1:{port}/")
    assert words in failure.sentence
    assert (failure.reason, failure.retryable) == FAILURES[words]
    if failure.reason == "bad_content" and failure.retryable:  # the exchange itself failed
        assert not failure.unsent


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "500 instead of 200"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "instead of 200"),
        (b"HTTP/1.1 301 Moved\r\nLocation: http://[::\r\nContent-Length: 0\r\n\r\n", "instead of 200"),
        (b"HTTP/1.1 301 Moved\r\nLocation: \xff\xfe\r\nContent-Length: 0\r\n\r\n", "instead of 200"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "did not answer with JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<html", "did not answer with JSON"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"\xff"', "did not answer with JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n" + b"[" * 50000, "did not answer with JSON"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n" + b" " * 65537, "more than 65536 bytes"),
        (b"", "broke off"),
        (b"HTTP/1.1 200", "broke off"),
        (b"HTTP/1.1 100 Continue\r\n\r\n", "broke off"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", "broke off"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "is not valid HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "is not valid HTTP"),
        (CHUNKED + b"zz\r\n", "is not valid HTTP"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000 + b"\r\n\r\n", "has longer headers"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 50_000 + b"\r\n", "has longer headers"),
        (b"HTTP/1.1 103 Early Hints\r\n\r\n" * (MAX_FRAMING_BYTES // 28 + 1), "has longer headers"),
        (CHUNKED + b"1;" + b"x" * MAX_FRAMING_BYTES, "has longer headers"),
        (CHUNKED + b"0\r\nX: " + b"x" * MAX_FRAMING_BYTES, "has longer headers"),
    ],
)
async def test_bad_answer_is_a_failure(serve: Serve, answer: bytes, words: str) -> None:
    await check_failure(loopback(UNHURRIED), await serve(answer), words)


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity, gzip"])
async def test_compressed_body_is_not_unpacked(serve: Serve, coding: str) -> None:
    bomb = gzip.compress(b" " * 20_000_000)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(bomb)}\r\n\r\n"
    await check_failure(loopback(), await serve(head.encode() + bomb), "a content coding")


async def test_get_json_takes_a_body_of_exactly_the_bound(serve: Serve) -> None:
    port = await serve(b"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n" + b" " * 65534 + b"[]")
    async with loopback() as client:
        assert await ask(client, port) == [[]]


@pytest.mark.parametrize("framing", [b"", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 999999999999\r\n"])
async def test_endless_body_is_not_read_on(serve: Serve, framing: bytes) -> None:
    sent = 0
    stopped = asyncio.Event()

    async def endless(head: bytes, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        writer.write(b"HTTP/1.1 200 OK\r\n" + framing + b"\r\n")
        chunk = b"2000\r\n" + b" " * 8192 + b"\r\n" if b"chunked" in framing else b" " * 8192
        try:
            while True:
                writer.write(chunk)
                await writer.drain()
                sent += len(chunk)
        finally:
            stopped.set()

    await check_failure(loopback(), await serve(endless), "more than 65536 bytes")
    await stopped.wait()
    assert sent < 50_000_000


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", b" "),
        (CHUNKED, b"1\r\n \r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
        (b"", None),
        (b"HTTP/1.1 200 OK\r\n", None),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{", None),
    ],
)
async def test_answer_that_trickles_or_stops_takes_no_more_than_its_time(
    serve: Serve, start: bytes, drop: bytes | None
) -> None:
    async def slowly(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        while drop is not None:  # each byte comes well before a bound on single reads would end the wait
            writer.write(drop)
            await writer.drain()
            await asyncio.sleep(0.01)
        await asyncio.Event().wait()

    await check_failure(loopback(HURRY), await serve(slowly), "did not answer within")


FRAGMENTS = st.sampled_from(
    [
        *(b"HTTP/1.1 ", b"200", b"302", b" OK", b"\r\n", b"\r\n\r\n", b"\n", b":", b"{}", b"\x00", b"5;x=y"),
        *(b"Location: ", b"http://[", b"//\xff", b"Set-Cookie: a=b; expires=", b"Transfer-Encoding: chunked"),
        *(b"Content-Encoding: gzip", b"Content-Length: 3", b"Connection: close"),
    ]
)


@examples(150)
@given(st.lists(FRAGMENTS | st.binary(max_size=8), max_size=12), st.booleans())
def test_get_json_raises_nothing_but_fetch_failed(fragments: list[bytes], plausible: bool) -> None:
    answer = (b"HTTP/1.1 302 Found\r\n" if plausible else b"") + b"".join(fragments)

    async def answer_once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)

    async def fetch() -> None:
        async with open_servers() as start, loopback() as client:
            with suppress(FetchFailed):
                await client.get_json(f"http://127.0.0.1:{await start(answer_once, None)}/")

    asyncio.run(fetch())


class Server:
    """Gives the same answer to each request; counts its connections."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer
        self.writers: list[asyncio.StreamWriter] = []

    async def __call__(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        if writer not in self.writers:
            self.writers.append(writer)
        writer.write(self.answer)


async def ask(client: GuardedClient, port: int, times: int = 1) -> Sequence[Any]:
    return [(await client.get_json(f"http://127.0.0.1:{port}/"))[0] for _ in range(times)]


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        (OK, 1),
        (CHUNKED + b"1\r\n{\r\n1\r\n}\r\n0\r\nX: y\r\n\r\n", 1),
        (b"HTTP/1.1 103 Early Hints\r\nLink: </>\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n" + OK, 1),
        (b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}", 3),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", 3),
        (OK + OK, 3),  # the second is nobody's, and shall not be taken for the answer to what is asked next
        (OK + b"5;x=y", 3),
    ],
)
async def test_connection_is_used_again_after_an_answer_that_leaves_it_clean(
    serve: Serve, answer: bytes, connections: int
) -> None:
    server = Server(answer)
    async with loopback() as client:
        assert await ask(client, await serve(server), times=3) == [{}] * 3
    assert len(server.writers) == connections


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_body_may_end_with_the_connection(serve: Serve, version: bytes) -> None:
    async with loopback() as client:
        assert await ask(client, await serve(b"HTTP/" + version + b" 200 OK\r\n\r\n[1]")) == [[1]]


@pytest.mark.parametrize("unasked", [None, b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"planted"'])
async def test_connection_that_the_server_has_closed_or_spoken_on_is_not_used_again(
    serve: Serve, unasked: bytes | None
) -> None:
    server = Server(OK)
    port = await serve(server)
    async with loopback() as client:
        await ask(client, port)
        server.writers[0].write_eof() if unasked is None else server.writers[0].write(unasked)
        await server.writers[0].wait_closed()  # after the client has closed its end
        assert await ask(client, port) == [{}]
    assert len(server.writers) == 2


@pytest.mark.parametrize(
    "first", [b"204 No Content\r\n\r\n", b"304 Not Modified\r\n\r\n", b"200 OK\r\nContent-Length: 0\r\n\r\n"]
)
async def test_request_that_gets_no_answer_does_not_get_that_of_the_one_before(serve: Serve, first: bytes) -> None:
    requests: list[bytes] = []

    async def answer_once(head: bytes, writer: asyncio.StreamWriter) -> None:
        requests.append(head)
        writer.write(b"HTTP/1.1 " + first) if len(requests) == 1 else writer.close()

    port = await serve(answer_once)
    async with loopback() as client:
        assert (await client.request("POST", f"http://127.0.0.1:{port}/", makes=NOTHING)).status == int(first[:3])
        with pytest.raises(FetchFailed, match="broke off"):
            await client.request("POST", f"http://127.0.0.1:{port}/", makes=NOTHING)
    assert len(requests) == 2


async def test_connection_is_not_used_again_after_long_silence(serve: Serve, elapse: Elapse) -> None:
    server = Server(OK)
    port = await serve(server)
    async with loopback() as client:
        await ask(client, port, times=2)
        elapse(KEEPALIVE_SECONDS)
        await ask(client, port)
    assert len(server.writers) == 2


async def test_no_more_connections_are_kept_than_the_bounds_say(serve: Serve) -> None:
    servers = [Server(OK) for _ in range(3)]
    ports = [await serve(server) for server in servers]
    async with loopback(Bounds(idle=2)) as client:
        for port in [*ports, *ports[1:], ports[0]]:
            await ask(client, port)
        assert [len(server.writers) for server in servers] == [2, 1, 1]
        await client.aclose()
        await ask(client, ports[2])
    assert [len(server.writers) for server in servers] == [2, 1, 2]


async def test_connection_of_one_server_is_not_used_for_another_name_or_port(serve: Serve) -> None:
    first, second = Server(OK), Server(OK)
    port, other = await serve(first), await serve(second)
    async with loopback() as client:
        for url in (f"http://127.0.0.1:{port}/", f"http://localhost:{port}/", f"http://127.0.0.1:{other}/"):
            await client.get_json(url)
    assert (len(first.writers), len(second.writers)) == (2, 1)
