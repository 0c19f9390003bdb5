"""A way between two servers on which packets, answers and connections get lost, by a seed."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from random import Random
from threading import Event, Lock
from typing import Literal
from urllib.parse import urlsplit

from tests.helpers import TIMEOUT
from tests.http_server import reply, serving

Fate = Literal["answered", "lost before", "lost after", "502 before", "502 after"]
LOSSES: Sequence[Fate] = ("lost before", "lost after", "502 after")
MOST_LOSSES = 2
KEPT = {"authorization", "accept", "content-type"}


class LossyLink:
    """Hands requests on to `target`, and loses some: before they arrive, or their answers afterwards.

    `loss` is the share of those that are lost, a numbered one twice at most, or waiting for it would take ever longer;
    `script` has the fates of the next requests instead. `numbered` says whether the numbers of requests and answers
    get through; `open` is how many requests have no answer yet. While `gate` is not set none goes on.
    """

    url = ""

    def __init__(self, target: str, seed: int, *, numbered: bool) -> None:
        self.target = urlsplit(target)
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

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answers a request as its fate is; a lost one by closing the connection."""
        with self._lock:
            self.open += 1
        try:
            body = handler.rfile.read(int(handler.headers["content-length"]))
            assert self.gate.wait(TIMEOUT)
            fate = self._fate(handler.headers.get("request-id", ""))
            status, headers, answer = 502, dict[str, str](), b""
            if not fate.endswith("before"):
                status, headers, answer = self._hand_on(self._kept(dict(handler.headers.items())), body)
            if fate.startswith("502"):
                status, headers, answer = 502, {}, b""
            if not fate.startswith("lost"):
                with suppress(ConnectionError):  # a test has killed the server
                    reply(handler, status, answer, **headers)
        finally:
            with self._lock:
                self.open -= 1

    def _fate(self, number: str) -> Fate:
        """What becomes of a request."""
        with self._lock:
            lost = self._chance.random() < self.loss and self._losses[number] < MOST_LOSSES
            self._losses[number] += lost and self.numbered
            fate = next(self.script, self._chance.choice(LOSSES) if lost else "answered")
            self.fates[fate] += 1
            return fate

    def _hand_on(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """The answer of the server beyond, or what a gateway says when it is gone."""
        with closing(HTTPConnection(self.target.hostname or "", self.target.port, timeout=TIMEOUT)) as connection:
            try:
                connection.request("POST", self.target.path, body, headers)
                response = connection.getresponse()
                return response.status, self._kept(dict(response.getheaders())), response.read()
            except (OSError, HTTPException):
                return 502, {}, b""

    def _kept(self, headers: dict[str, str]) -> dict[str, str]:
        """The headers that get through."""
        kept = KEPT | ({"request-id"} if self.numbered else set())
        return {name: value for name, value in headers.items() if name.lower() in kept}


@contextmanager
def lossy_link(url: str, seed: int, *, numbered: bool) -> Iterator[LossyLink]:
    """A link that loses nothing yet, until the block ends."""
    link = LossyLink(url, seed, numbered=numbered)
    with serving(link.answer) as port:
        link.url = f"http://127.0.0.1:{port}{link.target.path}"
        yield link
