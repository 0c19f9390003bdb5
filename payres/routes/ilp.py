"""ILP over HTTP (RFC 35): where peers, known by their bearer tokens, post packets and get the reply in the answer."""

import re
from functools import partial
from time import monotonic
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from payres.errors import DomainError, InvalidRequest
from payres.http.error_responses import ErrorResponse, error_response, invalid_token
from payres.identifiers import hash_secret
from payres.interledger.answers import NoAnswerYet, RequestIdReused
from payres.limits import MAX_PACKET_BODY_BYTES
from payres.routes.context import context_of
from payres.routes.messages import read_body
from payres.store import peers
from payres.store.peers import PeerRecord

MEDIA_TYPE: Final = "application/octet-stream"
MEDIA_TYPES: Final = (MEDIA_TYPE, "application/ilp+octet-stream")  # the second is what the JavaScript plugin sends
PROMPT_SECONDS: Final = 0.05
REQUEST_ID: Final = re.compile(r"[ -~]{1,64}")


async def receive(request: Request) -> Response:
    """POST /ilp: 200 with a Fulfill or Reject, whatever becomes of the packet.

    Other answers say that there was no packet to process, and a 504 that its outcome is not known yet.
    """
    number = request.headers.get("request-id", "")
    # Repeating the number promises that the request may be repeated; without a number that we keep there is no promise.
    echo = {"Request-Id": number} if REQUEST_ID.fullmatch(number) else {}
    try:
        reply = await _reply(request, number if echo else None)
    except DomainError as error:
        refusal = error_response(error)
        refusal.headers = {**refusal.headers, **echo}
        raise refusal from error
    return Response(reply, media_type=MEDIA_TYPE, headers=echo)


async def _reply(request: Request, request_id: str | None) -> bytes:
    """The reply packet. Refuses with 400, 401, 413 and 504."""
    token = _token(request)
    peer = await _peer(request, token)
    began = monotonic()
    body = await read_body(request, MAX_PACKET_BODY_BYTES)
    if monotonic() - began > PROMPT_SECONDS:  # meanwhile the peer may have been removed, and must be out at once
        peer = await _peer(request, token)
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in MEDIA_TYPES:
        raise InvalidRequest(f"Send the packet as Content-Type: {MEDIA_TYPE}", field="Content-Type")
    try:
        return await context_of(request).connector.handle(peer, body, request_id)
    except NoAnswerYet:
        sentence = "The packet was passed on and its outcome is not known yet; repeat the request to learn it"
        raise ErrorResponse(504, "unavailable", sentence, headers={"Retry-After": "1"}) from None
    except RequestIdReused:
        raise InvalidRequest("The Request-Id was used for another packet before", field="Request-Id") from None


def _token(request: Request) -> str:
    scheme, *token = request.headers.get("authorization", "").split(" ")
    if scheme.lower() != "bearer" or len(token) != 1 or not token[0]:
        raise _unauthorized("missing_token", "Send the token that was agreed on as Authorization: Bearer <token>")
    return token[0]


async def _peer(request: Request, token: str) -> PeerRecord:
    """Whose token the request shows; asked of the database each time."""
    unit = partial(peers.peer_by_token, token_hash=hash_secret(token))
    peer = await context_of(request).database.read(unit)
    if peer is None:
        raise _unauthorized("unknown_token", "No peer has this token")
    return peer


def _unauthorized(reason: str, description: str) -> ErrorResponse:
    refusal = invalid_token(reason, description)
    refusal.headers = {"WWW-Authenticate": "Bearer"}
    return refusal
