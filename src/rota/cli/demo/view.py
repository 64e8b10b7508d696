"""Rendering of a demo, and the summary at its end: measurements, each with an explanation.

The view needs at most 80 columns and 24 lines, and no colour.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal

from rota.cli import output
from rota.cli.demo import tasks
from rota.cli.demo.state import DemoCounters, DemoState, DemoWorker, ProgressRow, WorkerKill
from rota.cli.output import format_count, format_duration
from rota.model.text import counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

BAR_WIDTH = 20
NAME_WIDTH = 15
COUNT_WIDTH = 8
STYLES = {"active": "green", "stopping": "cyan", "killed": "bold red", "stopped": "dim"}
MAX_WORKERS = 3


class DemoView:
    """View that renders the current state each time it is drawn."""

    def __init__(self, state: DemoState) -> None:
        self._state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        state = self._state
        time = "" if state.began is None else f"{state.shown_seconds:.0f} of {state.seconds:g} s · "
        title = output.cell("Rota demo", "bold")
        title.append(f"{time}Ctrl-C ends it".rjust(options.max_width - len(title)), "dim")
        yield ""
        yield title
        yield from _addresses(state)
        yield ""
        if state.began is None:
            yield output.cell(f"  {state.setup_step} …\n", "dim")
            return
        yield _progress_table(state.progress_rows)
        yield ""
        yield _worker_table(state.workers)
        yield ""
        events = _grid(-6)
        for each in state.events:
            seconds = output.cell(f"{each.seconds:.0f} s", "dim")
            events.add_row(seconds, output.cell(each.text, each.style))
        yield events


def _addresses(state: DemoState) -> list[Text]:
    found = []
    for name, url in (("dashboard", state.dashboard_url), ("a running flow", state.flow_url)):
        if url is not None:
            found.append(output.cell(f"  {name:<{NAME_WIDTH}} "))
            found[-1].append(url, f"bold cyan underline link {url}")
    return found


def _grid(*widths: int) -> Table:
    """Return a grid of fixed-width columns, right-aligned if negative, and a last one for the rest."""
    from rich.table import Table

    grid = Table.grid(expand=True, padding=(0, 1, 0, 0))
    for each in widths:
        width = abs(each)
        justify: Literal["left", "right"] = "right" if each < 0 else "left"
        grid.add_column(width=width, min_width=width, justify=justify, no_wrap=True)
    grid.add_column(no_wrap=True, overflow="ellipsis", ratio=1)
    return grid


def _progress_table(rows: list[ProgressRow]) -> Table:
    from rich.progress_bar import ProgressBar

    grid = _grid(NAME_WIDTH + 2, BAR_WIDTH, -COUNT_WIDTH)
    for row in rows:
        bar: RenderableType = ""
        if row.total:
            bar = ProgressBar(
                total=row.total,
                completed=row.done,
                width=BAR_WIDTH,
                style="bright_black",
                complete_style="cyan",
                finished_style="green",
            )
        name = output.cell(f"  {row.name}")
        grid.add_row(name, bar, output.cell(row.count), output.cell(row.text, "dim"))
    return grid


def _worker_table(workers: list[DemoWorker]) -> Table:
    grid = _grid(8, -8, 9, -6)
    heads = ("  worker", "process", "", "jobs", "")
    grid.add_row(*(output.cell(head, "dim") for head in heads))
    for worker in workers[-MAX_WORKERS:]:
        has_ended = worker.state in ("killed", "stopped")
        grid.add_row(
            output.cell(f"  {worker.worker}", "dim" if has_ended else ""),
            output.cell(worker.pid, "dim" if has_ended else ""),
            output.cell(f" {worker.state}", STYLES[worker.state]),
            output.cell(output.format_count(worker.held) if worker.held or not has_ended else ""),
            output.cell(worker.text, "dim"),
        )
    return grid


# Summary

SummaryLine = tuple[str, str, str]
"""Name, value and explanation."""


def summary_lines(counters: DemoCounters) -> Iterator[SummaryLine]:
    yield from _job_lines(counters)
    if states := Counter(counters.flow_states.values()):
        words = ", ".join(f"{count} {state}" for state, count in states.items())
        words = f"etl: {words}; {counters.approved} approved by a signal"
        yield "flows", str(states.total()), words
    if counters.kill is not None:
        yield from _kill_lines(counters.kill)
    if counters.monitor_iterations:
        words = f"one every {tasks.MONITOR_SECONDS:g} s, on one worker at a time"
        yield "monitor", f"{format_count(counters.monitor_iterations)} iterations", words
    if counters.ticks:
        twice, missed = counters.duplicate_ticks or "none", counters.missed_ticks or "none"
        words = f"one every {tasks.HALTS_SECONDS:g} s, {twice} of them twice, {missed} missed"
        yield "ticks", format_count(counters.ticks), words


def _job_lines(counters: DemoCounters) -> Iterator[SummaryLine]:
    if counters.ended_jobs:
        words = f"ended in {format_duration(counters.duration)}, each recorded once"
        others = {**counters.job_states, "succeeded": 0}
        failures = ", ".join(
            f"{format_count(jobs)} {state}" for state, jobs in others.items() if jobs
        )
        yield (
            "jobs",
            format_count(counters.ended_jobs),
            f"{words}; {failures}" if failures else words,
        )
    if counters.max_rate:
        start_rate = _round(len(counters.wave_runs) / counters.start_seconds)
        words = "the fastest wave of jobs that do nothing, without retried ones; started at"
        yield "speed", f"{_round(counters.max_rate)} jobs/s", f"{words} {start_rate} jobs/s"
    if counters.open_jobs:
        words = "of these jobs had not ended when the demo stopped"
        yield "open", format_count(counters.open_jobs), words
    if counters.latencies:
        slowest = format_duration(max(counters.latencies))
        yield (
            "latency",
            format_duration(statistics.median(counters.latencies)),
            f"median from start to result, one at a time; the slowest of {len(counters.latencies)} took "
            f"{slowest}",
        )
    if counters.retries:
        yield "retries", format_count(counters.retries), "attempts failed and were retried"


def _kill_lines(kill: WorkerKill) -> Iterator[SummaryLine]:
    held = counted(kill.held_jobs, "job")
    if kill.detected is None:
        yield "killed", "1 worker", f"with {held}; the demo stopped before its death was detected"
        return
    detected = f"with {held}; detected after {format_duration(kill.detected)}"
    yield "killed", "1 worker", f"worker {kill.worker}, {detected}"
    if kill.recovered is not None:
        workers = " and ".join(f"worker {each}" for each in kill.finished_by) or "no other worker"
        failed = kill.held_jobs - kill.succeeded
        words = f"{failed} did not succeed" if failed else "all succeeded"
        words = f"after the kill all its jobs had ended, on {workers}; {words}"
        yield "recovered", format_duration(kill.recovered), words
    if kill.monitor_moved is not None:
        words = "after the kill the monitor ran on another worker"
        yield "taken over", format_duration(kill.monitor_moved), words


def _round(speed: float) -> str:
    return format_count(int(round(speed, -2 if speed > 2000 else 0)))


def print_summary(counters: DemoCounters) -> None:
    grid = output.new_table("", "", "explanation", free=("explanation",))
    grid.show_header = False
    for name, value, explanation in summary_lines(counters):
        note = output.cell(explanation, "dim")
        note.no_wrap = False
        grid.add_row(output.cell(name, "dim"), output.cell(value), note)
    if grid.row_count:
        output.print_renderable(grid)
        output.hint(f"the app of the demo: {tasks.__file__}; run your own: rota dev MODULE:APP")
    else:
        output.print_text("the demo stopped before the first measurement")
