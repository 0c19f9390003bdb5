"""Rules of webhooks, for their owners and for operators: new ones, pauses, secrets, tests."""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Literal

import msgspec

from payres.core.protocol.clock import HOUR
from payres.core.protocol.errors import InvalidRequest, WrongState, require
from payres.core.protocol.event_types import EVENT_TYPES, WebhookEvent
from payres.core.protocol.urls import is_http_url
from payres.core.remote.ip_addresses import names_private_host
from payres.core.store import audit, server_secrets
from payres.core.store.events import EventRecord, events_after, last_sequence
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import ROWS_AT_ONCE, Units, Work
from payres.webhooks.attempts import ToSend, note_attempts
from payres.webhooks.limits import MAX_WEBHOOKS_OF_WALLET, ROTATION_HOURS
from payres.webhooks.patterns import ALL, OF_WALLETS, TEST, matches
from payres.webhooks.sender import Attempt, Sender, WebhookTarget, new_webhook_secret, target_of
from payres.webhooks.store import webhooks as stored
from payres.webhooks.store.webhooks import ACTIVE_WEBHOOK, WEBHOOKS, WebhookRecord

WebhookState = Literal["active", "paused", "disabled"]


class Added(msgspec.Struct, frozen=True):
    """A webhook with its new secret, which is shown once."""

    webhook: WebhookRecord
    secret: str


def require_webhook(work: Work, id: str) -> WebhookRecord:
    """Raises NotFound."""
    return require(WEBHOOKS.get(work, id), f"There is no webhook {id!r}", "`payres webhook list` shows all")


def add_of_wallet(work: Work, wallet: WalletRecord, url: str) -> Added:
    """Adds a webhook for the wallet's events from now on, at a public https address.

    Raises InvalidRequest, and WrongState if the wallet has MAX_WEBHOOKS_OF_WALLET.
    """
    check_url(url, is_public=not work.settings.allow_private_hosts)
    if len(stored.webhooks_of(work, wallet.id)) >= MAX_WEBHOOKS_OF_WALLET:
        raise WrongState(f"The wallet has {MAX_WEBHOOKS_OF_WALLET} webhooks already; remove one first")
    stored.begin_events_of_wallets(work, last_sequence(work))
    return store(work, url, {"events": ",".join(OF_WALLETS), "is_private": 0, "wallet_address_id": wallet.id})


def store(work: Work, url: str, columns: Mapping[str, object]) -> Added:
    """Stores a new webhook, which gets what happens from now on."""
    secret = new_webhook_secret(work)
    encrypted, webhook_id = server_secrets.encrypt(work, stored.WEBHOOK_SECRETS, secret), work.new_id()
    times = {"cursor": last_sequence(work), "created_at": work.now}
    WEBHOOKS.create(work, id=webhook_id, url=url, **columns, state="active", secret=encrypted, **times)
    webhook = WEBHOOKS.by_id(work, webhook_id)
    audit.record(work, "webhook.add", webhook.id, url=url, events=webhook.events, name=webhook.name)
    work.changed.append(ACTIVE_WEBHOOK)
    return Added(webhook, secret)


def turn(work: Work, id: str, state: Literal["active", "paused"]) -> WebhookRecord:
    """Lets its events wait, or sends those that have waited. Raises NotFound, and WrongState if it is disabled."""
    before = require_webhook(work, id).state
    if before == "disabled":
        raise WrongState("The webhook is disabled, because it answered 410; a test that it accepts enables it")
    if before != state:
        WEBHOOKS.update(work, id, state=state)
        audit.record(work, "webhook.pause" if state == "paused" else "webhook.resume", id)
        work.changed += (ACTIVE_WEBHOOK, stored.DUE.changed)
    return require_webhook(work, id)


async def test(call: Units, sender: Sender, id: str) -> tuple[EventRecord, Attempt]:
    """Sends the event webhook.test now, and stores the answer. After a success, a disabled webhook is active again, and
    continues where it stopped. Raises NotFound, also if it was removed meanwhile."""
    with sender.testing(id):
        event, target = await call.write(partial(make_test, id=id))
        made = await sender.send(target, event)
    await call.write(partial(record_test, id=id, event=event, attempt=made))
    return event, made


def make_test(work: Work, id: str) -> tuple[EventRecord, WebhookTarget]:
    """The event that tests a webhook, and its target; the caller sends it. Raises NotFound."""
    webhook = require_webhook(work, id)
    work.emit(TEST, id, WebhookEvent(webhook=id, url=webhook.url))
    audit.record(work, "webhook.test", id)
    [event] = events_after(work, last_sequence(work) - 1, 1)
    return event, target_of(work, webhook)


def record_test(work: Work, id: str, event: EventRecord, attempt: Attempt) -> None:
    """Stores the result of a test. Raises NotFound."""
    is_disabled = require_webhook(work, id).state == "disabled"
    note_attempts(work, id, [(ToSend(event), attempt)])
    if attempt.error is None and is_disabled:
        WEBHOOKS.update(work, id, state="active")
        work.changed += (ACTIVE_WEBHOOK, stored.DUE.changed)


def rotate(work: Work, id: str) -> Added:
    """Makes a new secret; the old one also signs for a day, and an older one no longer. Raises NotFound."""
    webhook = require_webhook(work, id)
    secret = new_webhook_secret(work)
    encrypted, ends_at = server_secrets.encrypt(work, stored.WEBHOOK_SECRETS, secret), work.now + ROTATION_HOURS * HOUR
    WEBHOOKS.update(work, id, secret=encrypted, previous_secret=webhook.secret, previous_until=ends_at)
    audit.record(work, "webhook.rotate", id)
    return Added(require_webhook(work, id), secret)


async def remove(call: Units, id: str) -> None:
    """Ends a webhook and its deliveries. Raises NotFound."""
    await call.write(partial(begin_removal, id=id))
    while not await call.write(partial(stored.delete_webhook, webhook_id=id, rows=ROWS_AT_ONCE)):
        pass


def begin_removal(work: Work, id: str) -> None:
    """Disables a webhook that is to be removed, so that a crash does not leave it at work. Raises NotFound."""
    audit.record(work, "webhook.remove", id, url=require_webhook(work, id).url)
    WEBHOOKS.update(work, id, state="disabled")


def check_url(url: str, is_public: bool) -> None:
    """Raises InvalidRequest for an invalid URL, and for a private address or http unless the webhook is private."""
    if not is_http_url(url) or not url.isascii() or "#" in url:
        raise InvalidRequest(
            "The URL must be an absolute http or https URL, without spaces, user information and fragment", field="url"
        )
    if is_public and not url.lower().startswith("https://"):
        raise InvalidRequest(
            "The URL must start with https://; for an endpoint on this machine or in your network, mark it as private",
            field="url",
        )
    if is_public and names_private_host(url):
        raise InvalidRequest("The host is on this machine or in your network: mark the webhook as private", field="url")


def checked_patterns(patterns: Iterable[str]) -> str:
    """Names and patterns such as `incoming_payment.*`, each once; all events if there are none."""
    named = [name.strip() for text in patterns for name in text.split(",")]
    for name in named:
        if not any(matches(name, known) for known in EVENT_TYPES) or ALL in name[:-1]:
            raise InvalidRequest(
                f"{name!r} is neither an event nor a prefix of events followed by *; the events are: "
                f"{', '.join(EVENT_TYPES)}",
                field="events",
            )
    return ",".join(dict.fromkeys(named)) or ALL
