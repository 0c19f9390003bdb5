"""What was measured: kept in files, one figure for each round, held to the goals, and written as Markdown tables in the
form of benchmarks/figures.md and README.md."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Literal, NamedTuple

import msgspec

# The small payres, the bare application, payres with the large database, with a webhook, with one that fails.
Side = Literal["payres", "bare", "grown", "webhook", "undelivered"]
Replayed = Literal["read", "create", "list", "quote"]
Measure = (
    Replayed
    | Literal["pay", "pay beside", "pay alone", "packet", "remote", "wide", "cold read", "cold list"]
    | Literal["start", "memory", "fresh pay", "fresh create"]
)
# Requests, packets or payments per second; microseconds of processor time for each; milliseconds; seconds; megabytes.
Quantity = Literal["rate", "processor", "p50", "p99", "start", "memory"]


class Series(NamedTuple):
    """What was measured of which server."""

    measure: Measure
    side: Side = "payres"
    quantity: Quantity = "processor"


class Figures(msgspec.Struct):
    """A run: `taken` is its time, as in a file's name; `payments` is the size of the grown database."""

    taken: str
    node: str
    machine: str
    quick: bool
    payments: int
    rounds: dict[Measure, dict[Side, dict[Quantity, list[float]]]] = {}

    def add(self, measure: Measure, side: Side, quantity: Quantity, figure: float) -> None:
        self.rounds.setdefault(measure, {}).setdefault(side, {}).setdefault(quantity, []).append(figure)

    def of(self, series: Series) -> Sequence[float]:
        """The figure of each round; none of what was not measured."""
        return self.rounds.get(series.measure, {}).get(series.side, {}).get(series.quantity, [])

    def ratios(self, of: Series, over: Series) -> Sequence[float]:
        """Of each round, one figure divided by the other."""
        return [one / other for one, other in zip(self.of(of), self.of(over), strict=True)]


def store(cache: Path, figures: Figures) -> Path:
    """Writes them into a file of their own."""
    file = cache / f"{_kind(figures)}-{figures.taken}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    return file


def load(file: Path) -> Figures:
    """Raises ValueError when they are of a version that measured something else."""
    return msgspec.json.decode(file.read_bytes(), type=Figures)


def last_before(cache: Path, figures: Figures) -> Figures | None:
    """The last run that is kept there of the same machine, length and size of the large database."""
    for file in sorted(cache.glob(f"{_kind(figures)}-*.json"), reverse=True):
        try:
            found = load(file)
        except ValueError:
            continue
        if found.node == figures.node and found.taken < figures.taken:
            return found
    return None


def _kind(figures: Figures) -> str:
    return f"{'quick' if figures.quick else 'full'}-{figures.payments}"


class Goal(msgspec.Struct, frozen=True):
    """A figure, or one divided by another, and the least or the most that it may be.

    Processor time is compared first, because other programs disturb it least.
    """

    title: str
    of: Series
    over: Series | None = None
    least: float | None = None
    most: float | None = None
    form: str = "{:.2f}"

    @property
    def rates(self) -> tuple[Series, Series] | None:
        """What to divide for the same ratio by requests per second."""
        if self.over is None or self.of.quantity != "processor":
            return None
        return self.over._replace(quantity="rate"), self.of._replace(quantity="rate")

    def is_met(self, figure: float) -> bool:
        return (self.least is None or figure >= self.least) and (self.most is None or figure <= self.most)


def _growth(title: str, measure: Measure, quantity: Quantity = "processor") -> Goal:
    """What the same takes on the large database / on the small one."""
    return Goal(title, Series(measure, "grown", quantity), Series(measure, "payres", quantity), most=1.2)


GOALS: Sequence[Goal] = (
    Goal("signed GET: share of a bare GET", Series("read", "bare"), Series("read"), least=0.75),
    Goal("signed creation: share of a bare creation", Series("create", "bare"), Series("create"), least=0.62),
    Goal("signed quote: share of a bare GET", Series("read", "bare"), Series("quote"), least=0.55),
    Goal("signed list of 20: share of a bare GET", Series("read", "bare"), Series("list"), least=0.55),
    Goal("local payment: share of a bare creation", Series("create", "bare"), Series("pay"), least=0.33),
    Goal("packet: share of a bare packet", Series("packet", "bare"), Series("packet"), least=0.55),
    Goal(
        "local payments beside 32 readers / alone",
        Series("pay beside", quantity="rate"),
        Series("pay", quantity="rate"),
        least=0.5,
    ),
    Goal(
        "signed GETs over 256 connections / over 32",
        Series("wide", quantity="rate"),
        Series("read", quantity="rate"),
        least=0.9,
    ),
    Goal("local payments with a webhook / without", Series("fresh pay", "webhook"), Series("fresh pay"), most=1.05),
    Goal(
        "signed creations with 10,000 undelivered events / without",
        Series("fresh create", "undelivered"),
        Series("fresh create"),
        most=1.05,
    ),
    Goal("signed GETs: p99 / p50", Series("read", quantity="p99"), Series("read", quantity="p50"), most=3),
    Goal("signed creations: p99 / p50", Series("create", quantity="p99"), Series("create", quantity="p50"), most=3),
    Goal("one local payment alone: p50", Series("pay alone", quantity="p50"), most=5, form="{:.1f} ms"),
    Goal("payments to another server", Series("remote", quantity="rate"), least=250, form="{:,.0f} /s"),
    Goal("start-up to the first answer", Series("start", quantity="start"), most=0.35, form="{:.2f} s"),
    Goal("memory after the requests", Series("memory", quantity="memory"), most=50, form="{:.0f} MB"),
)
GROWTH: Sequence[Goal] = (
    _growth("signed GET", "read"),
    _growth("signed creation", "create"),
    _growth("signed quote", "quote"),
    _growth("signed list of 20", "list"),
    _growth("local payment", "pay"),
    _growth("packet", "packet"),
    _growth("one local payment alone: p50", "pay alone", "p50"),
    _growth("start-up to the first answer", "start", "start"),
    _growth("memory after the requests", "memory", "memory"),
)

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


def put_into(file: Path, text: str) -> None:
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
