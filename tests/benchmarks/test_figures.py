"""Figures as they are kept, compared and written down."""

from pathlib import Path

import pytest

from benchmarks.figures import GOALS, GROWTH, LOADS, Figures, Series, last_before, load, put_into, report, store


def figures(taken: str = "20260102T030405Z", node: str = "here", factor: float = 1, quick: bool = False) -> Figures:
    """A run of two rounds in which every figure is 100, and those of the small payres so many times that."""
    run = Figures(taken, node, "2 cores", quick, 10_000_000)
    measured = {Series(measure, "payres", "rate") for measure in LOADS.values()}
    for goal in (*GOALS, *GROWTH):
        measured |= {goal.of, *([goal.over] if goal.over else []), *(goal.rates or ())}
    for series in measured:
        for _ in range(2):
            run.add(series, 100 * (factor if series.side == "payres" else 1))
    return run


def cells(text: str, title: str) -> list[str]:
    """The cells of the first row that begins with the title."""
    row = next(line for line in text.splitlines() if line.startswith(f"| {title} "))
    return [cell.strip() for cell in row[1:-1].split(" | ")]


@pytest.mark.parametrize(
    ("title", "factor", "expected"),
    [
        ("signed GET: share of a bare GET", 1.25, ["at least 0.75", "0.80 (0.80 to 0.80)", "1.25", "met"]),
        ("signed GET: share of a bare GET", 1.50, ["at least 0.75", "0.67 (0.67 to 0.67)", "1.50", "MISSED"]),
        ("signed creation", 0.80, ["at most 1.20", "1.25 (1.25 to 1.25)", "0.80", "MISSED"]),
        ("signed creation", 1.00, ["at most 1.20", "1.00 (1.00 to 1.00)", "1.00", "met"]),
    ],
    ids=["share met", "share missed", "growth missed", "growth met"],
)
def test_goals_are_of_processor_time_with_rates_beside(title: str, factor: float, expected: list[str]) -> None:
    assert cells(report(figures(factor=factor)), title)[1:] == expected


def test_quick_run_judges_nothing() -> None:
    text = report(figures(quick=True))
    assert "MISSED" not in text
    assert cells(text, "memory after the requests")[-1] == ""


def test_changes_are_those_since_the_run_before() -> None:
    text = report(figures(factor=1.1), figures())
    assert cells(text, "payments to another server")[-1] == "+10%"
    assert cells(text, "local payment beside 32 readers")[2] == "110 /s (+10%)"


def test_last_run_is_the_latest_of_the_same_machine_and_kind(tmp_path: Path) -> None:
    now = figures("20260102T030405Z")
    kept = [
        figures("20260101T000000Z"),
        figures("20260101T000001Z", factor=2),
        figures("20260101T000002Z", node="elsewhere"),
        figures("20260101T000003Z", quick=True),
        now,
    ]
    files = [store(tmp_path, run) for run in kept]
    assert load(files[1]) == kept[1]
    assert last_before(tmp_path, now) == kept[1]
    files[1].write_text('{"of": "another version"}')
    assert last_before(tmp_path, now) == kept[0]
    files[0].unlink()
    assert last_before(tmp_path, now) is None


def test_page_has_one_place_for_figures(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Figures\n")
    with pytest.raises(ValueError, match="no place for figures"):
        put_into(page, "| a table |")
    page.write_text("# Figures\n<!-- figures -->\n| old |\n<!-- end of figures -->\nafter\n")
    put_into(page, "| another |\n| table |")
    assert page.read_text() == "# Figures\n<!-- figures -->\n| another |\n| table |\n<!-- end of figures -->\nafter\n"
