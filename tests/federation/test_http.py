import asyncio
import gzip
import json
import logging
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from payres.federation.bounds import Bounds
from payres.federation.connection import Connection
from payres.federation.failures import FetchFailed
from payres.federation.http import GuardedClient
from payres.federation.targets import parse_target
from payres.federation.transport import open_connection, system_tls
from payres.urls import is_http_url
from tests.federation.conftest import Elapse
from tests.helpers import TIMEOUT, examples
from tests.tls import server_tls

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
OK_ONCE = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
HURRY = Bounds(seconds=0.2, queue_seconds=0.2)  # for what never ends, and so for nothing that is to succeed
UNHURRIED = Bounds(seconds=60)


async def failure_of(client: GuardedClient, url: str) -> FetchFailed:
    async with client:
        with pytest.raises(FetchFailed) as caught:
            await client.get_json(url)
    return caught.value


def loopback(bounds: Bounds | None = None) -> GuardedClient:
    return GuardedClient(allow_private_hosts=True, bounds=bounds)


class Lookups:
    """A resolver that gives one answer after the other and then repeats the last."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.names: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.names.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class Detour:
    """Notes the addresses asked for and connects to a loopback port instead; some addresses do not answer."""

    def __init__(
        self, port: int, silent: Sequence[str] = (), refusing: Sequence[str] = (), elapse: Elapse = lambda _: None
    ) -> None:
        self.port = port
        self.silent = silent
        self.refusing = refusing
        self.elapse = elapse
        self.addresses: list[str] = []

    async def __call__(
        self, protocol: Callable[[], Connection], address: str, port: int, **tls: Any
    ) -> tuple[asyncio.BaseTransport, Connection]:
        self.addresses.append(address)
        if address in self.refusing:
            raise ConnectionRefusedError
        if address in self.silent:
            self.elapse(UNHURRIED.seconds / 3)
            await asyncio.Event().wait()
        return await open_connection(protocol, "127.0.0.1", self.port, **tls)


# What is asked for and what comes back


async def test_get_json_asks_for_json_without_coding_cookies_or_credentials(serve: Any) -> None:
    heads: list[bytes] = []

    async def handler(head: bytes, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        writer.write(b'HTTP/1.1 200 OK\r\nSet-Cookie: mark=1; Path=/\r\nContent-Length: 9\r\n\r\n{"a":[1]}')

    port = await serve(handler)
    async with loopback() as client:
        assert (await client.get_json(f"http://127.0.0.1:{port}/alice?b=1"))[0] == {"a": [1]}
        assert (await client.get_json(f"http://127.0.0.1:{port}/alice?b=1"))[0] == {"a": [1]}
    first, second = (head.decode().lower() for head in heads)
    assert first.startswith("get /alice?b=1 http/1.1\r\n")
    assert "\r\naccept: application/json\r\n" in first
    assert "\r\naccept-encoding: identity\r\n" in first
    assert "cookie" not in second


async def test_request_sends_method_headers_and_body_and_returns_any_status(serve: Any) -> None:
    seen: list[bytes] = []

    async def handler(head: bytes, writer: asyncio.StreamWriter) -> None:
        seen.append(head)
        writer.write(b"HTTP/1.1 404 Not Found\r\nX-One: a\r\nX-ONE: b\r\nContent-Length: 4\r\n\r\ngone")
        raise ConnectionError

    port = await serve(handler)
    headers = {"Content-Type": "application/json", "Content-Length": "2", "Signature": "sig1=:AA==:"}
    async with loopback() as client:
        response = await client.request("POST", f"http://127.0.0.1:{port}/", headers, b"{}")
    assert (response.status, response.headers["x-one"], response.body) == (404, "a, b", b"gone")
    sent = seen[0].decode().lower()
    assert sent.startswith("post / http/1.1\r\n")
    assert sent.count("content-length: 2\r\n") == 1
    assert "signature: sig1=:aa==:\r\n" in sent


async def test_request_returns_a_redirect_and_does_not_follow_it(serve: Any) -> None:
    other = await serve(OK)
    heads: list[bytes] = []

    async def handler(head: bytes, writer: asyncio.StreamWriter) -> None:
        heads.append(head)
        writer.write(f"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:{other}/\r\nContent-Length: 0\r\n\r\n".encode())

    port = await serve(handler)
    async with loopback() as client:
        response = await client.request("GET", f"http://127.0.0.1:{port}/")
        with pytest.raises(FetchFailed) as caught:
            await client.get_json(f"http://127.0.0.1:{port}/")
    assert response.status == 302
    assert caught.value.reason == "bad_status"
    assert "answered 302" in caught.value.sentence
    assert len(heads) == 2


async def test_client_ignores_proxies_of_the_environment(serve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    port, proxy = await serve(OK), await serve(b'HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\n"proxy"')
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy}")
    async with loopback() as client:
        assert (await client.get_json(f"http://127.0.0.1:{port}/"))[0] == {}


async def test_client_keeps_a_connection_and_opens_again_after_closing(serve: Any) -> None:
    async def handler(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(OK)

    port = await serve(handler)
    lookups = Lookups(["127.0.0.1"])
    async with GuardedClient(True, resolver=lookups) as client:
        for _ in range(3):
            await client.get_json(f"http://wallet.example:{port}/")
        assert lookups.names == ["wallet.example"]
        await client.aclose()
        await client.get_json(f"http://wallet.example:{port}/")
    assert lookups.names == ["wallet.example"] * 2


async def test_connection_in_use_when_the_client_is_closed_is_closed_after_its_answer() -> None:
    asked, answers, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await answers.wait()
        writer.write(OK)
        await reader.read()  # until the client closes
        writer.close()
        ended.set()

    async with await asyncio.start_server(connected, "127.0.0.1", 0) as server:
        client = loopback(UNHURRIED)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        asking = asyncio.create_task(client.get_json(url))
        await asked.wait()
        await client.aclose()
        answers.set()
        assert (await asking)[0] == {}
        async with asyncio.timeout(TIMEOUT):
            await ended.wait()


# Hostile answers


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n", "bad_status"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", "bad_status"),
        (b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", "bad_response"),
        (b"HTTP/1.1 301 Moved\r\nLocation: http://[::\r\nContent-Length: 0\r\n\r\n", "bad_status"),
        (b"HTTP/1.1 301 Moved\r\nLocation: \xff\xfe\r\nContent-Length: 0\r\n\r\n", "bad_status"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "bad_content"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n<html", "bad_content"),
        (b'HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n"\xff"', "bad_content"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 50000\r\n\r\n" + b"[" * 50000, "bad_content"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 65537\r\n\r\n" + b" " * 65537, "too_large"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{}", "bad_response"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "bad_response"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"a" * 300_000 + b"\r\n\r\n", "bad_response"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * 50_000 + b"\r\n", "bad_response"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "bad_response"),
        (b"", "bad_response"),
    ],
)
async def test_get_json_fails_with_a_word_for_each_bad_answer(serve: Any, answer: bytes, reason: str) -> None:
    port = await serve(answer)
    assert (await failure_of(loopback(), f"http://127.0.0.1:{port}/")).reason == reason


async def test_get_json_takes_a_body_of_exactly_the_bound(serve: Any) -> None:
    port = await serve(b"HTTP/1.1 200 OK\r\nContent-Length: 65536\r\n\r\n" + b" " * 65534 + b"[]")
    async with loopback() as client:
        assert (await client.get_json(f"http://127.0.0.1:{port}/"))[0] == []


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "identity, gzip"])
async def test_get_json_does_not_unpack_a_compressed_body(serve: Any, coding: str) -> None:
    bomb = gzip.compress(b" " * 20_000_000)
    head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {len(bomb)}\r\n\r\n"
    port = await serve(head.encode() + bomb)
    assert (await failure_of(loopback(), f"http://127.0.0.1:{port}/")).reason == "bad_response"


@pytest.mark.parametrize("framing", [b"", b"Transfer-Encoding: chunked\r\n", b"Content-Length: 999999999999\r\n"])
async def test_get_json_stops_reading_an_endless_body(serve: Any, framing: bytes) -> None:
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

    port = await serve(endless)
    assert (await failure_of(loopback(), f"http://127.0.0.1:{port}/")).reason == "too_large"
    await stopped.wait()
    assert sent < 50_000_000


async def trickle(writer: asyncio.StreamWriter, start: bytes, drop: bytes) -> None:
    """Never silent for long: each byte comes well before a bound on single reads would end the wait."""
    writer.write(start)
    while True:
        writer.write(drop)
        await writer.drain()
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("start", "drop"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"a"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 60000\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    ],
)
async def test_get_json_ends_an_exchange_that_trickles(serve: Any, start: bytes, drop: bytes) -> None:
    port = await serve(lambda head, writer: trickle(writer, start, drop))
    assert (await failure_of(loopback(HURRY), f"http://127.0.0.1:{port}/")).reason == "timeout"


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{"])
async def test_get_json_ends_an_exchange_that_falls_silent(serve: Any, start: bytes) -> None:
    async def silent(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(start)
        await asyncio.Event().wait()

    port = await serve(silent)
    assert (await failure_of(loopback(HURRY), f"http://127.0.0.1:{port}/")).reason == "timeout"


async def test_get_json_counts_the_lookup_into_its_time() -> None:
    async def slow(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        raise AssertionError

    failure = await failure_of(GuardedClient(False, HURRY, resolver=slow), "https://wallet.example/")
    assert (failure.reason, failure.sentence) == ("timeout", "wallet.example did not answer within 0.2 seconds")


async def test_client_can_be_used_again_after_a_timeout(serve: Any, elapse: Elapse) -> None:
    answers = [b"HTTP/1.1 200 OK\r\n", OK]

    async def handler(head: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(answers.pop(0))
        if answers:
            elapse(UNHURRIED.seconds)

    port = await serve(handler)
    async with loopback(Bounds(seconds=UNHURRIED.seconds, per_host=1, in_all=1)) as client:
        with pytest.raises(FetchFailed):
            await client.get_json(f"http://127.0.0.1:{port}/")
        assert (await client.get_json(f"http://127.0.0.1:{port}/"))[0] == {}


async def test_request_is_cancelled_with_its_task(serve: Any) -> None:
    arrived, port_open = asyncio.Event(), asyncio.Event()

    async def silent(head: bytes, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await port_open.wait()

    port = await serve(silent)
    async with loopback() as client:
        task = asyncio.create_task(client.get_json(f"http://127.0.0.1:{port}/"))
        await arrived.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task


async def test_client_runs_few_exchanges_at_a_time_with_one_host(serve: Any) -> None:
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
    assert {r.reason for r in results if isinstance(r, FetchFailed)} == {"busy"}


FRAGMENTS = st.sampled_from(
    [
        *(b"HTTP/1.1 ", b"200", b"302", b" OK", b"\r\n", b"\r\n\r\n", b"\n", b":", b"{}", b"\x00", b"5;x=y"),
        *(b"Location: ", b"http://[", b"//\xff", b"Set-Cookie: a=b; expires=", b"Transfer-Encoding: chunked"),
        *(b"Content-Encoding: gzip", b"Content-Length: 3", b"Connection: close"),
    ]
)


class Canned(asyncio.Transport):
    """Gives one answer to whatever is sent, and hangs up."""

    def __init__(self, answer: bytes) -> None:
        super().__init__()
        self.answer = answer
        self.protocol: Connection

    async def open(self, protocol: Callable[[], Connection], *_: object) -> tuple[asyncio.BaseTransport, Connection]:
        self.protocol = protocol()
        self.protocol.connection_made(self)
        return self, self.protocol

    def write(self, data: object) -> None:
        loop = asyncio.get_running_loop()
        if self.answer:
            loop.call_soon(self.protocol.data_received, self.answer)
        loop.call_soon(self.protocol.connection_lost, None)

    def is_closing(self) -> bool:
        return False

    def abort(self) -> None:
        """Nothing is open."""


@examples(150)
@given(st.lists(FRAGMENTS | st.binary(max_size=8), max_size=12), st.booleans())
def test_get_json_raises_nothing_but_fetch_failed(fragments: list[bytes], plausible: bool) -> None:
    answer = (b"HTTP/1.1 302 Found\r\n" if plausible else b"") + b"".join(fragments)

    async def fetch() -> None:
        async with GuardedClient(
            True, resolver=Lookups(["127.0.0.1"]), opener=Canned(answer).open, tls=NO_TRUST
        ) as client:
            with suppress(FetchFailed):
                await client.get_json("http://wallet.example/")

    asyncio.run(fetch())


NO_TRUST = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # made once: loading the system's certificates takes a while

# URLs and addresses

URL_PARTS = st.sampled_from(
    [
        *(
            "a",
            "B",
            "/",
            "/",
            "..",
            "/./",
            "/../",
            "?",
            "#",
            "%41",
            "%zz",
            "%",
            "é",
            "日本",
            "~",
            "&",
            "=",
            ";",
            ":",
            "@",
        ),
        *("[", "]", "{", "}", "`", "'", '"', "^", "|", "\\", "<", ">", "*", "!", "$", "(", ",", "+"),
    ]
)
HOSTS = st.sampled_from(
    [
        *(
            "pay.example",
            "PAY.Example:443",
            "pay.example:80",
            "pay.example:",
            "bücher.example",
            "faß.example",
            "☃.example",
        ),
        *(
            "127.0.0.1:8080",
            "0177.0.0.1",
            "127.0.0.1.",
            "\uff11\uff12\uff17.0.0.1",
            "127\u30020\u30020\u30021",
            "a_b.example",
        ),
        *("[::1]", "[::1]:80", "[::g]", "[v1.x]", "a..b", "-a.example", "xn--bcher-kva.example", "ex!ample"),
    ]
)


@given(st.sampled_from(["http", "https"]), HOSTS, st.lists(URL_PARTS, max_size=8))
def test_url_is_asked_for_as_httpx2_would(scheme: str, host: str, rest: list[str]) -> None:
    """An oracle that many rely on; of the client only what `is_http_url` lets through is asked for."""
    url = f"{scheme}://{host}/{''.join(rest)}"
    try:
        target = parse_target(url)
    except FetchFailed:
        if is_http_url(url):
            with pytest.raises(httpx2.InvalidURL):
                httpx2.URL(url)
        return
    expected = httpx2.URL(url)
    assert (target.scheme, target.host, target.port) == (expected.scheme, expected.raw_host.decode(), expected.port)
    assert (target.authority, target.path) == (expected.netloc.decode(), expected.raw_path.decode())


@pytest.mark.parametrize("url", ["https://[::1]x/", "https://[::1]80/", "https://a[::1]/", "https://[::1]]/"])
def test_url_with_more_than_an_address_in_brackets_is_bad(url: str) -> None:
    with pytest.raises(FetchFailed) as caught:
        parse_target(url)
    assert caught.value.reason == "bad_url"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "wallet.example",
        "//wallet.example/",
        "ftp://wallet.example/",
        "file:///etc/passwd",
        "http://wallet.example/",
        "http://1.1.1.1/",
        "https://",
        "https:///path",
        "https://user@wallet.example/",
        "https://user:word@wallet.example/",
        "https://:word@wallet.example/",
        "https://@wallet.example/",
        "https://wallet.example\\@127.0.0.1/",
        "https://wallet.example:99999/",
        "https://wallet.example:port/",
        "https://wallet.example/a b",
        "https://wallet.example/\r\nX: y",
        "https://[::1/",
        "https://0177.0.0.01/",
        "https://\uff11\uff12\uff17.0.0.1/",
        "https://wallet.example/" + "a" * 2048,
    ],
)
async def test_get_json_refuses_bad_urls_without_a_lookup(url: str) -> None:
    lookups = Lookups(["127.0.0.1"])
    failure = await failure_of(GuardedClient(False, resolver=lookups), url)
    assert failure.reason == "bad_url"
    assert lookups.names == []


@pytest.mark.parametrize("header", ["a\r\nX-Other: b", "a\nb", "\u2603", "a\x00"])
async def test_request_refuses_header_values_that_would_be_several(serve: Any, header: str) -> None:
    port = await serve(OK)
    async with loopback() as client:
        with pytest.raises(FetchFailed) as caught:
            await client.request("GET", f"http://127.0.0.1:{port}/", {"Authorization": header})
    assert caught.value.reason == "bad_request"


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "2130706433",
        "017700000001",
        "0x7f000001",
        "0x7f.1",
        "127.1",
        "0",
        "0.0.0.0",
        "169.254.169.254",
        "2852039166",
        "10.0.0.1",
        "192.168.0.1",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::a9fe:a9fe]",
        "[2002:7f00:1::]",
        "[fe80::1]",
        "[fd00::1]",
        "localhost",
    ],
)
async def test_get_json_refuses_hosts_that_are_not_public_as_the_system_reads_them(host: str) -> None:
    detour = Detour(1)
    failure = await failure_of(GuardedClient(False, opener=detour), f"https://{host}/latest/meta-data")
    assert failure.reason == "unresolvable"
    assert "has no public address" in failure.sentence
    assert detour.addresses == []


async def test_get_json_connects_to_the_very_address_it_checked(tls: "Tls", serve: Any) -> None:
    port = await serve(OK_ONCE, tls.server("wallet.example"))
    lookups = Lookups(["93.184.216.34"], ["127.0.0.1"])
    detour = Detour(port)
    async with GuardedClient(False, resolver=lookups, tls=tls.client, opener=detour) as client:
        assert (await client.get_json("https://wallet.example/"))[0] == {}
        assert (lookups.names, detour.addresses) == (["wallet.example"], ["93.184.216.34"])
        # The name points elsewhere now: the next connection is checked anew.
        with pytest.raises(FetchFailed) as caught:
            await client.get_json("https://wallet.example/")
    assert caught.value.reason == "unresolvable"
    assert detour.addresses == ["93.184.216.34"]
    assert "127.0.0.1" not in caught.value.sentence


async def test_get_json_tries_the_permitted_addresses_in_turn(tls: "Tls", serve: Any, elapse: Elapse) -> None:
    port = await serve(OK, tls.server("wallet.example"))
    lookups = Lookups(["10.0.0.1", "2606:4700::1", "1.1.1.1", "1.1.1.1", "fe80::1", "1.0.0.1"])
    detour = Detour(port, silent=["2606:4700::1"], refusing=["1.1.1.1"], elapse=elapse)
    async with GuardedClient(False, UNHURRIED, resolver=lookups, tls=tls.client, opener=detour) as client:
        assert (await client.get_json("https://wallet.example/"))[0] == {}
    assert detour.addresses == ["2606:4700::1", "1.1.1.1", "1.0.0.1"]


async def test_get_json_fails_when_no_address_takes_a_connection() -> None:
    lookups = Lookups(["1.1.1.1", "1.0.0.1"])
    detour = Detour(1, refusing=["1.1.1.1", "1.0.0.1"])
    failure = await failure_of(GuardedClient(False, resolver=lookups, opener=detour), "https://wallet.example/")
    assert failure.reason == "connection_failed"


@pytest.mark.parametrize("host", ["a..b", ".wallet.example", "a" * 64 + ".example"])
async def test_get_json_fails_for_names_that_no_lookup_takes(host: str) -> None:
    assert (await failure_of(GuardedClient(False), f"https://{host}/")).reason == "unresolvable"


async def test_get_json_fails_for_a_name_without_addresses() -> None:
    async def nothing(host: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    for resolver in (nothing, Lookups([])):
        for allowed in (False, True):
            failure = await failure_of(GuardedClient(allowed, resolver=resolver), "https://wallet.example/")
            assert failure.reason == "unresolvable"


async def test_get_json_does_not_tell_names_inside_from_names_that_are_not_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever could tell them apart would learn the names in the operator's network; the operator's log may."""

    async def nothing(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    told = set()
    with caplog.at_level(logging.DEBUG, "payres.federation"):
        for resolver in (nothing, Lookups([]), Lookups(["10.0.0.7"]), Lookups(["127.0.0.1", "fd00::7"])):
            failure = await failure_of(GuardedClient(False, resolver=resolver), "https://wiki.corp.example/")
            told.add((failure.reason, failure.sentence, failure.unsent))
    assert len(told) == 1
    assert "not known" in caplog.text
    assert "10.0.0.7" in caplog.text


@pytest.mark.parametrize("address", ["169.254.169.254", "fe80::1", "0.0.0.0"])
async def test_get_json_names_an_address_that_is_never_asked_where_private_ones_are(address: str) -> None:
    failure = await failure_of(GuardedClient(True, resolver=Lookups([address])), "http://wallet.example/")
    assert failure.reason == "forbidden_address"
    assert address not in failure.sentence


# TLS


class Tls:
    """Certificates that `client` trusts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)

    def server(self, name: str) -> ssl.SSLContext:
        path = self.directory / "server.pem"
        context = server_tls(path, name)
        self.client.load_verify_locations(path)
        return context


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return Tls(tmp_path)


async def test_get_json_refuses_a_certificate_for_another_name(tls: Tls, serve: Any) -> None:
    port = await serve(OK, tls.server("other.example"))
    client = GuardedClient(True, resolver=Lookups(["127.0.0.1"]), tls=tls.client)
    assert (await failure_of(client, f"https://wallet.example:{port}/")).reason == "connection_failed"


async def test_get_json_refuses_a_certificate_for_the_address_instead_of_the_name(tls: Tls, serve: Any) -> None:
    port = await serve(OK, tls.server("other.example"))
    client = GuardedClient(True, resolver=Lookups(["127.0.0.2"]), tls=tls.client, opener=Detour(port))
    assert (await failure_of(client, "https://wallet.example/")).reason == "connection_failed"


async def test_get_json_refuses_a_certificate_that_nobody_vouches_for(tls: Tls, serve: Any) -> None:
    port = await serve(OK, tls.server("wallet.example"))
    client = GuardedClient(True, resolver=Lookups(["127.0.0.1"]))
    assert (await failure_of(client, f"https://wallet.example:{port}/")).reason == "connection_failed"


async def test_get_json_refuses_a_certificate_that_the_environment_vouches_for(
    tls: Tls, serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = await serve(OK, tls.server("wallet.example"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.directory / "server.pem"))
    monkeypatch.setenv("SSL_CERT_DIR", str(tls.directory))
    client = GuardedClient(True, resolver=Lookups(["127.0.0.1"]))
    assert (await failure_of(client, f"https://wallet.example:{port}/")).reason == "connection_failed"


def test_certificates_are_those_of_the_system() -> None:
    ours, theirs = system_tls(), httpx2.create_ssl_context(trust_env=False)
    assert ours.cert_store_stats() == theirs.cert_store_stats()
    assert (ours.verify_mode, ours.check_hostname) == (ssl.CERT_REQUIRED, True)


async def test_get_json_closes_a_connection_whose_handshake_does_not_end(elapse: Elapse) -> None:
    closed = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        elapse(UNHURRIED.seconds)
        await reader.read()
        closed.set()
        writer.close()

    async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = GuardedClient(True, UNHURRIED, tls=NO_TRUST)
        assert (await failure_of(client, f"https://127.0.0.1:{port}/")).reason == "timeout"
        await closed.wait()


async def plain(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers a TLS handshake as a server of plain HTTP does."""
    await reader.read(1)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    writer.close()


async def test_get_json_fails_where_a_server_does_not_speak_tls() -> None:
    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        client = GuardedClient(True, tls=NO_TRUST)
        assert (await failure_of(client, f"https://127.0.0.1:{port}/")).reason == "connection_failed"


async def test_get_json_fails_for_a_port_that_nobody_listens_on(serve: Any) -> None:
    async with unused_port() as port:
        assert (await failure_of(loopback(), f"http://127.0.0.1:{port}/")).reason == "connection_failed"


@asynccontextmanager
async def unused_port() -> AsyncIterator[int]:
    """A port that is bound, so that nobody else gets it, and does not listen."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


# Whether the request may have left


async def slow_lookup(host: str, port: int) -> Sequence[str]:
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("client", "url"),
    [
        (GuardedClient(False), "ftp://wallet.example/"),
        (GuardedClient(False), "http://wallet.example/"),
        (GuardedClient(False, resolver=Lookups([])), "https://wallet.example/"),
        (GuardedClient(False, resolver=Lookups(["10.0.0.1"])), "https://wallet.example/"),
        (GuardedClient(False, HURRY, resolver=slow_lookup), "https://wallet.example/"),
        (
            GuardedClient(False, resolver=Lookups(["1.1.1.1"]), opener=Detour(0, refusing=["1.1.1.1"])),
            "https://wallet.example/",
        ),
        (
            GuardedClient(False, HURRY, resolver=Lookups(["1.1.1.1"]), opener=Detour(0, silent=["1.1.1.1"])),
            "https://wallet.example/",
        ),
    ],
)
async def test_request_that_had_no_connection_has_not_left(client: GuardedClient, url: str) -> None:
    assert (await failure_of(client, url)).unsent


async def test_request_has_not_left_before_the_handshake_ends() -> None:
    async with await asyncio.start_server(plain, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        assert (await failure_of(GuardedClient(True, tls=NO_TRUST), f"https://127.0.0.1:{port}/")).unsent


async def test_request_that_found_no_place_has_not_left(serve: Any, elapse: Elapse) -> None:
    arrived = asyncio.Event()

    async def silent(head: bytes, writer: asyncio.StreamWriter) -> None:
        arrived.set()
        await asyncio.Event().wait()

    port = await serve(silent)
    async with loopback(Bounds(seconds=UNHURRIED.seconds, queue_seconds=0, per_host=1, in_all=1)) as client:
        first = asyncio.create_task(client.get_json(f"http://127.0.0.1:{port}/"))
        await arrived.wait()
        with pytest.raises(FetchFailed) as caught:
            await client.get_json(f"http://127.0.0.1:{port}/")
        assert (caught.value.reason, caught.value.unsent) == ("busy", True)
        elapse(UNHURRIED.seconds)
        with pytest.raises(FetchFailed) as late:
            await first
        assert (late.value.reason, late.value.unsent) == ("timeout", False)


@pytest.mark.parametrize(
    "answer", [b"", b"HTTP/1.1 200", b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n{", b"nonsense\r\n\r\n"]
)
async def test_request_whose_answer_broke_may_have_arrived(serve: Any, answer: bytes) -> None:
    assert not (await failure_of(loopback(), f"http://127.0.0.1:{await serve(answer)}/")).unsent


async def test_request_may_have_less_time_than_the_bounds_give(serve: Any, elapse: Elapse) -> None:
    async def silent(head: bytes, writer: asyncio.StreamWriter) -> None:
        elapse(60)
        await asyncio.Event().wait()

    url = f"http://127.0.0.1:{await serve(silent)}/"
    async with loopback(Bounds(seconds=60)) as client:
        for seconds, sentence in (
            (30, "within 30 seconds"),
            (600, "within 60 seconds"),
            (None, "within 60 seconds"),
        ):
            with pytest.raises(FetchFailed) as caught:
                await client.request("GET", url, seconds=seconds)
            assert caught.value.sentence.endswith(sentence)
            assert not caught.value.unsent
        with pytest.raises(FetchFailed) as caught:
            await client.request("GET", url, seconds=0)
        assert caught.value.unsent


def test_importing_the_client_does_not_import_httpx2() -> None:
    program = (
        "import json, sys; from payres.federation.http import GuardedClient; import payres.federation.keys;"
        " GuardedClient(False); print(json.dumps([name for name in ('httpx2', 'httpcore2') if name in sys.modules]))"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(found.stdout) == []
