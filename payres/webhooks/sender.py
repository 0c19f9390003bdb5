"""Sends an event to a webhook: a POST to a guarded address, signed as in Standard Webhooks 1.0."""

import asyncio
import base64
import hmac
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec
from msgspec import Raw

from payres.core.protocol.clock import SECOND, Clock, format_time
from payres.core.protocol.errors import TooManyRequests
from payres.core.protocol.identifiers import base64url_decoded
from payres.core.protocol.wire import Resource, encode
from payres.core.remote.connection import FetchFailed
from payres.core.remote.http import NOTHING, GuardedClient
from payres.core.remote.transport import Bounds
from payres.core.store.events import EventRecord
from payres.core.store.work import Work
from payres.webhooks import limits
from payres.webhooks.store import webhooks
from payres.webhooks.store.webhooks import WebhookRecord

# Enough that no delivery waits for another.
AT_ONCE: Final = limits.MAX_WEBHOOKS * (limits.MAX_DELIVERIES_OF_WEBHOOK + 1)
TESTS_AT_ONCE: Final = 16
# Of owners' webhooks, where none waits either; they share lookups, and take nothing from these.
OWNERS_AT_ONCE: Final = webhooks.DUE.at_once * limits.MAX_DELIVERIES_OF_WEBHOOK + TESTS_AT_ONCE
OF_WALLETS: Final = Bounds(seconds=limits.DELIVERY_SECONDS, per_host=OWNERS_AT_ONCE, in_all=OWNERS_AT_ONCE)
BOUNDS: Final = Bounds(seconds=limits.DELIVERY_SECONDS, per_host=AT_ONCE, in_all=AT_ONCE, untrusted_hosts=False)
OPERATORS: Final = frozenset({"failure", "outgoingPayment"})
GONE: Final = 410
PREFIX: Final = "whsec_"

log = logging.getLogger("payres.events")


class EventView(Resource, frozen=True, kw_only=True):
    """An event, as it is also sent to webhooks; `timestamp` is when it happened, in RFC 3339."""

    id: str
    type: str
    timestamp: str
    sequence: int
    data: Raw


class WebhookTarget(msgspec.Struct, frozen=True):
    """A webhook and its signing secrets."""

    webhook: WebhookRecord
    secrets: tuple[str, ...]

    def __repr__(self) -> str:
        return f"Target({self.webhook.id})"  # never the secrets


class Attempt(msgspec.Struct, frozen=True):
    """The result of an attempt: the status of the response, if any, and the error, if it failed.

    `retry_after` is how many microseconds the endpoint asks to wait, `answer` the beginning of the body.
    """

    at: int
    status: int | None
    error: str | None
    retry_after: int = 0
    answer: bytes = b""
    milliseconds: int = 0


