"""SQL of what was wrong when others were asked."""

import json
from collections.abc import Mapping, Sequence

from payres.core.store.work import Work


def note_wrong(work: Work, subjects: Sequence[str], now: int) -> Mapping[str, int]:
    """Stores that these are wrong now, and that no others are; returns since when each is, in microseconds UTC."""
    work.execute("DELETE FROM finding WHERE subject NOT IN (SELECT value FROM json_each(?))", (json.dumps(subjects),))
    rows = [(subject, now) for subject in subjects]
    work.executemany("INSERT OR IGNORE INTO finding (subject, began_at) VALUES (?, ?)", rows)
    return dict(work.execute("SELECT subject, began_at FROM finding").fetchall())
