"""Removal of old runs beside other sessions: it never waits, and removes no run that is in use."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import uuid4

import pytest

from rota.store import jobs, listeners, retention
from support.old_runs import OldRuns
from support.stage import Connection, Stage


@pytest.fixture
async def past(stage: Stage) -> OldRuns:
    # A statement that waits for a lock fails.
    await stage.sql("set lock_timeout = '200ms'", on=stage.engine)
    return OldRuns(stage)


@pytest.fixture
async def other(stage: Stage) -> AsyncIterator[Connection]:
    """Another session, with a transaction that is open until the test has ended."""
    connection = await stage.connect()
    await stage.sql("begin", on=connection)
    yield connection
    await stage.sql("rollback", on=connection)


# Retry


async def test_prune_during_retry_keeps_the_run(
    past: OldRuns, stage: Stage, other: Connection
) -> None:
    alone = await past.ended(40, "failed")
    run, members = await past.flow(40, "failed")
    await stage.sql("update rota.outcomes set state = 'failed' where job = %s", members[1])
    before = await past.mentions(alone, run, *members)
    for id in (alone, run):
        await stage.sql("select rota.retry(%s)", id, on=other)

    found = await past.prune()

    assert [line.runs for line in found.rows] == [2]  # found, but then locked
    assert await past.mentions(alone, run, *members) == before
    await stage.sql("commit", on=other)
    assert await stage.sql("select job from rota.queued order by job") == [alone, members[1]]
    assert await stage.sql("select job from rota.outcomes") == [members[0]]


async def test_retry_during_prune_returns_none(
    past: OldRuns, stage: Stage, other: Connection
) -> None:
    run, members = await past.flow(40, "failed")

    async with stage.engine.transaction():
        await past.remove(await past.find())
        retrying = stage.meanwhile(stage.sql("select rota.retry(%s)", run, on=other))
        await stage.waits(other, stage.engine)

    assert await retrying == [None]
    assert await past.mentions(run, *members) == {}


async def test_prune_run_retried_after_find_is_kept(past: OldRuns, stage: Stage) -> None:
    run = await past.ended(40, "failed")
    found = await past.find()

    await stage.sql("select rota.retry(%s)", run)
    assert await past.remove(found) == []
    assert await stage.place(run) == "queued"

    await stage.sql("delete from rota.queued")
    await past.outcome(run, 0, "failed")
    assert await past.remove(found) == []
    assert await stage.place(run) == "failed"


async def test_prune_during_retry_of_parent_keeps_child_runs(
    past: OldRuns, stage: Stage, other: Connection
) -> None:
    caller = await past.ended(1, "failed")
    run, _ = await past.flow(40, parent=caller)
    await stage.sql("select rota.retry(%s)", caller, on=other)

    await past.prune()

    assert (await past.mentions(run))["runs"] == 1


async def test_retry_of_parent_waits_for_prune_of_child_runs(
    past: OldRuns, stage: Stage, other: Connection
) -> None:
    caller = await past.ended(1, "failed")
    run, _ = await past.flow(40, parent=caller)

    async with stage.engine.transaction():
        await past.remove(await past.find())
        retrying = stage.meanwhile(stage.sql("select rota.retry(%s)", caller, on=other))
        await stage.waits(other, stage.engine)

    assert await retrying == [["default"]]
    assert await past.mentions(run) == {}


# Locked runs


async def test_prune_keeps_run_with_key_being_requested(
    past: OldRuns, stage: Stage, other: Connection
) -> None:
    """The caller received this run's id, and may still wait for its result."""
    run = await past.ended(40, key="k")
    flow, _ = await past.flow(40, key="k")
    for task in ("work", "etl"):
        await stage.sql("select from rota.reserve_key(%s, 'k', -1, null, false)", task, on=other)

    await past.prune()

    assert await past.mentions(run) == {"jobs": 1, "outcomes": 1, "keys": 1}
    assert await past.mentions(flow) == {"runs": 1, "outcomes": 1, "keys": 1}


async def test_prune_skips_run_with_row_lock(
    past: OldRuns, stage: Stage, other: Connection
) -> None:
    run, members = await past.flow(40)
    await stage.sql("select from rota.runs for key share", on=other)

    await past.prune()

    assert await past.mentions(run, *members) == {"jobs": 2, "runs": 1, "outcomes": 3}


