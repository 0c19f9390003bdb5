"""SQL of webhooks, and of deliveries: events that a webhook did not take at first, or that are sent again."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from payres.agenda.store.agenda import DueKind
from payres.core.protocol.clock import DAY, HOUR, lasts
from payres.core.protocol.visible import visible_text
from payres.core.store import server_secrets
from payres.core.store.events import EventRecord
from payres.core.store.rows import Table, find_number, number
from payres.core.store.work import Transaction
from payres.webhooks.limits import MAX_KEPT_ATTEMPTS, ROTATION_HOURS

ACTIVE_WEBHOOK: Final = "active webhook"  # in `Work.changed`: a webhook was activated
LONGEST_PAUSE: Final = 2 * DAY  # between attempts
WEBHOOK_SECRETS: Final = "webhook_secrets"  # the name of the secret that encrypts webhook secrets


class WebhookRecord(msgspec.Struct, frozen=True):
    """A row of `webhook`. events are comma-separated patterns; secrets are encrypted; cursor is a sequence; due_at is
    None unless an event waits for an owner's webhook."""

    id: str
    url: str
    events: str
    is_private: int
    state: str
    secret: bytes
    previous_secret: bytes | None
    previous_until: int | None
    cursor: int
    created_at: int
    last_attempt_at: int | None = None
    last_status: int | None = None
    last_error: str | None = None
    name: str | None = None
    wallet_address_id: int | None = None
    due_at: int | None = None

    @property
    def active(self) -> bool:
        return self.state == "active"


class DeliveryRecord(msgspec.Struct, frozen=True):
    """A row of `delivery`. attempts counts since it became pending; next_at is None unless it is pending."""

    sequence: int
    webhook_id: str
    state: str
    attempts: int
    next_at: int | None
    last_attempt_at: int | None
    last_status: int | None
    last_error: str | None


class AttemptRecord(msgspec.Struct, frozen=True):
    """A row of `webhook_attempt`. event is an id; attempt counts from the last replay on; answer is the beginning of a
    body."""

    webhook_id: str
    number: int
    event: str
    type: str
    attempt: int
    at: int
    milliseconds: int
    status: int | None
    error: str | None
    answer: bytes

    @property
    def shown_answer(self) -> str:
        """The answer as text, safe to show."""
        return "\n".join(map(visible_text, self.answer.decode(errors="replace").splitlines()))


class Turn(NamedTuple):
    """An event that waits, by its sequence. `wallet_id` is 0 for an event of no wallet."""

    sequence: int
    wallet_id: int


class Due(NamedTuple):
    """A delivery that is due."""

    next_at: int
    turn: Turn


class OfWallet(NamedTuple):
    """An event of a wallet, and a webhook of that wallet."""

    sequence: int
    type: str
    webhook_id: str


# Rounds of events to owners' webhooks. Their deliveries are not due by themselves, so that rounds stay together.
DUE: Final = DueKind(
    name="webhook",
    table="webhook",
    due="due_at",
    key=("id",),
    source="webhook JOIN wallet_address a ON a.id = webhook.wallet_address_id",
    where="webhook.state = 'active' AND a.state = 'active'",
    party="a.owner_id",
    at_once=32,
    of_party=2,
    longest=LONGEST_PAUSE,
)
_AHEAD: Final = " AND d.next_at IS NOT NULL AND coalesce(d.last_attempt_at, d.next_at) > ? LIMIT ?"
WEBHOOKS = Table(WebhookRecord, "webhook")
DELIVERIES = Table(DeliveryRecord, "delivery")
ATTEMPTS = Table(AttemptRecord, "webhook_attempt")


def webhooks_of(tx: Transaction, wallet_id: int | None) -> Sequence[WebhookRecord]:
    """Those of a wallet, or the operator's own, oldest first."""
    return WEBHOOKS.list(tx, "WHERE wallet_address_id IS ? ORDER BY id", wallet_id)


def begin_events_of_wallets(tx: Transaction, sequence: int) -> None:
    """Before the first webhook of a wallet is added: events up to this one need not be looked at."""
    if tx.execute("SELECT 1 FROM webhook WHERE wallet_address_id > 0 LIMIT 1").fetchone() is None:
        tx.execute("INSERT OR REPLACE INTO wallet_event (id, cursor) VALUES (1, ?)", (sequence,))


