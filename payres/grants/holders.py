"""Holders of access tokens, with the keys that verify their requests: kept in memory from one request to the next."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from payres.grants.clients import Client, find_keys, is_remote
from payres.identifiers import hash_secret
from payres.limits import MAX_TOKEN_HOLDERS
from payres.signatures.jwk import JWK
from payres.store import tokens
from payres.store.tokens import TokenHolder
from payres.store.work import Work


class Holder(NamedTuple):
    """What a token permits, the client that holds it, and the client's valid keys of some ids."""

    record: TokenHolder
    client: Client
    keys: Mapping[str, JWK]


class Holders:
    """Finds the holder of a token, in memory as long as nothing has changed that it was read from.

    Triggers of the database see to that (`authorization_revision` in schema.sql), also when a command makes the change:
    the revision is read in the transaction that asks. Units of one lane ask, so never two at a time. What ends by
    itself, as tokens do, is for the caller to look at.
    """

    def __init__(self) -> None:
        self._revision = 0
        self._found: dict[tuple[bytes, tuple[str, ...]], Holder] = {}

    def find(self, work: Work, token: str, kids: Sequence[str]) -> Holder | None:
        """The holder of a token, with its client's keys of these ids; None for an unknown token."""
        revision = tokens.authorization_revision(work)
        if revision != self._revision:
            self._revision, self._found = revision, {}
        key = hash_secret(token), tuple(kids)
        found = self._found.get(key)
        return self._read(work, *key) if found is None else found

    def _read(self, work: Work, value_hash: bytes, kids: tuple[str, ...]) -> Holder | None:
        record = tokens.find_holder(work, value_hash)
        if record is None:
            return None
        client = Client(record.client_identity, record.client_wallet_address, record.client_jwk)
        holder = Holder(record, client, find_keys(work, client, kids))
        # Not what may become another without a new revision: what a grant has issued that may be purged, keys of other
        # servers, which are good for a time, keys that are not there yet, and what is read from the file of a standby,
        # which for a moment may have pages of two states. Of several signatures a client could make endless choices.
        is_lasting = record.grant_stays and not is_remote(work.urls, client) and not work.settings.read_only
        if is_lasting and len(kids) == 1 and holder.keys:
            if len(self._found) >= MAX_TOKEN_HOLDERS:
                del self._found[next(iter(self._found))]
            self._found[value_hash, kids] = holder
        return holder
