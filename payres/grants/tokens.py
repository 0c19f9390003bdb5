"""Access tokens: issued, rotated and revoked (RFC 9635 section 6). Only their hashes are stored."""

from contextlib import suppress

import msgspec

from payres import representations
from payres.clock import SECOND
from payres.errors import RotationUnknown, TokenInvalid
from payres.grants.access import Caller
from payres.grants.gnap import AccessToken
from payres.identifiers import hash_secret
from payres.store import grants, retention, tokens
from payres.store.grants import GRANTS, GrantRecord
from payres.store.tokens import TOKENS, TokenHolder, TokenRecord
from payres.store.wallets import WALLETS
from payres.store.work import Work


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
    if grant is None or grant.state != "issued" or not tokens.revoke_token(work, token_id, work.now):
        raise invalid_rotation()
    retention.purge_ended_tokens(work, grant.id)
    usable_until = work.now + work.settings.access_token_lifetime * SECOND
    grants.postpone_purge(work, grant.id, usable_until + retention.UNUSED_GRANT)
    return issue_token(work, grant)


def revoke_token(work: Work, token_id: str) -> None:
    """Ends the token. Does nothing if it has ended already."""
    tokens.revoke_token(work, token_id, work.now)


def revoke_grant(work: Work, grant_id: str) -> GrantRecord:
    """Ends the grant and all its tokens. A denied grant stays denied."""
    grant = GRANTS.by_id(work, grant_id)
    if grant.state not in {"denied", "revoked"}:
        grants.change_state(work, grant_id, grant.state, "revoked", work.now)
        tokens.revoke_tokens_of_grant(work, grant_id, work.now)
        if grant.state != "pending":
            emit(work, "revoked", grant)
    return GRANTS.by_id(work, grant_id)


def emit(work: Work, kind: str, grant: GrantRecord) -> None:
    """Writes the event `grant.{kind}`, but not for a grant that needed no consent: anyone can make those."""
    if grant.wallet_address_id is not None:
        wallet = WALLETS.by_id(work, grant.wallet_address_id)
        work.emit(f"grant.{kind}", grant.id, representations.grant_event(work.urls, wallet, grant))


def require_valid_token(work: Work, caller: Caller) -> None:
    """Raises TokenInvalid for a token that has ended since it was checked, alone or with its grant.

    Fetching a client's key from another server can take seconds, and the token may have been revoked meanwhile.
    """
    expires_at, revoked_at, grant_state = tokens.token_state(work, caller.token_id)
    check_valid(expires_at, revoked_at, grant_state, work.now)


def check_valid(expires_at: int, revoked_at: int | None, grant_state: str, now: int) -> None:
    """Raises TokenInvalid for a token that was revoked, with its grant or alone, or has expired."""
    if revoked_at is not None or grant_state != "issued":
        raise TokenInvalid("The access token was revoked; ask for a new grant", reason="revoked_token")
    if now >= expires_at:
        raise TokenInvalid("The access token has expired; rotate it or ask for a new grant", reason="expired_token")


def is_valid(holder: TokenHolder, now: int) -> bool:
    """Whether neither the token nor its grant has ended."""
    with suppress(TokenInvalid):
        check_valid(holder.expires_at, holder.revoked_at, holder.grant_state, now)
        return True
    return False


def invalid_rotation() -> RotationUnknown:
    return RotationUnknown("There is no access token to rotate at this URL; ask for a new grant")
