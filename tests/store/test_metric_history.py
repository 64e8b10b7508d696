"""Statistics over time: every interval has a row, each count counts once, and a missing sample is not
zero."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from rota.store import metrics as store_metrics
from rota.store import queues
from rota.store.metrics import MinuteTotals
from rota.store.read import metrics
from rota.store.read.metrics import QueueHistoryRow
from support.flows import DIAMOND, claim_only, end
from support.flows import start as lay
from support.stage import Stage

MINUTE = timedelta(minutes=1)


async def this_minute(stage: Stage) -> datetime:
    found: datetime = await stage.one("select date_trunc('minute', rota.clock())")
    return found


async def write_minute(
    stage: Stage,
    ago: int,
    *,
    worker: int = 1,
    queue: str = "default",
    task: str = "work",
    **counts: Any,
) -> None:
    minute = int((await this_minute(stage)).timestamp()) // 60 - ago
    given = dict.fromkeys(MinuteTotals.__struct_fields__, 0) | counts
    await stage.run(
        store_metrics.write_minutes(
            worker, [MinuteTotals(**(given | {"minute": minute, "queue": queue, "task": task}))]
        )
    )


async def sample(stage: Stage, ago: int, ready: int, queue: str = "default") -> None:
    await stage.sql(
        "insert into rota.queue_samples select date_trunc('minute', rota.clock()) - %s * interval"
        " '1 minute',"
        " %s, %s, 0, 1",
        ago,
        queue,
        ready,
    )


# Counts


async def test_counts_every_interval_has_a_row_summed_over_workers(stage: Stage) -> None:
    await write_minute(stage, 0, worker=1, succeeded=3, attempts=4, seconds=2.0, max_seconds=1.5)
    await write_minute(
        stage, 0, worker=2, succeeded=2, failed=1, attempts=1, seconds=0.5, max_seconds=0.5
    )
    await write_minute(stage, 2, succeeded=7, wait_count=2, wait_seconds=3.0, max_wait_seconds=2.5)
    await write_minute(stage, 5, succeeded=99)

    now = await this_minute(stage)
    found = await stage.run(metrics.counts(60.0, 5))

    assert [each.at for each in found] == [now - ago * MINUTE for ago in (4, 3, 2, 1, 0)]
    assert [each.succeeded for each in found] == [0, 0, 7, 0, 5]
    assert [each.mean_seconds for each in found] == [None, None, None, None, 0.5]
    last, waited = found[-1], found[2]
    assert (last.failed, last.max_seconds, last.success_rate, last.ended) == (1, 1.5, 5 / 6, 6)
    assert (waited.mean_wait_seconds, waited.max_wait_seconds) == (1.5, 2.5)


async def test_counts_longer_intervals_are_aligned_and_complete(
    stage: Stage,
) -> None:
    for ago in range(25):
        await write_minute(stage, ago, succeeded=1, max_seconds=1.5)

    found = await stage.run(metrics.counts(300.0, 6))

    assert all(each.at.minute % 5 == each.at.second == 0 for each in found)
    assert sum(each.succeeded for each in found) == 25
    assert {each.max_seconds for each in found if each.succeeded} == {1.5}


async def test_counts_filter_by_queue_or_task(stage: Stage) -> None:
    await write_minute(stage, 0, succeeded=1)
    await write_minute(stage, 0, queue="aside", succeeded=10)
    await write_minute(stage, 0, task="other", succeeded=100)

    async def total(**only: str) -> int:
        return sum(each.succeeded for each in await stage.run(metrics.counts(60.0, 3, **only)))

    assert await total() == 111
    assert await total(queue="aside") == 10
    assert await total(task="other") == 100
    assert await total(queue="nowhere") == 0


async def test_task_counts_sum_each_task_within_the_period(stage: Stage) -> None:
    await write_minute(
        stage, 1, task="a", succeeded=9, failed=1, attempts=12, seconds=6.0, retried=2
    )
    await write_minute(stage, 20, task="a", queue="aside", failed=10)
    await write_minute(stage, 1, task="b", cancelled=4)

    found = {each.task: each for each in await stage.run(metrics.task_counts(10))}
    assert (found["a"].success_rate, found["a"].mean_seconds, found["a"].retried) == (0.9, 0.5, 2)
    assert (found["b"].success_rate, found["b"].mean_seconds, found["b"].ended) == (None, None, 4)
    longer = {each.task: each for each in await stage.run(metrics.task_counts(60))}
    assert (longer["a"].success_rate, longer["b"].success_rate) == (9 / 20, None)


@pytest.mark.usefixtures("stopped_clock")
async def test_history_seconds_is_age_of_oldest_count(stage: Stage) -> None:
    assert await stage.run(metrics.history_seconds()) == [None]
    await write_minute(stage, 3, succeeded=1)
    await write_minute(stage, 1, succeeded=1)

    [age] = await stage.run(metrics.history_seconds())
    assert age is not None
    assert 180 <= age <= 241


# Depth


async def read_depths(stage: Stage, step: float, many: int) -> list[int | None]:
    return [ready for _, ready in await stage.run(metrics.queue_depths(step, many))]


async def test_queue_depths_sum_all_queues(stage: Stage) -> None:
    for ago, ready, queue in ((2, 3, "a"), (2, 4, "b"), (1, 5, "a"), (1, 0, "b"), (0, 1, "a")):
        await sample(stage, ago, ready, queue)

    assert await read_depths(stage, 60.0, 4) == [0, 7, 5, 1]


async def test_queue_depths_empty_queue_stays_zero_until_next_sample(stage: Stage) -> None:
    await sample(stage, 9, 6)
    await sample(stage, 8, 0)
    await sample(stage, 2, 1)
    await sample(stage, 1, 2)

    assert await read_depths(stage, 60.0, 7) == [0, 0, 0, 0, 1, 2, None]


@pytest.mark.parametrize("first", [4, 9])
async def test_queue_depths_minutes_without_sample_are_none(stage: Stage, first: int) -> None:
    """Also if the last sample is older than all intervals shown."""
    await sample(stage, first, 6)
    await sample(stage, 1, 2)
    await sample(stage, 0, 0)

    assert await read_depths(stage, 60.0, 4) == [None, None, 2, 0]


async def test_queue_depths_longer_interval_has_its_maximum(stage: Stage) -> None:
    for ago in range(12, -1, -1):
        await sample(stage, ago, ago + 1)

    found = await stage.run(metrics.queue_depths(300.0, 2))

    [now] = await stage.run(metrics.counts(60.0, 1))
    for at, ready in found:
        assert ready == min((now.at - at) // MINUTE, 12) + 1


# Queues


async def test_queue_history_has_claims_ends_depths_and_arrivals(stage: Stage) -> None:
    await write_minute(stage, 2, queue="a", claimed=5, returned=1, succeeded=2, failed=1)
    await write_minute(stage, 0, queue="a", claimed=3, succeeded=1, worker=2)
    await write_minute(stage, 0, queue="b", claimed=50)
    await sample(stage, 2, 10, "a")
    await sample(stage, 1, 7, "a")
    await sample(stage, 0, 0, "a")

    [past] = await stage.run(metrics.queue_history(["a"], 60.0, 4))

    assert past == QueueHistoryRow("a", [0, 4, 0, 3], [0, 3, 0, 1], [0, 10, 7, 0])
    # Arrived = growth of the depth + claims, at least 0: 10 - 0 + 0, 7 - 10 + 4, 0 - 7 + 0, 2 - 0 + 3.
    assert past.arrived(queued_now=2) == [10, 1, 0, 5]


async def test_queue_history_minutes_without_sample_are_none(stage: Stage) -> None:
    await sample(stage, 8, 10, "a")
    await sample(stage, 1, 3, "a")

    [past, never] = await stage.run(metrics.queue_history(["a", "b"], 60.0, 4))

    assert past.queued == [None, None, 3, None]
    assert past.arrived(queued_now=0) == [None, None, None, None]
    assert never.queued == [0, 0, 0, 0]


async def test_unserved_tasks_are_found_among_many_served_jobs(stage: Stage) -> None:
    await stage.worker()
    lost = [await stage.start(task="gone"), await stage.start(task="gone", priority=3)]
    await stage.start_several(50)
    await stage.start(task="gone")
    await stage.start_several(300)
    alone = await stage.start(queue="aside")

    found = await stage.run(queues.unserved_tasks())

    assert [
        (each.queue, each.task, each.jobs, each.first_run, each.serving_workers) for each in found
    ] == [
        ("aside", "work", 1, alone, 0),
        ("default", "gone", 3, lost[0], 1),
    ]


# Flows


async def finish(stage: Stage, run: int, state: str, seconds: float) -> None:
    """Insert the outcome of a run directly."""
    await stage.sql("delete from rota.waiting where job = %s", run)
    await stage.sql(
        "insert into rota.outcomes (job, state, attempt, at) select id, %s, 1,"
        " created + %s * interval '1 s' from rota.runs where id = %s",
        state,
        seconds,
        run,
    )


async def test_flow_history_covers_last_runs_of_the_flow(stage: Stage) -> None:
    laid = [await lay(stage, DIAMOND) for _ in range(6)]
    for each, seconds in zip(laid[1:4], (1.0, 2.0, 9.0), strict=True):
        await finish(stage, each.run, "succeeded", seconds)
    await finish(stage, laid[4].run, "failed", 100.0)
    await finish(stage, laid[0].run, "failed", 100.0)

    [past] = await stage.run(metrics.flow_history(["f", "unknown"], run_limit=5))

    assert (past.flow, past.runs, past.running, past.succeeded, past.failed) == ("f", 5, 1, 3, 1)
    assert (past.median_seconds, past.max_seconds, past.success_rate) == (2.0, 9.0, 0.75)
    assert past.p95_seconds == pytest.approx(8.3)


async def test_flow_task_history_covers_runs_within_job_limit(stage: Stage) -> None:
    laid = [await lay(stage, DIAMOND) for _ in range(3)]
    worker = await stage.worker()
    for each, state, took in zip(
        laid, ("failed", "succeeded", "succeeded"), (5, 1, 3), strict=True
    ):
        await end(stage, await claim_only(stage, worker, "a"), state)
        await stage.sql("update rota.outcomes set seconds = %s where job = %s", took, each["a"])

    found = {each.task: each for each in await stage.run(metrics.flow_task_history("f"))}
    few = {each.task: each for each in await stage.run(metrics.flow_task_history("f", job_limit=8))}

    assert (found["f.a"].ended, found["f.a"].success_rate, found["f.a"].median_seconds) == (
        3,
        2 / 3,
        2.0,
    )
    assert (found["f.d"].ended, found["f.d"].skipped, found["f.d"].success_rate) == (1, 1, None)
    assert (few["f.a"].ended, few["f.a"].success_rate) == (2, 1.0)
    [least] = [
        each
        for each in await stage.run(metrics.flow_task_history("f", job_limit=1))
        if each.task == "f.a"
    ]
    assert least.ended == 1, "one run is read, however large"


async def test_flow_runs_are_listed_newest_first(stage: Stage) -> None:
    laid = [await lay(stage, DIAMOND) for _ in range(3)]
    await finish(stage, laid[0].run, "failed", 2.0)

    found = await stage.run(metrics.flow_runs("f"))

    assert [(each.run, each.state, each.seconds) for each in found] == [
        (laid[2].run, "running", None),
        (laid[1].run, "running", None),
        (laid[0].run, "failed", 2.0),
    ]


async def test_flow_progress_has_done_and_total_jobs(stage: Stage) -> None:
    worker = await stage.worker()
    begun, fresh = await lay(stage, DIAMOND), await lay(stage, DIAMOND)
    await end(stage, await claim_only(stage, worker, "a"))

    found = await stage.run(metrics.flow_progress([begun.run, fresh.run, 0]))

    assert sorted((each.run, each.done, each.total) for each in found) == [
        (begun.run, 1, 4),
        (fresh.run, 0, 4),
    ]


async def test_task_runs_are_searched_among_latest_jobs(stage: Stage) -> None:
    first = await stage.start(task="rare")
    await stage.start_several(3)
    last = await stage.start(task="rare")
    await lay(stage, {"a": []})

    found = await stage.run(metrics.task_runs("rare"))
    assert [(each.run, each.state) for each in found] == [(last, "queued"), (first, "queued")]
    few = await stage.run(metrics.task_runs("rare", scan_limit=3))
    assert [each.run for each in few] == [last]
    assert await stage.run(metrics.task_runs("f.a")) == []


# Schedules


async def insert_schedule(stage: Stage, name: str, **columns: Any) -> None:
    given = {"name": name, "failures": 0, "state": "active", "late": -60.0} | columns
    await stage.sql(
        "insert into rota.schedules (name, declared, kind, target, input, every, anchor, next,"
        " due,"
        " failures, last_failure, state) select %s, true, 'task', 'work', '{}', 60, rota.clock(),"
        " at, at, %s,"
        " rota.clock(), %s::rota.schedule_state from (select rota.clock() - %s * interval '1 s' as"
        " at) as now",
        *(given[key] for key in ("name", "failures", "state", "late")),
    )


async def test_problem_schedules_lists_late_failing_and_missed(stage: Stage) -> None:
    await insert_schedule(stage, "fine")
    await insert_schedule(stage, "tardy", late=61.0)
    await insert_schedule(stage, "a-little-late", late=59.0)
    await insert_schedule(stage, "at-rest", late=900.0, state="paused")
    await insert_schedule(stage, "broken", failures=4)
    await insert_schedule(stage, "given-up", failures=9, state="paused")
    for ago, state in (
        (5, "missed"),
        (90, "missed"),
        (3, "refused"),
        (4, "started"),
        (2000, "missed"),
    ):
        await stage.sql(
            "insert into rota.ticks (schedule, tick, number, state, at, host, pid)"
            " select 'fine', at, %s, %s, at, 'h', 1"
            " from (select rota.clock() - %s * interval '1 min' as at) as past",
            ago,
            state,
            ago,
        )

    found = await stage.run(metrics.problem_schedules(late_seconds=60.0))

    assert sorted((each.name, each.problem, each.count) for each in found) == [
        ("broken", "failing", 4),
        ("fine", "missed", 2),
        ("fine", "refused", 1),
        ("given-up", "stopped", 9),
        ("tardy", "late", 1),
    ]
