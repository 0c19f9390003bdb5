"""Connections of the client for threads, which end each attempt in time: httpx times only the pauses of an answer."""

import socket
from collections.abc import Iterable
from concurrent.futures import Future
from contextvars import ContextVar
from math import inf
from ssl import SSLContext
from threading import Thread
from time import monotonic
from typing import Any, Final

import httpcore2
import httpx2

PIECE: Final = 16 * 1024  # bytes that are written at a time
_deadline: ContextVar[float] = ContextVar("deadline", default=inf)  # of the attempt that this thread makes


class TimedTransport(httpx2.HTTPTransport):
    """Gives an attempt the timeout for connecting, and again until its answer has been read."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._pool._network_backend = _Backend()  # httpx takes none as an argument

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Sends the request; the body of the answer is read before this thread sends another."""
        _deadline.set(monotonic() + 2 * request.extensions["timeout"]["read"])
        return super().handle_request(request)


class _Backend(httpcore2.SyncBackend):
    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        """Connects to the first address that accepts; each gets a share of the time, and all of it together."""
        end = monotonic() + (timeout or 0)
        addresses = _look_up(host, port, timeout)
        failure: Exception = httpcore2.ConnectError(f"{host} has no address")
        for number, address in enumerate(addresses):
            share = max(end - monotonic(), 0.001) / min(len(addresses) - number, 4)
            try:
                return _Stream(super().connect_tcp(address, port, share, local_address, socket_options))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure


class _Stream(httpcore2.NetworkStream):
    """A stream whose reads and writes end at the deadline of the attempt."""

    def __init__(self, stream: httpcore2.NetworkStream) -> None:
        self._stream = stream

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, min(timeout or inf, _left(httpcore2.ReadTimeout)))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        for start in range(0, len(buffer), PIECE):
            piece = buffer[start : start + PIECE]
            self._stream.write(piece, min(timeout or inf, _left(httpcore2.WriteTimeout)))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        left = min(timeout or inf, _left(httpcore2.ConnectTimeout))
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left(kind: type[Exception]) -> float:
    """The seconds until the deadline; an error of this kind if it is over."""
    left = _deadline.get() - monotonic()
    if left <= 0:
        raise kind("The answer did not end in time")
    return left


def _look_up(host: str, port: int, seconds: float | None) -> list[str]:
    """The addresses of a host. The system's resolver knows no timeout, so a thread of its own waits for it."""
    found: Future[list[Any]] = Future()

    def look_up() -> None:
        try:
            found.set_result(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except Exception as error:
            found.set_exception(error)

    Thread(target=look_up, name="payres.client.look_up", daemon=True).start()
    try:
        return list(dict.fromkeys(info[4][0] for info in found.result(seconds)))
    except TimeoutError as error:
        raise httpcore2.ConnectTimeout(f"The lookup of {host} did not end in time") from error
    except OSError as error:
        raise httpcore2.ConnectError(str(error)) from error
