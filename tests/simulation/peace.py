"""Peace: waiting until all that was begun has ended. Clocks are put forward to what is due in minutes."""

import asyncio
from typing import Final

from payres.core.store.agenda import DueKind
from payres.core.store.rows import number
from payres.core.store.work import Work
from payres.interledger.store import packets
from payres.interledger.store.checkouts import STEPS
from payres.operator.store import due_work
from payres.operator.store.standing_orders import TRIES, WINDOWS
from payres.webhooks.deliveries import is_all_sent
from tests.simulation.town import Town
from tests.simulation.world import Violation

PEACE_SECONDS: Final = 3 * 3600.0  # after which nothing may be under way, with what clocks were put forward
REST_SECONDS: Final = 5.0
SENDING: Final = "SELECT count(*) FROM outgoing_payment WHERE state = 'sending'"
ENDING: Final = "SELECT count(*) FROM made_elsewhere WHERE kind = 'incoming-payment'"
PAYING: Final = "SELECT count(*) FROM checkout WHERE state IN ('returned', 'made') AND changed_at > ?"
DELIVERING: Final = "SELECT count(*) FROM delivery WHERE state = 'pending'"
LATER: Final = (
    "SELECT coalesce(max(due), 0) FROM (SELECT due_at AS due FROM checkout UNION ALL SELECT next_at FROM delivery"
    " UNION ALL SELECT due_at FROM made_elsewhere WHERE kind = 'incoming-payment')"
)


async def come_to_rest(town: Town, *, with_events: bool = False) -> None:
    """Waits for payments, packets, payment pages and standing orders, and if asked for what webhooks are still to get.
    Raises Violation if something is under way after hours."""
    world, end = town.world, town.world.microseconds + PEACE_SECONDS * 1e6
    while busy := await _under_way(town, with_events):
        if world.microseconds > end:
            raise Violation(f"liveness: after {PEACE_SECONDS / 3600:.0f} hours of peace there are still {busy}")
        await asyncio.sleep(REST_SECONDS)
        for server in town.servers:
            if later := await server.read(_later):
                town.put_forward(later)


async def _under_way(town: Town, with_events: bool) -> str:
    """What has still to come to an end, in words."""

    # A payer's server that was restored may have forgotten a payment: its page asks for it until the row is purged.
    restored_at = max((loss.until for server in town.servers for loss in server.archive.losses), default=0)

    def busy(work: Work) -> str:
        payments, waiting = number(work, SENDING), len(packets.prepared_packets(work, 100))
        pages = number(work, PAYING, restored_at)
        orders = _due(work, WINDOWS) + _due(work, TRIES)
        bills = number(work, ENDING)
        found = (
            f"{payments} payments, {waiting} packets, {pages} payment pages, {orders} standing orders, {bills} bills"
        )
        is_busy = bool(payments or waiting or pages or orders or bills)
        if with_events and (not is_all_sent(work) or number(work, DELIVERING)):
            return f"{found}, events for webhooks"
        return found if is_busy else ""

    found = [f"{server.name}: {text}" for server in town.servers if (text := await server.read(busy))]
    found += ["payments from abroad"] if town.foreign and town.foreign.payer.is_busy else []
    return "; ".join(found)


def _due(work: Work, kind: DueKind) -> int:
    """How much is due of a kind, or was set aside, which nothing here should be."""
    return sum(one.next_try is None or one.next_try <= work.now for one in due_work.waiting(work, kind.name, work.now))


def _later(work: Work) -> int:
    """The microseconds until the last checkout or delivery is due; 0 if none is but what is due now."""
    is_idle = not number(work, SENDING) and not _due(work, STEPS) and is_all_sent(work)
    return max(number(work, LATER) - work.now, 0) if is_idle else 0
