"""Statistics by minute are stored once however often they are sent; depths are read at a bounded cost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from rota.store import metrics
from rota.store.metrics import MinuteTotals
from support.scale import scale
from support.stage import Stage

MANY = scale(120_000, 1_000_000)
PAGES = 900
"""Pages that one measurement may read: some hundred for samples, and the counted part of an index."""

FILL = """
with given as (
    insert into rota.jobs (id, priority, task, queue, args)
    select nextval('rota.ids'), 0, 'work', %s, '{}' from generate_series(1, %s)
    returning id, queue)
insert into rota.queued (seq, job, priority, queue, task)
select given.id, given.id, 0, given.queue, 'work' from given
"""


def minute_totals(minute: int, claimed: int = 1, **more: Any) -> MinuteTotals:
    counts = dict.fromkeys(MinuteTotals.__struct_fields__, 0) | {"claimed": claimed, **more}
    return MinuteTotals(**(counts | {"minute": minute, "queue": "default", "task": "work"}))


async def this_minute(stage: Stage) -> int:
    return int(await stage.one("select extract(epoch from rota.clock())::bigint / 60"))


async def stored_minutes(stage: Stage, what: str = "claimed") -> list[Any]:
    return await stage.sql(f"select worker, {what} from rota.minute_stats order by minute, worker")


async def test_write_minutes_repeated_counts_once(stage: Stage) -> None:
    minute = await this_minute(stage)
    for _ in range(3):
        await stage.run(metrics.write_minutes(1, [minute_totals(minute, 5, seconds=1.5)]))

    assert await stored_minutes(stage) == [(1, 5)]
    assert await stored_minutes(stage, "seconds") == [(1, 1.5)]


async def test_write_minutes_late_lower_counts_are_ignored(stage: Stage) -> None:
    """A statement that was cut off may still be executed, after those that were sent later."""
    minute = await this_minute(stage)
    await stage.run(
        metrics.write_minutes(1, [minute_totals(minute, 9, seconds=3.0, max_seconds=0.5)])
    )
    await stage.run(
        metrics.write_minutes(1, [minute_totals(minute, 5, seconds=1.0, max_seconds=0.2)])
    )

    assert await stored_minutes(stage, "claimed, seconds, max_seconds") == [(1, 9, 3.0, 0.5)]


async def test_write_minutes_keeps_counts_of_each_worker(stage: Stage) -> None:
    minute = await this_minute(stage)
    await stage.run(metrics.write_minutes(1, [minute_totals(minute, 5)]))
    await stage.run(
        metrics.write_minutes(2, [minute_totals(minute, 7), minute_totals(minute - 1, 3)])
    )

    assert await stored_minutes(stage) == [(2, 3), (1, 5), (2, 7)]


async def test_write_minutes_older_than_limit_are_ignored(stage: Stage) -> None:
    minute = await this_minute(stage)
    await stage.run(
        metrics.write_minutes(1, [minute_totals(minute - 31, 5), minute_totals(minute - 29, 6)])
    )

    assert await stored_minutes(stage) == [(1, 6)]
    assert metrics.MAX_LATE_SECONDS < metrics.COMPACT_AFTER_SECONDS


async def test_compact_minutes_keeps_every_count(stage: Stage) -> None:
    minute = await this_minute(stage)
    for worker in (1, 2, 3):
        some = [
            minute_totals(minute - ago, worker, seconds=0.5, max_seconds=worker / 10)
            for ago in range(5)
        ]
        await stage.run(metrics.write_minutes(worker, some))

    # All but the current minute; with a small limit, so that a minute is compacted in parts.
    while (await stage.run(metrics.compact(age=60.0, limit=2)))[0]:
        pass

    rows = "worker, claimed, seconds, max_seconds"
    found = await stage.sql(f"select minute, {rows} from rota.minute_stats order by minute, worker")
    folded = [row for row in found if row[1] == 0]
    assert len(folded) >= 3
    assert {row[2:4] for row in folded} == {(6, 1.5)}
    assert {round(row[4], 3) for row in folded} == {0.3}
    assert sum(row[2] for row in found) == 5 * (1 + 2 + 3)


async def test_delete_old_removes_old_counts_and_samples(stage: Stage) -> None:
    minute = await this_minute(stage)
    await stage.run(metrics.write_minutes(1, [minute_totals(minute - 3), minute_totals(minute)]))
    await stage.sql(
        "insert into rota.queue_samples values (rota.clock() - interval '1 h', 'default', 1, 0, 1)"
    )
    [gone] = await stage.run(metrics.delete_old(age=120.0))

    assert gone == 2
    assert await stored_minutes(stage) == [(1, 1)]


# Depth


async def depths(stage: Stage) -> dict[str, tuple[int, bool, float]]:
    found = await stage.sql("select queue, queued, exact, oldest_seconds from rota.queue_depths()")
    return {queue: (ready, exact, oldest) for queue, ready, exact, oldest in found}


@pytest.mark.usefixtures("stopped_clock")
async def test_queue_depths_have_count_and_age_of_each_queue(stage: Stage) -> None:
    await stage.start_several(3)
    await stage.start(queue="aside", priority=9)
    await stage.start(queue="zoo")
    await stage.sql("update rota.jobs set created = created - interval '90 s' where priority = 9")

    found = await depths(stage)
    assert {queue: each[:2] for queue, each in found.items()} == {
        "default": (3, True),
        "aside": (1, True),
        "zoo": (1, True),
    }
    assert 90 <= found["aside"][2] < 95
    assert 0 <= found["zoo"][2] < 5
    assert await stage.sql("select queued from rota.queue_depths('aside')") == [1]
    assert await stage.sql("select queued from rota.queue_depths('nowhere')") == []


@pytest.mark.usefixtures("stopped_clock")
async def test_queue_depths_requeued_job_age_counts_from_its_return(stage: Stage) -> None:
    """The job's creation does not count, because it slept. The next job or a sample gives the time."""
    back = await stage.start()
    later = await stage.start(queue="other")
    await stage.sql("update rota.jobs set created = created - interval '1 day' where id = %s", back)
    await stage.sql("update rota.jobs set created = created - interval '1 h' where id = %s", later)
    await stage.sql("update rota.queued set seq = %s where job = %s", later, back)

    assert 3600 <= (await depths(stage))["default"][2] < 3610

    # No job was started since: only a sample can give the time.
    await stage.sql("update rota.queued set seq = nextval('rota.ids') where job = %s", back)
    assert (await depths(stage))["default"][2] < 5
    await stage.sql(
        "insert into rota.queue_samples select rota.clock() - interval '20 min', 'default', 1, 0, max(seq)"
        " from rota.queued"
    )
    assert 1200 <= (await depths(stage))["default"][2] < 1210


