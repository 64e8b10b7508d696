"""Summary at the end of a demo: the measurements, each with an explanation."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator

from rota.cli import output
from rota.cli.demo import tasks
from rota.cli.demo.counters import DemoCounters, WorkerKill
from rota.cli.output import format_count, format_duration
from rota.model.text import counted

SummaryLine = tuple[str, str, str]
"""Name, value and explanation."""


def summary_lines(counters: DemoCounters) -> Iterator[SummaryLine]:
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
