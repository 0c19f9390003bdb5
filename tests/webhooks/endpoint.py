"""An endpoint for webhooks, as an operator would run one on the same machine."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from typing import NamedTuple

import msgspec
import pytest
from standardwebhooks import Webhook

from payres.client import webhooks
from payres.core.protocol.clock import SECOND
from payres.testing.clock import MovableClock
from tests.helpers import Json, wait_until
from tests.http_server import reply, serving


class Received(NamedTuple):
    """A request as it came. Header names are lower-case."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def event(self) -> Json:
        found: Json = json.loads(self.body)
        return found

    def verified(self, secret: str) -> Json:
        """The event, as the official library gives it to a receiver with this secret; our own takes it too."""
        with self.at_its_time():
            found: Json = Webhook(secret).verify(self.body, dict(self.headers))
        sent_at = MovableClock(int(self.headers["webhook-timestamp"]) * SECOND, frozen=True)
        event = webhooks.verify(self.body, self.headers, secret, clock=sent_at)
        assert (event.id, event.type, event.sequence) == (found["id"], found["type"], found["sequence"])
        assert isinstance(event.data, msgspec.Struct), event.type
        return found

    @contextmanager
    def at_its_time(self) -> Iterator[None]:
        """As if it were the time of the attempt: the library rejects what is old, and tests move clocks."""
        sent_at = datetime.fromtimestamp(int(self.headers["webhook-timestamp"]), tz=UTC)

        class At(datetime):
            @classmethod
            def now(cls, tz: object = None) -> datetime:  # type: ignore[override]  # as it is called
                return sent_at

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("standardwebhooks.webhooks.datetime", At)
            yield


class Endpoint:
    """Keeps what it gets. `answer` says for each request with which status and headers, and may take its time; all have
    the same `body`."""

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.body = b""
        self.answer: Callable[[Received], tuple[int, Mapping[str, str]]] = lambda _: (200, {})

    @contextmanager
    def running(self) -> Iterator["Endpoint"]:
        with serving(self._take) as port:
            self.url = f"http://127.0.0.1:{port}/hook"
            yield self

    def _take(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers["content-length"]))
        headers = {name.lower(): value for name, value in handler.headers.items()}
        received = Received(handler.path, headers, body)
        self.received.append(received)
        status, more = self.answer(received)
        reply(handler, status, self.body, **more)

    def wait_for(self, number: int) -> list[Received]:
        """The requests so far, once there are so many."""
        wait_until(lambda: len(self.received) >= number, lambda: f"{len(self.received)} of {number} have come")
        return list(self.received)


def answering(*statuses: int, **headers: str) -> Callable[[Received], tuple[int, Mapping[str, str]]]:
    """Answers with these statuses in turn, and with the last one from then on."""
    left = list(statuses)

    def answer(_: Received) -> tuple[int, Mapping[str, str]]:
        return (left.pop(0) if len(left) > 1 else left[0]), {k.replace("_", "-"): v for k, v in headers.items()}

    return answer
