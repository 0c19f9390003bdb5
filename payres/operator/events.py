"""Events in order of sequence: at once, as soon as there are some, or as a stream."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from typing import Annotated, Final

from msgspec import Meta
from starlette.responses import Response

from payres.core.http.requests import read_body
from payres.core.http.responses import CutShort
from payres.core.http.waiting import wait_for_change, watch
from payres.core.process.rate_limiter import too_many
from payres.core.protocol.amounts import MAX_LEDGER
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import DomainError, InvalidRequest, TokenInvalid
from payres.core.protocol.limits import MAX_PAGE, MAX_STREAMS_OF_KEY, MAX_WAIT_SECONDS, MAX_WAITING_REQUESTS
from payres.core.protocol.wire import List, encode
from payres.core.store import events
from payres.core.store.work import EVENTS, Work
from payres.html.streams import Stream
from payres.operator.declared.api import ApiCall
from payres.operator.declared.declarations import operation
from payres.operator.services import operator_of
from payres.webhooks.sender import EventView, event_view

AfterSequence = Annotated[int, Meta(ge=0, le=MAX_LEDGER)]
Patience = Annotated[int, Meta(ge=0, le=MAX_WAIT_SECONDS)]
EVENT_STREAM: Final = "text/event-stream"
# The sequence of the last event, the events in the format of a stream, and whether these are all for now.
Lines = tuple[int, bytes, bool]
# Seconds after which a stream sends something, so that no proxy takes it for dead.
HEARTBEAT_SECONDS: Final = 15.0


async def stream(call: ApiCall, after: AfterSequence, wait: Patience) -> Response:
    """The same as server-sent events, without end; `Last-Event-ID` is the last event that a client got before it
    reconnected. Raises InvalidRequest, TooManyRequests."""
    await read_body(call.request)
    last = call.request.headers.get("last-event-id", "")
    if last and not (last.isascii() and last.isdigit() and len(last) < 19):
        raise InvalidRequest("Last-Event-ID must be the sequence of an event", field="Last-Event-ID")
    parts = _parts(call, int(last) if last else after)
    first = await anext(parts)
    return Stream(parts, EVENT_STREAM, {"Cache-Control": "no-store"}, first=first)


@operation("GET /events events:read", stream=stream, media_types=[EVENT_STREAM])
async def read(call: ApiCall, after: AfterSequence = 0, wait: Patience = 0) -> List[EventView]:
    """Read the events after that of the sequence `after`, oldest first; with `wait`, as soon as there are some."""
    unit = call.authenticated(partial(_after, sequence=after))
    if not wait:
        return List(result=await call.context.database.read(unit))
    await read_body(call.request)  # the next message says that the client has disconnected
    found, _ = await wait_for_change(call.request, wait, call.key.actor, EVENTS, unit, bool)
    return List(result=found)


async def _parts(call: ApiCall, after: int) -> AsyncGenerator[bytes]:
    """Ends when the client disconnects, the server stops, or the key has ended. Raises TooManyRequests at once."""
    with watch(call.request, EVENTS, call.key.actor, EVENT_STREAM) as watched:
        if watched is None:
            most = f"At most {MAX_STREAMS_OF_KEY} streams of events are open with one API key"
            raise too_many(SECOND, f"{most}, and {MAX_WAITING_REQUESTS} requests wait in all: read one stream")
        yield b":\n\n"
        while not watched.is_over:
            watched.change.clear()
            try:
                after, lines, is_all = await _shared(call, after)
            except TokenInvalid:
                return
            except DomainError as error:
                raise CutShort(str(error)) from error
            if lines:
                yield lines
            if is_all:
                try:
                    async with asyncio.timeout(HEARTBEAT_SECONDS):
                        await watched.change.wait()
                except TimeoutError:
                    yield b":\n\n"


async def _shared(call: ApiCall, after: int) -> Lines:
    """The next lines. Streams of a key at the same position are woken together: the first of them reads for all. After
    another change they read again, since a read in progress may have missed it."""
    reads, wanted = operator_of(call.context).event_reads, (call.key.id, after, call.context.changes.count)
    if wanted not in reads:
        unit = call.authenticated(partial(_lines, sequence=after))
        reads[wanted] = asyncio.ensure_future(call.context.database.read(unit))
        reads[wanted].add_done_callback(lambda done: (reads.pop(wanted), done.cancelled() or done.exception()))
    lines: Lines = await asyncio.shield(reads[wanted])  # the others still need it if this client disconnects
    return lines


def _lines(work: Work, sequence: int) -> Lines:
    found = _after(work, sequence)
    lines = [b"id: %d\nevent: %b\ndata: %b\n\n" % (one.sequence, one.type.encode(), encode(one)) for one in found]
    return found[-1].sequence if found else sequence, b"".join(lines), len(found) < MAX_PAGE


def _after(work: Work, sequence: int) -> Sequence[EventView]:
    return [event_view(event) for event in events.events_after(work, sequence, MAX_PAGE)]
