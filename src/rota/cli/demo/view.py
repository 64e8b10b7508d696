"""Display of a demo, and the summary at its end: measurements, each with an explanation.

The display needs at most 80 columns and no colour.
"""

from __future__ import annotations

import statistics
import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rota.cli import output
from rota.cli.demo import tasks
from rota.cli.demo.state import DemoCounters, DemoState, WorkerKill
from rota.cli.output import format_count, format_duration
from rota.model.text import counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


class DemoView:
    """Lines below the events: they show the current state each time they are drawn."""

    def __init__(self, state: DemoState) -> None:
        self._state = state

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        state = self._state
        if state.began is None:
            elapsed = time.monotonic() - state.step_began
            yield output.cell(f"  {elapsed:.0f} s · Ctrl-C ends it", "dim")
            return
        elapsed = min(time.monotonic() - state.began, state.seconds)
        yield ""
        yield output.cell(f"  {elapsed:.0f} of {state.seconds:g} s · Ctrl-C ends it", "bold")
        for name, text in state.rows.items():
            line = output.cell(f"  {name:<16} ")
            line.append_text(output.cell(text, "dim"))
            yield line


def print_line(console: Console, text: str, style: str) -> None:
    """Print a line above the view, wrapped if the terminal is narrow."""
    console.print(output.wrapped_cell(text, style))


# Summary

SummaryLine = tuple[str, str, str]
"""Name, value and explanation."""


def summary_lines(counters: DemoCounters) -> Iterator[SummaryLine]:
    yield from _job_lines(counters)
    if states := Counter(counters.flow_states):
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
    if ended := sum(counters.job_states.values()):
        words = f"ended in {format_duration(counters.duration)}, each recorded once"
        others = {**counters.job_states, "succeeded": 0}
        failures = ", ".join(f"{format_count(n)} {state}" for state, n in others.items() if n)
        yield "jobs", format_count(ended), f"{words}; {failures}" if failures else words
    if rates := counters.wave_rates:
        started = round_rate(len(counters.wave_runs) / counters.start_seconds)
        words = (
            f"median of {counted(len(rates), 'wave')} of jobs that do nothing, without retried ones"
        )
        words = f"{words}, on {counters.machine}; started at {started} jobs/s"
        yield "speed", f"{round_rate(statistics.median(rates))} jobs/s", words
    if counters.open_jobs:
        words = "of these jobs had not ended when the demo stopped"
        yield "open", format_count(counters.open_jobs), words
    if latencies := counters.latencies:
        slowest = f"the slowest of {len(latencies)} took {format_duration(max(latencies))}"
        words = f"median from start to result, one at a time; {slowest}"
        yield "latency", format_duration(statistics.median(latencies)), words
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


def round_rate(speed: float) -> str:
    return format_count(int(round(speed, -2 if speed > 2000 else 0)))


def print_summary(counters: DemoCounters) -> None:
    grid = output.new_table("", "", "explanation", free=("explanation",))
    grid.show_header = False
    for name, value, explanation in summary_lines(counters):
        note = output.cell(explanation, "dim")
        note.no_wrap = False
        grid.add_row(output.cell(name, "dim"), output.cell(value), note)
    output.console().print()
    if grid.row_count:
        output.print_renderable(grid)
        output.hint(f"the app of the demo: {tasks.__file__}; run your own: rota dev MODULE:APP")
    else:
        output.print_text("the demo stopped before the first measurement")
