"""Report of the figures: a table for the terminal, Markdown and JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console
from rich.table import Table

from benchmarks.findings import Bar, Findings, Verdict
from benchmarks.places import PARTIAL_RESULTS, RESULTS

COLOURS = {"beyond": "bold green", "pass": "green", "MISS": "bold red"}
Rows = list[tuple[str, ...]]
FIGURES = ("workload", "system", "median", "rounds")
VERDICTS = ("budget", "measured", "rounds", "bar", "beyond", "verdict")


@dataclass(frozen=True)
class Report:
    machine: Mapping[str, str]
    versions: Mapping[str, str]
    findings: Sequence[Findings]
    remarks: Sequence[str]

    def show(self, console: Console) -> None:
        for found in self.findings:
            console.print(_table(found.title, FIGURES, _figures(found)))
            for note in found.notes:
                console.print(f"  {note}")
        console.print(_table("Budgets", VERDICTS, self._verdicts()))
        for remark in self.remarks:
            console.print(remark)

    def write(self, *, full: bool) -> Path:
        """Write the figures; return the Markdown file.

        A full run replaces RESULTS.md. Other runs are stored below .bench/, by time, as Markdown and JSON.
        """
        now = datetime.now(UTC)
        page = RESULTS
        if not full:
            PARTIAL_RESULTS.mkdir(parents=True, exist_ok=True)
            page = PARTIAL_RESULTS / f"{now:%Y-%m-%d-%H%M%S}.md"
            page.with_suffix(".json").write_text(json.dumps(self._data(), indent=1) + "\n")
        page.write_text(self._page(f"{now:%Y-%m-%d}"))
        return page

    def _verdicts(self) -> Rows:
        return [_verdict(verdict) for found in self.findings for verdict in found.verdicts]

    def _data(self) -> dict[str, object]:
        return {
            "machine": dict(self.machine),
            "versions": dict(self.versions),
            "remarks": list(self.remarks),
            "findings": [asdict(found) for found in self.findings],
            "verdicts": [
                {"budget": verdict.bar.what, "median": verdict.median, "verdict": verdict.word}
                for found in self.findings
                for verdict in found.verdicts
            ],
        }

    def _page(self, title: str) -> str:
        parts = [f"# Benchmarks of {title}", _facts("Machine", self.machine)]
        parts.append(_facts("Versions", self.versions))
        parts += [f"> {remark}" for remark in self.remarks]
        parts.append("## Budgets\n\n" + _markdown(VERDICTS, self._verdicts()))
        for found in self.findings:
            parts.append(f"## {found.title}\n\n" + _markdown(FIGURES, _figures(found)))
            parts += found.notes
        return "\n\n".join(parts) + "\n"


def _figures(found: Findings) -> Rows:
    return [
        (
            figure.what,
            figure.who,
            f"{_number(figure.median)} {figure.unit}",
            " ".join(map(_number, figure.rounds)),
        )
        for figure in found.figures
    ]


def _verdict(verdict: Verdict) -> tuple[str, ...]:
    bar = verdict.bar
    return (
        bar.what,
        f"{_number(verdict.median)} {bar.unit}",
        " ".join(map(_number, verdict.rounds)),
        _limit(bar, bar.bar),
        _limit(bar, bar.beyond),
        verdict.word,
    )


def _limit(bar: Bar, limit: float | None) -> str:
    return f"{'≥' if bar.more else '≤'} {_number(limit)}" if limit is not None else "–"


def _number(value: float) -> str:
    """Format with three significant digits; no more were measured."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def _table(title: str, head: Sequence[str], rows: Rows) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for name in head:
        table.add_column(name, justify="right" if name in ("median", "measured") else "left")
    for row in rows:
        table.add_row(*row, style=COLOURS.get(row[-1]))
    return table


def _markdown(head: Sequence[str], rows: Rows) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _facts(title: str, facts: Mapping[str, str]) -> str:
    return f"{title}: " + ", ".join(f"{name} {value}" for name, value in facts.items()) + "."
