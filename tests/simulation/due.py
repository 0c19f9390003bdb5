"""Due work of each kind: nothing that is due waits, and nothing waits longer than its pauses, whatever clocks did."""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any, Final

from payres.core.protocol.clock import DAY, LATEST, MINUTE
from payres.core.store.work import Work
from payres.operator.store.due_work import DUE_KINDS
from tests.simulation.town import Town
from tests.simulation.world import Violation

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


async def on_time(town: Town) -> None:
    """Due work: in peace all that is due is done, no step has raised, and nothing waits longer than its pauses. Whoever
    adds a kind says here how long it may wait, and lets people cause it."""
    if unknown := DUE_KINDS.keys() ^ PAUSES.keys():
        raise Violation(f"due work of which nobody has said how long it may wait: {sorted(unknown)}")
    end = town.world.now + WAITS
    while due := [one for server in town.servers for one in await server.read(_due)]:
        if town.world.now > end:
            raise Violation(f"due work still waits after {WAITS:.0f} s of peace: {due[:3]}")
        await asyncio.sleep(5)
    for server in town.servers:
        if late := [*await server.read(_late)]:
            raise Violation(f"due work of {server.name} waits longer than its pauses: {late[:3]}")
        if raised := await server.rows("SELECT * FROM fault"):
            raise Violation(f"due work of {server.name} has raised: {raised[0]}")
        for name, told in DUE_KINDS.items():
            town.world.counts[f"due work: {name}"] += bool(
                await server.rows(f"SELECT 1 FROM {told.kind.table} LIMIT 1")
            )


def _due(work: Work) -> list[Any]:
    return [one for one in _times(work) if one[2] <= work.now]


def _late(work: Work) -> list[Any]:
    return [one for one in _times(work) if work.now + PAUSES[one[0]] + MINUTE < one[2] < LATEST]  # which is never


def _times(work: Work) -> Iterator[tuple[str, str, int]]:
    """The kind, the key and the due time of each row that is due now or later."""
    for name, (kind, *_) in DUE_KINDS.items():
        label, due = kind.label or f"{kind.table}.{kind.key[0]}", f"{kind.table}.{kind.due}"
        sql = f"SELECT ?, {label}, {due} FROM {kind.source or kind.table} WHERE {due} NOTNULL AND {kind.where}"
        yield from work.execute(sql, (name,))
