"""Wallet addresses over HTTP: their representation, SPSP, and the keys of their clients."""

import base64
from collections.abc import Sequence
from functools import partial
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response

from payres.core.grants.clients import stored_jwk
from payres.core.http.context import context_of
from payres.core.http.responses import ANY_ORIGIN, asks_for, check_accept, json_response
from payres.core.protocol.errors import MethodNotAllowed, nothing_here
from payres.core.protocol.identifiers import base64url_decoded
from payres.core.protocol.urls import ROOT_WALLET_PATH
from payres.core.protocol.wire import PaymentMethod, WalletAddress, encode
from payres.core.signatures.jwk import JWK
from payres.core.store import wallets
from payres.core.store.accounts import AssetRecord, first_asset
from payres.core.store.wallets import WalletRecord
from payres.core.store.work import Transaction

WALLET_CACHE: Final = {"Cache-Control": "public, max-age=60", "Vary": "Accept", **ANY_ORIGIN}
# Not cached: new keys are read seconds after they were added, and revoked ones must disappear.
KEYS_CACHE: Final = {"Cache-Control": "no-cache", **ANY_ORIGIN}
# The server's own key never changes, and other servers read it often.
OWN_KEY_CACHE: Final = {"Cache-Control": "public, max-age=60", **ANY_ORIGIN}
SPSP_CACHE: Final = {"Cache-Control": "no-store", "Vary": "Accept", **ANY_ORIGIN}
SPSP_TYPE: Final = "application/spsp4+json"
KEY_SET_TYPES: Final = ("application/jwk-set+json",)
# Accepted from DID resolvers; the response is application/json, as Open Payments specifies.
DID_TYPES: Final = ("application/did+json", "application/did+ld+json", "application/ld+json")
DID_CONTEXT: Final = ("https://www.w3.org/ns/did/v1", "https://w3id.org/security/suites/jws-2020/v1")


async def read(request: Request) -> Response:
    """GET {wallet address}: the wallet address, or SPSP if `Accept` asks for it; 404 if unknown or inactive.

    The root address also identifies this server as a client, so it exists without a wallet, and has a name, because
    other servers do not ask for consent to a client without one.
    """
    context, path = context_of(request), _path(request)
    is_spsp = asks_for(request.scope["headers"], SPSP_TYPE)
    is_own = path == ROOT_WALLET_PATH and not is_spsp

    def unit(tx: Transaction) -> WalletRecord | AssetRecord:
        found = _active(tx, path) or (first_asset(tx) if is_own else None)
        if found is None:
            raise nothing_here()
        return found

    found = await context.database.read(unit)
    wallet = found if isinstance(found, WalletRecord) else None
    method = context.remote.method_of_wallet(wallet) if is_spsp and wallet is not None else None
    _check_readable(request, () if method is None else (SPSP_TYPE,))
    if method is not None:
        return _payment_details(method)
    name = (wallet and wallet.public_name) or (context.urls.host if is_own else None)
    body = WalletAddress(
        id=context.urls.wallet(path),
        **({"public_name": name} if name else {}),
        asset_code=found.asset.code,
        asset_scale=found.asset.scale,
        auth_server=context.urls.auth_server,
        resource_server=context.urls.base,
    )
    return json_response(body, headers=WALLET_CACHE)


async def find(request: Request) -> WalletRecord:
    """The active wallet of the path. Raises NotFound if it is unknown or inactive."""
    wallet = await context_of(request).database.read(partial(_active, path=_path(request)))
    if wallet is None:
        raise nothing_here()
    return wallet


async def read_keys(request: Request) -> Response:
    """GET {wallet address}/jwks.json: the valid keys."""
    _, keys, cache = await _keys(request, KEY_SET_TYPES)
    return json_response({"keys": keys}, headers=cache)


async def read_did(request: Request) -> Response:
    """GET {wallet address}/did.json: the same keys as a did:web document."""
    urls = context_of(request).urls
    path, keys, cache = await _keys(request, DID_TYPES)
    return json_response(did_document(urls.did(path), urls.wallet(path), keys), headers=cache)


def did_document(did: str, wallet_address: str, keys: Sequence[JWK]) -> dict[str, object]:
    """The DID document of a wallet address (W3C DID Core). Its keys are for authentication and assertions only."""
    methods = [
        {"id": f"{did}#{quote(key.kid, safe='')}", "type": "JsonWebKey2020", "controller": did, "publicKeyJwk": key}
        for key in keys
    ]
    ids = [method["id"] for method in methods]
    return {
        "@context": DID_CONTEXT,
        "id": did,
        "alsoKnownAs": [wallet_address],
        "verificationMethod": methods,
        "authentication": ids,
        "assertionMethod": ids,
    }


def _active(tx: Transaction, path: str) -> WalletRecord | None:
    wallet = wallets.find_wallet(tx, path)
    return wallet if wallet is not None and wallet.active else None


def _payment_details(method: PaymentMethod) -> Response:
    """SPSP (Interledger RFC 9): a fresh ILP address and secret, for a payment into the wallet without an incoming
    payment."""
    secret = base64url_decoded(method.shared_secret)
    body = {"destination_account": method.ilp_address, "shared_secret": base64.b64encode(secret).decode()}
    return Response(encode(body), headers=SPSP_CACHE, media_type=SPSP_TYPE)


async def _keys(request: Request, types: Sequence[str]) -> tuple[str, list[JWK], dict[str, str]]:
    """The wallet path of the request, its keys, and cache headers; `types` as in `_check_readable`.

    The root address has the server's own key as a client, with or without a wallet.
    """
    context, path = context_of(request), _path(request)
    own = [*context.remote.keys] if path == ROOT_WALLET_PATH else []

    def unit(tx: Transaction) -> tuple[list[JWK], dict[str, str]]:
        wallet = wallets.find_wallet(tx, path)
        if wallet is not None and wallet.active:
            return own + [stored_jwk(key.kid, key.x) for key in wallets.list_keys(tx, wallet.id)], KEYS_CACHE
        if not own:
            raise nothing_here()
        return own, OWN_KEY_CACHE

    keys, cache = await context.database.read(unit)
    _check_readable(request, types)
    return path, keys, cache


def _path(request: Request) -> str:
    """The wallet's path."""
    path: str = request.path_params["path"]
    return path.lower()


def _check_readable(request: Request, types: Sequence[str]) -> None:
    """Raises 405 and 406; `types` are alternative media types of the JSON response. Called after the check for 404."""
    if request.method not in {"GET", "HEAD"}:
        raise MethodNotAllowed("GET, HEAD, OPTIONS")
    check_accept(request.scope["headers"], types)
