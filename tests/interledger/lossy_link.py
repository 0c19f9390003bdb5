"""A way between two servers on which packets, answers and connections get lost, as a test wants it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from email.message import Message
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler
from threading import Event, Lock
from typing import Literal
from urllib.parse import urlsplit

from tests.helpers import TIMEOUT
from tests.http_server import reply, serving

Fate = Literal["answered", "lost before", "lost after", "502 before", "502 after"]
KEPT = {"authorization", "accept", "content-type"}


class LossyLink:
    """Hands requests on to `target`, and loses some: before they arrive, or their answers afterwards.

    `script` has the fates of the next requests, of which no number gets through; `open` is how many have no answer
    yet. While `gate` is not set none goes on.
    """

    url = ""

    def __init__(self, target: str) -> None:
        self.target = urlsplit(target)
        self.gate = Event()
        self.gate.set()
        self.open = 0
        self.script: Iterator[Fate] = iter(())
        self.fates: Counter[str] = Counter()
        self._lock = Lock()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """Answers a request as its fate is; a lost one by closing the connection."""
        with self._lock:
            self.open += 1
        try:
            body = handler.rfile.read(int(handler.headers["content-length"]))
            assert self.gate.wait(TIMEOUT)
            fate = self._fate()
            status, headers, answer = 502, dict[str, str](), b""
            if not fate.endswith("before"):
                status, headers, answer = self._hand_on(kept(handler.headers), body)
            if fate.startswith("502"):
                status, headers, answer = 502, {}, b""
            if not fate.startswith("lost"):
                with suppress(ConnectionError):  # a test has killed the server
                    reply(handler, status, answer, **headers)
        finally:
            with self._lock:
                self.open -= 1

    def _fate(self) -> Fate:
        """What becomes of a request."""
        with self._lock:
            fate: Fate = next(self.script, "answered")
            self.fates[fate] += 1
            return fate

    def _hand_on(self, headers: dict[str, str], body: bytes) -> tuple[int, dict[str, str], bytes]:
        """The answer of the server beyond, or what a gateway says when it is gone."""
        with closing(HTTPConnection(self.target.hostname or "", self.target.port, timeout=TIMEOUT)) as connection:
            try:
                connection.request("POST", self.target.path, body, headers)
                response = connection.getresponse()
                return response.status, kept(response.headers), response.read()
            except (OSError, HTTPException):
                return 502, {}, b""


def kept(headers: Message) -> dict[str, str]:
    """The headers that get through."""
    return {name: value for name, value in headers.items() if name.lower() in KEPT}


@contextmanager
def lossy_link(url: str) -> Iterator[LossyLink]:
    """A link that loses nothing yet, until the block ends."""
    link = LossyLink(url)
    with serving(link.answer) as port:
        link.url = f"http://127.0.0.1:{port}{link.target.path}"
        yield link
