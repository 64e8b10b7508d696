"""Rendering of a snapshot. Rows that do not fit are counted, and no colour is needed to read it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from rota.cli import output
from rota.cli.top.snapshot import QueueSnapshot, TopSnapshot
from rota.model.text import single_line
from rota.operations.workers import worker_state

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

    from rota.store.read.coordination import AlertRow
    from rota.store.read.runs import RunRow, WorkerDetailRow

BAR_WIDTH = 10
"""Width of a worker's load bar in characters."""

FIXED_LINES = 13
"""Lines besides table rows: title, totals, headings and separators."""

WIDE_TERMINAL_COLUMNS = 100
"""Terminal width from which less important columns are shown."""


class TopView:
    def __init__(self, snapshot: TopSnapshot, error_text: str = "", *, live: bool = True) -> None:
        self._snapshot = snapshot
        self._error_text = error_text
        self._live = live

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        is_wide = options.max_width >= WIDE_TERMINAL_COLUMNS
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
        yield _queues(busiest_queues[: line_counts[0]], is_wide)
        yield from _more_line(len(busiest_queues) - line_counts[0], "queue")
        yield ""
        yield _workers(busiest_workers[: line_counts[1]], snapshot, is_wide)
        yield from _more_line(len(busiest_workers) - line_counts[1], "worker")
        yield ""
        yield _runs(snapshot.runs[: line_counts[2]], snapshot.at)
        yield from _more_line(len(snapshot.runs) - line_counts[2], "run")

    def _title(self) -> RenderableType:
        from rich.table import Table

        if not self._live:
            title = output.cell("rota top", "bold")
            title.append(f"  {output.format_time(self._snapshot.at)}", "dim")
            return title
        grid = Table.grid(expand=True)
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
    return (
        [output.cell(f"… and {count} more {noun}{'s' if count > 1 else ''}", "dim")]
        if count
        else []
    )


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


def _queues(queues: Sequence[QueueSnapshot], is_wide: bool) -> Table:
    columns = ["queue", "queued", "oldest", "jobs/s", "failed/s", "mean wait", "workers"]
    if is_wide:
        columns.insert(5, "retried/s")
    grid = output.new_table(*columns, right=columns[1:], free=("queue",))
    for each in queues:
        is_unserved = each.workers == 0
        cells = {
            "queue": output.cell(each.queue),
            "queued": output.cell(
                f"{'' if each.is_exact else '~'}{output.format_count(each.queued)}"
            ),
            "oldest": output.cell(output.format_duration(each.oldest) if each.queued else ""),
            "jobs/s": output.cell(_format_rate(each.ended_rate)),
            "failed/s": output.cell(
                _format_rate(each.failed_rate), "red" if each.failed_rate else "dim"
            ),
            "retried/s": output.cell(
                _format_rate(each.retried_rate), "yellow" if each.retried_rate else "dim"
            ),
            "mean wait": output.cell(output.format_duration(each.mean_wait)),
            "workers": output.cell("paused", "yellow")
            if each.paused
            else output.cell(
                each.workers or "none", "bold red" if is_unserved and each.queued else ""
            ),
        }
        grid.add_row(*(cells[name] for name in columns))
    return grid


def _workers(workers: Sequence[WorkerDetailRow], snapshot: TopSnapshot, is_wide: bool) -> Table:
    columns = ["worker", "state", "host", "process", "load", "running", "heartbeat", "lag"]
    if is_wide:
        columns += ["version", "queues"]
    grid = output.new_table(
        *columns,
        right=("worker", "process", "running", "heartbeat", "lag"),
        free=("host", "version", "queues"),
    )
    for each in workers:
        state = worker_state(each, snapshot.at, snapshot.dead_after)
        style = {"active": "green", "draining": "cyan", "silent": "bold yellow"}.get(state, "")
        cells = {
            "worker": output.cell(each.worker),
            "state": output.cell(state, style),
            "host": output.cell(each.host),
            "process": output.cell(each.pid),
            "load": _bar(each.running, each.capacity),
            "running": output.cell(f"{each.running}/{each.capacity}"),
            "heartbeat": output.cell(output.format_age(each.last_beat, snapshot.at)),
            "lag": output.cell(
                output.format_duration(each.lag) if each.lag >= 0.1 else "", "yellow"
            ),
            "version": output.cell(each.version),
            "queues": output.cell(", ".join(each.queues), "dim"),
        }
        grid.add_row(*(cells[name] for name in columns))
    if not workers:
        grid.add_row("", output.cell("no worker is running", "yellow"))
    return grid


def _bar(done: int, total: int) -> Text:
    full = round(BAR_WIDTH * min(done / total, 1)) if total else 0
    full = max(full, 1) if done else 0
    bar = output.cell("■" * full, "cyan")
    bar.append("·" * (BAR_WIDTH - full), "dim")
    return bar


def _runs(runs: Sequence[RunRow], now: datetime) -> Table:
    grid = output.new_table(
        "run",
        "name",
        "worker",
        "age",
        "progress",
        right=("run", "worker", "age"),
        free=("name", "progress"),
    )
    for each in runs:
        name = f"{each.name} (flow)" if each.is_flow else each.name
        progress = ""
        if each.done is not None:
            total = f" of {each.total:g}" if each.total else ""
            progress = f"{each.done:g}{total} {each.note or ''}"
        grid.add_row(
            output.cell(each.run),
            output.cell(name),
            output.cell(each.worker),
            output.cell(output.format_age(each.since, now)),
            output.cell(single_line(progress), "dim"),
        )
    if not runs:
        grid.add_row("", output.cell("nothing runs", "dim"))
    return grid


def _format_rate(value: float) -> str:
    if value >= 100:
        return output.format_count(round(value))
    return f"{value:.1f}" if value >= 0.05 else "0"
