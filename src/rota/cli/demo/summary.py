"""What is said at the end: the figures of a demo, each with what it means."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterator

from rota.cli import paint
from rota.cli.demo import tasks
from rota.cli.demo.tally import Accident, Tally

Line = tuple[str, str, str]
"""What, how much, and a few words on it."""


def lines(tally: Tally) -> Iterator[Line]:
    if tally.ended:
        bad = {state: jobs for state, jobs in tally.states.items() if state != "succeeded"}
        rest = ", ".join(f"{paint.number(jobs)} {state}" for state, jobs in bad.items())
        words = f"ended in {paint.span(tally.lasted)}, each recorded once"
        yield "jobs", paint.number(tally.ended), f"{words}; {rest}" if rest else words
    if tally.fastest:
        yield (
            "speed",
            f"{_round(tally.fastest)} jobs/s",
            f"the fastest wave of jobs that do nothing, from its start to the end of the last; started at "
            f"{_round(len(tally.plain) / tally.starting)} jobs/s",
        )
    if tally.open:
        yield "open", paint.number(tally.open), "of them had not ended when it was over"
    if tally.latencies:
        yield (
            "latency",
            paint.span(statistics.median(tally.latencies)),
            f"from start to result, one job at a time; the slowest of {len(tally.latencies)} took "
            f"{paint.span(max(tally.latencies))}",
        )
    if tally.retries:
        yield "retries", paint.number(tally.retries), "attempts failed, and were made again"
    if tally.flows:
        yield "flows", str(len(tally.flows)), _flows(tally)
    if tally.accident is not None:
        yield from _accident(tally.accident)
    if tally.rounds:
        yield (
            "monitor",
            f"{paint.number(tally.rounds)} rounds",
            f"one every {tasks.MONITOR_EVERY:g} s, on one worker at a time",
        )
    if tally.ticks:
        twice = f"{tally.twice} of them twice" if tally.twice else "none of them twice"
        missed = f", {tally.missed} missed" if tally.missed else ", none missed"
        yield (
            "ticks",
            paint.number(tally.ticks),
            f"one every {tasks.HALTS_EVERY:g} s, {twice}{missed}",
        )


def _flows(tally: Tally) -> str:
    came = Counter(tally.flows.values())
    words = ", ".join(f"{many} {state}" for state, many in came.items())
    return f"of etl: {words}; {tally.approved} waited for a signal and got it"


def _accident(accident: Accident) -> Iterator[Line]:
    held = f"{paint.number(accident.jobs)} job{'' if accident.jobs == 1 else 's'}"
    if accident.noticed is None:
        yield "killed", "1 worker", f"with {held}; it was over before anybody could notice"
        return
    yield (
        "killed",
        "1 worker",
        f"worker {accident.worker}, with {held}; the others knew after {paint.span(accident.noticed)}",
    )
    if accident.recovered is not None:
        heirs = " and ".join(f"worker {each}" for each in accident.heirs) or "it"
        lost = accident.jobs - accident.succeeded
        yield (
            "recovered",
            paint.span(accident.recovered),
            f"after the kill the last of them had ended on {heirs}; {lost or 'none'} lost",
        )
    if accident.monitor is not None:
        yield "taken over", paint.span(accident.monitor), "after the kill the monitor ran elsewhere"


def _round(speed: float) -> str:
    return paint.number(int(round(speed, -2 if speed > 2000 else 0)))


def show(tally: Tally) -> None:
    table = paint.table("", "", "words", free=("words",))
    table.show_header = False
    for name, what, words in lines(tally):
        rest = paint.text(words, "dim")
        rest.no_wrap = False
        table.add_row(paint.text(name, "dim"), paint.text(what), rest)
    if table.row_count:
        paint.show(table)
        paint.hint(f"the app that ran: {tasks.__file__}; with your own: rota dev MODULE:APP")
    else:
        paint.say("stopped before it began")
