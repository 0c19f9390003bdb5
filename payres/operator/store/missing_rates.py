"""SQL of pairs of currencies that somebody wanted to pay between, and that had no valid rate."""

from collections.abc import Iterable, Sequence
from typing import Final

from payres.core.protocol.clock import DAY
from payres.core.protocol.limits import MAX_MISSING_RATES
from payres.core.store.rows import lasting
from payres.core.store.work import Work

MISSING_RATES_KEPT: Final = 7 * DAY


def note_missing_rates(work: Work, pairs: Iterable[tuple[str, str]]) -> None:
    """Stores that somebody wanted to pay between these currencies, which have no valid rate, and deletes what is old,
    of a clock that was ahead, or beyond the limit."""
    rows = [(*pair, work.now) for pair in pairs]
    work.executemany("INSERT OR REPLACE INTO missing_rate (base_code, counter_code, asked_at) VALUES (?, ?, ?)", rows)
    is_recent, times = lasting("asked_at", work.now - MISSING_RATES_KEPT, MISSING_RATES_KEPT)
    kept = (
        f"SELECT base_code, counter_code FROM missing_rate WHERE {is_recent} ORDER BY base_code IN"
        " (SELECT code FROM asset) AND counter_code IN (SELECT code FROM asset) DESC, asked_at DESC LIMIT ?"
    )
    work.execute(
        f"DELETE FROM missing_rate WHERE (base_code, counter_code) NOT IN ({kept})", (*times, MAX_MISSING_RATES)
    )


def missing_rates(work: Work) -> Sequence[tuple[str, str]]:
    """The pairs that somebody wanted to pay between lately without a valid rate; some have one by now. Those of the
    last seconds follow: a page and a command say the same."""
    is_recent, times = lasting("asked_at", work.now - MISSING_RATES_KEPT, MISSING_RATES_KEPT)
    return work.execute(f"SELECT base_code, counter_code FROM missing_rate WHERE {is_recent}", times).fetchall()
