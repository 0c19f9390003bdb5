"""What has happened in a sandbox since a test last looked, or as soon as it happens."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from payres.errors import InvalidRequest, WrongState
from payres.event_types import EVENT_TYPES
from payres.events.changes import Changes
from payres.events.deliveries import matches
from payres.events.sender import EventView, event_view
from payres.limits import MAX_WAIT_SECONDS
from payres.store import events
from payres.store.work import EVENTS, Work
from payres.testing.calls import Answer, Call
from payres.testing.journal import ADDED, Entry
from payres.testing.steps import Given

T = TypeVar("T")

CURSOR = re.compile(r"([0-9]{1,9})-([0-9]{1,15})")
FILTERS = ("operation", "client", "wallet", "status", "fault")
MOST_EVENTS = 10_000  # that are looked at for one answer
Seconds = Annotated[float, Meta(ge=0, le=MAX_WAIT_SECONDS)]


class EventsWanted(Given, frozen=True):
    """Those after a cursor, else after the baseline; `type` may end with a *, `wallet` is a path."""

    after: str | None = None
    type: str | None = None
    wallet: str | None = None
    count: Annotated[int, Meta(ge=1, le=1000)] = 1
    wait: Seconds = 10


class RequestsWanted(Given, frozen=True):
    """Those after a cursor, else all that are kept."""

    after: str | None = None
    operation: str | None = None
    client: str | None = None
    wallet: str | None = None
    status: int | None = None
    fault: str | None = None
    wait: Seconds = 0


async def list_requests(call: Call) -> Answer:
    """Those that fit, once there are some, or when the time is over."""
    wanted: RequestsWanted = call.query
    after = 0 if wanted.after is None else position(call, wanted.after)
    filters = {name: wish for name in FILTERS if (wish := getattr(wanted, name)) is not None}
    journal = call.server.journal

    async def look() -> tuple[list[Entry], int]:
        found = [
            one
            for one in journal.entries
            if one.seq > after and all(getattr(one, name) == wish for name, wish in filters.items())
        ]
        return found, journal.last

    found, last = await wait_for(journal.changes, ADDED, wanted.wait, look, lambda seen: bool(seen[0]))
    return 200, {"requests": found, "cursor": cursor(call, last)}


async def delete_requests(call: Call) -> Answer:
    call.server.journal.clear()
    return 204, None


async def list_events(call: Call) -> Answer:
    """Those that fit, once there are so many, or when the time is over."""
    wanted: EventsWanted = call.query
    if wanted.type is not None and not any(matches(wanted.type, name) for name in EVENT_TYPES):
        raise InvalidRequest(f"There are no such events, but: {', '.join(EVENT_TYPES)}", field="type")
    after = call.server.last_event if wanted.after is None else position(call, wanted.after)
    look = partial(call.server.read, partial(_events, wanted=wanted, after=after))
    found, last = await wait_for(
        call.server.context.changes, EVENTS, wanted.wait, look, lambda seen: len(seen[0]) >= wanted.count
    )
    return 200, {"events": found, "cursor": cursor(call, last), "timed_out": len(found) < wanted.count}


def cursor(call: Call, last: int) -> str:
    """Where a test is that has seen all as far as this number."""
    return f"{call.sandbox.generation}-{last}"


def position(call: Call, text: str) -> int:
    """The number in a cursor. Raises InvalidRequest, and WrongState for one of before a reset."""
    found = CURSOR.fullmatch(text)
    if found is None:
        raise InvalidRequest("after is the cursor of an earlier answer", field="after")
    if int(found[1]) != call.sandbox.generation:
        raise WrongState("This cursor is of before a reset: begin without after")
    return int(found[2])


async def wait_for(
    changes: Changes, key: str, seconds: float, look: Callable[[], Awaitable[T]], is_enough: Callable[[T], bool]
) -> T:
    """What `look` finds, again after each change, once it is enough or the time is over."""
    with changes.watch(key) as change, suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            while not is_enough(found := await look()):
                await change.wait()
                change.clear()
            return found
    return await look()


def _events(work: Work, wanted: EventsWanted, after: int) -> tuple[list[EventView], int]:
    """Those that fit, and the number of the last one that was looked at."""
    found, last = [], after
    wallet = None if wanted.wallet is None else work.urls.wallet(wanted.wallet)
    for event in events.events_after(work, after, MOST_EVENTS):
        last = event.sequence
        data: dict[str, Any] = msgspec.json.decode(event.data)
        if matches(wanted.type or "*", event.type) and wallet in {None, data.get("walletAddress")}:
            found.append(event_view(event))
    return found, last
