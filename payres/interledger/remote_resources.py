"""The ends of what this server has made elsewhere: incoming payments are completed, and payers' grants cancelled.

Nothing can be ended too often, because what has ended there is taken for ended here.
"""

import logging
from functools import partial
from typing import Final, Protocol

from payres.core.protocol.clock import DAY, HOUR, SECOND, lasts
from payres.core.remote.connection import FetchFailed
from payres.core.store.database import Database
from payres.core.store.work import Work
from payres.interledger.remote_receivers import RemoteReceivers
from payres.interledger.store import remote_resources
from payres.interledger.store.remote_resources import REMOTE_RESOURCES, RemoteResourceRecord

log = logging.getLogger("payres.elsewhere")
FIRST_PAUSE: Final = 10 * SECOND  # after an attempt to end something; it doubles with each
LONGEST_PAUSE: Final = 6 * HOUR
MOST_REFUSALS: Final = 8  # in a row: a server may have failed to read our key
END_FOR: Final = 30 * DAY  # from its beginning
MANY_ATTEMPTS: Final = 100  # in that time at least: a clock that was far ahead for a while says nothing of days


class StillNeeded(Protocol):
    """Filled by the part that makes grants there: whether what has this id is still in use, though its end is due."""

    def __call__(self, work: Work, id: str, now: int) -> bool: ...


async def end_remote_resource(
    database: Database, receivers: RemoteReceivers, id: str, needed: StillNeeded | None = None
) -> None:
    """Ends what is due, or puts that off; what its server refuses again and again is left to expire there."""
    found = await database.write(partial(_due, needed=needed, id=id))
    if found is None:
        return
    record, token = found
    try:
        if record.kind == "grant":
            await receivers.cancel_grant(record.url, token)
        else:
            await receivers.complete(record.url)
    except FetchFailed as error:
        await database.write(partial(_put_off, record=record, error=error))
    else:
        await database.write(partial(remote_resources.forget, id=id))


def _due(work: Work, needed: StillNeeded | None, id: str) -> tuple[RemoteResourceRecord, str] | None:
    record = REMOTE_RESOURCES.get(work, id)
    if record is None or record.due_at is None:
        return None
    if remote_resources.is_being_paid(work, record.url):  # the end of that payment ends it: its server gave it to both
        remote_resources.forget(work, id)
        return None
    if needed is not None and needed(work, id, work.now):  # set back, the clock makes its end seem too far ahead
        remote_resources.make_due(work, id, work.now + HOUR)
        return None
    return record, remote_resources.token_of(work, record)


def _put_off(work: Work, record: RemoteResourceRecord, error: FetchFailed) -> None:
    refusals = record.refusals + 1 if error.reason == "refused" or not error.retryable else 0
    is_late = record.attempts >= MANY_ATTEMPTS and not lasts(record.noted_at + END_FOR, work.now, END_FOR)
    if refusals >= MOST_REFUSALS or is_late:
        log.warning("%s stays open until its server ends it: %s", record.url, error.sentence)
        remote_resources.forget(work, record.id)
    else:
        pause = min(FIRST_PAUSE << min(record.attempts, 16), LONGEST_PAUSE)
        remote_resources.postpone(work, record.id, work.now + pause, error.sentence[:300], refusals)
