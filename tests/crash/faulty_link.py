"""A way to a server that can go wrong in every way there is between two machines, and come right again."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from typing import Literal

Mode = Literal["fine", "reset", "hang", "cut off", "rubbish", "other server", "no name"]

MODES: tuple[Mode, ...] = ("reset", "hang", "cut off", "rubbish", "other server", "no name")
RESET_ON_CLOSE = struct.pack("ii", 1, 0)
SAID: dict[Mode, bytes] = {
    "rubbish": b"\x16\x03\x01\x00\xff" * 40 + b"\r\n\r\n",
    "other server": b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 13\r\n\r\n<html></html>",
}


class FaultyLink:
    """Listens on `port` and hands connections on to the port `beyond`, as long as `mode` is fine.

    `resolve` stands in for the lookup of names, which fails with `no name`.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self.beyond = 0
        self.mode: Mode = "fine"
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def become(self, mode: Mode) -> None:
        """From now on, and for the connections that are open."""
        with self._lock:
            self.mode = mode
            for connection in self._open:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def resolve(self, host: str, port: int) -> list[str]:
        """The address of any name: this machine."""
        if self.mode == "no name":
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return ["127.0.0.1"]

    def serve(self) -> None:
        """Takes connections until it is closed."""
        with suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._handle, args=[connection], daemon=True).start()

    def close(self) -> None:
        """Ends it, and every connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.become("reset")

    def _handle(self, connection: socket.socket) -> None:
        mode = self.mode
        with self._lock:
            self._open.add(connection)
        with suppress(OSError), connection:
            if mode == "fine":
                self._hand_on(connection, None)
            elif mode == "cut off":
                self._hand_on(connection, 60)
            elif mode == "reset":
                connection.recv(1024)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            elif mode == "hang":
                while connection.recv(65536):
                    pass
            elif mode in SAID:
                connection.recv(65536)
                connection.sendall(SAID[mode])
        with self._lock:
            self._open.discard(connection)

    def _hand_on(self, connection: socket.socket, most: int | None) -> None:
        """What comes from either side goes to the other; of answers, the first `most` bytes."""
        with socket.create_connection(("127.0.0.1", self.beyond)) as beyond:
            back = threading.Thread(target=pump, args=[beyond, connection, most], daemon=True)
            back.start()
            pump(connection, beyond, None)
            back.join()


def pump(source: socket.socket, sink: socket.socket, most: int | None) -> None:
    """Hands on what comes from one socket to another, and then the end."""
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data if most is None else data[:most])
            if most is not None:
                break
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@contextmanager
def faulty_link() -> Iterator[FaultyLink]:
    """A link, running until the block ends."""
    with closing(FaultyLink()) as link:
        thread = threading.Thread(target=link.serve, daemon=True)
        thread.start()
        yield link
    thread.join()
