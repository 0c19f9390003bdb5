"""Attempts to send an event to a webhook: when the next one is made, and what is kept of each."""

from collections.abc import Sequence
from secrets import SystemRandom
from typing import Final

import msgspec

from payres.core.protocol.clock import HOUR, MINUTE, SECOND
from payres.core.store.events import EventRecord
from payres.core.store.work import Work
from payres.webhooks.sender import GONE, Attempt
from payres.webhooks.store import webhooks
from payres.webhooks.store.webhooks import WEBHOOKS, AttemptRecord, DeliveryRecord, Turn

# Pauses between attempts; after the last attempt the delivery has failed.
RETRY_PAUSES: Final = (
    *(5 * SECOND, 5 * MINUTE, 30 * MINUTE, 2 * HOUR, 5 * HOUR),
    *(10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR),
)
# The random part of a pause, so that deliveries that failed together are not retried together.
JITTER: Final = 0.1
CHANCE: Final = SystemRandom()


class ToSend(msgspec.Struct, frozen=True):
    """An event to send to a webhook; with a delivery, it is a retry."""

    event: EventRecord
    delivery: DeliveryRecord | None = None

    @property
    def attempt(self) -> int:
        """Which attempt to send the event this is."""
        return 1 if self.delivery is None else self.delivery.attempts + 1

    @property
    def turn(self) -> Turn:
        return Turn(self.event.sequence, self.event.wallet_address_id or 0)


def note_attempts(work: Work, webhook_id: str, made: Sequence[tuple[ToSend, Attempt]]) -> None:
    """Stores the results of attempts, in their order."""
    webhooks.add_attempts(work, webhook_id, [_kept(webhook_id, *one) for one in made])
    _, latest = made[-1]
    columns = {"last_attempt_at": latest.at, "last_status": latest.status, "last_error": latest.error}
    WEBHOOKS.update(work, webhook_id, **columns)


def delivery_after(webhook_id: str, sent: ToSend, attempt: Attempt) -> DeliveryRecord:
    """The row of an event after an attempt that failed or was a retry."""
    made = sent.attempt
    if attempt.error is None:
        state, next_at = "delivered", None
    elif made > len(RETRY_PAUSES) or attempt.status == GONE:
        state, next_at = "failed", None
    else:
        pause = round(RETRY_PAUSES[made - 1] * (1 + JITTER * CHANCE.random()))
        state, next_at = "pending", attempt.at + max(pause, attempt.retry_after)
    return DeliveryRecord(
        sequence=sent.event.sequence,
        webhook_id=webhook_id,
        state=state,
        attempts=made,
        next_at=next_at,
        last_attempt_at=attempt.at,
        last_status=attempt.status,
        last_error=attempt.error,
    )


def _kept(webhook_id: str, sent: ToSend, made: Attempt) -> AttemptRecord:
    """The row of an attempt, before it has its number."""
    event, result = sent.event, (made.at, made.milliseconds, made.status, made.error, made.answer)
    return AttemptRecord(webhook_id, 0, event.id, event.type, sent.attempt, *result)
