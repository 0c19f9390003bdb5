"""Answers as they are written to the connection."""

import asyncio
import logging
from typing import Any

import pytest

from payres.http.exchange import Exchange
from payres.http.flow_control import Flow

DEFAULT = [(b"date", b"today")]


class Wire(asyncio.Transport):
    """A transport that keeps what is written to it, each time on its own."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_closed = False

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def close(self) -> None:
        self.is_closed = True


def start(status: int, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def body(content: bytes, more: bool = False) -> dict[str, Any]:
    return {"type": "http.response.body", "body": content, "more_body": more}


def length(size: int) -> tuple[bytes, bytes]:
    return b"content-length", b"%d" % size


def exchange_on(
    wire: Wire, method: str = "GET", version: str = "1.1", *, keep_alive: bool = True, completed: Any = None
) -> Exchange:
    return Exchange(
        scope={"method": method, "http_version": version},  # type: ignore[typeddict-item]  # all that an answer is made from
        transport=wire,
        flow=Flow(wire, bytearray()),
        logger=logging.getLogger(),
        access_logger=logging.getLogger(),
        access_log=False,
        default_headers=DEFAULT,
        message_event=asyncio.Event(),
        expect_100_continue=False,
        keep_alive=keep_alive,
        on_response=lambda: completed.append(None),
    )


def sent(wire: Wire, method: str, *messages: dict[str, Any], keep_alive: bool = True, version: str = "1.1") -> int:
    """Sends the messages of one answer; how often it was reported complete."""
    completed: list[None] = []

    async def send() -> None:
        exchange = exchange_on(wire, method, version, keep_alive=keep_alive, completed=completed)
        for message in messages:
            await exchange.send(message)

    asyncio.run(send())
    return len(completed)


def test_answer_of_known_length_is_written_at_once() -> None:
    wire = Wire()
    assert sent(wire, "GET", start(200, length(2), (b"x-one", b"1")), body(b"ok")) == 1
    assert wire.written == [b"HTTP/1.1 200 OK\r\ndate: today\r\ncontent-length: 2\r\nx-one: 1\r\n\r\nok"]
    assert not wire.is_closed


@pytest.mark.parametrize(
    ("method", "messages", "written"),
    [
        ("GET", [start(200, length(4)), body(b"ok", True), body(b"ok")], b"content-length: 4\r\n\r\nokok"),
        ("GET", [start(200), body(b"ok")], b"transfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"),
        ("HEAD", [start(200, length(2)), body(b"ok")], b"content-length: 2\r\n\r\n"),
        ("GET", [start(204), body(b"")], b"date: today\r\n\r\n"),
        ("GET", [start(304, length(2)), body(b"")], None),
    ],
)
def test_other_answers_are_framed_as_they_must_be(
    method: str, messages: list[dict[str, Any]], written: bytes | None
) -> None:
    wire = Wire()
    if written is None:  # a length that the answer does not have
        with pytest.raises(RuntimeError, match="shorter"):
            sent(wire, method, *messages)
    else:
        assert sent(wire, method, *messages) == 1
        assert b"".join(wire.written).endswith(written)


@pytest.mark.parametrize("headers", [[], [(b"connection", b"close")]])
def test_last_answer_says_so_and_closes(headers: list[tuple[bytes, bytes]]) -> None:
    wire = Wire()
    assert sent(wire, "GET", start(200, length(2), *headers), body(b"ok"), keep_alive=bool(headers)) == 1
    answer = b"".join(wire.written)
    assert answer.count(b"connection: close\r\n") == 1
    assert answer.endswith(b"\r\n\r\nok")
    assert wire.is_closed


@pytest.mark.parametrize("size", [4, None])
def test_answer_to_http_1_0_ends_with_its_connection(size: int | None) -> None:
    wire = Wire()
    headers = [] if size is None else [length(size)]
    parts = body(b"ok", True), body(b"ok")
    assert sent(wire, "GET", start(200, *headers), *parts, keep_alive=False, version="1.0") == 1
    head, _, content = b"".join(wire.written).partition(b"\r\n\r\n")
    assert head.count(b"connection: close") == 1
    assert b"transfer-encoding" not in head
    assert content == b"okok"
    assert wire.is_closed


@pytest.mark.parametrize("value", [b"a\r\nset-cookie: b", b"a\nb", b"a\rb"])
def test_header_with_a_line_break_is_never_written(value: bytes) -> None:
    wire = Wire()
    with pytest.raises(ValueError, match="line break"):
        sent(wire, "GET", start(200, length(2), (b"location", value)), body(b"ok"))
    assert not wire.written


@pytest.mark.parametrize("content", [b"o", b"okk"])
def test_body_of_another_length_than_announced_is_a_fault(content: bytes) -> None:
    with pytest.raises(RuntimeError, match="Content-Length"):
        sent(Wire(), "GET", start(200, length(2)), body(content))
