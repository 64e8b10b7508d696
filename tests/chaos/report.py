"""Output: a line while it runs and a table at the end."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from .liveness import percentile

if TYPE_CHECKING:
    from .phase_run import Result

_last = [-100.0]
EVERY = 10.0
"""Seconds between lines if standard error is not a terminal."""


def print_progress(phase: str, seconds: float, figures: Mapping[str, int]) -> None:
    text = " ".join(f"{name} {count}" for name, count in figures.items())
    line = f"{phase:8} {seconds:5.0f} s  {text}"
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)
    elif seconds < _last[0] or seconds - _last[0] >= EVERY:
        _last[0] = seconds
        print(line, file=sys.stderr, flush=True)


def table(results: Sequence[Result]) -> str:
    lines = []
    for result in results:
        figures = ", ".join(f"{name} {count}" for name, count in result.counts.items() if count)
        lines.append(f"{result.phase:8} seed {result.seed}: {figures}")
        if result.first:
            lines.append(
                f"{'':8} kill to running elsewhere: p50 {percentile(result.first, 50):.2f} s, "
                f"p99 {percentile(result.first, 99):.2f} s; each job: "
                f"p50 {percentile(result.each, 50):.2f} s, p99 {percentile(result.each, 99):.2f} s"
            )
        lines.append(f"{'':8} quiet after {result.quiet:.1f} s")
        for text in result.void:
            lines.append(f"{'':8} VOID, not seen often enough: {text}")
        for violation in result.violations[:20]:
            lines.append(f"{'':8} VIOLATED {violation}")
        if len(result.violations) > 20:
            lines.append(f"{'':8} … and {len(result.violations) - 20} more")
        if not result.passed:
            lines.append(f"{'':8} histories: {result.directory}")
    return "\n".join(lines)


def format_totals(results: Sequence[Result]) -> str:
    total: dict[str, int] = {}
    for result in results:
        for name, count in result.counts.items():
            total[name] = total.get(name, 0) + count
    violations = sum(len(result.violations) for result in results)
    names = ("jobs", "kills", "freezes", "stale", "crashes", "outages", "cuts", "drains", "reaps")
    figures = ", ".join(f"{total.get(name, 0)} {name}" for name in names)
    return f"{figures}: {violations} violations"
