"""Token management over HTTP (RFC 9635 section 6): rotation and revocation at the token's own URL."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import DomainError, NotFound, TokenInvalid
from payres.grants import tokens as rules
from payres.grants.gnap import TokenResponse
from payres.http.responses import json_response
from payres.identifiers import hash_secret
from payres.routes.authorize import parse_signature, verify_client
from payres.routes.bodies import read_body
from payres.routes.context import context_of
from payres.store import grants
from payres.store.clients import CLIENTS, ClientRecord
from payres.store.grants import GRANTS, TOKENS
from payres.store.work import Work


async def rotate(request: Request) -> Response:
    """POST /token/{id}: a new value at a new manage URL."""
    context = context_of(request)
    token_id = request.path_params["id"]
    await _verify_holder(request, token_id, rules.invalid_rotation())
    token = await context.database.write(partial(rules.rotate_token, token_id=token_id))
    return json_response(TokenResponse(token))


async def revoke(request: Request) -> Response:
    """DELETE /token/{id}: 204, also when it was revoked before."""
    context = context_of(request)
    token_id = request.path_params["id"]
    await _verify_holder(request, token_id, NotFound("There is no token at this URL"))
    await context.database.write(partial(rules.revoke_token, token_id=token_id))
    return Response(status_code=204)


async def _verify_holder(request: Request, token_id: str, missing: DomainError) -> None:
    """Checks that the token's client signed the request, and that no other valid token was sent along.

    The token itself may be missing: an existing SDK rotates with the last token it was given, or none, and the manage
    URL cannot be guessed. Raises `missing` when nothing was ever at this URL.
    """
    context = context_of(request)
    body = await read_body(request)
    unverified = parse_signature(request, body)
    sent = hash_secret(request.headers.get("authorization", "").partition(" ")[2].strip())

    def unit(work: Work) -> tuple[ClientRecord, bool]:
        token = TOKENS.get(work, token_id)
        grant = GRANTS.get(work, token.grant_id) if token else None
        if token is None or grant is None:
            raise missing
        holder = grants.find_holder(work, sent) if sent != token.value_hash else None
        return CLIENTS.by_id(work, grant.client_id), holder is not None and rules.is_valid(holder, work.now)

    client, is_other_token = await context.database.read(unit)
    await verify_client(request, unverified, client)
    if is_other_token:
        raise TokenInvalid(
            "The Authorization header carries another token than the one managed here", reason="other_token"
        )
