"""Access tokens: issue, rotation and revocation (RFC 9635 section 6), and their clients.

Only hashes are stored; and until the first use of a token shows that it has arrived, its value, which only the request
that it answers can decrypt.
"""

from collections.abc import Sequence
from typing import Final

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from payres.core.grants.access import Caller, Holder
from payres.core.grants.clients import find_keys, is_remote_client
from payres.core.protocol.clock import SECOND
from payres.core.protocol.errors import ClientUnproven, InsufficientAccess, LimitExceeded, RotationUnknown, TokenInvalid
from payres.core.protocol.gnap import AccessToken, IncomingPaymentAccess
from payres.core.protocol.identifiers import base64url, hash_secret
from payres.core.protocol.limits import MAX_TOKEN_HOLDERS
from payres.core.signatures.verify import Verified
from payres.core.store import grants, representations, retention
from payres.core.store.clients import Client, use_nonce
from payres.core.store.grants import GRANTS, HOLDERS, TOKENS, GrantRecord, TokenHolder, TokenRecord
from payres.core.store.wallets import WALLETS
from payres.core.store.work import Work


class Holders:
    """A cache of tokens with their grants, clients and keys, valid until one of the underlying rows changes.

    Database triggers maintain the revision (`authorization_revision` in schema.sql), also for changes by commands; it
    is read in the transaction of each lookup. Only units of one lane look up, so never two at a time. The caller checks
    expiry.
    """

    def __init__(self) -> None:
        self._revision = 0
        self._found: dict[tuple[bytes, tuple[str, ...]], Holder] = {}

    def find(self, work: Work, token: str, kids: Sequence[str]) -> Holder | None:
        """A token's grant and client, with the client's keys of these ids; None for an unknown token."""
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
        # Only lookups that cannot change without a new revision are cached. That excludes tokens of grants that may be
        # purged, keys of other servers, which expire, and a standby, whose file may briefly be inconsistent.
        is_lasting = record.grant_stays and not is_remote_client(work.urls, client) and not work.settings.read_only
        keys = find_keys(work, client, kids)
        holder = Holder(record, client, kids, keys, self._revision if is_lasting else None)
        # Missing keys are not cached, nor lookups of several kids, which a client could combine endlessly.
        if is_lasting and len(kids) == 1 and keys:
            if len(self._found) >= MAX_TOKEN_HOLDERS:
                del self._found[next(iter(self._found))]
            self._found[value_hash, kids] = holder
        return holder


class Presented(msgspec.Struct, frozen=True):
    """A rotation or continuation: the id of its token or grant, the secret that it presented, and its signature."""

    id: str
    secret: str
    signed: Verified

    def cipher(self, token_id: str) -> AESGCM:
        """For the value of the token that it gets. The key is for one use, so the nonce may be fixed."""
        key = HKDF(SHA256(), 32, salt=token_id.encode(), info=self.signed.x.encode())
        return AESGCM(key.derive(self.secret.encode()))

    def use(self, work: Work, grant: GrantRecord) -> None:
        """Raises ClientUnproven if the signature got a token before: who repeats a request signs it again."""
        signed, until = self.signed, (self.signed.created + work.settings.signature_max_age) * SECOND
        if not use_nonce(work, grant.client_id, signed.keyid, base64url(signed.signature), until, 0):
            sentence = "This signature got a token before; sign again, with a later second or a nonce, to get it again"
            raise ClientUnproven(sentence, reason="signature_reused")


NONCE: Final = bytes(12)


def issue_token(work: Work, grant: GrantRecord, presented: Presented | None = None) -> AccessToken:
    """A new token with the grant's access, valid for `access_token_lifetime`. `issued_before` gives it again to who
    asks again."""
    value, id, answers, sealed = work.new_secret(), work.new_secret(), None, None
    if presented is not None:
        presented.use(work, grant)
        answers, sealed = presented.id, presented.cipher(id).encrypt(NONCE, value.encode(), None)
    expires_at = work.now + work.settings.access_token_lifetime * SECOND
    TOKENS.insert(work, TokenRecord(id, grant.id, hash_secret(value), work.now, expires_at, None, answers, sealed))
    return _shown(work, grant, id, value)


def issued_before(work: Work, grant: GrantRecord, presented: Presented | None) -> AccessToken | None:
    """The token that the same secret and key got at this URL before, valid from now on; None if it was used or ended.
    Raises ClientUnproven."""
    token = TOKENS.find(work, answers=presented.id) if presented else None
    if presented is None or token is None or token.sealed is None:
        return None
    try:
        value = presented.cipher(token.id).decrypt(NONCE, token.sealed, None).decode()
    except InvalidTag:
        return None
    presented.use(work, grant)
    lifetime = work.settings.access_token_lifetime * SECOND
    TOKENS.update(work, token.id, created_at=work.now, expires_at=work.now + lifetime)
    return _shown(work, grant, token.id, value)


