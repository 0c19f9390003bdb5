"""The operator's rules of webhooks: which events go where, secrets, tests and replays."""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from payres.clock import HOUR
from payres.errors import InvalidRequest, NotFound, WrongState, require
from payres.event_types import EVENT_TYPES, WebhookEvent
from payres.events.sender import Attempt, Target, new_secret, target_of
from payres.federation.ip_addresses import names_private_host
from payres.limits import MAX_WEBHOOKS, ROTATION_HOURS
from payres.store import audit, events, secrets
from payres.store.events import DELIVERIES, WEBHOOKS, DeliveryRecord, EventRecord, WebhookRecord
from payres.store.work import EVENTS, Work
from payres.urls import is_http_url

ALL: Final = "*"
TEST: Final = "webhook.test"  # goes only to its webhook, when it is made
# Deliveries that one call replays.
MOST_REPLAYED: Final = 10_000


class Added(msgspec.Struct, frozen=True):
    """A webhook with its new secret, which is shown once."""

    webhook: WebhookRecord
    secret: str


def add_webhook(work: Work, url: str, patterns: Iterable[str] = (), is_private: bool = False) -> Added:
    """A webhook for the named events, or all, from now on.

    Raises InvalidRequest, WrongState. A private one may use http, and loopback and private addresses.
    """
    if not is_http_url(url) or not url.isascii() or "#" in url:
        raise InvalidRequest(
            "The URL must be an absolute http or https URL, without blanks, user information and fragment", field="url"
        )
    is_public = not (is_private or work.settings.allow_private_hosts)
    if is_public and not url.lower().startswith("https://"):
        raise InvalidRequest(
            "The URL must start with https://; for an endpoint on this machine or in your network, say that it is"
            " private (--private)",
            field="url",
        )
    if is_public and names_private_host(url):
        raise InvalidRequest(
            "The host is on this machine or in your network: say that the webhook is private (--private)", field="url"
        )
    if len(events.list_webhooks(work)) >= MAX_WEBHOOKS:
        raise WrongState(f"There are {MAX_WEBHOOKS} webhooks already; remove one first")
    secret = new_secret(work)
    webhook = WebhookRecord(
        id=work.new_id(),
        url=url,
        events=_checked_patterns(patterns),
        is_private=int(is_private),
        state="active",
        secret=secrets.encrypt(work, events.WEBHOOK_SECRETS, secret),
        previous_secret=None,
        previous_until=None,
        cursor=events.last_sequence(work),
        created_at=work.now,
    )
    WEBHOOKS.insert(work, webhook)
    audit.record(work, "webhook.add", webhook.id, url=url, events=webhook.events)
    work.changed.append(EVENTS)
    return Added(webhook, secret)


def require_webhook(work: Work, webhook_id: str) -> WebhookRecord:
    """Raises NotFound."""
    found = WEBHOOKS.get(work, webhook_id)
    return require(found, f"There is no webhook {webhook_id!r}; `payres webhook list` shows all")


def remove_webhook(work: Work, webhook_id: str) -> WebhookRecord:
    """Removes the webhook and its deliveries. Raises NotFound."""
    webhook = require_webhook(work, webhook_id)
    events.delete_webhook(work, webhook_id)
    audit.record(work, "webhook.remove", webhook_id, url=webhook.url)
    return webhook


def rotate_secret(work: Work, webhook_id: str) -> Added:
    """A new secret. The old one signs too for ROTATION_HOURS. Raises NotFound."""
    webhook = require_webhook(work, webhook_id)
    secret = new_secret(work)
    encrypted = secrets.encrypt(work, events.WEBHOOK_SECRETS, secret)
    ends_at = work.now + ROTATION_HOURS * HOUR
    WEBHOOKS.update(work, webhook_id, secret=encrypted, previous_secret=webhook.secret, previous_until=ends_at)
    audit.record(work, "webhook.rotate", webhook_id)
    return Added(require_webhook(work, webhook_id), secret)


def replay_event(work: Work, event_id: str, webhook_id: str | None = None) -> Sequence[WebhookRecord]:
    """Sends an event again, to one webhook or to all active ones that want it; returns these.

    Raises NotFound, WrongState for a webhook that is disabled.
    """
    event = events.find_event(work, event_id)
    if event is None or event.type == TEST:
        raise NotFound(f"There is no event {event_id!r}; events are kept for 30 days")
    if webhook_id is not None:
        found = [_require_active(work, webhook_id)]
    else:
        found = [one for one in events.list_webhooks(work) if one.active and wants(one, event)]
    for webhook in found:
        _put_back(work, event.sequence, webhook.id)
    audit.record(work, "webhook.replay", event_id, webhooks=len(found))
    return found


