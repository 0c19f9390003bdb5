"""`Prefer: wait=20` (RFC 7240): the response to a read is delayed until the payment changes.

Waiting uses no thread, and reads the database only after changes. It ends when the server stops.
"""

import asyncio
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.types import Message

from payres.core.http.admission import release_slot
from payres.core.http.context import context_of
from payres.core.protocol.limits import MAX_WAIT_SECONDS
from payres.core.store.work import Work

F = TypeVar("F")

WAIT: Final = re.compile(rb"\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)


def preferred_wait(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """The seconds that a request prefers to wait, at most MAX_WAIT_SECONDS; None if it has no preference.

    The first of several counts; malformed ones are ignored (RFC 7240 section 2).
    """
    for name, value in headers:
        if name == b"prefer":
            for preference in value.split(b","):
                found = WAIT.fullmatch(preference)
                if found is not None:
                    return min(int(found[1]), MAX_WAIT_SECONDS)
    return None


async def wait_for_change(
    request: Request, seconds: int, who: Hashable, key: str, find: Callable[[Work], F], ends: Callable[[F], bool]
) -> tuple[F, Mapping[str, str]]:
    """The result of `find` once `ends` is true of it, or after `seconds`, and response headers.

    `key` is the id of the watched resource. If `who` has too many waiting requests, it returns at once, without the
    header Preference-Applied. Raises the errors of `find`.
    """
    database = context_of(request).database
    with watch(request, key, who) as watched:
        if watched is None:
            return await database.read(find), {}
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while not watched.is_over:
                    watched.change.clear()
                    if ends(await database.read(find)):
                        break
                    await watched.change.wait()
    # Read again: the wait may have timed out, or the token may have been revoked.
    return await database.read(find), {"Preference-Applied": f"wait={seconds}"}


class Watch(NamedTuple):
    """`change` is set by each change, and at the end; clear it before reading."""

    change: asyncio.Event
    listening: asyncio.Future[Message]

    @property
    def is_over(self) -> bool:
        """Whether the client has disconnected, or the server stops."""
        return self.listening.done()


@contextmanager
def watch(request: Request, key: str, *who: Hashable) -> Iterator[Watch | None]:
    """Watches a key; yields None if `who` has too many waiting requests. Streams have a second part of `who`.

    The request body must have been read. The request no longer counts as in progress.
    """
    context = context_of(request)
    if not context.waiting_slots.try_take(*who):
        yield None
        return
    try:
        release_slot(request.scope)
        with context.changes.watch(key) as change:
            listening = asyncio.ensure_future(request.receive())
            listening.add_done_callback(lambda _: change.set())
            try:
                yield Watch(change, listening)
            finally:
                listening.cancel()
    finally:
        context.waiting_slots.release(*who)
