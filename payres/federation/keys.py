"""The public keys of clients whose wallet address is on another server."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from payres.federation.failures import FetchFailed
from payres.federation.http import GuardedClient
from payres.limits import MAX_JWKS_KEYS
from payres.signatures.jwk import JWK, parse_jwk

_SECONDS = re.compile(r'max-age="?([0-9]{1,10})"?')


class KeySet(msgspec.Struct, frozen=True):
    """Keys with distinct kids, and for how many seconds they may be cached; None when the server does not say."""

    keys: list[JWK]
    max_age: int | None


async def fetch_keys(client: GuardedClient, wallet_address: str) -> KeySet:
    """The Ed25519 keys in a wallet address's key set, at most 32 of them. Raises FetchFailed.

    Malformed keys and keys of other kinds are skipped: one unusable key must not make the others unusable.
    """
    address = wallet_address.rstrip("/")
    if "?" in address or "#" in address:
        raise FetchFailed("bad_url", f"{address} is not a wallet address: it has a query or a fragment")
    document, headers = await client.get_document(f"{address}/jwks.json")
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise FetchFailed("bad_content", f"{address}/jwks.json is not a JSON Web Key Set: it has no list of keys")
    keys: dict[str, JWK] = {}
    for member in listed:
        key = _understood(member)
        if key is not None:
            keys.setdefault(key.kid, key)
        if len(keys) == MAX_JWKS_KEYS:
            break
    return KeySet(list(keys.values()), _max_age(headers))


def _max_age(headers: Mapping[str, str]) -> int | None:
    """For how many seconds an answer is fresh (RFC 9111 sections 4.2 and 5.2.2); 0 if it may not be cached."""
    directives = [directive.strip().lower() for directive in headers.get("cache-control", "").split(",")]
    names = [directive.partition("=")[0] for directive in directives]
    if "no-store" in names or "no-cache" in names:
        return 0
    if "max-age" not in names:
        return None
    seconds = _SECONDS.fullmatch(directives[names.index("max-age")])
    age = _SECONDS.fullmatch(f"max-age={headers.get('age', '0').strip()}")
    return max(int(seconds[1]) - int(age[1]), 0) if seconds and age else 0


def _understood(member: Any) -> JWK | None:
    if not isinstance(member, dict):
        return None
    try:
        return parse_jwk(member)
    except ValueError:
        return None