def replay_failed(work: Work, webhook_id: str | None = None, since: int = 0) -> int:
    """Sends failed deliveries again whose last attempt was at a time (microseconds) or later; returns how many.

    Deliveries to disabled webhooks stay failed. Raises NotFound, WrongState.
    """
    if webhook_id is None:
        found = [one for one in events.list_webhooks(work) if one.active]
    else:
        found = [_require_active(work, webhook_id)]
    count = 0
    for webhook in found:
        for delivery in events.deliveries_of(work, webhook.id, "failed", MOST_REPLAYED):
            if (delivery.last_attempt_at or 0) >= since:
                _put_back(work, delivery.sequence, webhook.id)
                count += 1
    audit.record(work, "webhook.replay", "failed", deliveries=count)
    return count


def _require_active(work: Work, webhook_id: str) -> WebhookRecord:
    """Raises NotFound, WrongState."""
    webhook = require_webhook(work, webhook_id)
    if not webhook.active:
        raise WrongState(
            "The webhook is disabled, because its endpoint answered 410. When it answers well again,"
            f" `payres webhook test {webhook_id}` takes it up"
        )
    return webhook


def make_test(work: Work, webhook_id: str) -> tuple[EventRecord, Target]:
    """The event that tests a webhook, and where it goes; only the caller sends it. Raises NotFound."""
    webhook = require_webhook(work, webhook_id)
    audit.record(work, "webhook.test", webhook.id)
    work.emit(TEST, webhook.id, WebhookEvent(webhook=webhook.id, url=webhook.url))
    [event] = events.events_after(work, events.last_sequence(work) - 1, 1)
    return event, target_of(work, webhook)


def disable(work: Work, webhook: WebhookRecord) -> None:
    """Disables the webhook until a test succeeds, and writes the event of that."""
    WEBHOOKS.update(work, webhook.id, state="disabled")
    work.emit("webhook.disabled", webhook.id, WebhookEvent(webhook=webhook.id, url=webhook.url))


def record_test(work: Work, webhook_id: str, attempt: Attempt) -> None:
    """Stores the result of a test. If it succeeds, a disabled webhook continues where it was."""
    note_attempt(work, webhook_id, attempt)
    if attempt.error is None:
        WEBHOOKS.update(work, webhook_id, state="active")
        work.changed.append(EVENTS)


def note_attempt(work: Work, webhook_id: str, attempt: Attempt) -> None:
    """Stores the latest attempt."""
    columns = {"last_attempt_at": attempt.at, "last_status": attempt.status, "last_error": attempt.error}
    WEBHOOKS.update(work, webhook_id, **columns)


def wants(webhook: WebhookRecord, event: EventRecord) -> bool:
    """Whether the webhook gets events of this type. Tests go only to the webhook tested."""
    return event.type != TEST and any(_matches(pattern, event.type) for pattern in webhook.events.split(","))


def deliveries_of(work: Work, event: EventRecord) -> Sequence[DeliveryRecord]:
    """What became of an event at each webhook that gets it; one that is not sent yet is `pending`, without attempts."""
    stored = {one.webhook_id: one for one in events.deliveries_of_event(work, event.sequence)}
    return [
        stored.get(webhook.id) or _unstored(webhook, event)
        for webhook in events.list_webhooks(work)
        if webhook.id in stored or (wants(webhook, event) and webhook.created_at <= event.created_at)
    ]


def _unstored(webhook: WebhookRecord, event: EventRecord) -> DeliveryRecord:
    """The delivery of an event that the webhook took the first time, or still has before it."""
    state, attempts = ("delivered", 1) if event.sequence <= webhook.cursor else ("pending", 0)
    return DeliveryRecord(event.sequence, webhook.id, state, attempts, None, None, None, None)


def _matches(pattern: str, name: str) -> bool:
    return name.startswith(pattern[:-1]) if pattern.endswith(ALL) else name == pattern


def _checked_patterns(patterns: Iterable[str]) -> str:
    """Names and patterns such as `incoming_payment.*`, each once; all events when there are none."""
    named = [name.strip() for text in patterns for name in text.split(",")]
    for name in named:
        if not any(_matches(name, known) for known in EVENT_TYPES) or ALL in name[:-1]:
            raise InvalidRequest(
                f"{name!r} is no event, nor the beginning of some with a * behind it; there are: "
                f"{', '.join(EVENT_TYPES)}",
                field="events",
            )
    return ",".join(dict.fromkeys(named)) or ALL


def _put_back(work: Work, sequence: int, webhook_id: str) -> None:
    DELIVERIES.replace(work, DeliveryRecord(sequence, webhook_id, "pending", 0, work.now, None, None, None))
    work.changed.append(EVENTS)
