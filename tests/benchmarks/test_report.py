"""Figures as they are kept, compared and written down."""

import re
from pathlib import Path

import pytest

from benchmarks.figures import Figures, Series, last_before, load, store
from benchmarks.goals import GOALS, GROWTH
from benchmarks.report import LOADS, Report, write_page
from tests.helpers import ROOT


def figures(taken: str = "20260102T030405Z", node: str = "here", factor: float = 1, quick: bool = False) -> Figures:
    """A run of two rounds in which every figure is 100, and those of the small payres so many times that."""
    run = Figures(taken, node, "2 cores", quick, 10_000_000)
    measured = {Series(measure, "payres", "rate") for _, measure in LOADS}
    for goal in (*GOALS, *GROWTH):
        measured |= {goal.of, *([goal.over] if goal.over else []), *(goal.rates or ())}
    for series in measured:
        for _ in range(2):
            run.add(series.measure, series.side, series.quantity, 100 * (factor if series.side == "payres" else 1))
    return run


def goals(report: Report) -> str:
    return report.text().split("\n\n")[1]


def growth(report: Report) -> str:
    return report.text().split("\n\n")[2]


def measured(report: Report) -> str:
    return report.text().split("\n\n")[3]


def cells(table: str, title: str) -> list[str]:
    """The cells of the one row that begins with the title."""
    (row,) = (line for line in table.splitlines() if line.startswith(f"| {title} "))
    return [cell.strip() for cell in row[1:-1].split(" | ")]


@pytest.mark.parametrize(
    ("factor", "expected"),
    [
        (1.25, ["at least 0.75", "0.80 (0.80 to 0.80)", "1.25", "met"]),
        (1.50, ["at least 0.75", "0.67 (0.67 to 0.67)", "1.50", "MISSED"]),
    ],
)
def test_share_is_of_processor_time_with_rates_beside(factor: float, expected: list[str]) -> None:
    assert cells(goals(Report(figures(factor=factor))), "signed GET: share of a bare GET")[1:] == expected


@pytest.mark.parametrize(("factor", "verdict"), [(0.8, "MISSED"), (1, "met")])
def test_growth_is_of_what_the_same_takes_on_the_small_database(factor: float, verdict: str) -> None:
    row = cells(growth(Report(figures(factor=factor))), "signed creation")
    assert row[1:] == [
        "at most 1.20",
        f"{1 / factor:.2f} ({1 / factor:.2f} to {1 / factor:.2f})",
        f"{factor:.2f}",
        verdict,
    ]


def test_quick_run_judges_nothing() -> None:
    report = Report(figures(quick=True))
    assert "MISSED" not in report.text()
    assert cells(goals(report), "memory after the requests")[-1] == ""


def test_changes_are_those_since_the_run_before() -> None:
    report = Report(figures(factor=1.1), figures())
    assert cells(goals(report), "payments to another server")[-1] == "+10%"
    assert cells(measured(report), "local payment beside 32 readers")[2] == "110 /s (+10%)"
    assert "(+10%)" not in Report(figures(factor=1.1)).text()


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


@pytest.mark.parametrize("name", ["benchmarks/figures.md", "README.md"])
def test_pages_have_a_place_for_figures(name: str, tmp_path: Path) -> None:
    page, copy = ROOT / name, tmp_path / "page.md"
    copy.write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
    write_page(copy, "| a table |")
    write_page(copy, "| another |\n| table |")
    before, after = re.split(
        r"(?s)(?<=<!-- figures -->\n).*(?=<!-- end of figures -->)", page.read_text(encoding="utf-8")
    )
    assert copy.read_text(encoding="utf-8") == f"{before}| another |\n| table |\n{after}"


def test_page_without_a_place_is_an_error(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Figures\n")
    with pytest.raises(ValueError, match="no place for figures"):
        write_page(page, "| a table |")


def test_readme_compares_what_was_measured_of_both() -> None:
    table = Report(figures()).beside_rafiki()
    assert cells(table, "signed GET") == ["signed GET", "141 /s", "100 /s"]
    assert cells(table, "memory") == ["memory", "684 MB in 31 processes", "100 MB in one process"]
