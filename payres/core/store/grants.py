"""SQL of grants: their interactions, what they have spent, and their access tokens."""

from collections.abc import Sequence
from typing import Final, Literal

import msgspec

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import SECOND, lasts
from payres.core.protocol.limits import APPROVAL_SECONDS
from payres.core.store.rows import Table, find_number
from payres.core.store.work import Damaged, Transaction

# As stored, plus what a state becomes when its time is over: `expired` and `lapsed`.
GrantState = Literal["pending", "expired", "approved", "lapsed", "issued", "denied", "revoked"]

Decider = Literal["owner", "operator"]


class GrantRecord(msgspec.Struct, frozen=True):
    """A row of `grant`. access and subject are JSON texts; wallet_address_id is the wallet whose owner must consent.

    purge_at is None if the grant is never purged; kid is the key that signed the request.
    """

    id: str
    client_id: int
    client_name: str | None
    state: GrantState
    access: str
    subject: str | None
    wallet_address_id: int | None
    continue_hash: bytes
    waits_from: int
    created_at: int
    ended_at: int | None
    purge_at: int | None = None
    kid: str | None = None


class InteractionRecord(msgspec.Struct, frozen=True):
    """A row of `interaction`. reference is the interact_ref while it is usable, reason what an operator wrote for the
    owner."""

    id: str
    grant_id: str
    nonce: str
    finish_uri: str | None
    client_nonce: str | None
    server_nonce: str
    reference: str | None
    expires_at: int
    decided_at: int | None
    decided_by: Decider | None = None
    reason: str | None = None


class SpendingRecord(msgspec.Struct, frozen=True):
    """A grant's spending in one window towards receivers of one asset."""

    receive_code: str
    receive_scale: int
    debit: int
    receive: int

    @property
    def receive_asset(self) -> Asset:
        return Asset(self.receive_code, self.receive_scale)


GRANTS = Table(GrantRecord, '"grant"')
INTERACTIONS = Table(InteractionRecord, "interaction")
SPENDING = Table(SpendingRecord, "grant_spending")

TO_CONTINUE: Final = APPROVAL_SECONDS * SECOND


def is_undecided(grant: GrantRecord, interaction: InteractionRecord, now: int) -> bool:
    """Whether the owner may still decide."""
    until = interaction.expires_at
    return grant.state == "pending" and lasts(until, now, until - grant.created_at)


def has_lapsed(state: str, decided_at: int | None, now: int) -> bool:
    """Whether the client has not continued an approved grant in time."""
    is_approved = state == "approved" and decided_at is not None
    return is_approved and not lasts((decided_at or 0) + TO_CONTINUE, now, TO_CONTINUE)


def change_state(tx: Transaction, grant_id: str, before: str, after: str, ended_at: int | None = None) -> bool:
    """Changes the state. Whether it was `before`."""
    cursor = tx.execute(
        'UPDATE "grant" SET state = ?, ended_at = ? WHERE id = ? AND state = ?', (after, ended_at, grant_id, before)
    )
    return cursor.rowcount == 1


def keep_grant(tx: Transaction, grant_id: str) -> None:
    """Exempts the grant from purging."""
    tx.execute('UPDATE "grant" SET purge_at = NULL WHERE id = ? AND purge_at IS NOT NULL', (grant_id,))


def postpone_purge(tx: Transaction, grant_id: str, time: int) -> None:
    """Sets a new time from which the grant may be purged, unless it is exempt."""
    tx.execute('UPDATE "grant" SET purge_at = ? WHERE id = ? AND purge_at IS NOT NULL', (time, grant_id))


def spending(tx: Transaction, grant_id: str, window_start: int) -> Sequence[SpendingRecord]:
    """A record for each receiver asset with spending that was not all returned, most recently used first."""
    where = "WHERE grant_id = ? AND window_start = ? AND (debit > 0 OR receive > 0) ORDER BY changed_at DESC"
    return SPENDING.list(tx, where, grant_id, window_start)


def add_spending(
    tx: Transaction, grant_id: str, window_start: int, asset: Asset, debit: int, receive: int, now: int
) -> None:
    """Adds to the grant's spending in the window; negative amounts subtract."""
    values = (debit, receive, now, grant_id, window_start, asset.code, asset.scale)
    changed = tx.execute(
        "UPDATE grant_spending SET debit = debit + ?, receive = receive + ?, changed_at = ?"
        " WHERE grant_id = ? AND window_start = ? AND receive_code = ? AND receive_scale = ?",
        values,
    )
    if changed.rowcount == 0:
        tx.execute(
            "INSERT INTO grant_spending"
            " (debit, receive, changed_at, grant_id, window_start, receive_code, receive_scale)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            values,
        )