async def _vacuum_until_visible(stage: Stage) -> None:
    """Vacuum until all pages are marked as all-visible, so that index-only scans read no rows.

    Another snapshot, such as autovacuum's, delays this.
    """
    async with asyncio.timeout(60):
        while True:
            await stage.sql("vacuum rota.queued")
            if await stage.one(
                "select relallvisible >= relpages from pg_class where oid = 'rota.queued'::regclass"
            ):
                return
            await asyncio.sleep(0.05)


async def test_queue_depths_large_queue_is_estimated_at_bounded_cost(own_stage: Stage) -> None:
    await own_stage.sql("set statement_timeout = 0")
    share = MANY // 4
    for queue, count in (("few", 100), ("many", MANY - share), ("some", share), ("few", 50)):
        await own_stage.sql(FILL, queue, count)
    await _vacuum_until_visible(own_stage)

    found = await depths(own_stage)
    assert found["few"][:2] == (150, True)
    ready, exact, _ = found["many"]
    assert not exact
    assert abs(ready - (MANY - share)) < 0.25 * MANY

    [text] = await own_stage.sql(
        "explain (analyze, buffers, format json) select * from rota.queue_depths()"
    )
    [plan] = json.loads(text)
    touched = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    print(f"{touched} pages, {plan['Execution Time']:.0f} ms, {ready} of {MANY - share}")
    assert touched < PAGES


async def test_sample_queues_only_by_oldest_worker_once_a_minute(stage: Stage) -> None:
    await stage.start_several(3)
    first, second = await stage.worker(), await stage.worker()
    samples = "select queue, queued from rota.queue_samples order by minute"

    await stage.run(metrics.sample_queues(second))
    assert await stage.sql(samples) == []
    await stage.run(metrics.sample_queues(first))
    await stage.start_several(2)
    await stage.run(metrics.sample_queues(first))
    assert await stage.sql(samples) == [("default", 3)]


async def test_sample_queues_emptied_queue_is_sampled_once_more(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.sql(
        "insert into rota.queue_samples select date_trunc('minute', rota.clock()) - interval '1 min',"
        " queue, queued, 0, 1 from (values ('default', 3), ('empty', 0)) as given (queue, queued)"
    )
    await stage.run(metrics.sample_queues(worker))

    newest = (
        "select queue, queued from rota.queue_samples where minute = date_trunc('minute', "
        "rota.clock())"
    )
    assert await stage.sql(newest) == [("default", 0)]
