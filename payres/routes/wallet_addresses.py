"""Wallet addresses over HTTP: what they are, and the keys of the clients they name."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import NotFound
from payres.grants.clients import local_jwk
from payres.http.error_responses import method_not_allowed
from payres.routes import spsp
from payres.routes.accept import check_accept
from payres.routes.context import context_of
from payres.routes.cross_origin import ANY_ORIGIN
from payres.routes.messages import json_response
from payres.signatures.jwk import JWK
from payres.store import wallets
from payres.store.database import Transaction
from payres.store.wallets import WalletRecord
from payres.urls import ROOT_WALLET_PATH
from payres.wire import WalletAddress

# Short, because clients act on both; keys shorter, because a revoked one should soon be gone everywhere.
WALLET_CACHE = {"Cache-Control": "public, max-age=60", "Vary": "Accept", **ANY_ORIGIN}
KEYS_CACHE = {"Cache-Control": "public, max-age=10", **ANY_ORIGIN}
KEY_SET_TYPES = ("application/jwk-set+json",)


async def read(request: Request) -> Response:
    """GET {wallet address}: 404 when it is unknown or inactive. How to pay it, when `Accept` asks for that."""
    context = context_of(request)
    wallet = await context.database.read(lambda tx: _find(tx, request))
    if spsp.is_asked(request):
        return spsp.answer(request, wallet)
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
    _, keys = await keys_in_force(request, KEY_SET_TYPES)
    return json_response({"keys": keys}, headers=KEYS_CACHE)


async def keys_in_force(request: Request, types: Sequence[str]) -> tuple[str, list[JWK]]:
    """The path of the wallet address that the request names, and its keys. Refuses with 404, 405 and 406.

    `types` are other names of the JSON that will be answered.

    The server's own key, with which it asks other servers, is at the root address, whether there is a wallet or not.
    """
    context = context_of(request)
    path = _path(request)
    own = [context.identity.jwk] if path == ROOT_WALLET_PATH else []

    def unit(tx: Transaction) -> list[JWK]:
        wallet = _active(wallets.find_wallet(tx, path))
        if wallet is None and not own:
            raise _nothing()
        listed = wallets.list_keys(tx, wallet.id) if wallet is not None else []
        return own + [local_jwk(key.kid, key.x) for key in listed]

    keys = await context.database.read(unit)
    _require_reading(request, types)
    return path, keys


def _find(tx: Transaction, request: Request) -> WalletRecord:
    wallet = _active(wallets.find_wallet(tx, _path(request)))
    if wallet is None:
        raise _nothing()
    _require_reading(request, (spsp.MEDIA_TYPE,))
    return wallet


def _path(request: Request) -> str:
    """The wallet's path. An escaped slash makes another URL (RFC 3986 section 2.2), which names no wallet."""
    if b"%2f" in request.scope["raw_path"].lower():
        raise _nothing()
    path: str = request.path_params["path"]
    return path.lower()


def _active(wallet: WalletRecord | None) -> WalletRecord | None:
    return wallet if wallet is not None and wallet.active else None


def _nothing() -> NotFound:
    return NotFound("There is nothing at this address")


def _require_reading(request: Request, types: Sequence[str] = ()) -> None:
    if request.method not in {"GET", "HEAD"}:
        raise method_not_allowed("GET, HEAD, OPTIONS")
    check_accept(request.scope["headers"], types)