def events_of_wallets(tx: Transaction, seen: int, limit: int) -> tuple[Sequence[OfWallet], int]:
    """Those of the next events after `seen` and the stored cursor whose wallets have webhooks, and the last examined.

    None are examined while no wallet has a webhook.
    """
    if tx.execute("SELECT 1 FROM webhook WHERE wallet_address_id > 0 LIMIT 1").fetchone() is None:
        return [], seen
    first = max(seen, number(tx, "SELECT cursor FROM wallet_event WHERE id = 1"))
    following = "SELECT sequence, type, wallet_address_id FROM event WHERE sequence > ? ORDER BY sequence LIMIT ?"
    last = number(tx, f"SELECT max(sequence) FROM ({following})", first, limit)
    rows = tx.execute(
        f"SELECT e.sequence, e.type, w.id FROM ({following}) e CROSS JOIN webhook w"
        " ON w.wallet_address_id = e.wallet_address_id AND w.cursor < e.sequence ORDER BY e.sequence",
        (first, limit),
    )
    return [OfWallet(*row) for row in rows], max(first, last)


def deliver_to_wallets(tx: Transaction, wanted: Sequence[OfWallet], cursor: int, now: int) -> None:
    """Makes these events due at their webhooks, unless they are gone, and stores up to where events were looked at."""
    due = (
        "INSERT OR IGNORE INTO delivery (sequence, webhook_id, state, attempts, next_at)"
        " SELECT sequence, ?, 'pending', 0, ? FROM event"
        " WHERE sequence = ? AND EXISTS (SELECT 1 FROM webhook WHERE id = ?)"
    )
    tx.executemany(due, [(one.webhook_id, now, one.sequence, one.webhook_id) for one in wanted])
    for webhook_id in {one.webhook_id for one in wanted}:
        note_due(tx, webhook_id, now)
    tx.execute("UPDATE wallet_event SET cursor = ? WHERE id = 1", (cursor,))


def kept_events(tx: Transaction, sequences: Iterable[int]) -> set[int]:
    """Those of these events that are not deleted yet."""
    return {one for one in sequences if tx.execute("SELECT 1 FROM event WHERE sequence = ?", (one,)).fetchone()}


def note_due(tx: Transaction, webhook_id: str, now: int) -> None:
    """Stores when the first delivery to an owner's webhook is due, which has changed: at once, if one that waits was
    attempted while the clock was ahead."""
    first = "SELECT min(next_at) FROM delivery WHERE webhook_id = ? AND next_at IS NOT NULL"
    due_at = find_number(tx, first, webhook_id)
    if due_at is not None:
        is_ahead = tx.execute(
            f"SELECT 1 FROM delivery d WHERE d.webhook_id = ?{_AHEAD}", (webhook_id, now, 1)
        ).fetchone()
        due_at = min(due_at, now if is_ahead else now + LONGEST_PAUSE)
    of_owner = "UPDATE webhook SET due_at = ? WHERE id = ? AND wallet_address_id > 0 AND due_at IS NOT ?"
    tx.execute(of_owner, (due_at, webhook_id, due_at))


def delete_webhook(tx: Transaction, webhook_id: str, rows: int) -> bool:
    """Deletes up to `rows` rows of each table of the webhook's, and the webhook if none are left. Whether it is
    deleted."""
    is_last = True
    for table, key in (("delivery", "sequence"), ("webhook_turn", "wallet_address_id"), ("webhook_attempt", "number")):
        of_webhook = f"SELECT {key} FROM {table} WHERE webhook_id = ? LIMIT ?"
        found = tx.execute(of_webhook, (webhook_id, rows + 1)).fetchall()
        gone = [(one, webhook_id) for (one,) in found[:rows]]
        tx.executemany(f"DELETE FROM {table} WHERE {key} = ? AND webhook_id = ?", gone)
        is_last = is_last and len(found) <= rows
    if is_last:
        tx.execute("DELETE FROM webhook WHERE id = ?", (webhook_id,))
    return is_last


