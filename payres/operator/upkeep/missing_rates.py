"""Missing rates: pairs of currencies without a valid rate that somebody wanted to pay between, or that had one."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

from payres.core.process.logs import Metrics
from payres.core.store import accounts
from payres.core.store.database import Database
from payres.core.store.work import Work
from payres.operator.store import missing_rates

SHOWN_RATES: Final = 8  # on the one line that tells of them
NOTES_SECONDS: Final = 5.0  # until pages and commands know of a rate that somebody wanted


class LackingRates(NamedTuple):
    """The pairs of currencies without a valid rate that somebody wanted to pay between lately, or that had one: those
    of which wallets and peers here have both, and those `elsewhere`, which any stranger can make up. `wanted` has since
    when somebody did, and how often."""

    here: Sequence[Sequence[str]]
    elsewhere: Sequence[Sequence[str]]
    wanted: Mapping[tuple[str, ...], tuple[int, int]]


def lacking_rates(work: Work) -> LackingRates:
    rates, own = accounts.list_rates(work), {*accounts.list_codes(work)}
    wanted: dict[tuple[str, ...], tuple[int, int]] = {}
    for one in missing_rates.missing_rates(work):
        pair = tuple(sorted((one.base, one.counter)))
        since, times = wanted.get(pair, (one.since, 0))
        wanted[pair] = min(since, one.since), times + one.times
    good = {frozenset((rate.base, rate.counter)) for rate in rates if rate.holds_at(work.now)}
    lacking = {frozenset(pair) for pair in (*wanted, *((rate.base, rate.counter) for rate in rates))} - good
    pairs = sorted(map(sorted, lacking))
    here, elsewhere = ([one for one in pairs if own.issuperset(one) is is_here] for is_here in (True, False))
    return LackingRates(here, elsewhere, wanted)


def some(names: Sequence[str]) -> str:
    """The first of these, and how many others there are."""
    others = len(names) - SHOWN_RATES
    return ", ".join(names[:SHOWN_RATES]) + (f" and {others} other{'s' * (others > 1)}" if others > 0 else "")


async def store_missing_rates(database: Database, metrics: Metrics) -> float:
    """Stores which rates were missing, for pages and commands; returns the seconds until the next time."""
    if pairs := {*metrics.missing_rates}:
        await database.write(partial(missing_rates.note_missing_rates, pairs=pairs))
        metrics.missing_rates.difference_update(pairs)
    return NOTES_SECONDS
