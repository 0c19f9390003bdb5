"""Clients and the public keys that verify their signatures.

A client is identified by its wallet address, or by the thumbprint (RFC 7638) of its key (directed identity).
"""

from collections.abc import Sequence
from functools import lru_cache

import msgspec
from msgspec import UNSET

from payres.core.protocol.clock import SECOND, lasts
from payres.core.protocol.errors import InvalidClient
from payres.core.protocol.gnap import ClientInstance
from payres.core.protocol.limits import MAX_PRESENTED_KIDS
from payres.core.protocol.urls import ROOT_WALLET_PATH, Urls, canonical, is_http_url
from payres.core.signatures.jwk import JWK, encode_jwk, parse_jwk, thumbprint
from payres.core.store import clients, retention, wallets
from payres.core.store.clients import Client, ClientRecord
from payres.core.store.work import Work

REMOTE_KEY_LIFETIME = 60 * SECOND  # the longest time that a remote key is cached


def identify(urls: Urls, client: str | ClientInstance) -> Client:
    """The client named by a grant request. Raises InvalidClient."""
    wallet_address = client if isinstance(client, str) else client.wallet_address or None
    jwk = UNSET if isinstance(client, str) else client.jwk
    if bool(wallet_address) == (jwk is not UNSET):
        raise _invalid_client("client must be a wallet address, or an object with exactly one of walletAddress and jwk")
    if not wallet_address:
        try:
            key = parse_jwk(msgspec.json.encode(jwk))
        except ValueError as error:
            raise _invalid_client(f"client.jwk: {error}") from error
        return Client(thumbprint(key), None, encode_jwk(key))
    if not is_http_url(wallet_address):
        raise _invalid_client("client must be a wallet address: an absolute http or https URL")
    path = urls.wallet_path(wallet_address)
    # Wallet addresses are case-insensitive here, but perhaps not on another server.
    return Client(canonical(wallet_address if path is None else urls.wallet(path)), wallet_address, None)


def _invalid_client(description: str) -> InvalidClient:
    return InvalidClient(description, field="client")


def find_keys(work: Work, client: Client, kids: Sequence[str]) -> dict[str, JWK]:
    """The client's stored valid public keys with these kids.

    For a client on another server (`is_remote_client`), all keys that are still fresh; others may be out since.
    """
    if client.jwk is not None:
        key = _presented_jwk(client.jwk)
        if all(kid == key.kid for kid in kids):
            return {key.kid: key}
        earlier = {one.kid: stored_jwk(one.kid, one.x) for one in clients.client_keys(work, client.identity)}
        return {kid: found for kid, found in {**earlier, key.kid: key}.items() if kid in kids}
    assert client.wallet_address is not None
    path = work.urls.wallet_path(client.wallet_address)
    if path is not None:
        found = {kid: wallets.find_key(work, path, kid) for kid in kids}
        return {kid: stored_jwk(kid, x) for kid, x in found.items() if x is not None}
    remote = clients.client_keys(work, client.identity)
    fresh = [one for one in remote if one.good_until and lasts(one.good_until, work.now, REMOTE_KEY_LIFETIME)]
    return {one.kid: stored_jwk(one.kid, one.x) for one in fresh}


def is_remote_client(urls: Urls, client: Client) -> bool:
    """Whether the client's keys are published by another server."""
    return client.wallet_address is not None and urls.wallet_path(client.wallet_address) is None


def is_known(work: Work, client: Client) -> bool:
    return isinstance(client, ClientRecord) or clients.CLIENTS.find(work, identity=client.identity) is not None


def remember(work: Work, client: Client) -> ClientRecord:
    """The client's row, inserted on its first request. The last few kids of a presented key stay valid, because tokens
    were issued to the client under them."""
    record = clients.CLIENTS.find(work, identity=client.identity)
    if record is None:
        retention.purge(work, retention.CLIENTS, work.now)
    if record is None or record.jwk != client.jwk:
        about = (client.identity, client.wallet_address, client.jwk)
        record = clients.ensure_client(work, *about, work.now, work.now + retention.UNUSED_CLIENT)
    if client.jwk is not None:
        key = _presented_jwk(client.jwk)
        clients.store_presented_key(work, record.id, key.kid, key.x, MAX_PRESENTED_KIDS, work.now)
    return record


def own_client(work: Work) -> int:
    """The id of this server as a client, acting for its operator and the owners of its wallets."""
    own = work.urls.wallet(ROOT_WALLET_PATH)
    return clients.ensure_client(work, canonical(own), own, None, work.now).id


def remember_remote_keys(work: Work, client: Client, keys: list[JWK], max_age: int | None) -> None:
    """Caches the keys of a remote client's jwks.json, for `max_age` seconds if given, within REMOTE_KEY_LIFETIME."""
    lifetime = REMOTE_KEY_LIFETIME if max_age is None else min(max_age * SECOND, REMOTE_KEY_LIFETIME)
    kept = [(key.kid, key.x) for key in keys] if lifetime else []
    clients.replace_remote_keys(work, remember(work, client).id, kept, work.now, work.now + lifetime)


@lru_cache(maxsize=1024)
def _presented_jwk(text: str) -> JWK:
    return parse_jwk(text)


@lru_cache(maxsize=1024)
def stored_jwk(kid: str, x: str) -> JWK:
    return JWK(kid=kid, x=x)
