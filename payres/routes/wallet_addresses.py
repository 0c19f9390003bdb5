"""Wallet addresses over HTTP: what they are, and the keys of the clients they name."""

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import method_not_allowed, not_found
from payres.grants.clients import local_jwk
from payres.routes.context import context_of
from payres.routes.cross_origin import ANY_ORIGIN
from payres.routes.messages import json_response
from payres.signatures.jwk import JWK
from payres.store import wallets
from payres.store.database import Transaction
from payres.store.wallets import WalletRecord
from payres.wire import WalletAddress

# Short, because clients act on both; keys shorter, because a revoked one should soon be gone everywhere.
WALLET_CACHE = {"Cache-Control": "public, max-age=60", **ANY_ORIGIN}
KEYS_CACHE = {"Cache-Control": "public, max-age=10", **ANY_ORIGIN}


async def read(request: Request) -> Response:
    """GET {wallet address}: 404 when it is unknown or inactive."""
    context = context_of(request)
    wallet = await context.database.read(lambda tx: _find(tx, request))
    body = WalletAddress(
        id=context.urls.wallet(wallet.path),
        **({"public_name": wallet.public_name} if wallet.public_name else {}),
        asset_code=wallet.asset_code,
        asset_scale=wallet.asset_scale,
        auth_server=context.urls.auth_server,
        resource_server=context.urls.resource_server,
    )
    return json_response(body, headers=WALLET_CACHE)


async def read_keys(request: Request) -> Response:
    """GET {wallet address}/jwks.json: the keys in force."""
    _, keys = await keys_in_force(request)
    return json_response({"keys": keys}, headers=KEYS_CACHE)


async def keys_in_force(request: Request) -> tuple[WalletRecord, list[JWK]]:
    """The wallet address that the request's path names, and its keys. Refuses with 404 and 405."""

    def unit(tx: Transaction) -> tuple[WalletRecord, list[JWK]]:
        wallet = _find(tx, request)
        return wallet, [local_jwk(key.kid, key.x) for key in wallets.list_keys(tx, wallet.id)]

    return await context_of(request).database.read(unit)


def _find(tx: Transaction, request: Request) -> WalletRecord:
    wallet = wallets.find_wallet(tx, request.path_params["path"].rstrip("/").lower())
    if wallet is None or not wallet.active:
        raise not_found("There is nothing at this address")
    if request.method not in {"GET", "HEAD"}:
        raise method_not_allowed("GET, HEAD, OPTIONS")
    return wallet