async def test_prune_does_not_wait_for_notified_waiters(
    past: OldRuns, stage: Stage, other: Connection
) -> None:
    run = await past.ended(40)
    await stage.sql("insert into rota.waiters values (%s, 'me')", run)
    await stage.sql("insert into rota.cancels values (%s)", run)
    await stage.run(listeners.notify_waiters([run]), other)

    await past.prune()

    assert "jobs" not in await past.mentions(run)


# Claims and starts


async def test_prune_does_not_block_claims_and_starts(past: OldRuns, stage: Stage) -> None:
    for _ in range(3):
        await past.ended(40)
    pruning = await stage.connect()

    async with pruning.transaction():
        await stage.run(retention.try_lock(stage.schema), pruning)
        await past.remove(await past.find(on=pruning), pruning)

        batch = await stage.held(5)
        assert await stage.complete(batch) == []
        [started] = await stage.run(
            jobs.start(
                jobs.StartJob(task="work", args="{}", queue="q", key=uuid4().hex), notify=False
            )
        )
        assert started.created


# One session at a time


async def test_prune_lock_held_returns_false_at_once(
    past: OldRuns, stage: Stage, other: Connection
) -> None:
    turn = retention.try_lock(stage.schema)
    assert await stage.run(turn, other) == [True]

    async with asyncio.timeout(60):
        assert await stage.run(turn) == [False]

    await stage.sql("commit", on=other)
    assert await stage.run(turn) == [True]


async def test_prune_same_runs_found_twice_are_removed_once(past: OldRuns, stage: Stage) -> None:
    """The result is also correct if two sessions hold the lock."""
    for _ in range(3):
        await past.ended(40)
    second = await stage.connect(engine=True)
    found = await past.find()

    async with stage.engine.transaction():
        [line] = await past.remove(found)
        assert await past.remove(found, second) == []

    assert line.runs == 3
    assert await past.remove(found, second) == []


async def test_prune_lock_is_granted_to_the_oldest_worker(past: OldRuns, stage: Stage) -> None:
    first, second, third = [await stage.worker() for _ in range(3)]

    async def whose() -> list[int]:
        return [
            worker
            for worker in (first, second, third)
            if await stage.run(retention.try_lock(stage.schema, worker)) == [True]
        ]

    assert await whose() == [first]
    await stage.sql("update rota.workers set state = 'dead' where id = %s", first)
    assert await whose() == [second]
    await stage.sql("delete from rota.workers where id = %s", second)
    assert await whose() == [third]


async def test_prune_lock_sets_planner_options_for_its_transaction(
    past: OldRuns, stage: Stage, other: Connection
) -> None:
    shown = "select current_setting('enable_seqscan'), current_setting('synchronous_commit')"
    await stage.run(retention.try_lock(stage.schema), other)

    assert await stage.sql(shown, on=other) == [("off", "off")]
    await stage.sql("commit", on=other)
    assert await stage.sql(shown, on=other) == [("on", "on")]


# Signals


async def test_signal_to_run_being_pruned_returns_ended(past: OldRuns, stage: Stage) -> None:
    run = await past.ended(40)

    async with stage.engine.transaction():
        await past.remove(await past.find())
        assert await stage.one("select rota.signal(%s, 'go')", run) == "ended"

    assert await stage.one("select rota.signal(%s, 'go')", run) is None
    assert await stage.sql("select * from rota.signals") == []


async def test_prune_does_not_wait_for_locked_signal(
    past: OldRuns, stage: Stage, other: Connection
) -> None:
    runs = [await past.ended(40), await past.ended(40)]
    await past.lived(*runs)
    await stage.sql("select from rota.signals where run = %s for update", runs[0], on=other)

    await past.prune()

    assert await past.jobs() == []


async def test_prune_does_not_wait_for_uncommitted_signal(
    past: OldRuns, stage: Stage, other: Connection
) -> None:
    batch = await stage.held(1)
    assert await stage.sql("select rota.signal(%s, 'go')", batch.jobs[0], on=other) == ["sent"]
    await stage.complete(batch)

    await past.prune("0s")

    assert await past.jobs() == []
    await stage.sql("commit", on=other)
    assert await stage.one("select rota.signal(%s, 'go')", batch.jobs[0]) is None
