"""A webhook receiver for tests, which verifies events as an app must, keeps them, and waits for them."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from payres.core.protocol.clock import SECOND
from payres.testing.instance import Instance
from payres.webhooks.sender import signed_headers

MAX_AGE_SECONDS = 300  # of a webhook-timestamp, as in the Standard Webhooks libraries
ACCEPTED = 204
REFUSED = 401

Event = dict[str, Any]


class WebhookReceiver:
    """The webhook endpoint of an instance, at `url`, with its `secret`.

    `events` are the accepted events without duplicates, `refused` the problems of others. `answers` are the statuses of
    the next responses: after a 500 the event is sent again once the clock has moved on.
    """

    def __init__(self, instance: Instance, url: str, patterns: tuple[str, ...]) -> None:
        self._instance = instance
        self._changed = threading.Condition()
        self.url = url
        self.events: list[Event] = []
        self.refused: list[str] = []
        self.answers: list[int] = []
        self.secret = instance.webhook(url, *patterns)

    def wait_for(self, kind: str, count: int = 1, seconds: float = 10) -> list[Event]:
        """Waits for `count` events of a type, such as `incoming_payment.completed`, and returns them.

        Raises AssertionError if they have not arrived after `seconds`.
        """

        def found() -> list[Event]:
            return [event for event in self.events if event["type"] == kind]

        with self._changed:
            if not self._changed.wait_for(lambda: len(found()) >= count, seconds):
                come = ", ".join(event["type"] for event in self.events) or "none"
                raise AssertionError(f"{len(found())} of {count} {kind} have come in {seconds:g} s; of all: {come}")
            return found()

    def take(self, headers: dict[str, str], body: bytes) -> int:
        """Handles a request, with header names in lower case, and returns the status of the response."""
        with self._changed:
            problem = self._problem(headers, body)
            if problem is not None:
                self.refused.append(problem)
                return REFUSED
            status = self.answers.pop(0) if self.answers else ACCEPTED
            event = json.loads(body)
            if status == ACCEPTED and event not in self.events:
                self.events.append(event)
                self._changed.notify_all()
            return status

    def _problem(self, headers: dict[str, str], body: bytes) -> str | None:
        """Why the request is not authentic; None if it is."""
        id, timestamp = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
        if not timestamp.isdigit() or abs(self._instance.clock.outside() // SECOND - int(timestamp)) > MAX_AGE_SECONDS:
            return f"webhook-timestamp is not of now: {timestamp!r}"
        expected = signed_headers(id, int(timestamp), body, [self.secret])["webhook-signature"]
        return None if expected in headers.get("webhook-signature", "").split() else "webhook-signature is wrong"


@contextmanager
def receive_webhooks(instance: Instance, *patterns: str) -> Iterator[WebhookReceiver]:
    """Receives the events of an instance until the block ends: all, or those of types and patterns such as
    `incoming_payment.*`."""

    class Handler(QuickHandler):
        def do_POST(self) -> None:
            headers = {name.lower(): value for name, value in self.headers.items()}
            self.send_response(receiver.take(headers, self.rfile.read(int(headers["content-length"]))))
            self.send_header("Content-Length", "0")
            self.end_headers()

    with QuickServer(("127.0.0.1", 0), Handler) as server:
        receiver = WebhookReceiver(instance, f"http://127.0.0.1:{server.server_port}/", patterns)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield receiver
        finally:
            server.shutdown()
            thread.join()


class QuickServer(ThreadingHTTPServer):
    """Queues more than five connections: an overflow costs the sender a second."""

    request_queue_size = 128


class QuickHandler(BaseHTTPRequestHandler):
    """Logs nothing, and sends bodies before their headers are acknowledged, which takes 40 ms."""

    disable_nagle_algorithm = True

    def log_message(self, *_: object) -> None:
        pass
