"""The client against servers that mean it harm: each call ends, with an error of the client."""

import asyncio
import gzip
import itertools
import json
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from threading import Event
from typing import Any

import httpx2
import pytest

from payres.client import AsyncClient, PendingGrant, access, checks, errors
from payres.core.protocol.wire import WalletAddress
from tests.client.clients import Script, opened
from tests.client.test_client import BASE, MADE, NEXT, TOKEN, WALLET, answer, scripted
from tests.http_server import serving

Get = Callable[..., WalletAddress]
BOMB = gzip.compress(gzip.compress(b"[" * checks.MOST_BYTES * 4))


def by_thread(url: str, **options: Any) -> WalletAddress:
    with opened(url, max_retries=0, is_documented=False, **options) as client:
        return client.wallet_address.get(url)


def by_task(url: str, **options: Any) -> WalletAddress:
    async def get() -> WalletAddress:
        async with AsyncClient(url, max_retries=0, **options) as client:
            return await client.wallet_address.get(url)

    with ThreadPoolExecutor(1) as thread:  # because Playwright has a loop in that of the tests
        return thread.submit(asyncio.run, get()).result()


flavours = pytest.mark.parametrize("get", [by_thread, by_task])


@flavours
@pytest.mark.parametrize("status", [200, 400])
def test_body_that_is_too_long_is_not_kept(get: Get, status: int) -> None:
    sent = []

    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        handler.end_headers()
        with suppress(OSError):
            for number in itertools.count():
                handler.wfile.write(b"[" * 1024 * 1024)
                sent.append(number)

    with serving(send) as port, pytest.raises(errors.InvalidAnswer, match="longer than"):
        get(f"http://127.0.0.1:{port}/alice", timeout=30)
    assert len(sent) < 100


@flavours
def test_bomb_is_not_unpacked(get: Get) -> None:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip, gzip")
        handler.send_header("Content-Length", str(len(BOMB)))
        handler.end_headers()
        handler.wfile.write(BOMB)

    with serving(send) as port, pytest.raises(errors.InvalidAnswer, match="longer than"):
        get(f"http://127.0.0.1:{port}/alice", timeout=30)


