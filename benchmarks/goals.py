"""What payres is held to: the goals, in the order of the page."""

from collections.abc import Sequence

import msgspec

from benchmarks.figures import Measure, Quantity, Series, Side


class Goal(msgspec.Struct, frozen=True):
    """A figure, or one divided by another, and the least or the most that it may be.

    `rates` are what to divide for the same ratio by requests per second.
    """

    title: str
    of: Series
    over: Series | None = None
    least: float | None = None
    most: float | None = None
    form: str = "{:.2f}"
    rates: tuple[Series, Series] | None = None

    def is_met(self, figure: float) -> bool:
        return (self.least is None or figure >= self.least) and (self.most is None or figure <= self.most)


def _ours(measure: Measure, quantity: Quantity) -> Series:
    return Series(measure, "payres", quantity)


def _share(title: str, ours: Measure, bare: Measure, least: float) -> Goal:
    """What the bare application takes / what payres takes, by processor time: other programs disturb that least."""
    of, over = Series(bare, "bare", "processor"), _ours(ours, "processor")
    return Goal(title, of, over, least=least, rates=(_ours(ours, "rate"), Series(bare, "bare", "rate")))


def _webhook(title: str, side: Side, measure: Measure) -> Goal:
    """What the same takes with a webhook, its deliveries included / without one."""
    of, over = Series(measure, side, "processor"), _ours(measure, "processor")
    return Goal(title, of, over, most=1.05, rates=(_ours(measure, "rate"), Series(measure, side, "rate")))


def _growth(title: str, measure: Measure, quantity: Quantity = "processor") -> Goal:
    """What the same takes on the large database / on the small one."""
    of, over = Series(measure, "grown", quantity), _ours(measure, quantity)
    rates = (_ours(measure, "rate"), Series(measure, "grown", "rate")) if quantity == "processor" else None
    return Goal(title, of, over, most=1.2, rates=rates)


GOALS: Sequence[Goal] = (
    _share("signed GET: share of a bare GET", "read", "read", 0.75),
    _share("signed creation: share of a bare creation", "create", "create", 0.62),
    _share("signed quote: share of a bare GET", "quote", "read", 0.55),
    _share("signed list of 20: share of a bare GET", "list", "read", 0.55),
    _share("local payment: share of a bare creation", "pay", "create", 0.33),
    _share("packet: share of a bare packet", "packet", "packet", 0.55),
    Goal("local payments beside 32 readers / alone", _ours("pay beside", "rate"), _ours("pay", "rate"), least=0.5),
    Goal("signed GETs over 256 connections / over 32", _ours("wide", "rate"), _ours("read", "rate"), least=0.9),
    _webhook("local payments with a webhook / without", "webhook", "fresh pay"),
    _webhook("signed creations with 10,000 undelivered events / without", "undelivered", "fresh create"),
    Goal("signed GETs: p99 / p50", _ours("read", "p99"), _ours("read", "p50"), most=3),
    Goal("signed creations: p99 / p50", _ours("create", "p99"), _ours("create", "p50"), most=3),
    Goal("one local payment alone: p50", _ours("pay alone", "p50"), most=5, form="{:.1f} ms"),
    Goal("payments to another server", _ours("remote", "rate"), least=250, form="{:,.0f} /s"),
    Goal("start-up to the first answer", _ours("start", "start"), most=0.35, form="{:.2f} s"),
    Goal("memory after the requests", _ours("memory", "memory"), most=50, form="{:.0f} MB"),
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
