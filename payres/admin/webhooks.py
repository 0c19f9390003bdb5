"""Webhooks, and what became of the events that they did not take at once."""

from functools import partial
from typing import get_args

from payres.admin import representations
from payres.admin.call import Call
from payres.admin.requests import DeliveryQuery, NewReplay, NewWebhook, Nothing
from payres.admin.wire import DeliveryState, DeliveryView, Replayed, WebhookTest, WebhookView
from payres.errors import InvalidRequest
from payres.events import subscriptions
from payres.limits import MAX_PAGE
from payres.operator.inputs import require_time
from payres.operator.operations import List
from payres.store import events as store
from payres.store.events import EVENTS, WebhookRecord
from payres.store.work import Work


def list_all(work: Work) -> List[WebhookView]:
    """List webhooks, each with its latest attempt."""
    return List(result=[representations.webhook(work, one) for one in store.list_webhooks(work)])


def add(work: Work, body: NewWebhook) -> WebhookView:
    """Send events from now on to a URL. The secret is shown once."""
    added = subscriptions.add_webhook(work, body.url, body.events, body.private)
    return representations.webhook(work, added.webhook, added.secret)


def show(work: Work, id: str) -> WebhookView:
    """Read a webhook with its latest attempt."""
    return representations.webhook(work, subscriptions.require_webhook(work, id))


def remove(work: Work, id: str) -> WebhookView:
    """Remove a webhook and its deliveries."""
    return representations.webhook(work, subscriptions.remove_webhook(work, id))


def rotate(work: Work, id: str, body: Nothing) -> WebhookView:
    """Make a new secret, which is shown once. The old one signs too for 24 hours."""
    added = subscriptions.rotate_secret(work, id)
    return representations.webhook(work, added.webhook, added.secret)


async def test(call: Call, id: str, body: Nothing) -> WebhookTest:
    """Send the event webhook.test now, and return the answer of the endpoint."""
    event, target = await call.write(partial(subscriptions.make_test, webhook_id=id))
    made = await call.context.sender.send(target, event)
    await call.write(partial(subscriptions.record_test, webhook_id=id, attempt=made))
    return WebhookTest(event=event.id, webhook=id, status=made.status, error=made.error)


def list_page(work: Work, query: DeliveryQuery) -> List[DeliveryView]:
    """List events that were not taken at once, or are sent again, newest first; a hundred at most."""
    webhook = subscriptions.require_webhook(work, query.webhook) if query.webhook else None
    return List(result=list_deliveries(work, webhook, query.state or None, MAX_PAGE))


def list_deliveries(work: Work, of: WebhookRecord | None, state: str | None, most: int) -> list[DeliveryView]:
    """Newest first: of one webhook or of all, in one state or in all; `most` at the most."""
    found = [
        one
        for webhook in (store.list_webhooks(work) if of is None else [of])
        for named in ((state,) if state else get_args(DeliveryState))
        for one in store.deliveries_of(work, webhook.id, named, most)
    ]
    newest = sorted(found, key=lambda one: (one.sequence, one.webhook_id), reverse=True)[:most]
    sent = [(one, EVENTS.by_id(work, one.sequence)) for one in newest]
    return [representations.delivery(DeliveryView, one, event=event.id, type=event.type) for one, event in sent]


def replay(work: Work, body: NewReplay) -> Replayed:
    """Send an event again, or all that has failed."""
    if bool(body.event) == body.failed or (body.since and not body.failed):
        raise InvalidRequest("Name either an event, or failed, which since is for", field="event")
    if body.event:
        return Replayed(deliveries=len(subscriptions.replay_event(work, body.event, body.webhook)))
    since = require_time(body.since, "since") if body.since else 0
    return Replayed(deliveries=subscriptions.replay_failed(work, body.webhook, since))
