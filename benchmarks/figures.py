"""What was measured: kept in files, one figure for each round, held to the goals, and written as Markdown tables in the
form of benchmarks/figures.md and README.md."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import msgspec


class Series(NamedTuple):
    """What was measured of which server; `quantity` is one of FORMS, or start or memory, in seconds and megabytes."""

    measure: str
    side: str = "payres"
    quantity: str = "processor"


class Figures(msgspec.Struct):
    """A run: `taken` is its time, as in a file's name; `payments` is the size of the grown database.

    `rounds` has a figure of each round by the parts of its series.
    """

    taken: str
    node: str
    machine: str
    quick: bool
    payments: int
    rounds: dict[str, dict[str, dict[str, list[float]]]] = {}

    def add(self, series: Series, figure: float) -> None:
        sides = self.rounds.setdefault(series.measure, {})
        sides.setdefault(series.side, {}).setdefault(series.quantity, []).append(figure)

    def of(self, series: Series, over: Series | None = None) -> Sequence[float]:
        """The figure of each round, divided by the other if there is one; none of what was not measured."""
        found = self.rounds.get(series.measure, {}).get(series.side, {}).get(series.quantity, [])
        return found if over is None else [one / other for one, other in zip(found, self.of(over), strict=True)]


def store(cache: Path, figures: Figures) -> Path:
    """Writes them into a file of their own."""
    file = cache / f"{_kind(figures)}-{figures.taken}.json"
    file.write_bytes(msgspec.json.format(msgspec.json.encode(figures)) + b"\n")
    return file


def load(file: Path) -> Figures:
    """Raises ValueError when they are not figures of a run."""
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


class Goal(NamedTuple):
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


def _share(title: str, measure: str, bare: str, least: float) -> Goal:
    """How much of what payres takes the bare application takes."""
    of = {"read": "GET", "create": "creation", "packet": "packet"}[bare]
    return Goal(f"{title}: share of a bare {of}", Series(bare, "bare"), Series(measure), least)


def _growth(title: str, measure: str, quantity: str = "processor") -> Goal:
    """What the same takes on the large database / on the small one."""
    return Goal(title, Series(measure, "grown", quantity), Series(measure, "payres", quantity), most=1.2)


def _rate(measure: str) -> Series:
    return Series(measure, quantity="rate")


def _tail(title: str, measure: str) -> Goal:
    return Goal(f"{title}: p99 / p50", Series(measure, quantity="p99"), Series(measure, quantity="p50"), most=3)


FRESH = Series("fresh create", "undelivered"), Series("fresh create")
MEMORY = Series("memory", quantity="memory")
GOALS: Sequence[Goal] = (
    _share("signed GET", "read", "read", 0.75),
    _share("signed creation", "create", "create", 0.62),
    _share("signed quote", "quote", "read", 0.55),
    _share("signed list of 20", "list", "read", 0.55),
    _share("local payment", "pay", "create", 0.33),
    _share("packet", "packet", "packet", 0.55),
    Goal("local payments beside 32 readers / alone", _rate("pay beside"), _rate("pay"), least=0.5),
    Goal("signed GETs over 256 connections / over 32", _rate("wide"), _rate("read"), least=0.9),
    Goal("local payments with a webhook / without", Series("fresh pay", "webhook"), Series("fresh pay"), most=1.05),
    Goal("signed creations with 10,000 undelivered events / without", *FRESH, most=1.05),
    _tail("signed GETs", "read"),
    _tail("signed creations", "create"),
    Goal("one local payment alone: p50", Series("pay alone", quantity="p50"), most=5, form="{:.1f} ms"),
    Goal("payments to another server", _rate("remote"), least=250, form="{:,.0f} /s"),
    Goal("start-up to the first answer", Series("start", quantity="start"), most=0.35, form="{:.2f} s"),
    Goal("memory after the requests", MEMORY, most=50, form="{:.0f} MB"),
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
LOADS = {
    "signed GET": "read",
    "signed GET, 256 connections": "wide",
    "signed GET, cold": "cold read",
    "signed creation": "create",
    "signed quote": "quote",
    "signed list of 20": "list",
    "signed list of 20, cold": "cold list",
    "local payment": "pay",
    "local payment beside 32 readers": "pay beside",
    "local payment, fresh server": "fresh pay",
    "signed creation, fresh server": "fresh create",
    "packet": "packet",
    "one local payment alone": "pay alone",
    "payment to another server": "remote",
}
SERVERS = {
    "payres": "payres",
    "bare": "bare",
    "grown": "payres, {:,} payments",
    "webhook": "payres, a webhook",
    "undelivered": "payres, 10,000 undelivered events",
}
# Requests, packets or payments per second; microseconds of processor time for each; milliseconds until the answer.
FORMS = {"rate": "{:,.0f} /s", "processor": "{:,.0f} µs", "p50": "{:.1f} ms", "p99": "{:.1f} ms"}
# Measured once, by the same requests and on a machine of the same kind.
RAFIKI = {"signed GET": "141 /s", "signed creation": "92 /s", "signed list of 20": "73 /s", "local payment": "12 /s"}
RAFIKI_MEMORY = "684 MB in 31 processes"


def report(figures: Figures, before: Figures | None = None) -> str:
    """The goals, the same on the large database, and what was measured, with the changes since an earlier run."""
    head = ("goal", "now", "by rate", "", *(("change",) if before is not None else ()))
    large = f"on {figures.payments:,} payments / on 10,000"
    measured = [
        (title, SERVERS[side].format(figures.payments), *_cells(of, side, figures, before))
        for title, of in LOADS.items()
        for side in figures.rounds[of]
    ]
    return "\n\n".join(
        [
            f"The machine of these tables: {figures.machine}.",
            table(("figure", *head), [_judged(goal, figures, before) for goal in GOALS]),
            table((large, *head), [_judged(goal, figures, before) for goal in GROWTH]),
            table(("", "server", "rate", "processor time", "p50", "p99"), measured),
        ]
    )


def beside_rafiki(figures: Figures) -> str:
    """The small table of the README."""
    rows = [(title, rate, next(_cells(LOADS[title], "payres", figures))) for title, rate in RAFIKI.items()]
    rows.append(("memory", RAFIKI_MEMORY, f"{median(figures.of(MEMORY)):.0f} MB in one process"))
    return table(("", "Rafiki", "payres"), rows)


def _judged(goal: Goal, figures: Figures, before: Figures | None) -> Sequence[str]:
    found = figures.of(goal.of, goal.over)
    now = median(found)
    spread = f" ({min(found):.2f} to {max(found):.2f})" if goal.over is not None and len(found) > 1 else ""
    word, bound = ("at least", goal.least) if goal.most is None else ("at most", goal.most)
    is_met = now >= (goal.least or 0) and (goal.most is None or now <= goal.most)
    rates = "" if goal.rates is None else f"{median(figures.of(*goal.rates)):.2f}"
    verdict = "" if figures.quick else "met" if is_met else "MISSED"
    row = (goal.title, f"{word} {goal.form.format(bound)}", goal.form.format(now) + spread, rates, verdict)
    return row if before is None else (*row, _change(found, before.of(goal.of, goal.over)))


def _cells(measure: str, side: str, figures: Figures, before: Figures | None = None) -> Iterator[str]:
    """One for each form."""
    for quantity, form in FORMS.items():
        found = figures.of(Series(measure, side, quantity))
        change = "" if before is None else _change(found, before.of(Series(measure, side, quantity)))
        yield form.format(median(found)) + (f" ({change})" if change else "") if found else ""


def _change(now: Sequence[float], before: Sequence[float]) -> str:
    return f"{median(now) / median(before) - 1:+.0%}" if now and before else ""


def put_into(file: Path, text: str) -> None:
    """Puts the text where the page has its figures: between two comments."""
    before, mark, rest = file.read_text(encoding="utf-8").partition("<!-- figures -->\n")
    _, end, after = rest.partition("<!-- end of figures -->")
    if not end:
        raise ValueError(f"{file} has no place for figures")
    file.write_text(f"{before}{mark}{text}\n{end}{after}", encoding="utf-8")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(head, *rows, strict=True)]
    lines = [head, ["-" * width for width in widths], *rows]
    cells = ([cell.ljust(width) for cell, width in zip(line, widths, strict=True)] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)