@flavours
def test_body_that_drips_ends_with_the_timeout(get: Get) -> None:
    def send(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(200)
        handler.end_headers()
        with suppress(OSError):
            while True:
                handler.wfile.write(b" ")
                time.sleep(0.001)

    with serving(send) as port, pytest.raises(errors.AnswerLost, match="did not end in time"):
        get(f"http://127.0.0.1:{port}/alice", timeout=1)


@flavours
def test_interim_answers_without_end_end_with_the_timeout(get: Get) -> None:
    def send(handler: BaseHTTPRequestHandler) -> None:
        with suppress(OSError):
            while True:
                handler.wfile.write(b"HTTP/1.1 103 Early Hints\r\n\r\n")
                time.sleep(0.001)

    with serving(send) as port, pytest.raises(errors.AnswerLost, match=r"in time|timed out"):
        get(f"http://127.0.0.1:{port}/alice", timeout=0.5)


@flavours
def test_head_that_comes_byte_by_byte_ends_with_the_timeout(get: Get) -> None:
    """Each byte comes in time, and all together long after it."""

    def send(handler: BaseHTTPRequestHandler) -> None:
        document = json.dumps(
            {"id": "i", "assetCode": "USD", "assetScale": 2, "authServer": "a", "resourceServer": "r"}
        )
        head = f"HTTP/1.1 200 OK\r\nX-Padding: {'a' * 800}\r\nContent-Length: {len(document)}\r\n\r\n"
        with suppress(OSError):
            for character in head:
                handler.wfile.write(character.encode())
                time.sleep(0.01)
            handler.wfile.write(document.encode())

    with serving(send) as port, pytest.raises(errors.AnswerLost, match=r"in time|timed out"):
        get(f"http://127.0.0.1:{port}/alice", timeout=0.5)


@flavours
def test_handshake_that_comes_byte_by_byte_ends_with_the_timeout(get: Get) -> None:
    def send(taken: socket.socket) -> None:
        with taken, suppress(OSError):
            taken.sendall(b"\x16\x03\x03\x40\x00")  # a record of 16 KiB
            while not is_left.wait(0.01):
                taken.sendall(b"\x02")

    is_left = Event()
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as thread:
        sending = thread.submit(lambda: send(server.accept()[0]))
        try:
            with pytest.raises(errors.NotSent, match=r"wallet_address.get at 127\.0\.0\.1:[0-9]+ was not sent"):
                get(f"https://127.0.0.1:{server.getsockname()[1]}/alice", timeout=0.5)
        finally:
            is_left.set()
        sending.result()


@flavours
def test_request_that_is_not_read_ends_with_the_timeout(get: Get) -> None:
    """The server accepts the connection and reads nothing."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/{'a' * 60_000}"
        with pytest.raises(errors.AnswerLost, match="got no answer"):
            get(url, timeout=0.5)


@pytest.mark.parametrize(
    "url", ["https://a..b/", f"https://{'a' * 70}.example/", "https://pay.example:99999/", "https://x/\ud800"]
)
def test_url_that_no_socket_takes_is_no_url(url: str) -> None:
    with scripted(Script()) as client:
        for get in (client.wallet_address.get, client.wallet_address.get_keys):
            with pytest.raises(errors.ConfigurationError):
                get(url)


@pytest.mark.parametrize("granted", [5, None, {"type": "quote"}, ["quote"]])
def test_access_that_no_grant_can_keep_is_an_invalid_answer(granted: Any) -> None:
    script = Script(answer(200, NEXT | {"access_token": TOKEN | {"access": granted}}))
    with scripted(script) as client, pytest.raises(errors.InvalidAnswer, match="access"):
        client.grant.request(BASE, access.quote("create"))


@pytest.mark.parametrize("seconds", [10**400, 10**20])
def test_server_that_asks_to_wait_for_ever_is_not_waited_for(seconds: int) -> None:
    pending = PendingGrant(continue_uri=f"{BASE}/continue/1", continue_token="c")
    early = {"error": {"code": "too_fast", "details": {"wait": seconds}}}
    for body, status in ((early, 400), ({"continue": NEXT["continue"] | {"wait": seconds}}, 200)):
        script = Script(httpx2.Response(status, content=json.dumps(body).encode()))
        with scripted(script) as client, pytest.raises(errors.WaitTimeout):
            client.grant.wait(pending, timeout=1.5)
        assert len(script.asked) == 1


@pytest.mark.parametrize("url", ["https://[shop/?hash=x&interact_ref=y", "https://shop℀.example/"])
def test_return_to_what_is_no_url_continues_nothing(url: str) -> None:
    pending = PendingGrant(continue_uri=f"{BASE}/continue/1", continue_token="c", server=BASE, client_nonce="n")
    script = Script()
    with scripted(script) as client, pytest.raises(errors.HashMismatch):
        client.grant.finish(pending, url)
    assert not script.asked


def test_pages_without_payments_end() -> None:
    numbers = itertools.count()

    def respond(_: httpx2.Request) -> httpx2.Response:
        number = next(numbers)
        result = [MADE] if number == 0 else []
        pagination = {"hasNextPage": True, "hasPreviousPage": True, "endCursor": str(number)}
        return answer(200, {"pagination": pagination, "result": result})

    with scripted(httpx2.MockTransport(respond)) as client:
        assert len(list(client.outgoing_payment.iterate(BASE, "token", wallet_address=WALLET))) == 1
    assert next(numbers) == 2


def test_cookies_of_servers_are_not_kept() -> None:
    with scripted(Script(answer(200, MADE, set_cookie="a=b"))) as client:
        client.outgoing_payment.get(f"{BASE}/outgoing-payments/1", "token")
        assert not client._core.http.cookies
