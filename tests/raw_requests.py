"""Requests byte for byte, as no HTTP client would send them, and the signatures that go with them."""

import socket
from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from payres.core.signatures.sign import Message, sign
from tests.helpers import TIMEOUT, read_to_end
from tests.instance import Instance

Lines = Iterable[tuple[str, str]]


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


def answers_of(connection: socket.socket) -> list[Answer]:
    """All answers until the server closes its side."""
    received = read_to_end(connection)
    answers = []
    while received:
        head, _, received = received.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        length = int(headers["content-length"])
        answers.append(Answer(int(status.split(" ")[1]), headers, received[:length]))
        received = received[length:]
    return answers


def exchange(instance: Instance, sent: bytes) -> list[Answer]:
    """Sends bytes, and reads answers until the server hangs up, which the last request had better ask it to do."""
    address = urlsplit(instance.base_url)
    with socket.create_connection((address.hostname, address.port), timeout=TIMEOUT) as connection:
        with suppress(BrokenPipeError, ConnectionResetError):  # what is refused need not be read to its end
            connection.sendall(sent)
        return answers_of(connection)


def ask(instance: Instance, method: str, target: str, headers: Lines = (("host", "h"),), body: bytes = b"") -> Answer:
    """The answer to a request with just this target and these header lines."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers), "connection: close"]
    [answer] = exchange(instance, "\r\n".join([*lines, "", ""]).encode() + body)
    return answer


def signed(instance: Instance, method: str, uri: str, token: str, body: bytes = b"") -> list[tuple[str, str]]:
    """The headers of a request, its Host among them, as `shop` signs it."""
    sent = {"authorization": f"GNAP {token}"}
    if body:
        sent |= {"content-type": "application/json", "content-length": str(len(body))}
    message = Message(method, uri, [(name.encode(), value.encode()) for name, value in sent.items()], body)
    client = instance.client
    signature = sign(message, client.private_key.sign, client.jwk.kid, instance.clock.now() // 1_000_000)
    return [("host", "h"), *(sent | signature).items()]
