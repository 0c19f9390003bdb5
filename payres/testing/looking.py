"""Requests and events of a sandbox after a cursor, with waiting."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from payres.core.http.changes import Changes
from payres.core.protocol.errors import InvalidRequest
from payres.core.protocol.event_types import EVENT_TYPES
from payres.core.protocol.limits import MAX_WAIT_SECONDS
from payres.core.store import events
from payres.core.store.work import Work
from payres.testing.journal import Entry, Journal
from payres.testing.set_up import Given
from payres.webhooks.deliveries import matches
from payres.webhooks.sender import EventView, event_view

FILTERS: Final = ("operation", "client", "wallet", "status", "fault")
MOST_EVENTS: Final = 10_000  # read for one response
Seconds = Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)]
Found = tuple[Sequence[Any], int]  # the matches, and the number of the last entry read


class EventsWanted(Given, frozen=True):
    """Events after a cursor, or else after the baseline; `type` may end with a *, `wallet` is a path."""

    after: str | None = None
    type: str | None = None
    wallet: str | None = None
    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    wait: Seconds = 10


class RequestsWanted(Given, frozen=True):
    """Requests after a cursor, or else all in the journal."""

    after: str | None = None
    operation: str | None = None
    client: str | None = None
    wallet: str | None = None
    status: int | None = None
    fault: str | None = None
    wait: Seconds = 0


def check(wanted: EventsWanted) -> None:
    """Raises InvalidRequest for an unknown event type."""
    if wanted.type is not None and not any(matches(wanted.type, name) for name in EVENT_TYPES):
        raise InvalidRequest(f"There are no such events, but: {', '.join(EVENT_TYPES)}", field="type")


async def find_requests(journal: Journal, wanted: RequestsWanted, after: int) -> Found:
    def fits(one: Entry) -> bool:
        return one.seq > after and all(getattr(wanted, name) in {None, getattr(one, name)} for name in FILTERS)

    return [one for one in journal.entries if fits(one)], journal.last


def find_events(work: Work, wanted: EventsWanted, after: int) -> tuple[list[EventView], int]:
    found, last = [], after
    wallet = None if wanted.wallet is None else work.urls.wallet(wanted.wallet)
    for event in events.events_after(work, after, MOST_EVENTS):
        last = event.sequence
        data: dict[str, Any] = msgspec.json.decode(event.data)
        if matches(wanted.type or "*", event.type) and wallet in {None, data.get("walletAddress")}:
            found.append(event_view(event))
    return found, last


async def wait_for(
    changes: Changes, key: str, seconds: float, look: Callable[[], Awaitable[Found]], count: int
) -> Found:
    """Calls `look` after each change until it finds `count` matches, or until `seconds` have passed."""
    with changes.watch(key) as change, suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while len((found := await look())[0]) < count:
                await change.wait()
                change.clear()
            return found
    return await look()
