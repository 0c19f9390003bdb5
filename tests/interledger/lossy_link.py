"""A way between two servers on which packets, answers and connections get lost, by a seed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from random import Random
from threading import Event, Lock, Thread
from typing import Literal
from urllib.parse import urlsplit

from tests.helpers import TIMEOUT

Fate = Literal["answered", "lost before", "lost after", "502 before", "502 after"]
Response = tuple[int, dict[str, str], bytes]
LOSSES: Sequence[Fate] = ("lost before", "lost after", "502 after")
MOST_LOSSES = 2
HOP_BY_HOP = {"connection", "content-length", "transfer-encoding", "host", "date", "server"}


class LossyLink(ThreadingHTTPServer):
    """Hands requests on to `url`, and loses some: before they arrive, or their answers afterwards.

    `loss` is the share of those that are lost, a numbered one twice at most, or waiting for it would take ever longer;
    `script` has the fates of the next requests instead. `numbered` says whether the numbers of requests and answers
    get through; `open` is how many requests have no answer yet. While `gate` is not set none goes on.
    """

    daemon_threads = True
    request_queue_size = (
        128  # a probe opens a dozen connections at once, and one that finds no room tries a second later
    )

    def __init__(self, url: str, seed: int, *, numbered: bool) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.target = urlsplit(url)
        self.numbered = numbered
        self.loss = 0.0
        self.gate = Event()
        self.gate.set()
        self.open = 0
        self.script: Iterator[Fate] = iter(())
        self.fates: Counter[str] = Counter()
        self._chance = Random(seed)
        self._losses: Counter[str] = Counter()
        self._lock = Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{self.target.path}"

    def fate(self, number: str) -> Fate:
        """What becomes of a request."""
        with self._lock:
            if told := next(self.script, None):
                self.fates[told] += 1
                return told
            lost = self._chance.random() < self.loss and self._losses[number] < MOST_LOSSES
            self._losses[number] += lost and self.numbered
            fate = self._chance.choice(LOSSES) if lost else "answered"
            self.fates[fate] += 1
            return fate

    def count(self, more: int) -> None:
        """One request more or less is open."""
        with self._lock:
            self.open += more

    def hand_on(self, headers: dict[str, str], body: bytes) -> Response:
        """The answer of the server beyond, or what a gateway says when it is gone."""
        connection = HTTPConnection(self.target.hostname or "", self.target.port, timeout=TIMEOUT)
        try:
            connection.request("POST", self.target.path, body, headers)
            response = connection.getresponse()
            return response.status, self.kept(dict(response.getheaders())), response.read()
        except (OSError, HTTPException):
            return 502, {}, b""
        finally:
            connection.close()

    def kept(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers that get through."""
        lost = HOP_BY_HOP | (set() if self.numbered else {"request-id"})
        return {name: value for name, value in headers.items() if name.lower() not in lost}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: LossyLink

    def handle(self) -> None:
        with suppress(ConnectionError):  # a test has killed the server
            super().handle()

    def do_POST(self) -> None:
        self.server.count(1)
        try:
            self._post()
        finally:
            self.server.count(-1)

    def _post(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        assert self.server.gate.wait(TIMEOUT)
        fate = self.server.fate(self.headers.get("request-id", ""))
        if fate == "lost before":
            self.close_connection = True
            return
        response: Response = 502, {}, b""
        if fate != "502 before":
            response = self.server.hand_on(self.server.kept(dict(self.headers.items())), body)
        if fate == "lost after":
            self.close_connection = True
            return
        status, headers, answer = (502, {}, b"") if fate == "502 after" else response
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's signature
        """Nothing: the test tells what matters."""


@contextmanager
def lossy_link(url: str, seed: int, *, numbered: bool) -> Iterator[LossyLink]:
    """A link that loses nothing yet, until the block ends."""
    link = LossyLink(url, seed, numbered=numbered)
    thread = Thread(target=link.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield link
    finally:
        link.shutdown()
        link.server_close()
        thread.join()
