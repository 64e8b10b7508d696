"""The benchmark table of the comparison agrees with the repository's results, misses included."""

from __future__ import annotations

import re

from support.places import DOCS, ROOT

PAGE = (DOCS / "comparison.md").read_text("utf-8")
RESULTS = (ROOT / "benchmarks" / "RESULTS.md").read_text("utf-8")
VERDICT = r"\**(pass|beyond|MISS)\** \|$"

DOCUMENTED = {
    budget: (measured, bar, verdict)
    for budget, measured, bar, verdict in re.findall(
        rf"^\| (.+?) \| (.+?) \| (.+?) \| {VERDICT}", PAGE, re.MULTILINE
    )
}
MEASURED = {
    budget: (measured, bar, verdict)
    for budget, measured, bar, verdict in re.findall(
        rf"^\| (.+?) \| (.+?) \| .+? \| (.+?) \| .+? \| {VERDICT}", RESULTS, re.MULTILINE
    )
}
"""Budget → measured value, bar and verdict; of several measurements the last."""


def test_comparison_rows_are_the_last_measurements() -> None:
    assert len(DOCUMENTED) > 12
    assert {budget: MEASURED.get(budget) for budget in DOCUMENTED} == DOCUMENTED


def test_comparison_names_every_missed_bar() -> None:
    missed = {budget for budget, (_, _, verdict) in MEASURED.items() if verdict == "MISS"}
    assert missed <= DOCUMENTED.keys()


def test_comparison_figures_in_the_text_are_measured() -> None:
    for figure in ("83,205", "53,878", "11,888", "848", "130"):
        assert f" {figure} " in PAGE.replace(",\n", ", ").replace(", ", " , ")
        assert f" {figure} " in RESULTS


def test_comparison_has_its_date_and_compared_projects() -> None:
    assert "As of November 2026" in PAGE
    for name in (
        "DBOS",
        "Hatchet",
        "Absurd",
        "db-scheduler",
        "River",
        "Oban",
        "procrastinate",
        "pgqueuer",
    ):
        assert PAGE.count(name) > 2
