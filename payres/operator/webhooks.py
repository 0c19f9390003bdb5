"""Webhooks: which events are sent where, pauses, secrets and tests."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from payres.core.protocol.clock import HOUR
from payres.core.protocol.errors import InvalidRequest, WrongState, require
from payres.core.protocol.event_types import EVENT_TYPES, WebhookEvent
from payres.core.protocol.limits import MAX_WEBHOOKS, MAX_WEBHOOKS_OF_WALLET, ROTATION_HOURS
from payres.core.protocol.urls import is_http_url
from payres.core.protocol.wire import Resource, Text
from payres.core.remote.ip_addresses import names_private_host
from payres.core.store import server
from payres.core.store.events import EventRecord, events_after, last_sequence
from payres.core.store.wallets import WALLETS, WalletRecord
from payres.core.store.work import Environment, Units, Work
from payres.operator.api_keys import key_of_actor, require_scopes
from payres.operator.declarations import (
    FOR_GOOD,
    ROWS_AT_ONCE,
    TAKES_AWAY,
    Call,
    CommandLine,
    Listing,
    OperationForm,
    operation,
)
from payres.operator.inputs import MAX_NAME_LENGTH, check_name, said
from payres.operator.shapes import Cell, Column, Shape, Time, fact, path_of, represent
from payres.webhooks.deliveries import ALL, OF_WALLETS, TEST, ToSend, matches, note_attempts, wants
from payres.webhooks.sender import Attempt, Sender, WebhookTarget, new_webhook_secret, target_of
from payres.webhooks.store import webhooks as stored
from payres.webhooks.store.webhooks import ACTIVE_WEBHOOK, WEBHOOKS, WebhookRecord

WebhookState = Literal["active", "paused", "disabled"]
Patterns = Annotated[
    Annotated[tuple[Text, ...], Meta(max_length=100)],
    said("Only these, such as 'incoming_payment.*'.", option="--events", metavar="NAMES"),
]
WebhookName = Annotated[str, said("What you call it.", max_length=MAX_NAME_LENGTH)]
# The most events that are counted, so that showing a webhook stays fast.
MOST_COUNTED: Final = 1000


class Added(msgspec.Struct, frozen=True):
    """A webhook with its new secret, which is shown once."""

    webhook: WebhookRecord
    secret: str


class Webhook(Resource, frozen=True, kw_only=True):
    """`secret` is only present when it is new. `wallet_address` is that of the owner who added it, and whose events
    alone it gets; null for yours. `behind` counts the matching ones of the next thousand events, `failed`
    the events that are not sent again, up to a thousand."""

    id: str
    name: str | None
    url: str
    events: list[str]
    private: bool
    wallet_address: str | None
    state: WebhookState
    created_at: Time
    behind: int
    failed: int
    last_attempt_at: Time | None
    last_status: int | None
    last_error: str | None
    secret: str | UnsetType = UNSET


class WebhookTest(Resource, frozen=True, kw_only=True):
    """`status` is the status of the endpoint's answer, `error` why that is a failure; null on success."""

    event: str
    webhook: str
    status: int | None
    error: str | None


def webhook(work: Work, found: WebhookRecord | Added) -> Webhook:
    record, secret = (found.webhook, found.secret) if isinstance(found, Added) else (found, UNSET)
    unattempted, _ = stored.unattempted(work, record, record.cursor, MOST_COUNTED)
    of_wallet = record.wallet_address_id
    pending = [] if of_wallet is None else stored.deliveries_of(work, record.id, "pending", MOST_COUNTED)
    return represent(
        Webhook,
        record,
        events=record.events.split(","),
        private=bool(record.is_private),
        wallet_address=None if of_wallet is None else work.urls.wallet(WALLETS.by_id(work, of_wallet).path),
        behind=len(pending) + sum(wants(record, one.type) for one in unattempted),
        failed=len(stored.failed_deliveries(work, record.id, 0, MOST_COUNTED)),
        secret=secret,
    )


