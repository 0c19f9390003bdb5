"""Interledger as a part: payments to and from other servers."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

from payres.core.http.context import Context
from payres.core.http.parts import Opening, Part, Worker
from payres.core.http.routing import Route
from payres.core.protocol.errors import Unavailable
from payres.core.protocol.urls import ILP
from payres.core.remote.http import GuardedClient
from payres.core.remote.transport import Bounds
from payres.core.store.work import Work
from payres.interledger import endpoint as ilp
from payres.interledger.node import Node, node_of, open_node
from payres.interledger.rates import watch_rates
from payres.interledger.store import packets, peers

log = logging.getLogger("payres.operator")


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


def _workers(context: Context, stack: AsyncExitStack) -> Iterator[Worker]:
    settings, node = context.settings, node_of(context)
    if settings.rates_url:
        http = GuardedClient(settings.allow_private_hosts, Bounds(untrusted_hosts=False))
        stack.push_async_callback(http.aclose)
        yield watch_rates(context.database, http, context.clock, settings.rates_url, settings.rates_max_age)
    yield node.unanswered.run()
    yield node.payments.run()
    stack.push_async_callback(node.payments.outbound.drain)  # before the workers above stop


INTERLEDGER: Final = Part(
    "interledger", open=_open, workers=_workers, routes=(Route(ILP, {"POST": ilp.receive}, is_json=False),)
)
