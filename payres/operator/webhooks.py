"""Webhooks: which events are sent where, pauses, secrets and tests."""

from collections.abc import Sequence
from contextlib import AsyncExitStack, aclosing
from functools import partial
from typing import Annotated, Final

from msgspec import UNSET, Meta, UnsetType

from payres.accounts.visits import TAKES_AWAY
from payres.core.http.context import Context
from payres.core.protocol.errors import WrongState
from payres.core.protocol.wire import Resource, Text
from payres.core.store import audit
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Units, Work
from payres.operator.api_keys import key_of_actor, require_scopes
from payres.operator.declared.declarations import FOR_GOOD, CommandLine, ContextUnits, Listing, OperationForm, operation
from payres.operator.declared.inputs import MAX_NAME_LENGTH, check_name, said
from payres.operator.declared.shapes import Cell, Column, Shape, Time, fact, path_of, represent
from payres.webhooks import rules
from payres.webhooks.limits import MAX_WEBHOOKS
from payres.webhooks.patterns import wants
from payres.webhooks.rules import Added, WebhookState, require_webhook
from payres.webhooks.sender import Sender
from payres.webhooks.store import webhooks as stored
from payres.webhooks.store.webhooks import WEBHOOKS, WebhookRecord

Patterns = Annotated[
    Annotated[tuple[Text, ...], Meta(max_length=100)],
    said("Only these, such as 'incoming_payment.*'.", option="--events", metavar="NAMES"),
]
WebhookName = Annotated[str, said("What you call it.", max_length=MAX_NAME_LENGTH)]
# The most events that are counted, so that showing a webhook stays fast.
MOST_COUNTED: Final = 1000


class Webhook(Resource, frozen=True, kw_only=True):
    """`secret` is only present when it is new. `wallet_address` is that of the owner who added it, and whose events
    alone it gets; null for yours. `behind` counts the matching ones of the next thousand events and those that are
    sent again, `failed` the events that are not sent again, each up to a thousand."""

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
    of_wallet, pending = record.wallet_address_id, stored.deliveries_of(work, record.id, "pending", MOST_COUNTED)
    return represent(
        Webhook,
        record,
        events=record.events.split(","),
        private=bool(record.is_private),
        wallet_address=None if of_wallet is None else work.urls.wallet(WALLETS.by_id(work, of_wallet).path),
        behind=len(pending) + sum(wants(record, name) for _, name in unattempted),
        failed=len(stored.failed_deliveries(work, record.id, 0, MOST_COUNTED)),
        secret=secret,
    )


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
        menu="Programs",
        also=("Deliveries that failed at first", "/admin/webhooks/deliveries"),
        advice="`payres webhook add` adds one",
    ),
)
def list_webhooks(work: Work) -> Sequence[WebhookRecord]:
    """List webhooks, each with its latest attempt."""
    return WEBHOOKS.list(work)


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
    rules.check_url(url, is_public=not (private or work.settings.allow_private_hosts))
    if len(stored.webhooks_of(work, None)) >= MAX_WEBHOOKS:
        raise WrongState(f"There are {MAX_WEBHOOKS} webhooks already; remove one first")
    return rules.store(
        work, url, {"events": rules.checked_patterns(events), "is_private": int(private), "name": name or None}
    )


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
async def test(call: ContextUnits, id: str) -> WebhookTest:
    """Send the event webhook.test now, and return the answer.

    A webhook that was disabled, because its endpoint answered 410, continues if the endpoint accepts the test.
    """
    context = call.context
    async with AsyncExitStack() as stack:
        if not isinstance(context, Context):  # that of a command
            own = Sender(context.clock, context.settings.allow_private_hosts)
            sender = await stack.enter_async_context(aclosing(own))
        else:
            sender = context.part(Sender)
        event, made = await rules.test(call, sender, id)
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
    return rules.turn(work, id, "paused")


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
    return rules.turn(work, id, "active")


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
    return rules.rotate(work, id)


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
        changed["events"] = rules.checked_patterns(events)
    if name:
        check_name(name, "webhook's")
    if changed:
        WEBHOOKS.update(work, id, **changed)
        audit.record(work, "webhook.change", id, **{one: value or "" for one, value in changed.items()})
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
    removed: Webhook = await call.read(partial(WEBHOOK.find, id=id))
    await rules.remove(call, id)
    return removed