def _shown(work: Work, grant: GrantRecord, id: str, value: str) -> AccessToken:
    access, lifetime = msgspec.Raw(grant.access.encode()), work.settings.access_token_lifetime
    return AccessToken(value=value, manage=work.urls.resource("token", id), expires_in=lifetime, access=access)


def rotate_token(work: Work, token_id: str, presented: Presented | None = None) -> AccessToken:
    """A new value and manage URL for the same grant; the old ones become invalid at once. Raises RotationUnknown, and
    ClientUnproven."""
    token = TOKENS.get(work, token_id)
    grant = GRANTS.get(work, token.grant_id) if token else None
    if grant is None or grant.state != "issued":
        raise invalid_rotation()
    is_first = grants.revoke_token(work, token_id, work.now)
    rotated = issue_token(work, grant, presented) if is_first else issued_before(work, grant, presented)
    if rotated is None:
        raise invalid_rotation()
    retention.purge_ended_tokens(work, grant.id)
    usable_until = work.now + work.settings.access_token_lifetime * SECOND
    grants.postpone_purge(work, grant.id, usable_until + retention.UNUSED_GRANT)
    return rotated


def invalid_rotation() -> RotationUnknown:
    return RotationUnknown("There is no access token to rotate at this URL; ask for a new grant")


def revoke_token(work: Work, token_id: str) -> None:
    """Revokes the token, if it is not revoked, and what its rotation gave, if that was not used."""
    grants.revoke_token(work, token_id, work.now)
    grants.revoke_answer(work, token_id, work.now)


def revoke_grant(work: Work, grant_id: str) -> GrantRecord:
    """Revokes the grant and all its tokens. A denied grant stays denied."""
    grant = GRANTS.by_id(work, grant_id)
    if grant.state not in {"denied", "revoked"}:
        grants.change_state(work, grant_id, grant.state, "revoked", work.now)
        grants.revoke_tokens_of_grant(work, grant_id, work.now)
        if grant.state != "pending":
            emit_grant_event(work, "grant.revoked", grant)
    return GRANTS.by_id(work, grant_id)


def emit_grant_event(work: Work, event: str, grant: GrantRecord) -> None:
    """Writes an event of a grant that needed consent. Other grants have none, because anyone can request them."""
    if grant.wallet_address_id is not None:
        wallet = WALLETS.by_id(work, grant.wallet_address_id)
        work.emit(event, grant.id, representations.grant_event(work.urls, wallet, grant), wallet.id)


def require_still_valid(work: Work, caller: Caller) -> None:
    """Repeats the authorization of a request: asking another server, or waiting for a change, can take seconds.

    Raises what a new request would get now: the errors of `check_valid`, and ClientUnproven if the client's wallet is
    no longer active, or its key was revoked or replaced.
    """
    holder = caller.holder
    if holder.revision is not None and holder.revision == grants.authorization_revision(work):
        check_valid(holder.record, work.now)
        return
    found = HOLDERS.get(work, holder.record.token_id)
    check_valid(found, work.now, pays=caller.pays)
    check_unfrozen(caller, found)
    keys = find_keys(work, holder.client, holder.kids)
    if not keys and is_remote_client(work.urls, holder.client):
        return  # its cached keys have expired, and are not fetched again
    if any(keys.get(kid) != holder.keys[kid] for kid in holder.kids if kid in holder.keys):
        raise ClientUnproven("The client's key is no longer valid; sign with another", reason="unknown_key")


def check_unfrozen(caller: Caller, holder: TokenHolder | None) -> Caller:
    """The caller. Raises InsufficientAccess for a payment or quote of a client whose grants pay nothing."""
    if holder and holder.is_frozen and caller.action == "create" and type(caller.items[0]) is not IncomingPaymentAccess:
        raise InsufficientAccess("The operator lets this client pay nothing for now", reason="frozen_client")
    return caller


def check_valid(holder: TokenHolder | None, now: int, *, pays: bool = False) -> None:
    """Raises TokenInvalid if the token was revoked (alone or with its grant), rotated, or has expired. A missing token
    was revoked long ago.

    A request that `pays` gets LimitExceeded if the grant was revoked: after TokenInvalid, clients try to rotate the
    token again and again; after LimitExceeded they ask their user for another budget.
    """
    if holder is not None and holder.valid_at(now):
        return
    if holder is not None and not holder.revoked:
        raise TokenInvalid("The access token has expired; rotate it or ask for a new grant", reason="expired_token")
    if holder is not None and pays and holder.grant_state == "revoked":
        sentence = "The grant was revoked, and nothing more can be paid with it; ask for a new grant"
        raise LimitExceeded(sentence, reason="revoked_grant")
    if holder is not None and holder.was_rotated:
        sentence = "The access token was rotated; use the new one, which the answer to the rotation has"
        raise TokenInvalid(sentence, reason="revoked_token")
    raise TokenInvalid("The access token was revoked; ask for a new grant", reason="revoked_token")
