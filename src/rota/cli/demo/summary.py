"""Summary at the end of a demo: the measurements, each with an explanation."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator

from rota.cli import output
from rota.cli.demo import tasks
from rota.cli.demo.counters import DemoCounters, WorkerKill

SummaryLine = tuple[str, str, str]
"""Name, value and explanation."""


def summary_lines(counters: DemoCounters) -> Iterator[SummaryLine]:
    if counters.ended_jobs:
        not_succeeded = ", ".join(
            f"{output.format_count(jobs)} {state}"
            for state, jobs in counters.job_states.items()
            if state != "succeeded"
        )
        explanation = f"ended in {output.format_duration(counters.duration)}, each recorded once"
        yield (
            "jobs",
            output.format_count(counters.ended_jobs),
            f"{explanation}; {not_succeeded}" if not_succeeded else explanation,
        )
    if counters.max_rate:
        yield (
            "speed",
            f"{_round(counters.max_rate)} jobs/s",
            f"the fastest wave of jobs that do nothing, without retried ones; started at "
            f"{_round(len(counters.wave_runs) / counters.start_seconds)} jobs/s",
        )
    if counters.open_jobs:
        yield (
            "open",
            output.format_count(counters.open_jobs),
            "of these jobs had not ended when the demo stopped",
        )
    if counters.latencies:
        yield (
            "latency",
            output.format_duration(statistics.median(counters.latencies)),
            f"median from start to result, one at a time; the slowest of {len(counters.latencies)} took "
            f"{output.format_duration(max(counters.latencies))}",
        )
    if counters.retries:
        yield (
            "retries",
            output.format_count(counters.retries),
            "attempts failed and were retried",
        )
    if counters.flow_states:
        yield "flows", str(len(counters.flow_states)), _describe_flows(counters)
    if counters.kill is not None:
        yield from _kill_lines(counters.kill)
    if counters.monitor_iterations:
        yield (
            "monitor",
            f"{output.format_count(counters.monitor_iterations)} iterations",
            f"one every {tasks.MONITOR_SECONDS:g} s, on one worker at a time",
        )
    if counters.ticks:
        twice = (
            f"{counters.duplicate_ticks} of them twice"
            if counters.duplicate_ticks
            else "none of them twice"
        )
        missed = f", {counters.missed_ticks} missed" if counters.missed_ticks else ", none missed"
        yield (
            "ticks",
            output.format_count(counters.ticks),
            f"one every {tasks.HALTS_SECONDS:g} s, {twice}{missed}",
        )


def _describe_flows(counters: DemoCounters) -> str:
    states = Counter(counters.flow_states.values())
    words = ", ".join(f"{count} {state}" for state, count in states.items())
    return f"etl: {words}; {counters.approved} approved by a signal"


def _kill_lines(kill: WorkerKill) -> Iterator[SummaryLine]:
    held = f"{output.format_count(kill.held_jobs)} job{'' if kill.held_jobs == 1 else 's'}"
    if kill.detected is None:
        yield "killed", "1 worker", f"with {held}; the demo stopped before its death was detected"
        return
    yield (
        "killed",
        "1 worker",
        f"worker {kill.worker}, with {held}; detected after {output.format_duration(kill.detected)}",
    )
    if kill.recovered is not None:
        finished_by = " and ".join(f"worker {each}" for each in kill.finished_by)
        not_succeeded = kill.held_jobs - kill.succeeded
        yield (
            "recovered",
            output.format_duration(kill.recovered),
            f"after the kill all its jobs had ended, on {finished_by or 'no other worker'}; "
            f"{f'{not_succeeded} did not succeed' if not_succeeded else 'all succeeded'}",
        )
    if kill.monitor_moved is not None:
        yield (
            "taken over",
            output.format_duration(kill.monitor_moved),
            "after the kill the monitor ran on another worker",
        )


def _round(speed: float) -> str:
    return output.format_count(int(round(speed, -2 if speed > 2000 else 0)))


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
