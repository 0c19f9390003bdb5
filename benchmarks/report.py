"""The figures as Markdown tables, in the form of benchmarks/figures.md and README.md."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from benchmarks.figures import Figures, Measure, Quantity, Series, Side
from benchmarks.goals import GOALS, GROWTH, Goal

LOADS: Sequence[tuple[str, Measure]] = (
    ("signed GET", "read"),
    ("signed GET, 256 connections", "wide"),
    ("signed GET, cold", "cold read"),
    ("signed creation", "create"),
    ("signed quote", "quote"),
    ("signed list of 20", "list"),
    ("signed list of 20, cold", "cold list"),
    ("local payment", "pay"),
    ("local payment beside 32 readers", "pay beside"),
    ("local payment, fresh server", "fresh pay"),
    ("signed creation, fresh server", "fresh create"),
    ("packet", "packet"),
    ("one local payment alone", "pay alone"),
    ("payment to another server", "remote"),
)
FORMS: dict[Quantity, str] = {"rate": "{:,.0f} /s", "processor": "{:,.0f} µs", "p50": "{:.1f} ms", "p99": "{:.1f} ms"}

# Measured once, by the same requests and on a machine of the same kind.
RAFIKI = {"read": "141 /s", "create": "92 /s", "list": "73 /s", "pay": "12 /s"}
RAFIKI_MEMORY = "684 MB in 31 processes"


class Report:
    """Writes a run down, with its changes since an earlier one if there is one to compare with."""

    def __init__(self, figures: Figures, before: Figures | None = None) -> None:
        self._figures = figures
        self._before = before

    def text(self) -> str:
        """The goals, the same on the large database, and what was measured."""
        large = f"on {self._figures.payments:,} payments / on 10,000"
        changed = () if self._before is None else ("change",)
        return "\n\n".join(
            [
                f"The machine of these tables: {self._figures.machine}.",
                table(("figure", "goal", "now", "by rate", "", *changed), [self._judged(goal) for goal in GOALS]),
                table((large, "goal", "now", "by rate", "", *changed), [self._judged(goal) for goal in GROWTH]),
                table(("", "server", "rate", "processor time", "p50", "p99"), list(self._measured())),
            ]
        )

    def beside_rafiki(self) -> str:
        """The small table of the README."""
        rows = [
            (title, RAFIKI[measure], self._figure(Series(measure, "payres", "rate")))
            for title, measure in LOADS
            if measure in RAFIKI
        ]
        memory = median(self._figures.of(Series("memory", "payres", "memory")))
        rows.append(("memory", RAFIKI_MEMORY, f"{memory:.0f} MB in one process"))
        return table(("", "Rafiki", "payres"), rows)

    def _judged(self, goal: Goal) -> Sequence[str]:
        figures = _of_rounds(self._figures, goal)
        now = median(figures)
        spread = f" ({min(figures):.2f} to {max(figures):.2f})" if goal.over is not None and len(figures) > 1 else ""
        bound = (
            f"at least {goal.form.format(goal.least)}"
            if goal.most is None
            else f"at most {goal.form.format(goal.most)}"
        )
        rates = "" if goal.rates is None else f"{median(self._figures.ratios(*goal.rates)):.2f}"
        verdict = "" if self._figures.quick else "met" if goal.is_met(now) else "MISSED"
        row = (goal.title, bound, goal.form.format(now) + spread, rates, verdict)
        if self._before is None:
            return row
        earlier = _of_rounds(self._before, goal)
        return (*row, _change(now, median(earlier)) if earlier else "")

    def _measured(self) -> Iterator[Sequence[str]]:
        servers: dict[Side, str] = {
            "payres": "payres",
            "bare": "bare",
            "grown": f"payres, {self._figures.payments:,} payments",
            "webhook": "payres, a webhook",
            "undelivered": "payres, 10,000 undelivered events",
        }
        for title, measure in LOADS:
            for side in self._figures.rounds[measure]:
                cells = [self._figure(Series(measure, side, quantity)) for quantity in FORMS]
                yield title, servers[side], *cells

    def _figure(self, series: Series) -> str:
        figures = self._figures.of(series)
        if not figures:
            return ""
        now = FORMS[series.quantity].format(median(figures))
        before = self._before.of(series) if self._before is not None else []
        return f"{now} ({_change(median(figures), median(before))})" if before else now


def write_page(file: Path, text: str) -> None:
    """Puts the text where the page has its figures: between two comments."""
    page, count = re.subn(
        r"(?s)(<!-- figures -->\n).*?(<!-- end of figures -->)",
        lambda marks: f"{marks[1]}{text}\n{marks[2]}",
        file.read_text(encoding="utf-8"),
    )
    if count != 1:
        raise ValueError(f"{file} has no place for figures")
    file.write_text(page, encoding="utf-8")


def _of_rounds(figures: Figures, goal: Goal) -> Sequence[float]:
    return figures.of(goal.of) if goal.over is None else figures.ratios(goal.of, goal.over)


def _change(now: float, before: float) -> str:
    return f"{now / before - 1:+.0%}"


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    cells = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
