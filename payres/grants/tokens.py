"""Access tokens: issued, rotated and revoked (RFC 9635 section 6), and who holds them. Only their hashes are stored."""

from collections.abc import Sequence

import msgspec

from payres import representations
from payres.clock import SECOND
from payres.errors import ClientUnproven, LimitExceeded, RotationUnknown, TokenInvalid
from payres.gnap import AccessToken
from payres.grants.access import Caller, Holder
from payres.grants.clients import find_keys, is_remote
from payres.identifiers import hash_secret
from payres.limits import MAX_TOKEN_HOLDERS
from payres.store import grants, retention
from payres.store.clients import Client
from payres.store.grants import GRANTS, HOLDERS, TOKENS, GrantRecord, TokenHolder, TokenRecord
from payres.store.wallets import WALLETS
from payres.store.work import Work


class Holders:
    """Finds the holder of a token, in memory as long as nothing has changed that it was read from.

    Triggers of the database see to that (`authorization_revision` in schema.sql), also when a command makes the change:
    the revision is read in the transaction that asks. Units of one lane ask, so never two at a time. Whether a token
    has expired is for the caller to check.
    """

    def __init__(self) -> None:
        self._revision = 0
        self._found: dict[tuple[bytes, tuple[str, ...]], Holder] = {}

    def find(self, work: Work, token: str, kids: Sequence[str]) -> Holder | None:
        """The holder of a token, with its client's keys of these ids; None for an unknown token."""
        revision = grants.authorization_revision(work)
        if revision != self._revision:
            self._revision, self._found = revision, {}
        key = hash_secret(token), tuple(kids)
        found = self._found.get(key)
        return self._read(work, *key) if found is None else found

    def _read(self, work: Work, value_hash: bytes, kids: tuple[str, ...]) -> Holder | None:
        record = grants.find_holder(work, value_hash)
        if record is None:
            return None
        client = Client(record.client_identity, record.client_wallet_address, record.client_jwk)
        # What cannot change without a new revision. That leaves out tokens of grants that may be purged, keys of other
        # servers, which are good for a time, and a standby, whose file may have pages of two states for a moment.
        is_lasting = record.grant_stays and not is_remote(work.urls, client) and not work.settings.read_only
        keys = find_keys(work, client, kids)
        holder = Holder(record, client, kids, keys, self._revision if is_lasting else None)
        # Keys that are not there yet are not kept. Of several signatures a client could make endless choices of kids.
        if is_lasting and len(kids) == 1 and keys:
            if len(self._found) >= MAX_TOKEN_HOLDERS:
                del self._found[next(iter(self._found))]
            self._found[value_hash, kids] = holder
        return holder


def issue_token(work: Work, grant: GrantRecord) -> AccessToken:
    """A new token with the grant's access, valid for `access_token_lifetime`."""
    value, manage_id, lifetime = work.new_secret(), work.new_secret(), work.settings.access_token_lifetime
    expires_at = work.now + lifetime * SECOND
    TOKENS.insert(work, TokenRecord(manage_id, grant.id, hash_secret(value), work.now, expires_at, None))
    access = msgspec.Raw(grant.access.encode())
    return AccessToken(value=value, manage=work.urls.resource("token", manage_id), expires_in=lifetime, access=access)


def rotate_token(work: Work, token_id: str) -> AccessToken:
    """A new value and manage URL for the same grant; the old ones end at once. Raises RotationUnknown."""
    token = TOKENS.get(work, token_id)
    grant = GRANTS.get(work, token.grant_id) if token else None
    if grant is None or grant.state != "issued" or not grants.revoke_token(work, token_id, work.now):
        raise invalid_rotation()
    retention.purge_ended_tokens(work, grant.id)
    usable_until = work.now + work.settings.access_token_lifetime * SECOND
    grants.postpone_purge(work, grant.id, usable_until + retention.UNUSED_GRANT)
    return issue_token(work, grant)


def invalid_rotation() -> RotationUnknown:
    return RotationUnknown("There is no access token to rotate at this URL; ask for a new grant")


def revoke_token(work: Work, token_id: str) -> None:
    """Ends the token. Does nothing if it has ended already."""
    grants.revoke_token(work, token_id, work.now)


def revoke_grant(work: Work, grant_id: str) -> GrantRecord:
    """Ends the grant and all its tokens. A denied grant stays denied."""
    grant = GRANTS.by_id(work, grant_id)
    if grant.state not in {"denied", "revoked"}:
        grants.change_state(work, grant_id, grant.state, "revoked", work.now)
        grants.revoke_tokens_of_grant(work, grant_id, work.now)
        if grant.state != "pending":
            emit(work, "grant.revoked", grant)
    return GRANTS.by_id(work, grant_id)


def emit(work: Work, event: str, grant: GrantRecord) -> None:
    """Writes an event of a grant that needed consent; anyone can make others."""
    if grant.wallet_address_id is not None:
        wallet = WALLETS.by_id(work, grant.wallet_address_id)
        work.emit(event, grant.id, representations.grant_event(work.urls, wallet, grant))


def require_still_valid(work: Work, caller: Caller) -> None:
    """Checks again all that authorized a request: asking another server, or waiting for a change, can take seconds.

    Raises what a new request would get by now: what `check_valid` raises, and ClientUnproven for a client whose wallet
    is no longer active, or whose key was revoked or replaced.
    """
    holder = caller.holder
    if holder.revision is not None and holder.revision == grants.authorization_revision(work):
        check_valid(holder.record, work.now)
        return
    check_valid(HOLDERS.get(work, holder.record.token_id), work.now, pays=caller.pays)
    keys = find_keys(work, holder.client, holder.kids)
    if not keys and is_remote(work.urls, holder.client):
        return  # its server permits keeping them no longer, so it has not been asked again
    if any(keys.get(kid) != holder.keys[kid] for kid in holder.kids if kid in holder.keys):
        raise ClientUnproven("The client's key is no longer valid; sign with another", reason="unknown_key")


def check_valid(holder: TokenHolder | None, now: int, *, pays: bool = False) -> None:
    """Raises TokenInvalid for a token that was revoked, with its grant or alone, or rotated, or has expired. One that
    is no longer there was revoked long ago.

    A request that `pays` gets LimitExceeded for a grant that was revoked: clients that get TokenInvalid try to rotate
    the token, again and again, and after this one they ask their user for another budget.
    """
    if pays and holder is not None and holder.grant_state == "revoked":
        sentence = "The grant was revoked, and nothing more can be paid with it; ask for a new grant"
        raise LimitExceeded(sentence, reason="revoked_grant")
    if holder is not None and holder.revoked and holder.was_rotated:
        sentence = "The access token was rotated; use the new one, which the answer to the rotation has"
        raise TokenInvalid(sentence, reason="revoked_token")
    if holder is None or holder.revoked:
        raise TokenInvalid("The access token was revoked; ask for a new grant", reason="revoked_token")
    if not holder.valid_at(now):
        raise TokenInvalid("The access token has expired; rotate it or ask for a new grant", reason="expired_token")
