"""The figures as Markdown tables, with the bounds that they are held against."""

from collections.abc import Iterator, Sequence
from statistics import median

import msgspec

from benchmarks.measures import Extent, Figures, Measure

MOST_GROWTH = 1.2


class Line(msgspec.Struct, frozen=True):
    """One measure: how its figures are written, and what they must be."""

    measure: Measure
    title: str
    form: str
    more_is_better: bool = False
    least_ratio: float | None = None  # of payres to the bare application; of times, the other way round
    most: float | None = None  # of payres itself


LINES = (
    Line("read", "signed GET of an incoming payment", "{:,.0f} /s", more_is_better=True, least_ratio=0.75),
    Line("create", "signed creation of an incoming payment", "{:,.0f} /s", more_is_better=True, least_ratio=0.62),
    Line("list", "signed list, a page of 20", "{:,.0f} /s", more_is_better=True),
    Line("read processor", "processor time of a signed GET", "{:,.0f} µs", least_ratio=0.75),
    Line("create processor", "processor time of a signed creation", "{:,.0f} µs", least_ratio=0.62),
    Line("list processor", "processor time of a signed list", "{:,.0f} µs"),
    Line("read tail", "p99 / p50 of signed GETs", "{:.1f}", most=3),
    Line("create tail", "p99 / p50 of signed creations", "{:.1f}", most=3),
    Line("packet", "packets of a peer, delivered", "{:,.0f} /s", more_is_better=True, least_ratio=0.40),
    Line("pay", "local payments, quoted and made", "{:,.0f} /s", more_is_better=True),
    Line("pay processor", "processor time of a local payment", "{:,.0f} µs"),
    Line("remote", "payments to another server, made and delivered", "{:,.0f} /s", more_is_better=True),
    Line("start", "start-up to the first answer", "{:.2f} s", most=0.6),
    Line("memory", "memory after the signed requests", "{:.0f} MB", most=80),
)


class Report:
    """Writes figures down. Bounds are named always, and said to be met or missed when `judged`."""

    def __init__(self, figures: Figures, extent: Extent, judged: bool) -> None:
        self._figures = figures
        self._extent = extent
        self._judged = judged

    def text(self) -> str:
        """Two tables: payres against the bare application, and the grown database against the small one."""
        grown = f"{self._extent.payments:,} payments"
        bare_rows = [self._against_bare(line) for line in LINES]
        growth_rows = [self._growth(line) for line in LINES if (line.measure, "grown") in self._figures]
        return "\n".join(
            [
                *_table(("measure", "payres", "bare", "ratio", "bound"), bare_rows),
                "",
                *_table(("measure", "payres", grown, "times", "bound"), growth_rows),
            ]
        )

    def _against_bare(self, line: Line) -> Sequence[str]:
        payres, bare = self._figures[line.measure, "payres"], self._figures.get((line.measure, "bare"), [])
        pairs = list(zip(payres, bare, strict=True)) if bare else []
        is_time = line.least_ratio is not None and not line.more_is_better
        ratios = [theirs / ours if is_time else ours / theirs for ours, theirs in pairs]
        bound = ""
        if line.least_ratio is not None:
            bound = f"at least {line.least_ratio:.2f}{self._verdict(median(ratios) >= line.least_ratio)}"
        elif line.most is not None:
            bound = f"under {line.form.format(line.most)}{self._verdict(median(payres) < line.most)}"
        return line.title, _figure(line, payres), _figure(line, bare), _spread(ratios), bound

    def _growth(self, line: Line) -> Sequence[str]:
        small, grown = self._figures[line.measure, "payres"], self._figures[line.measure, "grown"]
        pairs = list(zip(small, grown, strict=True))
        times = [before / after if line.more_is_better else after / before for before, after in pairs]
        bound = f"at most {MOST_GROWTH}{self._verdict(median(times) <= MOST_GROWTH)}"
        return line.title, _figure(line, small), _figure(line, grown), _spread(times), bound

    def _verdict(self, met: bool) -> str:
        return (": met" if met else ": MISSED") if self._judged else ""


def _figure(line: Line, figures: Sequence[float]) -> str:
    return line.form.format(median(figures)) if figures else ""


def _spread(ratios: Sequence[float]) -> str:
    """The median of the rounds' ratios, and in brackets the lowest and the highest."""
    if not ratios:
        return ""
    spread = f" ({min(ratios):.2f} to {max(ratios):.2f})" if len(ratios) > 1 else ""
    return f"{median(ratios):.2f}{spread}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    for row in (head, ["-" * width for width in widths], *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield f"| {' | '.join(cells)} |"
