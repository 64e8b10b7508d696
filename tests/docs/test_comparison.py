"""The benchmark table of the comparison agrees with the repository's results, misses included."""

from __future__ import annotations

import re

from .pages import DOCS, ROOT

RESULTS = ROOT / "benchmarks" / "results"
PAGE = (DOCS / "comparison.md").read_text("utf-8")
ROWS = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| (.+?) \| (2026-[\w-]+) \|$", PAGE, re.MULTILINE)


def test_every_row_is_one_of_the_run_it_names() -> None:
    assert len(ROWS) > 12
    for what, measured, bar, verdict, run in ROWS:
        result = (RESULTS / f"{run}.md").read_text("utf-8")
        row = re.search(
            rf"^\| {re.escape(what)} \| (.+?) \| .+? \| (.+?) \| .+? \| (\w+) \|$",
            result,
            re.MULTILINE,
        )
        assert row, f"{what} is not in {run}"
        assert (measured, bar, verdict.strip("*")) == (row[1], row[2], row[3]), what


def test_no_newer_run_says_otherwise_and_is_kept_quiet() -> None:
    """A verdict in the table is that of the newest full run."""
    told = {what: run for what, _, _, _, run in ROWS}
    for path in sorted(RESULTS.glob("*.md")):
        if "quick" in path.stem:
            continue  # a run with reduced numbers, which is not kept
        for what in re.findall(
            r"^\| (.+?) \| .+ \| (?:pass|beyond|MISS) \|$", path.read_text("utf-8"), re.MULTILINE
        ):
            if what in told:
                assert order(path.stem) <= order(told[what]), f"{what}: {path.stem} is newer"


def order(run: str) -> tuple[str, int]:
    day, number = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:-(\d+))?", run).groups()  # type: ignore[union-attr]
    return day, int(number or 1)


def test_figures_in_the_text_are_in_the_runs_too() -> None:
    for figure, run in (
        ("83,205", "2026-11-17"),
        ("53,878", "2026-11-17"),
        ("9,925", "2026-11-15-2"),
        ("11,888", "2026-11-16-2"),
        ("848", "2026-11-16-2"),
        ("130", "2026-11-16-2"),
    ):
        assert figure in PAGE
        assert f"{figure} " in (RESULTS / f"{run}.md").read_text("utf-8")


def test_the_page_says_when_it_was_written_and_what_was_read() -> None:
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
