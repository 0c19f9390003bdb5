"""Token management over HTTP (RFC 9635 section 6): rotation and revocation at the token's own URL."""

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import NotFound
from payres.grants import tokens as rules
from payres.http.error_responses import invalid_token
from payres.identifiers import hash_secret
from payres.routes.authorize import parse_signature, prove_client
from payres.routes.context import context_of
from payres.routes.messages import json_response, read_body
from payres.store import clients, grants, tokens
from payres.store.clients import ClientRecord
from payres.store.database import Transaction
from payres.wire import TokenResponse


async def rotate(request: Request) -> Response:
    """POST /token/{id}: a new value at a new manage URL."""
    context = context_of(request)
    token_id = request.path_params["id"]
    await _prove_holder(request, token_id)
    lifetime, now = context.settings.access_token_lifetime, context.clock.now()
    unit = partial(
        rules.rotate_token,
        urls=context.urls,
        token_id=token_id,
        identifiers=context.identifiers,
        lifetime=lifetime,
        now=now,
    )
    return json_response(TokenResponse(await context.database.write(unit)))


async def revoke(request: Request) -> Response:
    """DELETE /token/{id}: 204, also when it was revoked before."""
    context = context_of(request)
    token_id = request.path_params["id"]
    await _prove_holder(request, token_id)
    now = context.clock.now()
    await context.database.write(lambda tx: rules.revoke_token(tx, token_id, now))
    return Response(status_code=204)


async def _prove_holder(request: Request, token_id: str) -> None:
    """Checks that the token's client signed the request, and that no other token in force was sent along.

    The token itself may be missing: an existing SDK rotates with the last token it was given, or none, and the manage
    URL cannot be guessed. Refuses with 401, and with 404 when nothing was ever at this URL.
    """
    context = context_of(request)
    body = await read_body(request)
    unverified = parse_signature(request, body)
    sent = hash_secret(request.headers.get("authorization", "").partition(" ")[2].strip())
    now = context.clock.now()

    def unit(tx: Transaction) -> tuple[ClientRecord, bool]:
        token = tokens.find_token(tx, token_id)
        grant = grants.find_grant(tx, token.grant_id) if token else None
        if token is None or grant is None:
            raise rules.invalid_rotation() if request.method == "POST" else NotFound("There is no token at this URL")
        holder = tokens.find_holder(tx, sent) if sent != token.value_hash else None
        return clients.client_by_id(tx, grant.client_id), holder is not None and holder.in_force(now)

    client, is_other_token = await context.database.read(unit)
    await prove_client(context, unverified, client)
    if is_other_token:
        raise invalid_token("other_token", "The Authorization header carries another token than the one managed here")