def require_webhook(work: Work, id: str) -> WebhookRecord:
    """Raises NotFound."""
    return require(WEBHOOKS.get(work, id), f"There is no webhook {id!r}", "`payres webhook list` shows all")


LAST_ATTEMPT: Final = (
    Column("Last attempt (UTC)", "last_attempt_at", "time"),
    Column("Status", "last_status", "number"),
    Column("Error", "last_error", "long"),
)
WEBHOOK: Final = Shape(
    webhook,
    Column("URL", lambda one: Cell(one.url, "long", path_of("webhooks", one.id)), section="webhooks"),
    Column("Name", "name", "long", titles=True),
    Column("Webhook", "id", "code", listed="in files"),
    Column("Events", "events", "long"),
    Column("Wallet", lambda one: one.wallet_address or "", "long"),
    Column("State", "state", "state"),
    Column("Behind", "behind", "number"),
    Column("Failed", "failed", "number"),
    *LAST_ATTEMPT,
    fact("Secret (shown once)", lambda one: one.secret or None, "secret"),
    read=require_webhook,
    page="/webhooks/{id}",
    moving={"behind", "failed", "last_attempt_at", "last_status", "last_error"},
    secrets=lambda _, one: (one.secret,),
    name=lambda one: one.name or one.url,
)


@operation(
    "GET /webhooks webhooks:read",
    WEBHOOK,
    command=CommandLine("webhook list"),
    listing=Listing(
        *("webhooks", "There are no webhooks", "Webhooks"),
        about="A webhook tells a program of yours what happens here: a bill is paid, a payment failed. It needs an"
        " https address that answers.",
        also=("Deliveries that failed at first", "/admin/webhooks/deliveries"),
        advice="`payres webhook add` adds one",
    ),
)
def list_webhooks(work: Work) -> Sequence[WebhookRecord]:
    """List webhooks, each with its latest attempt."""
    return stored.list_webhooks(work)


@operation(
    "POST /webhooks webhooks:write events:read",
    WEBHOOK,
    command=CommandLine("webhook add URL", "https://shop.example/payres --events 'incoming_payment.*'"),
    form=OperationForm(
        "Add the webhook",
        title="New webhook",
        lists="/webhooks",
        will="It gets events from now on, all unless you name some. The secret that verifies them is shown once.",
    ),
    shows_secret=True,
)
def add(
    work: Work,
    url: Annotated[Text, Meta(extra={"label": "URL"})],
    name: WebhookName | None = None,
    events: Patterns = (),
    private: Annotated[bool, said("It is on this machine or in your network; http will do.")] = False,
) -> Added:
    """Send events from now on to a URL. The secret for verifying signatures is shown only once.

    Events are types, or prefixes followed by *. Only keys with the scope webhooks:private may add a `private` one.
    """
    key = key_of_actor(work)
    if private and key is not None:
        require_scopes(key, ["webhooks:private"])
    if name:
        check_name(name, "webhook's")
    _check_url(url, is_public=not (private or work.settings.allow_private_hosts))
    if len(stored.webhooks_of(work, None)) >= MAX_WEBHOOKS:
        raise WrongState(f"There are {MAX_WEBHOOKS} webhooks already; remove one first")
    return _store(work, url, {"events": _checked_patterns(events), "is_private": int(private), "name": name or None})


def add_of_wallet(work: Work, wallet: WalletRecord, url: str) -> Added:
    """Adds a webhook for the wallet's events from now on, at a public https address.

    Raises InvalidRequest, and WrongState if the wallet has MAX_WEBHOOKS_OF_WALLET.
    """
    _check_url(url, is_public=not work.settings.allow_private_hosts)
    if len(stored.webhooks_of(work, wallet.id)) >= MAX_WEBHOOKS_OF_WALLET:
        raise WrongState(f"The wallet has {MAX_WEBHOOKS_OF_WALLET} webhooks already; remove one first")
    stored.begin_events_of_wallets(work, last_sequence(work))
    return _store(work, url, {"events": ",".join(OF_WALLETS), "is_private": 0, "wallet_address_id": wallet.id})


