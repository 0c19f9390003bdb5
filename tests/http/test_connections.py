import resource
from collections.abc import Callable

import pytest
from uvicorn.config import Config
from uvicorn.server import ServerState

from payres.http import connections
from payres.http.connections import Connections, connections_of
from payres.limits import MAX_BUFFERED_BYTES, MAX_CONNECTIONS_PER_ADDRESS


async def nothing(scope: object, receive: object, send: object) -> None:
    """An application."""


def config(proxies: str = "127.0.0.1", *, proxy_headers: bool = True) -> Config:
    config = Config(nothing, forwarded_allow_ips=proxies, proxy_headers=proxy_headers, log_config=None)
    config.load()
    return config


class Connection:
    """One for which bytes are kept, or that is idle."""

    def __init__(self, size: int = 0) -> None:
        self.size = size
        self.is_cut = self.is_closed = False

    def buffered_bytes(self) -> int:
        return self.size

    def cut(self) -> None:
        self.is_cut = True

    def shutdown(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize(
    ("client", "counted"),
    [
        (("203.0.113.1", 1), "203.0.113.1"),
        (("2001:db8::1", 1), "2001:db8::/64"),
        (("::ffff:203.0.113.1", 1), "203.0.113.1"),
        (("127.0.0.1", 1), None),
        (("::1", 1), None),
        (("198.51.100.7", 1), None),
        (("192.0.2.77", 1), None),
        (None, None),
    ],
)
def test_proxies_and_this_machine_are_not_counted(client: tuple[str, int] | None, counted: str | None) -> None:
    assert Connections(config("198.51.100.7,192.0.2.0/24")).counted_address(client) == counted


def test_without_proxy_headers_nobody_is_a_proxy() -> None:
    counted = Connections(config("198.51.100.7", proxy_headers=False)).counted_address(("198.51.100.7", 1))
    assert counted == "198.51.100.7"


def test_enter_and_leave_count_each_address() -> None:
    counts = Connections(config())
    assert [counts.enter("a"), counts.enter("a"), counts.enter("b")] == [1, 2, 1]
    counts.leave("a")
    assert counts.enter("a") == 2
    for address in "aab":
        counts.leave(address)
    assert not counts._open


@pytest.mark.parametrize(("more", "cut"), [(-1, [False, False, False]), (0, [False] * 3), (1, [True, False, False])])
def test_buffers_of_all_are_limited_and_the_oldest_is_cut(more: int, cut: list[bool]) -> None:
    counts = Connections(config())
    kept = [Connection(1000), Connection(MAX_BUFFERED_BYTES - 2000), Connection(1000 + more)]
    for connection in kept:
        counts.buffer(connection)
    assert [connection.is_cut for connection in kept] == cut


def test_as_many_are_cut_as_it_takes() -> None:
    counts = Connections(config())
    kept = [Connection(MAX_BUFFERED_BYTES // 10) for _ in range(10)]
    last = Connection(MAX_BUFFERED_BYTES // 2)
    for connection in [*kept, last]:
        counts.buffer(connection)
    assert [connection.is_cut for connection in [*kept, last]] == [True] * 5 + [False] * 6


def test_one_that_is_too_much_by_itself_is_cut() -> None:
    counts, one = Connections(config()), Connection(MAX_BUFFERED_BYTES + 1)
    counts.buffer(one)
    assert one.is_cut
    assert (counts._total, counts._buffers) == (0, {})


def drop(counts: Connections, connection: Connection) -> None:
    counts.release(connection)
    counts.release(connection)


def shrink(counts: Connections, connection: Connection) -> None:
    connection.size = 0
    counts.buffer(connection)


def read(_: Connections, connection: Connection) -> None:
    connection.size = 0


@pytest.mark.parametrize("goes", [drop, shrink, read])
def test_what_has_been_read_meanwhile_does_not_count(goes: Callable[[Connections, Connection], None]) -> None:
    counts = Connections(config())
    first, second, third = Connection(1000), Connection(MAX_BUFFERED_BYTES - 1000), Connection(1000)
    counts.buffer(first)
    counts.buffer(second)
    goes(counts, first)
    counts.buffer(third)
    assert [connection.is_cut for connection in (first, second, third)] == [False, False, False]


def test_close_idle_closes_what_is_idle_for_longest() -> None:
    counts = Connections(config())
    first, second, third, fourth = made = [Connection() for _ in range(4)]
    for connection, address in zip(made, ("a", None, "b", "a"), strict=True):
        counts.enter_idle(connection, address)
    counts.leave_idle(first)
    counts.enter_idle(first, "a")
    assert (counts.close_idle("c"), counts.close_idle("a"), fourth.is_closed) == (False, True, True)
    assert (counts.close_idle(), second.is_closed, counts.close_idle(), third.is_closed) == (True,) * 4
    assert (counts.close_idle("b"), counts.close_idle(), first.is_closed, counts.close_idle()) == (
        False,
        True,
        True,
        False,
    )
    counts.leave_idle(first)  # when it has really ended
    assert (counts._idle, counts._idle_of) == ({}, {})


def test_each_server_counts_for_itself() -> None:
    first, second, settings = ServerState(), ServerState(), config()
    assert connections_of(first, settings) is connections_of(first, settings)
    assert connections_of(first, settings) is not connections_of(second, settings)


@pytest.mark.parametrize(("files", "most"), [(1024, 824), (12_200, 12_000), (20_000, 12_000), (100, 1), (-1, 12_000)])
def test_connections_leave_files_to_others(monkeypatch: pytest.MonkeyPatch, files: int, most: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (files, files))
    assert connections.most_connections() == most


@pytest.mark.parametrize(("most", "of_one"), [(12_000, MAX_CONNECTIONS_PER_ADDRESS), (824, 412), (1, 1)])
def test_one_address_never_has_all_connections(most: int, of_one: int) -> None:
    assert connections.most_of_one_address(most) == of_one
