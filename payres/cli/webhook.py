"""`payres webhook`: where events are sent, and what became of them."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import get_args

import click

from payres.admin import webhooks as endpoints
from payres.admin.requests import NewWebhook, Nothing
from payres.admin.wire import DeliveryState, DeliveryView, Replayed, WebhookTest, WebhookView
from payres.cli.commands import Group
from payres.cli.options import Time, limit_option
from payres.cli.session import Session, labelled, lists, with_session, writes
from payres.events import subscriptions
from payres.events.sender import Attempt, Sender, Target
from payres.store.events import EventRecord
from payres.store.work import Work


@click.group(cls=Group)
def webhook() -> None:
    """ID is what `payres webhook add` printed. docs/events.md has the events, and how to verify their signatures."""


def _added(webhook: WebhookView) -> str:
    return labelled(
        ("id", webhook.id),
        ("URL", webhook.url),
        ("events", ", ".join(webhook.events)),
        ("secret", f"{webhook.secret} (shown once)"),
    )


def _line(webhook: WebhookView) -> str:
    tried = webhook.last_attempt_at
    latest = "nothing sent yet" if tried is None else f"{tried}: {webhook.last_error or webhook.last_status}"
    return f"{webhook.id}  {webhook.state}  {webhook.url}  {','.join(webhook.events)}  {latest}"


def _delivery_line(one: DeliveryView) -> str:
    due = f"next attempt {one.next_attempt_at}" if one.next_attempt_at else f"last {one.last_attempt_at}"
    error = f"  {one.last_error}" if one.last_error else ""
    attempts = "1 attempt" if one.attempts == 1 else f"{one.attempts} attempts"
    return f"{one.event}  {one.type}  {one.webhook}  {one.state}  {attempts}, {due}{error}"


@webhook.command(example="payres webhook add https://shop.example/payres --events 'incoming_payment.*'")
@click.argument("url")
@click.option("--events", "patterns", multiple=True, metavar="NAMES", help="Only these, such as 'incoming_payment.*'.")
@click.option("--private", "is_private", is_flag=True, help="It is on this machine or in your network; http will do.")
@writes(_added)
def add(work: Work, url: str, patterns: tuple[str, ...], is_private: bool) -> WebhookView:
    """Send events from now on to a URL. Prints the secret for verifying signatures once.

    NAMES are events, or the beginning of some with a * behind it, with commas between; the option may be repeated.
    """
    return endpoints.add(work, NewWebhook(url=url, events=patterns, private=is_private))


@webhook.command("list", example="payres webhook list")
@lists("webhooks", _line, "There are no webhooks; `payres webhook add` adds one")
def list_all(work: Work) -> Sequence[WebhookView]:
    """List webhooks, each with its latest attempt."""
    return endpoints.list_all(work).result


@webhook.command(example="payres webhook test 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11")
@click.argument("webhook_id", metavar="ID")
@with_session
def test(session: Session, webhook_id: str) -> None:
    """Send an event now, and print the answer.

    It is the event webhook.test; the command fails unless the answer is a success. A webhook that was disabled,
    because its endpoint answered 410, goes on if the endpoint takes the test.
    """
    event, target = session.write(partial(subscriptions.make_test, webhook_id=webhook_id))
    attempt = asyncio.run(_send(session, target, event))
    session.write(partial(subscriptions.record_test, webhook_id=webhook_id, attempt=attempt))
    made = WebhookTest(event=event.id, webhook=webhook_id, status=attempt.status, error=attempt.error)
    if attempt.error is None or session.as_json:
        session.show(made, f"{target.webhook.url} took the event: {attempt.status}")
    if attempt.error is not None:
        raise click.ClickException(f"{target.webhook.url} did not take the event: {attempt.error}")


@webhook.command(example="payres webhook deliveries --state failed")
@click.argument("webhook_id", metavar="[ID]", required=False)
@click.option("--state", type=click.Choice(get_args(DeliveryState)), help="Only those in this state.")
@limit_option
@lists("deliveries", _delivery_line, "There are no such deliveries")
def deliveries(work: Work, webhook_id: str | None, state: str | None, limit: int) -> Sequence[DeliveryView]:
    """List events that were not taken at once, or are sent again. What was taken the first time is not listed."""
    of = None if webhook_id is None else subscriptions.require_webhook(work, webhook_id)
    return endpoints.list_deliveries(work, of, state, limit)


@webhook.command(
    example=(
        "payres webhook replay evt_0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11\n"
        "payres webhook replay --failed --since 2026-11-20T00:00:00Z"
    )
)
@click.argument("event", required=False)
@click.option("--webhook", "webhook_id", metavar="ID", help="To this webhook only.")
@click.option("--failed", is_flag=True, help="All that has failed for good.")
@click.option("--since", type=Time(), metavar="TIME", help="With --failed: last tried at this time (UTC) or later.")
@writes(lambda replayed: f"Due again: {replayed.deliveries}. The server sends them within seconds")
def replay(work: Work, event: str | None, webhook_id: str | None, failed: bool, since: int | None) -> Replayed:
    """Send an event again, or all that has failed. EVENT is its id, evt_...

    An event goes to each webhook that wants it, also where it was taken before.
    """
    if (event is None) != failed or (since is not None and not failed):
        raise click.UsageError("Name either an event or --failed, and --since only with --failed")
    if event is not None:
        return Replayed(deliveries=len(subscriptions.replay_event(work, event, webhook_id)))
    return Replayed(deliveries=subscriptions.replay_failed(work, webhook_id, since or 0))


@webhook.command(example="payres webhook rotate 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11")
@click.argument("webhook_id", metavar="ID")
@writes(_added)
def rotate(work: Work, webhook_id: str) -> WebhookView:
    """Make a new secret, and print it once. The old one signs too for 24 hours.

    A secret that an earlier rotation replaced no longer signs.
    """
    return endpoints.rotate(work, webhook_id, Nothing())


@webhook.command(example="payres webhook remove 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11")
@click.argument("webhook_id", metavar="ID")
@writes(lambda removed: f"The webhook to {removed.url} is removed")
def remove(work: Work, webhook_id: str) -> WebhookView:
    """Remove a webhook and its deliveries."""
    return endpoints.remove(work, webhook_id)


async def _send(session: Session, target: Target, event: EventRecord) -> Attempt:
    sender = Sender(session.environment.clock, session.settings.allow_private_hosts, session.environment.metrics)
    try:
        return await sender.send(target, event)
    finally:
        await sender.aclose()
