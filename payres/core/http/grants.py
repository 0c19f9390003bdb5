"""Grants over HTTP (RFC 9635): requests, continuation and cancellation (sections 2, 5), and management of their tokens
(section 6). Specification 4.10.
"""

import re
from functools import partial
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from payres.core.grants import clients, requests, tokens
from payres.core.http.authorize import parse_signature, unreadable_client, verify_client
from payres.core.http.context import Context, context_of
from payres.core.http.observation import observation_of
from payres.core.http.request_head import credentials
from payres.core.http.requests import read_body, read_json_body
from payres.core.http.responses import json_response
from payres.core.protocol.errors import ClientUnproven, DomainError, InvalidRequest, NotFound, TokenInvalid
from payres.core.protocol.gnap import ACTIONS, ContinueRequest, GrantRequest, TokenResponse
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.wire import decode
from payres.core.remote.connection import failing_as
from payres.core.remote.wallet_addresses import fetch_wallet_address
from payres.core.signatures.verify import Verified
from payres.core.store import grants as stored
from payres.core.store import wallets
from payres.core.store.clients import CLIENTS, Client, ClientRecord
from payres.core.store.grants import GRANTS, TOKENS
from payres.core.store.work import Transaction, Work

UNKNOWN: Final = re.compile(r"access_token\.access\[\d+\]\.(type|actions.*)")
GRANT_REQUEST = msgspec.json.Decoder(GrantRequest)
CONTINUE_REQUEST = msgspec.json.Decoder(ContinueRequest)


async def request(request: Request) -> Response:
    """POST /: a token at once, or the URL where the wallet's owner must consent."""
    context = context_of(request)
    body = await read_json_body(request)
    unverified = parse_signature(request, body)
    asked = _asked(body)
    client = clients.identify(context.urls, asked.client)
    kid = (await verify_client(request, unverified, client, asks_for_grant=True)).keyid
    # Anyone with a key can send grant requests, and each is stored.
    context.rate_limits.check_unauthenticated(request.scope, None if client.jwk is not None else client.identity)
    client_name = await _client_name(context, client) if requests.asks_for_consent(asked) else None
    unit = partial(requests.request_grant, request=asked, client=client, client_name=client_name, kid=kid)
    granted = await context.database.write(unit)
    observation_of(request.scope).grant = granted.continue_.uri.rpartition("/")[2]
    return json_response(granted)


def _asked(body: bytes) -> GrantRequest:
    """Raises InvalidRequest, which lists the types of access with their actions where one is not known."""
    try:
        return decode(GRANT_REQUEST, body)
    except InvalidRequest as error:
        if not UNKNOWN.fullmatch(str(error.details["field"])):
            raise
        known = ", ".join(f"{kind} ({', '.join(actions)})" for kind, actions in ACTIONS.items())
        raise InvalidRequest(f"{error}. The types and their actions are: {known}", **error.details) from error


async def discover(request: Request) -> Response:
    """OPTIONS /: discovery of the authorization server (RFC 9635 section 9)."""
    abilities = {
        "grant_request_endpoint": context_of(request).urls.auth_server,
        "interaction_start_modes_supported": ["redirect"],
        "interaction_finish_methods_supported": ["redirect"],
        "key_proofs_supported": ["httpsig"],
        "sub_id_formats_supported": ["uri"],
        "key_rotation_supported": False,
    }
    return json_response(abilities, headers={"Allow": "OPTIONS, POST"})


async def continue_request(request: Request) -> Response:
    """POST /continue/{id}: the token after consent, again if it is unused, or 'wait' while the owner decides."""
    context = context_of(request)
    grant_id = request.path_params["id"]
    body = await read_json_body(request)
    token, signed = await _verify_continuing_client(request, body, grant_id)
    reference = decode(CONTINUE_REQUEST, body or b"{}").interact_ref or None
    unit = partial(requests.continue_grant, grant_id=grant_id, token=token, reference=reference, signed=signed)
    return json_response(await context.database.write(unit))


async def cancel(request: Request) -> Response:
    """DELETE /continue/{id}: ends the grant and all its tokens; 204."""
    context = context_of(request)
    grant_id = request.path_params["id"]
    body = await read_body(request)
    token, _ = await _verify_continuing_client(request, body, grant_id)
    await context.database.write(partial(requests.cancel_grant, grant_id=grant_id, token=token))
    return Response(status_code=204)


async def rotate_token(request: Request) -> Response:
    """POST /token/{id}: a new value at a new manage URL, again if it is unused."""
    context = context_of(request)
    token_id = request.path_params["id"]
    presented = await _verify_holder(request, token_id, tokens.invalid_rotation())
    token = await context.database.write(partial(tokens.rotate_token, token_id=token_id, presented=presented))
    return json_response(TokenResponse(token))


async def revoke_token(request: Request) -> Response:
    """DELETE /token/{id}: 204, even if it was already revoked."""
    context = context_of(request)
    token_id = request.path_params["id"]
    await _verify_holder(request, token_id, NotFound("There is no token at this URL"))
    await context.database.write(partial(tokens.revoke_token, token_id=token_id))
    return Response(status_code=204)


async def _verify_continuing_client(request: Request, body: bytes, grant_id: str) -> tuple[str, Verified]:
    """The continuation token and the client's signature, both verified. Raises 401 and 404."""
    context = context_of(request)
    unverified = parse_signature(request, body)
    token = credentials(request.scope["headers"], "gnap")
    if token is None:
        raise ClientUnproven("Send the continuation token as Authorization: GNAP <token>", reason="missing_token")

    def unit(tx: Transaction) -> ClientRecord:
        return CLIENTS.by_id(tx, requests.find_continuable(tx, grant_id, token).client_id)

    return token, await verify_client(request, unverified, await context.database.read(unit))


async def _verify_holder(request: Request, token_id: str, missing: DomainError) -> tokens.Presented | None:
    """Checks that the token's client signed the request, and that it carries no other valid token.

    The token itself may be missing, which gives None: an existing SDK rotates with an earlier token or none, and the
    manage URL cannot be guessed. Raises `missing` if the URL never existed.
    """
    context = context_of(request)
    body = await read_body(request)
    unverified = parse_signature(request, body)
    value = request.headers.get("authorization", "").partition(" ")[2].strip()
    sent = hash_secret(value)

    def unit(work: Work) -> tuple[ClientRecord, bool, bool]:
        token = TOKENS.get(work, token_id)
        grant = GRANTS.get(work, token.grant_id) if token else None
        if token is None or grant is None:
            raise missing
        holder = stored.find_holder(work, sent) if sent != token.value_hash else None
        is_other = holder is not None and holder.valid_at(work.now)
        return CLIENTS.by_id(work, grant.client_id), is_other, sent == token.value_hash

    client, is_other_token, is_own_token = await context.database.read(unit)
    signed = await verify_client(request, unverified, client)
    if is_other_token:
        raise TokenInvalid(
            "The Authorization header carries another token than the one managed here", reason="other_token"
        )
    return tokens.Presented(token_id, value, signed) if is_own_token else None


async def _client_name(context: Context, client: Client) -> str | None:
    """The public name of the client's wallet address. Raises 401 or 503 if it cannot be fetched."""
    if client.wallet_address is None:
        return None
    path = context.urls.wallet_path(client.wallet_address)
    if path is not None:
        wallet = await context.database.read(lambda tx: wallets.find_wallet(tx, path))
        return wallet.public_name if wallet else None
    with failing_as(partial(unreadable_client, "unknown_client", "The client's wallet address could not be read")):
        return (await fetch_wallet_address(context.http, client.wallet_address)).public_name
