"""Interledger as a part: the endpoint for peers' packets, the workers and the services of the node."""

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from payres.agenda.store.agenda import Agenda
from payres.core.http.context import Context, context_of
from payres.core.http.request_head import credentials, header
from payres.core.http.requests import media_type_of, read_body
from payres.core.http.routing import Route
from payres.core.http.serving import Background, Opening, Part
from payres.core.protocol.errors import BearerTokenInvalid, DomainError, InvalidRequest, OutcomeUnknown, Unavailable
from payres.core.protocol.identifiers import hash_secret
from payres.core.protocol.urls import ILP
from payres.core.remote.transport import Bounds
from payres.core.store.work import Work
from payres.interledger.carrier import MEDIA_TYPE, NoReply
from payres.interledger.limits import MAX_PACKET_BODY_BYTES
from payres.interledger.node import Node, node_of, open_node
from payres.interledger.oer import result_of
from payres.interledger.rates import watch_rates
from payres.interledger.remote_resources import StillNeeded, end_remote_resource
from payres.interledger.settings import InterledgerSettings
from payres.interledger.store import packets, peers, remote_resources

MEDIA_TYPES: Final = (MEDIA_TYPE, "application/ilp+octet-stream")  # the second is sent by the JavaScript plugin
REQUEST_ID: Final = re.compile(rb"[ -~]{1,64}")


async def receive(request: Request) -> Response:
    """POST /ilp: 200 with a Fulfill or Reject.

    Other statuses mean that no packet was processed; 504 means that its outcome is not known yet.
    """
    sent = header(request.scope["headers"], b"request-id") or b""
    # Echoing the Request-Id promises that the request may be repeated, which holds only for ids that are stored.
    number = sent.decode("ascii") if REQUEST_ID.fullmatch(sent) else None
    try:
        reply = await _reply(context_of(request), request, number)
    except DomainError as error:
        if number is not None:
            error.headers = {**error.headers, "Request-Id": number}
        raise
    response = Response(reply)
    response.raw_headers.append((b"content-type", MEDIA_TYPE.encode()))
    if number is not None:
        response.raw_headers.append((b"request-id", sent))
    return response


async def _reply(context: Context, request: Request, request_id: str | None) -> bytes:
    """The reply packet. Raises InvalidRequest, BearerTokenInvalid, BodyTooLarge, OutcomeUnknown."""
    token = credentials(request.scope["headers"], "bearer")
    if token is None:
        raise BearerTokenInvalid("Send the token that was agreed on as Authorization: Bearer <token>", "missing_token")
    find_peer = partial(peers.peer_by_token, token_hash=hash_secret(token))
    peer = await context.database.read(find_peer, for_write=True)
    if peer is None:
        raise BearerTokenInvalid("No peer has this token", "unknown_token")
    context.rate_limits.prove(request.scope)
    body = await read_body(request, MAX_PACKET_BODY_BYTES)
    if media_type_of(request) not in MEDIA_TYPES:
        raise InvalidRequest(f"Send the packet as Content-Type: {MEDIA_TYPE}", field="Content-Type")
    # If the peer is removed meanwhile, the unit that moves the packet's money fails.
    node = node_of(context)
    reply = await node.connector.handle(peer, body, request_id)
    node.packets[peer.name, "in", "unknown" if isinstance(reply, NoReply) else result_of(reply)] += 1
    if isinstance(reply, bytes):
        return reply
    if reply is NoReply.REQUEST_ID_REUSED:
        raise InvalidRequest("The Request-Id was used for another packet before", field="Request-Id")
    sentence = "The packet was passed on and its outcome is not known yet; repeat the request to learn it"
    raise OutcomeUnknown(sentence)


log = logging.getLogger("payres.interledger")


async def _open(opening: Opening) -> None:
    opening.remote = opening.parts[Node] = await open_node(opening)
    if opening.was_killed:
        with suppress(Unavailable):
            for sentence in await opening.database.read(warn_of_unsure_packets):
                log.warning("%s", sentence)


def warn_of_unsure_packets(work: Work) -> Sequence[str]:
    """After a kill: a sentence for each peer that may have sent what it does not count."""
    found = ((peer.name, len(packets.unsure_packets(work, peer, work.now))) for peer in peers.list_peers(work))
    return [
        f"the server was killed: {count} packets from the peer {name} may be accepted here and not counted there;"
        f" `payres peer unresolved {name}` lists them"
        for name, count in found
        if count
    ]


def _workers(context: Context, opening: Opening) -> Iterator[Background]:
    settings, node = context.settings.of(InterledgerSettings), node_of(context)
    if settings.rates_url:
        http = opening.client(Bounds(untrusted_hosts=False))
        yield watch_rates(context.database, http, context.clock, settings.rates_url, settings.rates_max_age)
    yield node.unanswered.run()
    yield node.payments.run()
    end = partial(end_remote_resource, context.database, node.receivers, needed=opening.parts.get(StillNeeded))
    yield Agenda(remote_resources.DUE, context.database, context.changes, end).run()
    opening.stack.push_async_callback(node.payments.outbound.drain)  # before the workers above stop


INTERLEDGER: Final = Part(
    "interledger", open=_open, workers=_workers, routes=(Route(ILP, {"POST": receive}, is_json=False),)
)
