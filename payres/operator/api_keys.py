"""API keys: which programs may use the operator's API, and for what.

A key is `payres_<id>_<secret>`. The id is public. The secret has 256 random bits, and only its SHA-256 is stored.
"""

import hmac
from collections.abc import Collection, Mapping
from typing import Final

from payres.clock import MINUTE
from payres.errors import InsufficientAccess, InvalidRequest, TokenInvalid, require
from payres.identifiers import hash_secret
from payres.operator.inputs import check_name
from payres.store import audit
from payres.store.operators import API_KEYS, ApiKeyRecord
from payres.store.work import Work

# The scopes of keys; each endpoint needs one of them.
SCOPES: Final[Mapping[str, str]] = {
    "wallets:read": "see wallets, their balances, keys, deposits and withdrawals",
    "wallets:write": "open, rename and deactivate wallets, set passwords, add and revoke keys of clients",
    "wallets:fund": "deposit into wallets and withdraw from them",
    "payments:read": "see payments with their grants, quotes, transfers, packets, events and deliveries",
    "payments:refund": "send back what incoming payments received",
    "grants:read": "see grants and what they have spent",
    "grants:write": "approve, deny and revoke grants in the owner's name",
    "assets:read": "see assets, fees and exchange rates",
    "assets:write": "set fees and exchange rates",
    "liquidity:read": "see liquidity and collected fees",
    "liquidity:write": "deposit and withdraw liquidity, withdraw collected fees",
    "peers:read": "see peers and unresolved packets",
    "peers:write": "add, change and remove peers, record settlements, resolve packets",
    "webhooks:read": "see webhooks and their deliveries",
    "webhooks:write": "add, test, rotate and remove webhooks, replay deliveries",
    "events:read": "read events",
    "status:read": "see how the server and its money stand",
    "ledger:read": "read ledger entries and run the invariant checks",
    "backup:write": "make backups in the backup directory",
    "keys:read": "see API keys",
    "keys:write": "create API keys with no more scopes than one's own, and revoke any",
    "audit:read": "read the audit log",
}
PREFIX: Final = "payres"
# The use of a key is stored at most this often.
USE_NOTED_EVERY: Final = MINUTE


def create_api_key(
    work: Work, name: str, scopes: Collection[str], expires_at: int | None, allowed: Collection[str] = SCOPES.keys()
) -> tuple[ApiKeyRecord, str]:
    """A new key and its text, which is shown once.

    `allowed` are the scopes that its creator may give. Raises InvalidRequest for the name, for an unknown scope or
    none, and for an end in the past; InsufficientAccess.
    """
    check_name(name, "key's")
    unknown = sorted(set(scopes) - SCOPES.keys())
    if unknown or not scopes:
        what = f"There is no scope {unknown[0]!r}" if unknown else "A key needs at least one scope"
        raise InvalidRequest(f"{what}; the scopes are: {', '.join(SCOPES)}", field="scopes")
    lacking = sorted(set(scopes) - set(allowed))
    if lacking:
        sentence = f"A key cannot give the scope {lacking[0]}, which it does not have itself"
        raise InsufficientAccess(sentence, reason="scope", scope=lacking[0])
    if expires_at is not None and expires_at <= work.now:
        raise InvalidRequest("The time at which a key expires must lie in the future", field="expiresAt")
    secret, ordered = work.new_secret(), [scope for scope in SCOPES if scope in scopes]
    key = ApiKeyRecord(work.new_id(), name, hash_secret(secret), ordered, work.now, expires_at)
    API_KEYS.insert(work, key)
    audit.record(work, "api_key.create", key.id, name=name, scopes=ordered)
    return key, f"{PREFIX}_{key.id}_{secret}"


def require_api_key(work: Work, key_id: str) -> ApiKeyRecord:
    """Raises NotFound."""
    return require(API_KEYS.get(work, key_id), f"There is no API key {key_id}; `payres api-key list` shows all")


def revoke_api_key(work: Work, key_id: str) -> ApiKeyRecord:
    """Ends a key at once. Does nothing if it was revoked before. Raises NotFound."""
    if require_api_key(work, key_id).revoked_at is None:
        API_KEYS.update(work, key_id, revoked_at=work.now)
        audit.record(work, "api_key.revoke", key_id)
    return require_api_key(work, key_id)


def authenticate(work: Work, text: str) -> ApiKeyRecord:
    """The key with this text. Raises TokenInvalid."""
    prefix, _, rest = text.partition("_")
    key_id, _, secret = rest.partition("_")
    key = API_KEYS.get(work, key_id) if prefix == PREFIX else None
    if key is None or not hmac.compare_digest(key.secret_hash, hash_secret(secret)):
        raise TokenInvalid("The API key is not known; create one with `payres api-key create`", reason="unknown_token")
    if key.revoked_at is not None:
        raise TokenInvalid("The API key was revoked; create another", reason="revoked_token")
    if key.expires_at is not None and work.now >= key.expires_at:
        raise TokenInvalid("The API key has expired; create another", reason="expired_token")
    return key


def require_scope(key: ApiKeyRecord, scope: str) -> None:
    """Raises InsufficientAccess."""
    if scope not in key.scopes:
        raise InsufficientAccess(
            f"The API key lacks the scope {scope}; create one that has it with `payres api-key create`",
            reason="scope",
            scope=scope,
        )


def note_use(work: Work, key: ApiKeyRecord) -> None:
    API_KEYS.update(work, key.id, last_used_at=work.now)


def is_use_due(key: ApiKeyRecord, now: int) -> bool:
    """Whether it is time to store that the key was used."""
    return key.last_used_at is None or now >= key.last_used_at + USE_NOTED_EVERY