def unattempted(
    tx: Transaction, webhook: WebhookRecord, sequence: int, limit: int
) -> tuple[Sequence[tuple[Turn, str]], int]:
    """Those of the next events after a sequence that no attempt was made to send yet, with their types, and the last
    one examined.

    None for the webhook of a wallet, whose events are deliveries.
    """
    if webhook.wallet_address_id is not None:
        return [], sequence
    rows = tx.execute(
        "SELECT e.sequence, coalesce(e.wallet_address_id, 0), e.type, e.sequence <= coalesce(t.cursor, 0)"
        " FROM event e LEFT JOIN webhook_turn t"
        " ON t.webhook_id = ? AND t.wallet_address_id = coalesce(e.wallet_address_id, 0)"
        " WHERE e.sequence > ? ORDER BY e.sequence LIMIT ?",
        (webhook.id, sequence, limit),
    ).fetchall()
    return [(Turn(*row[:2]), row[2]) for row in rows if not row[3]], rows[-1][0] if rows else sequence


def is_attempted(tx: Transaction, webhook: WebhookRecord, event: EventRecord) -> bool:
    """Whether the event was attempted once, or is not wanted."""
    turn = "SELECT cursor FROM webhook_turn WHERE webhook_id = ? AND wallet_address_id = ?"
    return event.sequence <= max(webhook.cursor, number(tx, turn, webhook.id, event.wallet_address_id or 0))


def advance(tx: Transaction, webhook_id: str, cursor: int, ahead: Mapping[int, int], rows: int) -> None:
    """Stores the webhook's cursor, and the cursors of wallets that are ahead of it. Deletes up to `rows` that the
    webhook's has passed."""
    WEBHOOKS.update(tx, webhook_id, cursor=cursor)
    turn = (
        "INSERT INTO webhook_turn (webhook_id, wallet_address_id, cursor) VALUES (?, ?, ?)"
        " ON CONFLICT DO UPDATE SET cursor = excluded.cursor"
    )
    tx.executemany(turn, [(webhook_id, *one) for one in ahead.items()])
    passed = "SELECT webhook_id, wallet_address_id FROM webhook_turn WHERE webhook_id = ? AND cursor <= ? LIMIT ?"
    gone = tx.execute(passed, (webhook_id, cursor, rows)).fetchall()
    tx.executemany("DELETE FROM webhook_turn WHERE webhook_id = ? AND wallet_address_id = ?", gone)


def list_attempts(tx: Transaction, webhook_id: str) -> Sequence[AttemptRecord]:
    """The attempts that are kept, latest first."""
    return ATTEMPTS.list(tx, "WHERE webhook_id = ? ORDER BY number DESC", webhook_id)


def add_attempts(tx: Transaction, webhook_id: str, made: Sequence[AttemptRecord]) -> None:
    """Stores attempts in their order, whose numbers follow those before, and deletes those that are not kept."""
    last = number(tx, "SELECT max(number) FROM webhook_attempt WHERE webhook_id = ?", webhook_id)
    kept = made[-MAX_KEPT_ATTEMPTS:]
    for count, one in enumerate(kept, start=last + 1):
        ATTEMPTS.insert(tx, msgspec.structs.replace(one, number=count))
    passed = last + len(kept) - MAX_KEPT_ATTEMPTS
    tx.execute("DELETE FROM webhook_attempt WHERE webhook_id = ? AND number <= ?", (webhook_id, passed))


def signing_secrets(tx: Transaction, webhook: WebhookRecord, now: int) -> Sequence[str]:
    """The secrets to sign with, newest first."""
    found, until = [webhook.secret], webhook.previous_until
    if webhook.previous_secret is not None and until is not None and lasts(until, now, ROTATION_HOURS * HOUR):
        found.append(webhook.previous_secret)
    return [server_secrets.decrypt(tx, WEBHOOK_SECRETS, one) for one in found]


def due_deliveries(tx: Transaction, webhook_id: str, now: int, after: Due, limit: int) -> Sequence[Due]:
    """The next deliveries that are due, after this one, longest due first; and some that were attempted in the future.

    Those were attempted while the clock was ahead, and are due at once, lest they wait for that time.
    """
    due = (
        "SELECT d.next_at, d.sequence, coalesce(e.wallet_address_id, 0)"
        " FROM delivery d JOIN event e ON e.sequence = d.sequence WHERE d.webhook_id = ?"
    )
    in_order = " AND (d.next_at, d.sequence) > (?, ?) AND d.next_at <= ? ORDER BY d.next_at, d.sequence LIMIT ?"
    found = tx.execute(due + in_order, (webhook_id, after.next_at, after.turn.sequence, now, limit)).fetchall()
    found += tx.execute(due + _AHEAD, (webhook_id, now, limit)).fetchall()
    return [Due(next_at, Turn(*turn)) for next_at, *turn in found]


