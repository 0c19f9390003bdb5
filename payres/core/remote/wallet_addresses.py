"""Wallet addresses on other servers, and the public keys of clients there."""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

import msgspec
from msgspec import Meta

from payres.core.protocol.limits import MAX_JWKS_KEYS, MAX_URL_LENGTH
from payres.core.protocol.urls import is_http_url
from payres.core.protocol.visible import visible_text
from payres.core.protocol.wire import AssetCode, Scale
from payres.core.remote.connection import FetchFailed, bad_content
from payres.core.remote.http import GuardedClient, origin_of
from payres.core.signatures.jwk import JWK, parse_jwk

MAX_NAME_LENGTH = 128

_SECONDS = re.compile(r'max-age="?([0-9]{1,10})"?')
_Url = Annotated[str, Meta(max_length=MAX_URL_LENGTH)]


class RemoteWallet(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A wallet address as its server describes it (Open Payments, wallet address server). Texts are bounded."""

    id: _Url
    public_name: str | None = None
    asset_code: AssetCode
    asset_scale: Scale
    auth_server: _Url
    resource_server: _Url


class KeySet(msgspec.Struct, frozen=True):
    """Keys with distinct kids, and for how many seconds they may be cached; None if the server does not say."""

    keys: list[JWK]
    max_age: int | None


async def fetch_wallet_address(client: GuardedClient, url: str) -> RemoteWallet:
    """The wallet address at a URL. Raises FetchFailed.

    Its `id` may differ from `url` in spelling but not in origin: a server speaks only for its own wallets.
    """
    document, _ = await client.get_json(url)
    try:
        wallet = msgspec.convert(document, RemoteWallet)
    except msgspec.ValidationError as error:
        raise bad_content(f"{url} is not a wallet address: {error}") from error
    urls = {"id": wallet.id, "authServer": wallet.auth_server, "resourceServer": wallet.resource_server}
    for member, value in urls.items():
        if not is_http_url(value):
            raise bad_content(f"{url} is not a wallet address: its {member} is not an http or https URL")
    if origin_of(wallet.id) != origin_of(url):
        raise bad_content(f"{url} names a wallet address on another server as its id")
    if not wallet.asset_code.isprintable():
        raise bad_content(f"{url} is not a wallet address: its assetCode is not printable")
    name = visible_text(wallet.public_name or "")[:MAX_NAME_LENGTH].strip()
    return msgspec.structs.replace(wallet, public_name=name or None)


async def fetch_keys(client: GuardedClient, wallet_address: str) -> KeySet:
    """The Ed25519 keys in a wallet address's key set, at most 32. Raises FetchFailed.

    Malformed keys and other kinds of keys are skipped: they must not make the others unusable.
    """
    address = wallet_address.rstrip("/")
    if "?" in address or "#" in address:
        raise FetchFailed(f"{address} is not a wallet address: it has a query or a fragment", retryable=False)
    document, headers = await client.get_json(f"{address}/jwks.json")
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise bad_content(f"{address}/jwks.json is not a JSON Web Key Set: it has no list of keys")
    keys: dict[str, JWK] = {}
    for member in listed:
        with suppress(ValueError):
            if isinstance(member, dict) and len(keys) < MAX_JWKS_KEYS:
                key = parse_jwk(member)
                keys.setdefault(key.kid, key)
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
