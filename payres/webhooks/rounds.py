"""Rounds of events to a webhook: what is sent next, and what came of it."""

import logging
from collections.abc import Sequence
from itertools import zip_longest
from typing import Final

import msgspec

from payres.core.protocol.event_types import WebhookEvent
from payres.core.store.events import OUTBOX
from payres.core.store.work import Work
from payres.webhooks.attempts import ToSend, delivery_after, note_attempts
from payres.webhooks.limits import MAX_EVENTS_IN_TURNS
from payres.webhooks.patterns import wants
from payres.webhooks.sender import GONE, Attempt, WebhookTarget, target_of
from payres.webhooks.store import webhooks
from payres.webhooks.store.webhooks import DELIVERIES, WEBHOOKS, Due, Turn, WebhookRecord
from payres.webhooks.turns import READ_AT_ONCE, Turns

FIRST_DUE: Final = Due(0, Turn(0, 0))

log = logging.getLogger("payres.events")


class Round(msgspec.Struct, frozen=True):
    """Events to send to a webhook, one after another."""

    target: WebhookTarget
    to_send: Sequence[ToSend]


class Found(msgspec.Struct, frozen=True):
    """What waits for a webhook besides what is known: the wanted ones of the next events up to `seen`, and `due`."""

    webhook: WebhookRecord
    wanted: Sequence[Turn]
    seen: int
    due: Sequence[Due]


class Queue:
    """What waits for one webhook. It is lost in a crash, and found again from the rows."""

    def __init__(self) -> None:
        self.seen = 0  # the last event examined
        self.due_after = FIRST_DUE
        self._new = Turns()
        self._again = Turns()
        self._retried: set[int] = set()  # the sequences in `_again`

    def __len__(self) -> int:
        return len(self._new) + len(self._again)

    @property
    def room(self) -> int:
        """How many more events may be examined."""
        return max(min(READ_AT_ONCE, MAX_EVENTS_IN_TURNS - len(self)), 0)

    @property
    def cursor(self) -> int:
        """The last event up to which none waits."""
        first = self._new.first()
        return self.seen if first is None else first - 1

    def add(self, found: Found) -> None:
        self.seen = found.seen
        for turn in found.wanted:
            self._new.add(turn)
        for _, turn in found.due:
            if turn.sequence not in self._retried:
                self._retried.add(turn.sequence)
                self._again.add(turn)
        # From the start again after the last, for those that became due meanwhile.
        self.due_after = found.due[-1] if len(found.due) >= READ_AT_ONCE else FIRST_DUE

    def take(self, most: int) -> Sequence[Turn]:
        """Takes the next events. At most every other is a retry: retries must not delay new events."""
        again = self._again.take(most // 2)
        self._retried.difference_update(one.sequence for one in again)
        new = self._new.take(most - len(again))
        return [one for pair in zip_longest(again, new) for one in pair if one is not None]

    def put_back(self, unsent: Sequence[ToSend]) -> None:
        """Makes events that were taken together the next ones again."""
        self._new.put_back([one.turn for one in unsent if one.delivery is None])
        self._again.put_back([one.turn for one in unsent if one.delivery is not None])
        self._retried.update(one.event.sequence for one in unsent if one.delivery is not None)


def find(work: Work, webhook_id: str, queue: Queue) -> Found | None:
    """What waits for a webhook and is not in its queue; None unless it is active."""
    webhook = WEBHOOKS.get(work, webhook_id)
    if webhook is None or not webhook.active:
        return None
    found, seen = webhooks.unattempted(work, webhook, max(webhook.cursor, queue.seen), queue.room)
    wanted = [turn for turn, name in found if wants(webhook, name)]
    due = webhooks.due_deliveries(work, webhook_id, work.now, queue.due_after, queue.room)
    return Found(webhook, wanted, seen, due)


def find_round(work: Work, webhook: WebhookRecord, taken: Sequence[Turn]) -> Round:
    """These events, each once, with their deliveries if they were sent before, or are replayed before their turn."""
    to_send = []
    for turn in dict.fromkeys(taken):
        event = OUTBOX.get(work, turn.sequence)
        delivery = DELIVERIES.find(work, sequence=turn.sequence, webhook_id=webhook.id)
        if event is not None and (delivery is None or delivery.next_at is not None):
            to_send.append(ToSend(event, delivery))
    return Round(target_of(work, webhook), to_send)


def is_all_sent(work: Work) -> bool:
    """Whether no active webhook has an event or retry to be sent now."""
    if webhooks.events_of_wallets(work, 0, READ_AT_ONCE)[0]:
        return False
    queues = [(one, find(work, one.id, Queue())) for one in webhooks.WEBHOOKS.list(work)]
    return not any(
        found is not None and (found.wanted or found.due or found.seen >= webhook.cursor + READ_AT_ONCE)
        for webhook, found in queues
    )


def store_round(work: Work, found: Round, attempts: Sequence[Attempt], cursor: int) -> None:
    """Stores the results of a round, and the cursors; nothing if the webhook was removed."""
    webhook, sent = WEBHOOKS.get(work, found.target.webhook.id), found.to_send[: len(attempts)]
    if webhook is None:
        return
    first_attempts = [one.turn for one in sent if one.delivery is None]
    ahead = {turn.wallet_id: turn.sequence for turn in first_attempts if turn.sequence > cursor}
    webhooks.advance(work, webhook.id, cursor, ahead, READ_AT_ONCE)
    kept = webhooks.kept_events(work, [one.event.sequence for one in sent])
    for one, attempt in zip(sent, attempts, strict=True):
        if one.event.sequence in kept and (one.delivery is not None or attempt.error is not None):
            DELIVERIES.replace(work, delivery_after(webhook.id, one, attempt))
    webhooks.note_due(work, webhook.id, work.now)
    if attempts:
        note_attempts(work, webhook.id, list(zip(sent, attempts, strict=True)))
    if webhook.active and any(attempt.status == GONE for attempt in attempts):
        log.warning("webhook %s answered 410 Gone and is disabled", webhook.id)
        WEBHOOKS.update(work, webhook.id, state="disabled")  # until a test succeeds
        work.emit("webhook.disabled", webhook.id, WebhookEvent(webhook=webhook.id, url=webhook.url))