def deliveries_of(tx: Transaction, webhook_id: str, state: str, limit: int) -> Sequence[DeliveryRecord]:
    """A webhook's deliveries in one state, newest first."""
    newest = "WHERE webhook_id = ? AND state = ? ORDER BY sequence DESC LIMIT ?"
    return DELIVERIES.list(tx, newest, webhook_id, state, limit)


def failed_deliveries(tx: Transaction, webhook_id: str, since: int, limit: int) -> Sequence[tuple[int, str]]:
    """The keys of a webhook's failed deliveries last attempted at `since` or later, newest first."""
    newest = "WHERE webhook_id = ? AND state = 'failed' AND last_attempt_at >= ? ORDER BY sequence DESC LIMIT ?"
    return tx.execute(f"SELECT sequence, webhook_id FROM delivery {newest}", (webhook_id, since, limit)).fetchall()


def count_failed_deliveries(tx: Transaction) -> int:
    """Failed deliveries to the operator's webhooks that are not retried."""
    failed = "SELECT count(*) FROM webhook w JOIN delivery d ON d.webhook_id = w.id AND d.state = 'failed'"
    return number(tx, f"{failed} WHERE w.wallet_address_id IS NULL")


def oldest_pending_event(tx: Transaction, webhook_id: str = "") -> int | None:
    """The time of the oldest event whose delivery to an active webhook of the operator's, or to one, is retried."""
    return find_number(
        tx,
        "SELECT min(e.created_at) FROM webhook w JOIN event e ON e.sequence ="
        " (SELECT min(sequence) FROM delivery d WHERE d.webhook_id = w.id AND d.state = 'pending')"
        " WHERE w.state = 'active' AND w.wallet_address_id IS NULL AND ? IN ('', w.id)",
        webhook_id,
    )


def repeat_failed(tx: Transaction, keys: Sequence[tuple[int, str]], now: int) -> int:
    """Makes these deliveries due as if new, except any that are no longer failed. Returns how many."""
    repeat = (
        "UPDATE delivery SET state = 'pending', attempts = 0, next_at = ?, last_attempt_at = NULL, last_status = NULL,"
        " last_error = NULL WHERE sequence = ? AND webhook_id = ? AND state = 'failed'"
    )
    count = sum(tx.execute(repeat, (now, *key)).rowcount for key in keys)
    for webhook_id in {webhook_id for _, webhook_id in keys}:
        note_due(tx, webhook_id, now)
    return count


def try_now(tx: Transaction, webhook_id: str, now: int) -> None:
    """Makes all that a webhook has not taken yet due now, in place of no attempt that it would get by itself."""
    due = (
        "UPDATE delivery SET next_at = :now, attempts = max(attempts - 1, 0) WHERE webhook_id = :id AND next_at > :now"
    )
    tx.execute(due, {"now": now, "id": webhook_id})
    note_due(tx, webhook_id, now)


def give_up(tx: Transaction, webhook_id: str) -> None:
    """Sends no more of what a webhook has not taken yet, until it is replayed."""
    failed = "UPDATE delivery SET state = 'failed', next_at = NULL WHERE webhook_id = ? AND next_at IS NOT NULL"
    tx.execute(failed, (webhook_id,))
    note_due(tx, webhook_id, 0)


def release_events(tx: Transaction, sequences: Sequence[int]) -> Sequence[int]:
    """Those of these events that are not to be delivered any more. Deletes their deliveries, up to 16 of each."""
    own = "SELECT coalesce(min(cursor), ?) FROM webhook WHERE state = 'active' AND wallet_address_id IS NULL"
    sent_to_all = number(tx, own, 1 << 62)
    due = (
        "SELECT 1 FROM delivery d JOIN webhook w ON w.id = d.webhook_id"
        " LEFT JOIN wallet_address a ON a.id = w.wallet_address_id"
        " WHERE d.sequence = ? AND d.next_at IS NOT NULL"
        " AND w.state = 'active' AND coalesce(a.state, 'active') = 'active'"
    )
    gone = [one for one in sequences if one <= sent_to_all and tx.execute(due, (one,)).fetchone() is None]
    tx.executemany("DELETE FROM delivery WHERE sequence = ?", [(one,) for one in gone])
    return gone
