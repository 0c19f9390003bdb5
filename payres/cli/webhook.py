"""`payres webhook`: the help of the group, and the commands that are written by hand."""

import asyncio
from functools import partial

import click

from payres.cli import Group
from payres.cli.options import TimeParam
from payres.cli.session import Session, with_session
from payres.core.store.events import EventRecord
from payres.operator import webhooks
from payres.operator.webhooks import WebhookTest
from payres.webhooks.sender import Attempt, Sender, WebhookTarget


@click.group(cls=Group)
def webhook() -> None:
    """ID is what `payres webhook add` printed. docs/events.md lists the events, and says how to verify their
    signatures."""


@webhook.command(example="payres webhook test 0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11")
@click.argument("webhook_id", metavar="ID")
@with_session
def test(session: Session, webhook_id: str) -> None:
    """Send an event now, and print the answer.

    It is the event webhook.test; the command fails unless the answer is a success. A webhook that was disabled, because
    its endpoint answered 410, continues if the endpoint accepts the test.
    """
    event, target = session.write(partial(webhooks.make_test, id=webhook_id))
    attempt = asyncio.run(_send(session, target, event))
    session.write(partial(webhooks.record_test, id=webhook_id, event=event, attempt=attempt))
    made = WebhookTest(event=event.id, webhook=webhook_id, status=attempt.status, error=attempt.error)
    if attempt.error is None or session.as_json:
        session.show(made, f"{target.webhook.url} accepted the event: {attempt.status}")
    if attempt.error is not None:
        raise click.ClickException(f"{target.webhook.url} did not accept the event: {attempt.error}")


@webhook.command(
    example=(
        "payres webhook replay evt_0198c2f0-5d1e-7c53-9a57-2f6f0c1f8d11\n"
        "payres webhook replay --failed --since 2026-11-20T00:00:00Z"
    )
)
@click.argument("event", required=False)
@click.option("--webhook", "webhook_id", metavar="ID", help="To this webhook only.")
@click.option("--failed", is_flag=True, help="All deliveries that have failed for good.")
@click.option(
    "--since", type=TimeParam(), metavar="TIME", help="With --failed: last attempted at this time (UTC) or later."
)
@with_session
def replay(session: Session, event: str | None, webhook_id: str | None, failed: bool, since: str | None) -> None:
    """Send an event again, or all failed ones. EVENT is its id, evt_...

    An event goes to each webhook that wants it, also if it was accepted before.
    """
    if (event is None) != failed or (since is not None and not failed):
        raise click.UsageError("Name either an event or --failed, and --since only with --failed")
    asked = partial(webhooks.replay, event=event, webhook=webhook_id, failed=failed, since=since)
    replayed = session.in_steps(asked)
    session.show(replayed, f"To be sent again: {replayed.deliveries}. The server sends them within seconds")


async def _send(session: Session, target: WebhookTarget, event: EventRecord) -> Attempt:
    sender = Sender(session.environment.clock, session.settings.allow_private_hosts)
    try:
        return await sender.send(target, event)
    finally:
        await sender.aclose()