def _store(work: Work, url: str, columns: Mapping[str, object]) -> Added:
    """Stores a new webhook, which gets what happens from now on."""
    secret = new_webhook_secret(work)
    encrypted, webhook_id = server.encrypt(work, stored.WEBHOOK_SECRETS, secret), work.new_id()
    times = {"cursor": last_sequence(work), "created_at": work.now}
    WEBHOOKS.create(work, id=webhook_id, url=url, **columns, state="active", secret=encrypted, **times)
    webhook = WEBHOOKS.by_id(work, webhook_id)
    server.record(work, "webhook.add", webhook.id, url=url, events=webhook.events, name=webhook.name)
    work.changed.append(ACTIVE_WEBHOOK)
    return Added(webhook, secret)


@operation("GET /webhooks/{id} webhooks:read", WEBHOOK)
def show(work: Work, id: str) -> WebhookRecord:
    """Read a webhook with its latest attempt."""
    return require_webhook(work, id)


@operation(
    "POST /webhooks/{id}/tests webhooks:write",
    command=CommandLine(
        "webhook test ID",
        text=lambda made: f"The event {made.event} was answered with {made.status or 'nothing'}",
        failure=lambda made: made.error and f"The webhook did not accept the event: {made.error}",
    ),
    form=OperationForm(
        "Send a test",
        WEBHOOK,
        "A test was sent; the answer is below",
        path="/webhooks/{id}/test",
        presses=True,
        unasked="a test says nothing about money or people",
    ),
)
async def test(call: Call, id: str) -> WebhookTest:
    """Send the event webhook.test now, and return the answer.

    A webhook that was disabled, because its endpoint answered 410, continues if the endpoint accepts the test.
    """
    context = call.context
    async with AsyncExitStack() as stack:
        if isinstance(context, Environment):  # of a command
            own = Sender(context.clock, context.settings.allow_private_hosts)
            sender = await stack.enter_async_context(aclosing(own))
        else:
            sender = context.part(Sender)
        with sender.testing(id):
            event, target = await call.write(partial(make_test, id=id))
            made = await sender.send(target, event)
    await call.write(partial(record_test, id=id, event=event, attempt=made))
    return WebhookTest(event=event.id, webhook=id, status=made.status, error=made.error)


@operation(
    "POST /webhooks/{id}/pause webhooks:write",
    WEBHOOK,
    command=CommandLine("webhook pause ID"),
    form=OperationForm(
        "Pause",
        WEBHOOK,
        "{name} is paused; its events wait",
        is_over=lambda one: one.state != "active",
        presses=True,
        unasked=TAKES_AWAY,
    ),
)
def pause(work: Work, id: str) -> WebhookRecord:
    """Send a webhook nothing but tests until it is resumed. Its events wait, for 30 days."""
    return _turn(work, id, "paused")


@operation(
    "DELETE /webhooks/{id}/pause webhooks:write",
    WEBHOOK,
    command=CommandLine("webhook resume ID"),
    form=OperationForm(
        "Resume",
        WEBHOOK,
        "{name} gets its events again",
        is_over=lambda one: one.state != "paused",
        presses=True,
        unasked="it undoes a pause",
    ),
)
def resume(work: Work, id: str) -> WebhookRecord:
    """Send a paused webhook its events again.

    Those that have waited come first.
    """
    work.changed += (ACTIVE_WEBHOOK, stored.DUE.changed)
    return _turn(work, id, "active")


def _turn(work: Work, id: str, state: WebhookState) -> WebhookRecord:
    before = require_webhook(work, id).state
    if before == "disabled":
        raise WrongState("The webhook is disabled, because it answered 410; a test that it accepts enables it")
    if before != state:
        WEBHOOKS.update(work, id, state=state)
    return require_webhook(work, id)


