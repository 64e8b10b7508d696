"""Rendering of a snapshot. Rows that do not fit are counted, and no colour is needed to read it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from rota.cli import output
from rota.cli.table import WIDE, Column, Table
from rota.cli.top.snapshot import QueueSnapshot, TopSnapshot
from rota.model.text import counted, single_line
from rota.operations.workers import worker_state

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

    from rota.store.read.coordination import AlertRow
    from rota.store.read.runs import RunRow, WorkerDetailRow

BAR_WIDTH = 10
"""Width of a worker's load bar in characters."""

FIXED_LINES = 13
"""Lines besides table rows: title, totals, headings and separators."""


class TopView:
    def __init__(self, snapshot: TopSnapshot, error_text: str = "", *, live: bool = True) -> None:
        self._snapshot = snapshot
        self._error_text = error_text
        self._live = live

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        snapshot = self._snapshot
        free_lines = (options.height or console.height) - FIXED_LINES if self._live else 1000
        alerts = snapshot.alerts[: max(min(len(snapshot.alerts), free_lines // 5), 1)]
        line_counts = _share_lines(
            free_lines - len(alerts),
            [len(snapshot.queues), len(snapshot.workers), len(snapshot.runs)],
        )
        busiest_queues = sorted(
            snapshot.queues, key=lambda each: (-each.queued, -each.ended_rate, each.queue)
        )
        busiest_workers = sorted(snapshot.workers, key=lambda each: (-each.running, each.worker))
        yield self._title()
        yield _totals(snapshot)
        if snapshot.alerts:
            yield ""
            yield from _alerts(alerts, sum(snapshot.totals.alerts.values()), snapshot.at)
        yield ""
        yield QUEUES.grid(busiest_queues[: line_counts[0]], snapshot.at, options.max_width)
        yield from _more_line(len(busiest_queues) - line_counts[0], "queue")
        yield ""
        shown_workers = [
            msgspec.structs.replace(
                each, state=worker_state(each, snapshot.at, snapshot.dead_after)
            )
            for each in busiest_workers[: line_counts[1]]
        ]
        yield WORKERS.grid(shown_workers, snapshot.at, options.max_width, "no worker is running")
        yield from _more_line(len(busiest_workers) - line_counts[1], "worker")
        yield ""
        shown_runs = snapshot.runs[: line_counts[2]]
        yield RUNS.grid(shown_runs, snapshot.at, options.max_width, "nothing runs")
        yield from _more_line(len(snapshot.runs) - line_counts[2], "run")

    def _title(self) -> RenderableType:
        from rich.table import Table as Grid

        if not self._live:
            title = output.cell("rota top", "bold")
            title.append(f"  {output.format_time(self._snapshot.at)}", "dim")
            return title
        grid = Grid.grid(expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, justify="right")
        right = output.cell(self._error_text, "bold red")
        if not self._error_text:
            clock = self._snapshot.at.astimezone().strftime("%H:%M:%S")
            right = output.cell(f"{clock} · q quits", "dim")
        grid.add_row(output.cell("rota top", "bold"), right)
        return grid


def _share_lines(available: int, needed: Sequence[int]) -> list[int]:
    """Divide lines among tables. No table gets more than it needs; the rest goes to the other ones."""
    shares = [0] * len(needed)
    remaining = max(available, len(needed))
    while remaining > 0 and any(share < need for share, need in zip(shares, needed, strict=True)):
        for index, need in enumerate(needed):
            if remaining > 0 and shares[index] < need:
                shares[index] += 1
                remaining -= 1
    return shares


def _more_line(count: int, noun: str) -> list[RenderableType]:
    return [output.cell(f"… and {counted(count, f'more {noun}')}", "dim")] if count else []


def _totals(snapshot: TopSnapshot) -> Text:
    totals = snapshot.totals
    live_workers = sum(totals.workers.get(state, 0) for state in ("active", "draining", "silent"))
    queued = sum(each.queued for each in snapshot.queues)
    ended = sum(each.ended_rate for each in snapshot.queues)
    figures = [
        (output.format_count(live_workers), "worker" if live_workers == 1 else "workers", ""),
        (
            f"{output.format_count(totals.running)}/{output.format_count(totals.concurrency)}",
            "running",
            "",
        ),
        (output.format_count(queued), "queued", ""),
        (_format_rate(ended), "jobs/s", ""),
        (output.format_count(totals.sleeping), "sleeping", ""),
        (
            output.format_count(totals.quarantined),
            "quarantined",
            "magenta" if totals.quarantined else "",
        ),
    ]
    if dead := totals.workers.get("dead", 0):
        figures.append((output.format_count(dead), "dead", "red"))
    words = output.cell("")
    for figure, unit, style in figures:
        if words.plain:
            words.append(" · ", "dim")
        words.append(figure, style or "bold")
        words.append(f" {unit}", style or "dim")
    return words


def _alerts(alerts: Sequence[AlertRow], total: int, now: datetime) -> list[RenderableType]:
    rows: list[RenderableType] = []
    for each in alerts:
        is_acknowledged = each.acknowledged_until is not None
        line = output.cell("! ", "dim" if is_acknowledged else "bold red")
        line.append(single_line(each.message), "dim" if is_acknowledged else "")
        line.append(
            f"  {output.format_age(each.raised, now)}{', seen to' if is_acknowledged else ''}",
            "dim",
        )
        rows.append(line)
    return [*rows, *_more_line(total - len(rows), "alert")]


def _bar(done: int, total: int) -> Text:
    full = round(BAR_WIDTH * min(done / total, 1)) if total else 0
    full = max(full, 1) if done else 0
    bar = output.cell("■" * full, "cyan")
    bar.append("·" * (BAR_WIDTH - full), "dim")
    return bar


def _progress(run: RunRow, now: datetime) -> str:
    if run.done is None:
        return ""
    total = f" of {run.total:g}" if run.total else ""
    return single_line(f"{run.done:g}{total} {run.note or ''}")


def _format_rate(value: float) -> str:
    if value >= 100:
        return output.format_count(round(value))
    return f"{value:.1f}" if value >= 0.05 else "0"


def _workers_style(queue: QueueSnapshot) -> str:
    if queue.paused:
        return "yellow"
    return "bold red" if queue.workers == 0 and queue.queued else ""


QUEUES: Table[QueueSnapshot] = Table(
    Column("queue", lambda row, now: row.queue, shrinks=True),
    Column(
        "queued",
        lambda row, now: f"{'' if row.is_exact else '~'}{output.format_count(row.queued)}",
        right=True,
    ),
    Column(
        "oldest",
        lambda row, now: output.format_duration(row.oldest) if row.queued else "",
        right=True,
    ),
    Column("jobs/s", lambda row, now: _format_rate(row.ended_rate), right=True),
    Column(
        "failed/s",
        lambda row, now: _format_rate(row.failed_rate),
        lambda row: "red" if row.failed_rate else "dim",
        right=True,
    ),
    Column(
        "retried/s",
        lambda row, now: _format_rate(row.retried_rate),
        lambda row: "yellow" if row.retried_rate else "dim",
        right=True,
        from_width=WIDE,
    ),
    Column("mean wait", lambda row, now: output.format_duration(row.mean_wait), right=True),
    Column(
        "workers",
        lambda row, now: "paused" if row.paused else row.workers or "none",
        _workers_style,
        right=True,
    ),
)

WORKER_STYLES = {"active": "green", "draining": "cyan", "silent": "bold yellow"}
WORKERS: Table[WorkerDetailRow] = Table(
    Column("worker", lambda row, now: row.worker, right=True),
    Column("state", lambda row, now: row.state, lambda row: WORKER_STYLES.get(row.state, "")),
    Column("host", lambda row, now: row.host, shrinks=True),
    Column("process", lambda row, now: row.pid, right=True),
    Column("load", lambda row, now: _bar(row.running, row.capacity)),
    Column("running", lambda row, now: f"{row.running}/{row.capacity}", right=True),
    Column("heartbeat", lambda row, now: output.format_age(row.last_beat, now), right=True),
    Column(
        "lag",
        lambda row, now: output.format_duration(row.lag) if row.lag >= 0.1 else "",
        "yellow",
        right=True,
    ),
    Column("version", lambda row, now: row.version, shrinks=True, from_width=WIDE),
    Column("queues", lambda row, now: ", ".join(row.queues), "dim", shrinks=True, from_width=WIDE),
)

RUNS: Table[RunRow] = Table(
    Column("run", lambda row, now: row.run, right=True),
    Column(
        "name", lambda row, now: f"{row.name} (flow)" if row.is_flow else row.name, shrinks=True
    ),
    Column("worker", lambda row, now: row.worker, right=True),
    Column("age", lambda row, now: output.format_age(row.since, now), right=True),
    Column("progress", _progress, "dim", shrinks=True),
)
