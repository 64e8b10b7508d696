"""Waits and progress of a job, as text and as a bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rota.cli import output
from rota.model.text import single_line

if TYPE_CHECKING:
    from rota.store.read.job_detail import JobProgressRow
    from rota.store.read.runs import JobRow, RunRow

BAR_WIDTH = 20
"""Width of a full bar in characters."""

FINAL_STATES = ("succeeded", "failed", "cancelled", "expired", "skipped")


def wait_summary(row: RunRow | JobRow, now: datetime) -> str:
    """Return a short text with waits and progress for a list; empty for a job that has ended."""
    if row.state in FINAL_STATES:
        return ""
    words: list[str] = []
    if row.awaits:
        words.append(f"waits for {format_signals(row.awaits)}")
    if row.wakes is not None:
        words.append(f"until {format_short_time(row.wakes, now)}")
    if row.done is not None:
        words.append(format_progress(row.done, row.total))
    return ", ".join(words)


def format_signals(names: Sequence[str]) -> str:
    noun = "signal" if len(names) == 1 else "signals"
    return f"{noun} {' or '.join(map(repr, names))}"


def format_short_time(time: datetime, now: datetime) -> str:
    """Return a local time in its shortest form."""
    local = time.astimezone()
    if local.date() == now.astimezone().date():
        return local.strftime("%H:%M:%S")
    return local.strftime("%Y-%m-%d %H:%M")


def format_progress(done: float, total: float | None) -> str:
    """Return `40 %`, or only the amount done if there is no valid total."""
    fraction = _fraction(done, total)
    return f"{_format_amount(done)} done" if fraction is None else f"{math.floor(fraction * 100)} %"


def progress_bar(progress: JobProgressRow, now: datetime) -> str:
    """Return `████████░░░░░░░░░░░░ 40 %, 4 of 10, 3 s ago: a note`."""
    words = format_progress(progress.done, progress.total)
    fraction = _fraction(progress.done, progress.total)
    if fraction is not None and progress.total is not None:
        full, empty = ("█", "░") if output.can_encode("█░") else ("#", ".")
        length = math.floor(fraction * BAR_WIDTH)
        drawn = f"{full * length}{empty * (BAR_WIDTH - length)}"
        words = (
            f"{drawn} {words}, {_format_amount(progress.done)} of {_format_amount(progress.total)}"
        )
    words += f", {output.format_age(progress.at, now)} ago"
    return f"{words}: {single_line(progress.note)}" if progress.note else words


def _fraction(done: float, total: float | None) -> float | None:
    if total is None or not (math.isfinite(done) and math.isfinite(total)) or total <= 0:
        return None
    return min(max(done / total, 0.0), 1.0)


def _format_amount(value: float) -> str:
    return f"{value:,.0f}" if value.is_integer() else f"{value:,.6g}"
