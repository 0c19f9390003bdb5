"""What a connection to another server is used for, and when for nothing more."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from payres.federation.bounds import Bounds
from payres.federation.connection import MAX_FRAMING_BYTES, Connection
from payres.federation.failures import FetchFailed
from payres.federation.http import GuardedClient
from payres.federation.transport import KEEPALIVE_SECONDS
from tests.federation.conftest import Elapse, Serve

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Server:
    """Gives one answer after the other and then repeats the last; counts its connections."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.writers: list[asyncio.StreamWriter] = []

    async def __call__(self, head: bytes, writer: asyncio.StreamWriter) -> None:
        if writer not in self.writers:
            self.writers.append(writer)
        writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])


async def ask(client: GuardedClient, port: int, times: int = 1) -> Sequence[Any]:
    return [(await client.get_json(f"http://127.0.0.1:{port}/"))[0] for _ in range(times)]


@pytest.mark.parametrize(
    ("answer", "connections"),
    [
        (OK, 1),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{\r\n1\r\n}\r\n0\r\nX: y\r\n\r\n", 1),
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
    async with GuardedClient(True) as client:
        assert await ask(client, await serve(server), times=3) == [{}] * 3
    assert len(server.writers) == connections


@pytest.mark.parametrize("version", [b"1.0", b"1.1"])
async def test_body_may_end_with_the_connection(serve: Serve, version: bytes) -> None:
    async with GuardedClient(True) as client:
        assert await ask(client, await serve(b"HTTP/" + version + b" 200 OK\r\n\r\n[1]")) == [[1]]


async def test_connection_is_not_used_again_once_the_server_has_closed_it(serve: Serve) -> None:
    server = Server(OK)
    port = await serve(server)
    async with GuardedClient(True) as client:
        await ask(client, port)
        server.writers[0].write_eof()
        await server.writers[0].wait_closed()  # after the client has closed its end
        assert await ask(client, port) == [{}]
    assert len(server.writers) == 2


async def test_connection_is_not_used_again_once_the_server_has_spoken_unasked(serve: Serve) -> None:
    server = Server(OK)
    port = await serve(server)
    async with GuardedClient(True) as client:
        await ask(client, port)
        server.writers[0].write(b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n"planted"')
        await server.writers[0].wait_closed()
        assert await ask(client, port) == [{}]


@pytest.mark.parametrize(
    "first", [b"204 No Content\r\n\r\n", b"304 Not Modified\r\n\r\n", b"200 OK\r\nContent-Length: 0\r\n\r\n"]
)
async def test_request_that_gets_no_answer_does_not_get_that_of_the_one_before(serve: Serve, first: bytes) -> None:
    requests: list[bytes] = []

    async def answer_once(head: bytes, writer: asyncio.StreamWriter) -> None:
        requests.append(head)
        writer.write(b"HTTP/1.1 " + first) if len(requests) == 1 else writer.close()

    port = await serve(answer_once)
    async with GuardedClient(True) as client:
        assert (await client.request("POST", f"http://127.0.0.1:{port}/")).status == int(first[:3])
        with pytest.raises(FetchFailed, match="broke off"):
            await client.request("POST", f"http://127.0.0.1:{port}/")
    assert len(requests) == 2


async def test_answer_that_is_only_announced_has_broken_off(serve: Serve) -> None:
    port = await serve(b"HTTP/1.1 100 Continue\r\n\r\n")
    async with GuardedClient(True) as client:
        with pytest.raises(FetchFailed, match="broke off"):
            await client.request("POST", f"http://127.0.0.1:{port}/")


async def test_connection_is_not_used_again_after_long_silence(serve: Serve, elapse: Elapse) -> None:
    server = Server(OK)
    port = await serve(server)
    async with GuardedClient(True) as client:
        await ask(client, port, times=2)
        elapse(KEEPALIVE_SECONDS)
        await ask(client, port)
    assert len(server.writers) == 2


async def test_connection_is_closed_when_who_asked_is_cancelled_just_as_the_answer_comes(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = Server(OK)
    port = await serve(server)
    complete = Connection.on_message_complete
    async with GuardedClient(True) as client:
        asking = asyncio.create_task(ask(client, port))

        def cancel_then(connection: Connection) -> None:
            complete(connection)
            asking.cancel()

        monkeypatch.setattr(Connection, "on_message_complete", cancel_then)
        with pytest.raises(asyncio.CancelledError):
            await asking
        await server.writers[0].wait_closed()


async def test_no_more_connections_are_kept_than_the_bounds_say(serve: Serve) -> None:
    servers = [Server(OK) for _ in range(3)]
    ports = [await serve(server) for server in servers]
    async with GuardedClient(True, Bounds(idle=2)) as client:
        for port in [*ports, *ports[1:], ports[0]]:
            await ask(client, port)
    assert [len(server.writers) for server in servers] == [2, 1, 1]


async def test_connection_of_one_server_is_not_used_for_another_name_or_port(serve: Serve) -> None:
    first, second = Server(OK), Server(OK)
    port, other = await serve(first), await serve(second)
    async with GuardedClient(True) as client:
        for url in (f"http://127.0.0.1:{port}/", f"http://localhost:{port}/", f"http://127.0.0.1:{other}/"):
            await client.get_json(url)
    assert (len(first.writers), len(second.writers)) == (2, 1)


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 103 Early Hints\r\n\r\n" * (MAX_FRAMING_BYTES // 28 + 1),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;" + b"x" * MAX_FRAMING_BYTES,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX: " + b"x" * MAX_FRAMING_BYTES,
    ],
)
async def test_what_surrounds_a_body_is_bounded_too(serve: Serve, answer: bytes) -> None:
    async with GuardedClient(True, Bounds(seconds=60)) as client:
        with pytest.raises(FetchFailed) as caught:
            await ask(client, await serve(answer))
    assert caught.value.reason == "bad_response"
    assert "longer" in caught.value.sentence
