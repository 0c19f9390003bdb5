"""SQL of grants: their interactions, what they have spent, and their access tokens."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from payres.core.protocol.amounts import Asset
from payres.core.protocol.clock import SECOND, lasting, lasts
from payres.core.protocol.limits import APPROVAL_SECONDS
from payres.core.store.rows import PageBounds, PageQuery, Table, find_number, number, select_page
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


class DecidedRecord(GrantRecord, frozen=True):
    """A decided grant, with its client and its total spending."""

    decided_at: int = 0
    decided_by: Decider | None = None
    reason: str | None = None
    client: str = ""
    spent: int = 0
    finish_uri: str | None = None


GRANTS = Table(GrantRecord, '"grant"')
WITH_INTERACTION = Table(GrantRecord, '"grant" g JOIN interaction i ON i.grant_id = g.id', prefix="g.")
# Starts from the interactions, newest first, to skip the grants without one, which may be far more.
CONSENTED = Table(GrantRecord, 'interaction i CROSS JOIN "grant" g ON g.id = i.grant_id', prefix="g.", key="i.grant_id")
DECIDED = Table(
    DecidedRecord,
    '"grant" g JOIN interaction i ON i.grant_id = g.id JOIN client c ON c.id = g.client_id',
    prefix="g.",
    decided_at="i.decided_at",
    decided_by="i.decided_by",
    reason="i.reason",
    client="c.identity",
    finish_uri="i.finish_uri",
    spent="coalesce((SELECT sum(debit) FROM grant_spending WHERE grant_id = g.id), 0)",
)
INTERACTIONS = Table(InteractionRecord, "interaction")
SPENDING = Table(SpendingRecord, "grant_spending")


_TO_CONTINUE: Final = APPROVAL_SECONDS * SECOND
# For each state, the stored state, and whether that lasts; and until when, and how long a stored state does.
IN_TIME: Final = {
    "pending": ("pending", ""),
    "expired": ("pending", "NOT "),
    "approved": ("approved", ""),
    "lapsed": ("approved", "NOT "),
}
_UNTIL: Final[Mapping[str, tuple[str, int | str]]] = {
    "pending": ("i.expires_at", "i.expires_at - g.created_at"),
    "approved": (f"i.decided_at + {_TO_CONTINUE}", _TO_CONTINUE),
}


def is_undecided(grant: GrantRecord, interaction: InteractionRecord, now: int) -> bool:
    """Whether the owner may still decide."""
    until = interaction.expires_at
    return grant.state == "pending" and lasts(until, now, until - grant.created_at)


def has_lapsed(state: str, decided_at: int | None, now: int) -> bool:
    """Whether the client has not continued an approved grant in time."""
    is_approved = state == "approved" and decided_at is not None
    return is_approved and not lasts((decided_at or 0) + _TO_CONTINUE, now, _TO_CONTINUE)


def page_of_grants(
    tx: Transaction,
    state: GrantState | None,
    query: PageQuery,
    now: int,
    without_consent: bool,
    wallet_id: int | None = None,
) -> tuple[Sequence[GrantRecord], PageBounds]:
    """A page of grants, newest first, in one state or all; `without_consent` includes those that needed no consent.
    Only those that ask the owner of a wallet, if one is given.

    `expired` grants were not decided in time, `lapsed` ones were approved but not continued in time.
    """
    of_wallet = {} if wallet_id is None else {"wallet_address_id = ?": wallet_id}
    if state not in IN_TIME:
        # Most grants in the other states had an interaction.
        table = GRANTS if without_consent else CONSENTED if state in {None, "issued"} else WITH_INTERACTION
        return select_page(tx, table, query, of_wallet if state is None else {"state = ?": state} | of_wallet)
    stored, negated = IN_TIME[state]
    column, lifetime = _UNTIL[stored]
    in_time, times = lasting(column, now, lifetime)
    return select_page(tx, WITH_INTERACTION, query, {"g.state = ?": stored, f"{negated}{in_time}": times} | of_wallet)


# Excludes grants that the client cancelled before a decision: these are not pending either.
_OF_WALLET: Final = "WHERE g.wallet_address_id = ? AND g.state <> 'pending' AND i.decided_at IS NOT NULL"


def grants_of_wallet(tx: Transaction, wallet_id: int, before: str, limit: int) -> Sequence[DecidedRecord]:
    """Up to `limit` decided grants of a wallet with ids below `before`, newest first."""
    return DECIDED.list(tx, f"{_OF_WALLET} AND g.id < ? ORDER BY g.id DESC LIMIT ?", wallet_id, before, limit)


def decided_grant(tx: Transaction, wallet_id: int, grant_id: str) -> DecidedRecord | None:
    """One decided grant of a wallet."""
    return DECIDED.find(tx, f"{_OF_WALLET} AND g.id = ?", wallet_id, grant_id)


def grants_in_force(tx: Transaction, wallet_id: int) -> Sequence[DecidedRecord]:
    """The approved or issued grants of a wallet, newest first."""
    return DECIDED.list(tx, f"{_OF_WALLET} AND g.state IN ('approved', 'issued') ORDER BY g.id DESC", wallet_id)


def key_used_at(tx: Transaction, client_id: int, wallet_id: int, kid: str) -> int | None:
    """When a client last requested a grant with a key, or paid from the wallet under a grant requested with it."""
    asked = 'SELECT created_at FROM "grant" WHERE client_id = ? AND kid = ? ORDER BY id DESC LIMIT 1'
    newest = "SELECT max(created_at) FROM outgoing_payment WHERE grant_id = g.id"
    paid = f'SELECT max(({newest})) FROM "grant" g WHERE client_id = ? AND kid = ? AND wallet_address_id = ?'
    times = find_number(tx, asked, client_id, kid), find_number(tx, paid, client_id, kid, wallet_id)
    return max((time for time in times if time is not None), default=None)


def finish_uri_with_key(tx: Transaction, client_id: int, wallet_id: int, kid: str) -> str | None:
    """The finish URI of the newest request for consent that a client signed with a key."""
    asked = (
        'SELECT i.finish_uri FROM "grant" g JOIN interaction i ON i.grant_id = g.id'
        " WHERE g.client_id = ? AND g.kid = ? AND g.wallet_address_id = ? ORDER BY g.id DESC LIMIT 1"
    )
    row = tx.execute(asked, (client_id, kid, wallet_id)).fetchone()
    return row[0] if row else None


def spent_with_key(tx: Transaction, client_id: int, wallet_id: int, kid: str, since: int) -> int:
    """The amount paid from the wallet since a time under grants that the client requested with a key."""
    paid = (
        'SELECT sum(o.sent) FROM "grant" g JOIN outgoing_payment o ON o.grant_id = g.id'
        " WHERE g.client_id = ? AND g.kid = ? AND g.wallet_address_id = ? AND o.created_at >= ?"
    )
    return number(tx, paid, client_id, kid, wallet_id, since)


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


def interaction_of_grant(tx: Transaction, grant_id: str) -> InteractionRecord | None:
    return INTERACTIONS.find(tx, "WHERE grant_id = ?", grant_id)


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
    """A row of `access_token`."""

    id: str
    grant_id: str
    value_hash: bytes
    created_at: int
    expires_at: int
    revoked_at: int | None


class TokenHolder(msgspec.Struct, frozen=True):
    """An access token with everything needed to authorize a request.

    grant_stays is 1 if the grant is never purged, which is final; was_rotated is 1 if a token of a valid grant was
    rotated, not revoked.
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
    created_at: int = 0

    @property
    def revoked(self) -> bool:
        """Whether the token or its grant was revoked."""
        return self.revoked_at is not None or self.grant_state != "issued"

    def valid_at(self, now: int) -> bool:
        return not self.revoked and lasts(self.expires_at, now, self.expires_at - self.created_at)


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
    # Rotation issues the next token in the same unit, at the same time.
    was_rotated="t.revoked_at IS NOT NULL AND g.state = 'issued' AND EXISTS"
    " (SELECT 1 FROM access_token n WHERE n.grant_id = t.grant_id AND n.created_at = t.revoked_at AND n.id <> t.id)",
)


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
    cursor = tx.execute("UPDATE access_token SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL", (now, token_id))
    return cursor.rowcount == 1


def revoke_tokens_of_grant(tx: Transaction, grant_id: str, now: int) -> None:
    tx.execute("UPDATE access_token SET revoked_at = ? WHERE grant_id = ? AND revoked_at IS NULL", (now, grant_id))