@operation(
    "POST /webhooks/{id}/secrets webhooks:write",
    WEBHOOK,
    command=CommandLine("webhook rotate ID"),
    shows_secret=True,
    form=OperationForm("Make a new secret", WEBHOOK, title="New secret", path="/webhooks/{id}/secret"),
)
def rotate(work: Work, id: str) -> Added:
    """Make a new secret, which is shown once. For 24 hours, deliveries are signed with the old one too.

    A secret that an earlier rotation replaced is no longer used.
    """
    webhook = require_webhook(work, id)
    secret = new_webhook_secret(work)
    encrypted, ends_at = server.encrypt(work, stored.WEBHOOK_SECRETS, secret), work.now + ROTATION_HOURS * HOUR
    WEBHOOKS.update(work, id, secret=encrypted, previous_secret=webhook.secret, previous_until=ends_at)
    return Added(require_webhook(work, id), secret)


@operation(
    "PATCH /webhooks/{id} webhooks:write events:read",
    WEBHOOK,
    command=CommandLine("webhook change ID", "0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11 --name 'Order book'"),
    form=OperationForm("Change", WEBHOOK, "{name} is changed", changes=True),
)
def change(
    work: Work, id: str, name: WebhookName | UnsetType | None = UNSET, events: Patterns | UnsetType = UNSET
) -> WebhookRecord:
    """Give a webhook another name, or other events from now on. An empty name removes it; the URL stays."""
    require_webhook(work, id)
    changed: dict[str, str | None] = {}
    if name is not UNSET:
        changed["name"] = name or None
    if events is not UNSET:
        changed["events"] = _checked_patterns(events)
    if name:
        check_name(name, "webhook's")
    if changed:
        WEBHOOKS.update(work, id, **changed)
        server.record(work, "webhook.change", id, **{one: value or "" for one, value in changed.items()})
    return require_webhook(work, id)


@operation(
    "DELETE /webhooks/{id} webhooks:write",
    command=CommandLine("webhook remove ID", text="The webhook to {url} is removed"),
    form=OperationForm(
        "Remove",
        WEBHOOK,
        "The webhook {name} is removed",
        title="Remove this webhook",
        back="/webhooks",
        because=FOR_GOOD,
        ends=True,
    ),
)
async def remove(call: Units, id: str) -> Webhook:
    """Remove a webhook and its deliveries. Nothing is sent there any more."""
    removed = await call.write(partial(begin_removal, id=id))
    while not await call.write(partial(stored.delete_webhook, webhook_id=id, rows=ROWS_AT_ONCE)):
        pass
    return removed


def begin_removal(work: Work, id: str) -> Webhook:
    """The webhook before its removal. It is disabled from now on, also if a crash interrupts the removal."""
    removed: Webhook = WEBHOOK.find(work, id=id)
    WEBHOOKS.update(work, id, state="disabled")
    server.record(work, "webhook.remove", id, url=removed.url)
    return removed


def make_test(work: Work, id: str) -> tuple[EventRecord, WebhookTarget]:
    """The event that tests a webhook, and its target; the caller sends it. Raises NotFound."""
    webhook = require_webhook(work, id)
    work.emit(TEST, id, WebhookEvent(webhook=id, url=webhook.url))
    [event] = events_after(work, last_sequence(work) - 1, 1)
    return event, target_of(work, webhook)


def record_test(work: Work, id: str, event: EventRecord, attempt: Attempt) -> None:
    """Stores the result of a test. After a success, a disabled webhook is active again, and continues where it
    stopped. Raises NotFound if it was removed meanwhile."""
    is_disabled = require_webhook(work, id).state == "disabled"
    note_attempts(work, id, [(ToSend(event), attempt)])
    if attempt.error is None and is_disabled:
        WEBHOOKS.update(work, id, state="active")
        work.changed += (ACTIVE_WEBHOOK, stored.DUE.changed)


def _check_url(url: str, is_public: bool) -> None:
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


def _checked_patterns(patterns: Iterable[str]) -> str:
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
