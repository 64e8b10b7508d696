"""Timeline of a run: when a job waited, ran and slept, from its stored records."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from rota.drawing.gantt import GanttBar
from rota.store.read.run_history import RunStepRow
from rota.store.read.runs import JobAttemptRow
from rota.web.dashboard.run.gantt import (
    bars_of_job,
    merge_bars,
    queued_since,
    rounded_now,
    rows_of_run,
)
from rota.web.dashboard.run.graph import build_picture
from support.run_rows import START, job, run

NOW = START + timedelta(seconds=100)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def bar_spans(bars: Sequence[GanttBar]) -> list[tuple[str, float, float]]:
    return [
        (each.kind, (each.start - START).total_seconds(), (each.end - START).total_seconds())
        for each in bars
    ]


def test_timeline_finished_job_is_queued_then_running() -> None:
    done = job("succeeded", finished=at(10), seconds=4.0)

    assert bar_spans(bars_of_job(done, [], [], at(1), NOW)) == [
        ("queued", 1, 6),
        ("running", 6, 10),
    ]


def test_timeline_each_attempt_has_its_queued_bar() -> None:
    failed = job("failed", attempt=3, finished=at(30), seconds=2.0)
    tries = [
        JobAttemptRow(2, 1, "failed", 1, at(5), 3.0, None),
        JobAttemptRow(2, 2, "failed", 1, at(15), 5.0, None),
    ]

    bars = bars_of_job(failed, tries, [], START, NOW)

    assert bar_spans(bars) == [
        *(("queued", 0, 2), ("attempt", 2, 5), ("queued", 5, 10), ("attempt", 10, 15)),
        *(("queued", 15, 28), ("running", 28, 30)),
    ]
    assert [each.state for each in bars if each.kind != "queued"] == ["failed"] * 3


def test_timeline_lost_attempt_without_duration_is_one_attempt_bar() -> None:
    done = job("succeeded", attempt=2, finished=at(40), seconds=5.0)
    tries = [JobAttemptRow(2, 1, "failed", 1, at(20), None, None)]

    assert bar_spans(bars_of_job(done, tries, [], START, NOW)) == [
        *(("attempt", 0, 20), ("queued", 20, 35), ("running", 35, 40)),
    ]


def test_timeline_unfinished_job_reaches_until_now() -> None:
    running = job("running", since=at(40))
    assert bar_spans(bars_of_job(running, [], [], at(30), NOW)) == [
        *(("queued", 30, 40), ("running", 40, 100)),
    ]
    assert bar_spans(bars_of_job(job("queued"), [], [], at(30), NOW)) == [("queued", 30, 100)]
    assert bar_spans(bars_of_job(job("sleeping", since=at(50)), [], [], at(30), NOW)) == [
        ("sleeping", 50, 100)
    ]
    assert bars_of_job(job("waiting"), [], [], START, NOW) == []


def test_timeline_sleeps_and_steps_split_the_running_bar() -> None:
    done = job("succeeded", finished=at(60), seconds=5.0)
    doings = [
        RunStepRow(2, "step", "a", at(4), 2.0, None, False),
        RunStepRow(2, "step", "b", at(7), 2.0, None, False),
        RunStepRow(2, "sleep", "sleep", at(8), None, at(38), False),
        RunStepRow(2, "wait", "go", at(50), None, None, False),
    ]

    assert bar_spans(bars_of_job(done, [], doings, START, NOW)) == [
        *(("queued", 0, 2), ("running", 2, 8), ("sleeping", 8, 38), ("sleeping", 38, 50)),
        *(("queued", 50, 55), ("running", 55, 60)),
    ]


def test_timeline_job_waiting_for_signal_has_one_sleeping_bar() -> None:
    waiting = job("sleeping", since=at(9))
    doings = [RunStepRow(2, "wait", "go", at(8), None, None, True)]

    assert bar_spans(bars_of_job(waiting, [], doings, START, NOW)) == [
        *(("queued", 0, 8), ("sleeping", 8, 100)),
    ]


def test_timeline_steps_of_earlier_attempt_are_not_drawn() -> None:
    done = job("succeeded", attempt=2, finished=at(30), seconds=5.0)
    tries = [JobAttemptRow(2, 1, "failed", 1, at(20), 10.0, None)]
    doings = [RunStepRow(2, "sleep", "sleep", at(11), None, at(12), False)]

    assert bar_spans(bars_of_job(done, tries, doings, START, NOW)) == [
        *(("queued", 0, 10), ("attempt", 10, 20), ("queued", 20, 25), ("running", 25, 30)),
    ]


def test_timeline_job_is_queued_since_last_predecessor_finished() -> None:
    jobs = [
        job("succeeded", 2, successors=[4], finished=at(25)),
        job("succeeded", 3, successors=[4], finished=at(10)),
        job("queued", 4),
    ]

    assert queued_since(jobs, START) == {2: START, 3: START, 4: at(25)}


def test_timeline_overlapping_bars_merge_with_failed_state_first() -> None:
    bars = [
        GanttBar("running", at(0), at(10), "succeeded"),
        GanttBar("running", at(5), at(20), "failed"),
        GanttBar("running", at(30), at(40), "succeeded"),
        GanttBar("queued", at(0), at(1), "queued"),
    ]

    found = merge_bars(bars)

    assert bar_spans(found) == [("running", 0, 20), ("running", 30, 40), ("queued", 0, 1)]
    assert [each.state for each in found] == ["failed", "succeeded", "queued"]


def test_timeline_rows_are_ordered_by_begin() -> None:
    jobs = [
        job("waiting", 2, task="f.last"),
        job("succeeded", 3, task="f.second", finished=at(20), seconds=1.0),
        job("succeeded", 4, task="f.first", finished=at(10), seconds=10.0),
    ]
    ready = {2: START, 3: at(10), 4: START}

    rows = rows_of_run(build_picture(run(3), jobs), [], [], ready, NOW)

    assert [each.name for each in rows] == ["first", "second", "last"]


def test_timeline_rounded_now_moves_in_steps_and_never_back() -> None:
    seen = [rounded_now(START, at(n / 10), 10) for n in range(20_000)]

    assert all(shown >= at(n / 10) for n, shown in enumerate(seen))
    assert seen == sorted(seen)
    assert len(set(seen)) < 1_500  # of 20,000 readings over 2,000 seconds
    assert seen[-1] - at(1999.9) <= timedelta(seconds=15)
