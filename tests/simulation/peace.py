"""Peace: waiting until all that was begun has ended. Clocks are put forward to what is due in minutes. And due work of
each kind: nothing that is due waits, and nothing waits longer than its pauses, whatever clocks did."""

import asyncio
from collections.abc import Mapping
from typing import Final

from payres.agenda.store.agenda import DueKind
from payres.core.protocol.clock import DAY, HOUR, LATEST, MINUTE
from payres.core.store.rows import number
from payres.core.store.work import Work
from payres.operator.store import due_work
from payres.operator.store.due_work import DUE_KINDS
from payres.people.store.checkouts import STEPS
from payres.people.store.standing_orders import TRIES, WINDOWS
from payres.webhooks.rounds import is_all_sent
from tests.simulation.town import Town
from tests.simulation.world import Violation

PEACE_SECONDS: Final = 3 * 3600.0  # after which nothing may be under way, with what clocks were put forward
LONG_WAITS: Final = 4  # more: after many failures, what was made elsewhere waits for hours
REST_SECONDS: Final = 5.0
SENDING: Final = "SELECT count(*) FROM outgoing_payment WHERE state = 'sending'"
UNDER_WAY: Final[Mapping[str, str]] = {
    "payments": SENDING,
    "packets": "SELECT count(*) FROM packet WHERE state = 'prepared'",
    # A payer's server that was restored may have forgotten a payment: its page asks for it until the row is purged.
    "payment pages": "SELECT count(*) FROM checkout WHERE state IN ('returned', 'made') AND changed_at > :restored_at",
    "bills": "SELECT count(*) FROM made_elsewhere WHERE kind = 'incoming-payment'",
}
DELIVERING: Final = "SELECT count(*) FROM delivery WHERE state = 'pending'"
LATER: Final = (
    "SELECT coalesce(max(due), 0) FROM (SELECT due_at AS due FROM checkout UNION ALL SELECT next_at FROM delivery"
    " UNION ALL SELECT due_at FROM made_elsewhere WHERE kind = 'incoming-payment')"
)
WAITS: Final = 90.0  # seconds of peace at most: a step takes few, and others of its party go first
# The longest time until something is due, in microseconds: the pauses and periods that the guides promise.
PAUSES: Final[Mapping[str, int]] = {
    "mail": DAY,
    "order": 31 * DAY,
    "order-payment": DAY,
    "checkout": 5 * MINUTE,
    "checkout-end": DAY,
    "elsewhere": DAY,
    "webhook": 2 * DAY,
}


async def come_to_rest(town: Town, *, with_events: bool = False) -> None:
    """Waits for payments, packets, payment pages and standing orders, and if asked for what webhooks are still to get.
    Raises Violation if something is under way after hours."""
    world, end, long_waits = town.world, town.world.microseconds + PEACE_SECONDS * 1e6, LONG_WAITS
    while busy := await _under_way(town, with_events):
        world.waits_for = f"in peace there are still {busy}"
        if world.microseconds > end:
            raise Violation(f"liveness: after {PEACE_SECONDS / 3600:.0f} hours of peace there are still {busy}")
        await asyncio.sleep(REST_SECONDS)
        for server in town.servers:
            if later := await server.read(_later):
                town.put_forward(later)
                if later > HOUR and long_waits:
                    end, long_waits = max(end, world.microseconds + HOUR), long_waits - 1


async def _under_way(town: Town, with_events: bool) -> str:
    """What has still to come to an end, in words."""

    restored_at = max((loss.until for server in town.servers for loss in server.archive.losses), default=0)

    def busy(work: Work) -> str:
        about = {"restored_at": restored_at}
        found = {what: work.execute(sql, about).fetchone()[0] for what, sql in UNDER_WAY.items()}
        found["standing orders"] = _due(work, WINDOWS) + _due(work, TRIES)
        found["events"] = with_events and (not is_all_sent(work) or number(work, DELIVERING))
        return ", ".join(f"{count} {what}" for what, count in found.items() if count)

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


async def on_time(town: Town) -> None:
    """Due work: in peace all that is due is done, no step has raised, and nothing waits longer than its pauses. Whoever
    adds a kind says here how long it may wait, and lets people cause it."""
    if unknown := DUE_KINDS.keys() ^ PAUSES.keys():
        raise Violation(f"due work of which nobody has said how long it may wait: {sorted(unknown)}")
    end = town.world.now + WAITS
    while due := [one for server in town.servers for one in await server.read(_waits) if one[2] <= 0]:
        if town.world.now > end:
            if not town.post.shares:
                raise Violation(f"due work still waits after {WAITS:.0f} s of peace: {due[:3]}")
            town.post.shares.clear()  # each mail took it a minute, and then there was a rest
            end += 2 * WAITS
        await asyncio.sleep(5)
    for server in town.servers:
        if late := [one for one in await server.read(_waits) if PAUSES[one[0]] + MINUTE < one[2]]:
            raise Violation(f"due work of {server.name} waits longer than its pauses: {late[:3]}")
        if raised := await server.rows("SELECT * FROM fault"):
            raise Violation(f"due work of {server.name} has raised: {raised[0]}")
        for name, told in DUE_KINDS.items():
            has_some = bool(await server.rows(f"SELECT 1 FROM {told.kind.table} LIMIT 1"))
            town.world.counts[f"due work: {name}"] += has_some


def _waits(work: Work) -> list[tuple[str, str, int]]:
    """The kind and the key of each row that will be due, and the microseconds until then."""
    found = list[tuple[str, str, int]]()
    for name, (kind, *_) in DUE_KINDS.items():
        label, due = kind.label or f"{kind.table}.{kind.key[0]}", f"{kind.table}.{kind.due}"
        sql = f"SELECT ?, {label}, {due} - ? FROM {kind.source or kind.table} WHERE {due} < ? AND {kind.where}"
        found += work.execute(sql, (name, work.now, LATEST))
    return found