class TokenRecord(msgspec.Struct, frozen=True):
    """A row of `access_token`. Until its first use, `answers` is the rotated token or the continued grant, and `sealed`
    its encrypted value."""

    id: str
    grant_id: str
    value_hash: bytes
    created_at: int
    expires_at: int
    revoked_at: int | None
    answers: str | None = None
    sealed: bytes | None = None


class TokenHolder(msgspec.Struct, frozen=True):
    """An access token with everything needed to authorize a request.

    grant_stays is 1 if the grant is never purged, which is final; was_rotated is 1 if a token of a valid grant was
    rotated, not revoked; is_unused is 1 if its answer can be repeated, is_frozen if its client's grants pay nothing.
    """

    token_id: str
    expires_at: int
    revoked_at: int | None
    grant_id: str
    grant_state: str
    access: str
    client_id: int
    client_identity: str
    client_wallet_address: str | None
    client_jwk: str | None
    grant_stays: int = 0
    was_rotated: int = 0
    is_unused: int = 0
    is_frozen: int = 0
    created_at: int = 0

    @property
    def revoked(self) -> bool:
        """Whether the token or its grant was revoked."""
        return self.revoked_at is not None or self.grant_state != "issued"

    def valid_at(self, now: int) -> bool:
        return not self.revoked and lasts(self.expires_at, now, self.expires_at - self.created_at)


class FrozenRecord(msgspec.Struct, frozen=True):
    """A row of `frozen_client`, by the identity of the client."""

    client: str
    frozen_at: int


TOKENS = Table(TokenRecord, "access_token")
HOLDERS = Table(
    TokenHolder,
    'access_token t JOIN "grant" g ON g.id = t.grant_id JOIN client c ON c.id = g.client_id',
    prefix="t.",
    token_id="t.id",  # noqa: S106 - a column
    grant_state="g.state",
    access="g.access",
    client_id="c.id",
    client_identity="c.identity",
    client_wallet_address="c.wallet_address",
    client_jwk="c.jwk",
    grant_stays="g.purge_at IS NULL",
    # Then the grant has a newer one.
    was_rotated="t.revoked_at IS NOT NULL AND g.state = 'issued'"
    " AND EXISTS (SELECT 1 FROM access_token WHERE grant_id = t.grant_id AND revoked_at IS NULL)",
    is_unused="t.sealed IS NOT NULL",
    is_frozen="EXISTS (SELECT 1 FROM frozen_client WHERE client = c.identity)",
)
FROZEN = Table(FrozenRecord, "frozen_client")


def find_holder(tx: Transaction, value_hash: bytes) -> TokenHolder | None:
    """Looked up by hash, so that timing reveals nothing about the token."""
    return HOLDERS.find(tx, "WHERE t.value_hash = ?", value_hash)


def authorization_revision(tx: Transaction) -> int:
    """Changes whenever a row behind `find_holder` or client keys of an unpurgeable grant changes. Raises Damaged."""
    revision = find_number(tx, "SELECT revision FROM authorization_revision WHERE id = 1")
    if revision is None:
        raise Damaged("authorization_revision has no row")
    return revision


def revoke_token(tx: Transaction, token_id: str, now: int) -> bool:
    """Revokes the token. Whether it was valid."""
    return tx.execute(f"{_REVOKE} id = ? AND revoked_at IS NULL", (now, token_id)).rowcount == 1


def revoke_answer(tx: Transaction, token_id: str, now: int) -> None:
    """Revokes the token that the rotation of this one gave, unless it was used."""
    tx.execute(f"{_REVOKE} answers = ?", (now, token_id))


def revoke_tokens_of_grant(tx: Transaction, grant_id: str, now: int) -> None:
    tx.execute(f"{_REVOKE} grant_id = ? AND revoked_at IS NULL", (now, grant_id))


_REVOKE: Final = "UPDATE access_token SET revoked_at = ?, answers = NULL, sealed = NULL WHERE"


def note_use(tx: Transaction, token_id: str) -> None:
    """Ends the repeating of the answer that has this token."""
    tx.execute("UPDATE access_token SET answers = NULL, sealed = NULL WHERE id = ? AND sealed NOTNULL", (token_id,))