class Sender:
    """Sends events, those twice that `repeats`, which may be replaced, picks. Close it at the end. `attempts` counts
    its attempts by result: `taken` or `failed`."""

    def __init__(self, clock: Clock, allow_private_hosts: bool) -> None:
        self._clock = clock
        self.attempts = Counter[str]()
        self.repeats: Callable[[EventRecord], bool] = lambda event: False
        self._clients = {private: GuardedClient(private or allow_private_hosts, BOUNDS) for private in (False, True)}
        self._of_wallets = GuardedClient(allow_private_hosts, OF_WALLETS)
        self._tested: set[str] = set()

    @contextmanager
    def testing(self, webhook_id: str) -> Iterator[None]:
        """Around a test of a webhook. Raises TooManyRequests during another one of it, or too many."""
        if webhook_id in self._tested or len(self._tested) >= TESTS_AT_ONCE:
            raise TooManyRequests("A test is under way: wait for its answer", retry_after=limits.DELIVERY_SECONDS)
        self._tested.add(webhook_id)
        try:
            yield
        finally:
            self._tested.discard(webhook_id)

    async def send(self, target: WebhookTarget, event: EventRecord) -> Attempt:
        """Makes one attempt. Raises nothing."""
        loop = asyncio.get_running_loop()
        for _ in range(1 + self.repeats(event)):
            began = loop.time()
            attempt = await self._send(target, event)
            self.attempts["taken" if attempt.error is None else "failed"] += 1
        return msgspec.structs.replace(attempt, milliseconds=round((loop.time() - began) * 1000))

    async def _send(self, target: WebhookTarget, event: EventRecord) -> Attempt:
        now, webhook = self._clock.now(), target.webhook
        try:
            is_own = webhook.wallet_address_id is None
            client = self._clients[bool(webhook.is_private)] if is_own else self._of_wallets
            body = encode(event_view(event) if is_own else without_operators(event_view(event)))
            headers = {"content-type": "application/json", "accept": "*/*"}
            headers |= signed_headers(event.id, self._clock.outside() // SECOND, body, target.secrets)
            answer = await client.request("POST", webhook.url, headers, body, makes=NOTHING)
        except FetchFailed as error:
            return Attempt(now, None, error.sentence)
        except Exception as fault:
            log.exception("event %s could not be sent to webhook %s", event.id, webhook.id)
            return Attempt(now, None, f"payres failed to send it: {type(fault).__name__}")
        wait = _retry_after(answer.headers.get("retry-after", ""), now)
        failure = None if 200 <= answer.status < 300 else f"It was answered with {answer.status}"
        return Attempt(now, answer.status, failure, wait, answer.body[: limits.MAX_KEPT_ANSWER_BYTES])

    async def aclose(self) -> None:
        for client in (*self._clients.values(), self._of_wallets):
            await client.aclose()


def event_view(event: EventRecord) -> EventView:
    """The event as shown. Raises msgspec.DecodeError if its data is invalid."""
    data = msgspec.json.decode(event.data, type=Raw)
    return EventView(
        id=event.id, type=event.type, timestamp=format_time(event.created_at), sequence=event.sequence, data=data
    )


def without_operators(view: EventView) -> EventView:
    """The event for a wallet's owner. Without why a payment failed, which may name peers (the state is enough), and
    without the payer's payment that was refunded, which is another wallet's."""
    data = {key: one for key, one in msgspec.json.decode(view.data).items() if key not in OPERATORS}
    return msgspec.structs.replace(view, data=Raw(encode(data)))


def target_of(work: Work, webhook: WebhookRecord) -> WebhookTarget:
    """The webhook with its secrets."""
    return WebhookTarget(webhook, tuple(webhooks.signing_secrets(work, webhook, work.now)))


def new_webhook_secret(work: Work) -> str:
    """A secret of 256 random bits, in the format of receivers' libraries."""
    return PREFIX + base64.b64encode(base64url_decoded(work.new_secret())).decode()


def signed_headers(event_id: str, seconds: int, body: bytes, secrets: Sequence[str]) -> Mapping[str, str]:
    """The headers of an attempt at this time (seconds since 1970), with a signature for each secret.

    The signature is HMAC-SHA256 over id, timestamp and body.
    """
    content = f"{event_id}.{seconds}.".encode() + body
    return {
        "webhook-id": event_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(f"v1,{_signature(secret, content)}" for secret in secrets),
    }


def _signature(secret: str, content: bytes) -> str:
    key = base64.b64decode(secret.removeprefix(PREFIX))
    return base64.b64encode(hmac.digest(key, content, "sha256")).decode()


def _retry_after(text: str, now: int) -> int:
    """Microseconds requested by Retry-After (RFC 9110 section 10.2.3), bounded; 0 if it cannot be parsed."""
    if text.isascii() and text.isdigit() and len(text) < 10:
        wait = int(text) * SECOND
    else:
        try:
            wait = round(parsedate_to_datetime(text).timestamp() * SECOND) - now
        except (ValueError, OverflowError):
            return 0
    return max(min(wait, limits.MAX_RETRY_AFTER_SECONDS * SECOND), 0)
