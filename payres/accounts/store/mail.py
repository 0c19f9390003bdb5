"""SQL of notices by mail: where an owner's go, which are wanted, and the mails that wait or were sent.

`mail_cursor` has a row while the server sends mail. Without it nothing is stored, and no event is kept for owners.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

import msgspec

from payres.agenda.store.agenda import DueKind
from payres.core.protocol.clock import DAY, HOUR
from payres.core.store import server_secrets
from payres.core.store.events import OUTBOX, EventRecord, last_sequence
from payres.core.store.retention import Rule, purge
from payres.core.store.rows import Row, Table, find_number, insert_row, json_column, lasting, number
from payres.core.store.work import Transaction, Work

SECRET: Final = "mail"  # noqa: S105 - the name of the secret that signs links to end notices
MailRate = Literal["off", "hour", "once"]
DUE: Final = DueKind(
    name="mail", table="mail", due="send_at", key=("id",), party="mail.owner_id", at_once=4, of_party=1, longest=DAY
)
CLOSED: Final = "data ->> 'wallet', kind, data ->> 'until', data ->> 'upto'"  # of a mail into which nothing is gathered
TYPES: Final = (
    *("incoming_payment.partial_payment_received", "incoming_payment.completed"),
    *("wallet.deposited", "outgoing_payment.failed"),
)
REFUND: Final = "refund.completed"  # of the wallet that sends back, while its owner is notified by the refund itself


class AddressRecord(msgspec.Struct, frozen=True):
    """A row of `mail_address`; email is None until the first is confirmed. Notices begin after after_event."""

    owner_id: int
    email: str | None
    confirmed_at: int | None
    language: str
    time_zone: str
    pending: str | None = None
    code_hash: bytes | None = None
    code_until: int | None = None
    wrong: int = 0
    after_event: int = 0


class MailRecord(msgspec.Struct, frozen=True):
    """A row of `mail`."""

    id: str
    owner_id: int
    kind: str
    key: str
    address: str
    data: dict[str, Any]
    language: str
    created_at: int
    send_at: int | None
    attempts: int = 0
    sent_at: int | None = None
    last_error: str | None = None


def _delete_mail(tx: Transaction, row: Row, now: int) -> None:
    """Deletes a mail, and keeps up to where the owner was notified of a wallet: the next one begins there."""
    mail_id, *notified = row
    if None not in notified:
        tx.execute(
            "INSERT INTO mail_told VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE"
            " SET until_at = max(until_at, excluded.until_at), upto = max(upto, excluded.upto)",
            notified,
        )
    tx.execute("DELETE FROM mail WHERE id = ?", (mail_id,))


KEPT: Final = Rule("mail", "created_at", f"id, {CLOSED}", after=30 * DAY, delete=_delete_mail)
ADDRESSES = Table(AddressRecord, "mail_address")
MAILS = Table(MailRecord, "mail", data=json_column("data"))


def cursor(tx: Transaction) -> int | None:
    """The last event that owners were notified of; None while the server sends no mail."""
    return find_number(tx, "SELECT sequence FROM mail_cursor WHERE id = 1")


def turn(tx: Transaction, on: bool) -> None:
    """Begins with the next event, or gives up all that waits: what is old by the time that mail is on again,
    nobody is notified of."""
    if on:
        server_secrets.ensure_secret(tx, SECRET)
        set_cursor(tx, last_sequence(tx))
    else:
        tx.execute("DELETE FROM mail_cursor")
        tx.execute("UPDATE mail SET send_at = NULL, last_error = 'mail was turned off' WHERE send_at IS NOT NULL")


def events_for_owners(tx: Transaction, after: int, last: int) -> Sequence[EventRecord]:
    """Those of the events after one, up to the last, that an owner with an address is notified of."""
    of_owners = (
        "WHERE sequence > ? AND sequence <= ? AND (type = ? OR type IN (?, ?, ?, ?) AND EXISTS (SELECT 1"
        " FROM wallet_address w JOIN mail_address m ON m.owner_id = w.owner_id"
        " WHERE w.id = wallet_address_id AND m.email IS NOT NULL)) ORDER BY sequence"
    )
    return OUTBOX.list(tx, of_owners, after, last, REFUND, *TYPES)


def set_cursor(tx: Transaction, sequence: int) -> None:
    """Up to this event, owners have been notified."""
    tx.execute("INSERT OR REPLACE INTO mail_cursor (id, sequence) VALUES (1, ?)", (sequence,))


def release_events(tx: Transaction, sequences: Sequence[int]) -> Sequence[int]:
    """Those of these events that owners need not be notified of any more."""
    last = cursor(tx)
    return [one for one in sequences if last is None or one <= last]


def insert_mail(
    work: Work,
    address: AddressRecord,
    kind: str,
    data: Mapping[str, Any],
    key: str | None = None,
    send_at: int | None = None,
) -> None:
    """Stores a mail to an owner that is due now, or later, unless there is one with its key; deletes a few old ones."""
    purge(work, KEPT, work.now)
    mail_id, due, to = work.new_id(), work.now if send_at is None else send_at, address.email or ""
    if key is None or not has_key(work, key):
        made = MailRecord(
            mail_id, address.owner_id, kind, key or mail_id, to, dict(data), address.language, work.now, due
        )
        MAILS.insert(work, made)
        work.changed.append(DUE.changed)


def mails_of(tx: Transaction, time: str) -> Sequence[MailRecord]:
    """The mails whose ids begin with this time, in hexadecimal digits."""
    return MAILS.list(tx, "WHERE id > ? AND id < ?", f"{time}-", f"{time}.")


def follow_session(tx: Transaction, owner_id: int, old: bytes, new: bytes) -> None:
    """Lets the mails about what was done in a session name the one that has taken its place."""
    changed = "UPDATE mail SET data = replace(data, ?, ?) WHERE owner_id = ?"
    tx.execute(changed, (old.hex(), new.hex(), owner_id))


def has_key(tx: Transaction, key: str) -> bool:
    """Whether a mail about this was stored."""
    return MAILS.find(tx, key=key) is not None


def last_with_key(tx: Transaction, prefix: str) -> MailRecord | None:
    """The mail with the greatest key that begins with this, and a colon."""
    return MAILS.find(tx, "WHERE key > ? AND key < ? ORDER BY key DESC LIMIT 1", f"{prefix}:", f"{prefix};")


def last_notified(tx: Transaction, wallet_id: int, kind: str) -> Mapping[str, int]:
    """The time and the transfer up to which deleted mails of a kind were about a wallet; empty if there were none."""
    last = "SELECT until_at, upto FROM mail_told WHERE wallet_address_id = ? AND kind = ?"
    found = tx.execute(last, (wallet_id, kind)).fetchone()
    return {} if found is None else {"until": found[0], "upto": found[1]}


def withdraw(tx: Transaction, prefix: str) -> None:
    """Deletes the mails that wait and whose key begins with this, and a colon."""
    tx.execute("DELETE FROM mail WHERE key > ? AND key < ? AND send_at IS NOT NULL", (f"{prefix}:", f"{prefix};"))


def change_mail(tx: Transaction, mail_id: str, **columns: object) -> None:
    """Sets columns of a mail; `data` is an object."""
    if "data" in columns:
        columns["data"] = msgspec.json.encode(columns["data"]).decode()
    MAILS.update(tx, mail_id, **columns)


def last_mail(tx: Transaction, owner_id: int) -> MailRecord | None:
    """The newest mail to an owner that an attempt was made for, other than codes."""
    return MAILS.find(tx, "WHERE owner_id = ? AND attempts > 0 AND kind <> 'code' ORDER BY id DESC LIMIT 1", owner_id)


def newest_of(tx: Transaction, owner_id: int, kind: str, since: int) -> MailRecord | None:
    """The newest mail of a kind to an owner of the day that began then, whether it was sent or not."""
    of_day, times = lasting("created_at", since - 1, DAY)
    return MAILS.find(
        tx, f"WHERE owner_id = ? AND kind = ? AND {of_day} ORDER BY id DESC LIMIT 1", owner_id, kind, *times
    )


def count_mails(tx: Transaction, owner_id: int, kind: str, now: int) -> int:
    """How many mails of a kind an owner has caused in the last hour."""
    recent, times = lasting("created_at", now - HOUR, HOUR)
    return number(tx, f"SELECT count(*) FROM mail WHERE owner_id = ? AND kind = ? AND {recent}", owner_id, kind, *times)


def waiting(tx: Transaction, now: int) -> tuple[int, str | None, int | None]:
    """How many mails are due, and why the last attempt for one of them has failed; since when the first is that has."""
    due = "FROM mail WHERE send_at IS NOT NULL AND (send_at <= ? OR attempts > 0)"
    failed = f"{due} AND last_error IS NOT NULL"
    error = tx.execute(f"SELECT last_error {failed} ORDER BY send_at DESC LIMIT 1", (now,)).fetchone()
    since = find_number(tx, f"SELECT min(created_at) {failed}", now)
    return number(tx, f"SELECT count(*) {due}", now), error and error[0], since


def rates(tx: Transaction, owner_id: int) -> Mapping[str, MailRate]:
    """How often an owner wants notices, by kind; at once is the rate of kinds that are not in it."""
    return dict(tx.execute("SELECT kind, rate FROM mail_choice WHERE owner_id = ?", (owner_id,)).fetchall())


def set_rates(tx: Transaction, owner_id: int, wanted: Mapping[str, MailRate]) -> None:
    for kind, rate in wanted.items():
        tx.execute("DELETE FROM mail_choice WHERE owner_id = ? AND kind = ?", (owner_id, kind))
        insert_row(tx, "mail_choice", owner_id=owner_id, kind=kind, rate=rate)
