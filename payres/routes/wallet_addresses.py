"""Wallet addresses over HTTP: what they are, and the keys of the clients they name."""

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import method_not_allowed, not_found
from payres.grants.clients import local_jwk
from payres.routes.context import context_of
from payres.routes.messages import json_response
from payres.signatures.jwk import JWK
from payres.store import wallets
from payres.store.database import Transaction
from payres.store.wallets import WalletRecord
from payres.wire import WalletAddress

# Short, because clients act on both; keys shorter, because a revoked one should soon be gone everywhere.
WALLET_CACHE = {"Cache-Control": "public, max-age=60"}
KEYS_CACHE = {"Cache-Control": "public, max-age=10"}


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
    context = context_of(request)

    def unit(tx: Transaction) -> list[JWK]:
        return [local_jwk(key.kid, key.x) for key in wallets.list_keys(tx, _find(tx, request).id)]

    return json_response({"keys": await context.database.read(unit)}, headers=KEYS_CACHE)


def _find(tx: Transaction, request: Request) -> WalletRecord:
    wallet = wallets.find_wallet(tx, request.path_params["path"].strip("/").lower())
    if wallet is None or not wallet.active:
        raise not_found("There is nothing at this address")
    if request.method not in {"GET", "HEAD"}:
        raise method_not_allowed("GET, HEAD")
    return wallet
