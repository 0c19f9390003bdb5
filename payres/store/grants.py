"""SQL of grants, their interactions and what they have spent."""

from collections.abc import Sequence

import msgspec

from payres.store.database import Transaction


class GrantRecord(msgspec.Struct, frozen=True):
    """A row of `grant`. access and subject are JSON texts; wallet_address_id is whose owner must consent.

    forget_at is None for a grant that stays.
    """

    id: str
    client_id: int
    client_name: str | None
    state: str
    access: str
    subject: str | None
    wallet_address_id: int | None
    continue_hash: bytes
    waits_from: int
    created_at: int
    ended_at: int | None
    forget_at: int | None = None


class InteractionRecord(msgspec.Struct, frozen=True):
    """A row of `interaction`. reference is the interact_ref while it can still be used."""

    id: str
    grant_id: str
    nonce: str
    finish_uri: str | None
    client_nonce: str | None
    server_nonce: str
    reference: str | None
    expires_at: int
    decided_at: int | None


class SpendingRecord(msgspec.Struct, frozen=True):
    """What a grant has spent in one window towards receivers of one asset."""

    receive_code: str
    receive_scale: int
    debit: int
    receive: int


GRANT_COLUMNS = (
    "id, client_id, client_name, state, access, subject, wallet_address_id, continue_hash, waits_from, created_at,"
    " ended_at, forget_at"
)
INTERACTION_COLUMNS = "id, grant_id, nonce, finish_uri, client_nonce, server_nonce, reference, expires_at, decided_at"


def insert_grant(tx: Transaction, grant: GrantRecord) -> None:
    tx.execute(
        f'INSERT INTO "grant" ({GRANT_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)',
        msgspec.structs.astuple(grant),
    )


def find_grant(tx: Transaction, grant_id: str) -> GrantRecord | None:
    row = tx.execute(f'SELECT {GRANT_COLUMNS} FROM "grant" WHERE id = ?', (grant_id,)).fetchone()
    return GrantRecord(*row) if row else None


def list_grants(tx: Transaction, state: str | None, limit: int) -> Sequence[GrantRecord]:
    """Newest first; in one state, or in all."""
    if state is None:
        rows = tx.execute(f'SELECT {GRANT_COLUMNS} FROM "grant" ORDER BY id DESC LIMIT ?', (limit,))
    else:
        rows = tx.execute(
            f'SELECT {GRANT_COLUMNS} FROM "grant" WHERE state = ? ORDER BY id DESC LIMIT ?', (state, limit)
        )
    return [GrantRecord(*row) for row in rows]


def change_state(tx: Transaction, grant_id: str, before: str, after: str, ended_at: int | None = None) -> bool:
    """Moves the grant on, one way; whether it was in the state `before`."""
    cursor = tx.execute(
        'UPDATE "grant" SET state = ?, ended_at = ? WHERE id = ? AND state = ?', (after, ended_at, grant_id, before)
    )
    return cursor.rowcount == 1


def set_waits_from(tx: Transaction, grant_id: str, now: int) -> None:
    tx.execute('UPDATE "grant" SET waits_from = ? WHERE id = ?', (now, grant_id))


def keep_grant(tx: Transaction, grant_id: str) -> None:
    """From now on the grant stays, whatever becomes of it."""
    tx.execute('UPDATE "grant" SET forget_at = NULL WHERE id = ? AND forget_at IS NOT NULL', (grant_id,))


def put_off_forgetting(tx: Transaction, grant_id: str, time: int) -> None:
    """Sets another time for forgetting the grant, unless it stays."""
    tx.execute('UPDATE "grant" SET forget_at = ? WHERE id = ? AND forget_at IS NOT NULL', (time, grant_id))


def set_forget_at(tx: Transaction, grant_id: str, time: int) -> None:
    """Sets when the grant may be forgotten."""
    tx.execute('UPDATE "grant" SET forget_at = ? WHERE id = ?', (time, grant_id))


def grants_to_forget(tx: Transaction, now: int, limit: int) -> Sequence[tuple[str, int]]:
    """The ids of grants whose time to be forgotten has come, the earliest first, each with its client's id."""
    return tx.execute(
        'SELECT id, client_id FROM "grant" WHERE forget_at <= ? ORDER BY forget_at LIMIT ?', (now, limit)
    ).fetchall()


def delete_grant(tx: Transaction, grant_id: str) -> None:
    """Deletes a grant, whose tokens are gone, with its interaction."""
    tx.execute("DELETE FROM interaction WHERE grant_id = ?", (grant_id,))
    tx.execute('DELETE FROM "grant" WHERE id = ?', (grant_id,))


def insert_interaction(tx: Transaction, interaction: InteractionRecord) -> None:
    tx.execute(
        f"INSERT INTO interaction ({INTERACTION_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        msgspec.structs.astuple(interaction),
    )


def find_interaction(tx: Transaction, interaction_id: str) -> InteractionRecord | None:
    row = tx.execute(f"SELECT {INTERACTION_COLUMNS} FROM interaction WHERE id = ?", (interaction_id,)).fetchone()
    return InteractionRecord(*row) if row else None


def interaction_of_grant(tx: Transaction, grant_id: str) -> InteractionRecord | None:
    row = tx.execute(f"SELECT {INTERACTION_COLUMNS} FROM interaction WHERE grant_id = ?", (grant_id,)).fetchone()
    return InteractionRecord(*row) if row else None


def decide_interaction(tx: Transaction, interaction_id: str, reference: str | None, now: int) -> None:
    tx.execute("UPDATE interaction SET reference = ?, decided_at = ? WHERE id = ?", (reference, now, interaction_id))


def use_reference(tx: Transaction, interaction_id: str) -> None:
    tx.execute("UPDATE interaction SET reference = NULL WHERE id = ?", (interaction_id,))


def spending(tx: Transaction, grant_id: str, window_start: int) -> Sequence[SpendingRecord]:
    """One record for each asset of receivers, the last used one first."""
    rows = tx.execute(
        "SELECT receive_code, receive_scale, debit, receive FROM grant_spending"
        " WHERE grant_id = ? AND window_start = ? ORDER BY changed_at DESC",
        (grant_id, window_start),
    )
    return [SpendingRecord(*row) for row in rows]


def add_spending(
    tx: Transaction,
    grant_id: str,
    window_start: int,
    receive_code: str,
    receive_scale: int,
    debit: int,
    receive: int,
    now: int,
) -> None:
    """Adds to what the grant has spent in the window; negative figures take back."""
    key = (grant_id, window_start, receive_code, receive_scale)
    tx.execute(
        "INSERT INTO grant_spending (grant_id, window_start, receive_code, receive_scale, debit, receive, changed_at)"
        " VALUES (?, ?, ?, ?, 0, 0, ?) ON CONFLICT DO NOTHING",
        (*key, now),
    )
    tx.execute(
        "UPDATE grant_spending SET debit = debit + ?, receive = receive + ?, changed_at = ?"
        " WHERE grant_id = ? AND window_start = ? AND receive_code = ? AND receive_scale = ?",
        (debit, receive, now, *key),
    )
