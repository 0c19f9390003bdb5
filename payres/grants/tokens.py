"""Access tokens: issued, rotated and revoked (RFC 9635 section 6). Only their hashes are stored."""

import msgspec

from payres.errors import NotFound, RotationUnknown, TokenInvalid
from payres.grants.access import Permission
from payres.grants.forgetting import UNUSED_FOR, forget_ended_tokens
from payres.identifiers import Identifiers, hash_secret
from payres.store import grants, tokens
from payres.store.database import Transaction
from payres.store.grants import GrantRecord
from payres.store.tokens import TokenRecord
from payres.urls import Urls
from payres.wire import AccessToken

MICROSECONDS = 1_000_000


def issue_token(
    tx: Transaction, urls: Urls, grant: GrantRecord, identifiers: Identifiers, lifetime: int, now: int
) -> AccessToken:
    """A new token with the grant's access, good for `lifetime` seconds."""
    value, manage_id = identifiers.secret(), identifiers.secret()
    expires_at = now + lifetime * MICROSECONDS
    tokens.insert_token(tx, TokenRecord(manage_id, grant.id, hash_secret(value), now, expires_at, None))
    access = msgspec.Raw(grant.access.encode())
    return AccessToken(value=value, manage=urls.resource("token", manage_id), expires_in=lifetime, access=access)


def rotate_token(
    tx: Transaction, urls: Urls, token_id: str, identifiers: Identifiers, lifetime: int, now: int
) -> AccessToken:
    """A new value and manage URL for the same grant; the old ones end at once. Refuses with 404 `invalid_rotation`."""
    token = tokens.find_token(tx, token_id)
    grant = grants.find_grant(tx, token.grant_id) if token else None
    if grant is None or grant.state != "issued" or not tokens.revoke_token(tx, token_id, now):
        raise invalid_rotation()
    forget_ended_tokens(tx, grant.id)
    grants.put_off_forgetting(tx, grant.id, now + lifetime * MICROSECONDS + UNUSED_FOR)
    return issue_token(tx, urls, grant, identifiers, lifetime, now)


def revoke_token(tx: Transaction, token_id: str, now: int) -> None:
    """Ends the token; one that has ended stays so. Refuses with 404 when there never was one."""
    if tokens.find_token(tx, token_id) is None:
        raise NotFound("There is no access token at this URL")
    tokens.revoke_token(tx, token_id, now)


def revoke_grant(tx: Transaction, grant_id: str, now: int) -> GrantRecord:
    """Ends the grant and every token of it. Refuses with 404 when there is no such grant; a denied one stays denied."""
    grant = grants.find_grant(tx, grant_id)
    if grant is None:
        raise NotFound("There is no such grant")
    if grant.state not in {"denied", "revoked"}:
        grants.change_state(tx, grant_id, grant.state, "revoked", now)
        tokens.revoke_tokens_of_grant(tx, grant_id, now)
    return grants.find_grant(tx, grant_id) or grant


def require_token_in_force(tx: Transaction, permission: Permission, now: int) -> None:
    """Refuses with 401 `invalid_token` a token that has ended since it was checked, by itself or with its grant:
    looking up a client's key at another server can take seconds, and what was revoked may do nothing any more."""
    expires_at, revoked_at, grant_state = tokens.token_state(tx, permission.token_id)
    check_in_force(expires_at, revoked_at, grant_state, now)


def check_in_force(expires_at: int, revoked_at: int | None, grant_state: str, now: int) -> None:
    """Refuses with 401 `invalid_token` a token that was revoked, with its grant or alone, or has expired."""
    if revoked_at is not None or grant_state != "issued":
        raise TokenInvalid("The access token was revoked; ask for a new grant", reason="revoked_token")
    if now >= expires_at:
        raise TokenInvalid("The access token has expired; rotate it or ask for a new grant", reason="expired_token")


def invalid_rotation() -> RotationUnknown:
    return RotationUnknown("There is no access token to rotate at this URL; ask for a new grant")
