"""How long a client for threads takes to connect: looking up the name, and all of its addresses together."""

import socket
from itertools import count
from threading import Event
from typing import Any

import httpcore2
import pytest

from payres.client import calls, errors
from tests.client.test_calls_hostile_servers import by_thread
from tests.helpers import TIMEOUT
from tests.http_server import reply, serving

URL = "http://wallet.example:8080/alice"


def found(*addresses: str) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 8080)) for address in addresses]


def test_lookup_without_an_answer_ends_with_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    is_over = Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: is_over.wait(TIMEOUT) and found())
    with pytest.raises(errors.NotSent, match=r"lookup of .* did not end in time"):
        by_thread(URL, timeout=0.2)
    is_over.set()


def test_name_without_addresses_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", fail)
    with pytest.raises(errors.NotSent, match="Name or service not known"):
        by_thread(URL)


def test_addresses_share_the_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them drops packets, and takes all of its share."""
    now, shares = [0.0], []

    def connect(_: Any, address: str, port: int, timeout: float, *more: Any) -> Any:
        shares.append(timeout)
        now[0] += timeout
        raise httpcore2.ConnectTimeout(address)

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found(*(f"10.0.0.{n}" for n in range(8))))
    monkeypatch.setattr(httpcore2.SyncBackend, "connect_tcp", connect)
    monkeypatch.setattr(calls, "monotonic", lambda: now[0])
    with pytest.raises(errors.NotSent, match=r"10\.0\.0\.7"):
        by_thread(URL, timeout=20)
    assert len(shares) == 8
    assert sum(shares) == pytest.approx(20)


def test_the_next_address_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(handler: Any) -> None:
        reply(handler, 404)

    with serving(refuse) as port:
        look_up = socket.getaddrinfo
        addresses = [(*found("127.0.0.9")[0][:4], ("127.0.0.9", port)), *look_up("127.0.0.1", port)]
        monkeypatch.setattr(
            socket,
            "getaddrinfo",
            lambda host, *more, **named: addresses if host == "wallet.example" else look_up(host, *more, **named),
        )
        with pytest.raises(errors.NotFound):
            by_thread(f"http://wallet.example:{port}/alice")


def test_reads_and_writes_end_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read takes a second, of an answer that never ends; so does each write of a request that is not taken."""
    seconds = count()
    stream = calls._Stream(httpcore2.MockStream([b"a"] * 100))
    monkeypatch.setattr(calls, "monotonic", lambda: float(next(seconds)))
    token = calls._deadline.set(10)
    try:
        with pytest.raises(httpcore2.ReadTimeout):
            all(stream.read(1, timeout=5) for _ in range(100))
        with pytest.raises(httpcore2.WriteTimeout):
            stream.write(b"a" * calls.PIECE * 100, timeout=5)
    finally:
        calls._deadline.reset(token)
