"""SQL of what was wrong when others were asked."""

from collections.abc import Collection, Mapping

from payres.core.store.work import Work


def note_wrong(work: Work, subjects: Collection[str], now: int) -> Mapping[str, int]:
    """Stores that these are wrong now, and that no others are; returns since when each is."""
    for subject in known_wrong(work).keys() - subjects:
        work.execute("DELETE FROM finding WHERE subject = ?", (subject,))
    rows = [(subject, now) for subject in subjects]
    work.executemany("INSERT OR IGNORE INTO finding (subject, began_at) VALUES (?, ?)", rows)
    return known_wrong(work)


def known_wrong(work: Work) -> Mapping[str, int]:
    return dict(work.execute("SELECT subject, began_at FROM finding").fetchall())
