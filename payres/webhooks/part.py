"""Webhooks as a part: events sent to the operator's programs."""

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Final

from payres.core.http.context import Context
from payres.core.http.parts import Opening, Part, Worker
from payres.webhooks.deliveries import Deliveries, purge_events
from payres.webhooks.sender import Sender


async def _open(opening: Opening) -> None:
    environment = opening.environment
    sender = Sender(environment.clock, environment.settings.allow_private_hosts, environment.metrics)
    opening.stack.push_async_callback(sender.aclose)
    opening.parts[Sender] = sender


def _workers(context: Context, _: AsyncExitStack) -> Iterator[Worker]:
    yield purge_events(context.database)
    yield Deliveries(context.database, context.changes, context.part(Sender)).run()


WEBHOOKS: Final = Part("webhooks", open=_open, workers=_workers)
