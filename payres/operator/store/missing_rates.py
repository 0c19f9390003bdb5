"""SQL of pairs of currencies that somebody wanted to pay between, and that had no valid rate."""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from payres.core.protocol.clock import DAY
from payres.core.protocol.limits import MAX_MISSING_RATES
from payres.core.store.rows import lasting
from payres.core.store.work import Work

MISSING_RATES_KEPT: Final = 7 * DAY


class MissingRate(NamedTuple):
    """How often somebody wanted to pay between two currencies, `since` when in microseconds UTC. A unit that raises may
    run twice, so what was wanted between two notes counts once."""

    base: str
    counter: str
    since: int
    times: int


def note_missing_rates(work: Work, pairs: Iterable[tuple[str, str]]) -> None:
    """Stores that somebody wanted to pay between these currencies, which have no valid rate, and deletes what is old,
    of a clock that was ahead, or beyond the limit."""
    is_recent, times = lasting("asked_at", work.now - MISSING_RATES_KEPT, MISSING_RATES_KEPT)
    work.execute(f"DELETE FROM missing_rate WHERE NOT {is_recent}", times)
    work.executemany(
        "INSERT INTO missing_rate (base_code, counter_code, asked_at, began_at) VALUES (?, ?, ?, ?)"
        " ON CONFLICT DO UPDATE SET asked_at = excluded.asked_at, times = times + 1",
        [(*pair, work.now, work.now) for pair in pairs],
    )
    kept = (
        "SELECT base_code, counter_code FROM missing_rate ORDER BY base_code IN"
        " (SELECT code FROM asset) AND counter_code IN (SELECT code FROM asset) DESC, asked_at DESC LIMIT ?"
    )
    work.execute(f"DELETE FROM missing_rate WHERE (base_code, counter_code) NOT IN ({kept})", (MAX_MISSING_RATES,))


def missing_rates(work: Work) -> Sequence[MissingRate]:
    """The pairs that somebody wanted to pay between lately without a valid rate; some have one by now. Those of the
    last seconds follow: a page and a command say the same."""
    is_recent, times = lasting("asked_at", work.now - MISSING_RATES_KEPT, MISSING_RATES_KEPT)
    rows = work.execute(f"SELECT base_code, counter_code, began_at, times FROM missing_rate WHERE {is_recent}", times)
    return [MissingRate(*row) for row in rows]
