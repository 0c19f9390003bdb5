"""`Prefer: wait=20` (RFC 7240): a request for a payment is answered as soon as the payment changes.

It takes no thread and asks the database only when it is woken. It is answered at once, as it stands, when the server
stops.
"""

import asyncio
import re
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Final, NamedTuple, TypeVar

from starlette.requests import Request
from starlette.types import Message

from payres.http.admission import release_slot
from payres.limits import MAX_WAIT_SECONDS
from payres.routes.context import context_of
from payres.store.work import Work

F = TypeVar("F")

WAIT: Final = re.compile(rb"\s*wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?:;.*)?", re.IGNORECASE | re.DOTALL)


def preferred_wait(headers: Sequence[tuple[bytes, bytes]]) -> int | None:
    """The seconds that a request prefers to wait, no more than MAX_WAIT_SECONDS; None when it does not say.

    The first of several counts, and what cannot be read is ignored (RFC 7240 section 2).
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
    """What `find` finds once `ends` says that it is worth an answer, or after so many seconds; with the headers of it.

    `key` is the id of what changes. Where `who` has too many requests that wait, it is answered at once, and the
    headers do not say that the preference was applied. Raises what `find` raises.
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
    # As it is now: the time may be over, or the token revoked meanwhile.
    return await database.read(find), {"Preference-Applied": f"wait={seconds}"}


class Watch(NamedTuple):
    """`change` is set by each change of what is watched, and in the end: clear it before looking."""

    change: asyncio.Event
    listening: asyncio.Future[Message]

    @property
    def is_over(self) -> bool:
        """Whether the client has gone, or is to be answered because the server stops."""
        return self.listening.done()


@contextmanager
def watch(request: Request, key: str, *who: Hashable) -> Iterator[Watch | None]:
    """Watches what `key` stands for; None where `who` has too many requests that wait. A stream is a second part of it.

    The body of the request must have been read. It no longer counts as a request in progress.
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
