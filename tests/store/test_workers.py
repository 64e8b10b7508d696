"""Workers: registration, heartbeats, observation, and declaration of death."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from rota.store import advisory_locks, claims, runs, workers
from rota.store.database import run
from rota.store.workers import ObservedWorker
from support import flows
from support.lost_workers import declare_dead, observe, orphans, reap, split, start_with, suspect
from support.stage import Connection, Stage


async def observed_workers(stage: Stage, worker: int = 0) -> dict[int, bool | None]:
    """Return the observed workers, and if each holds its session lock."""
    return {
        each.worker: each.has_session_lock for each in await stage.run(workers.list_others(worker))
    }


async def open_session(stage: Stage, worker: int, seat: int) -> psycopg.AsyncConnection[object]:
    """Open a worker's heartbeat connection, with the session lock that the worker reports."""
    heart = await stage.database.connect(direct=True)
    assert await run(heart, workers.lock_session(seat), stage.schema) == [True]
    await stage.run(workers.beat(worker, seat))
    return heart


# Registration


async def test_register_stores_worker_properties(stage: Stage) -> None:
    [id] = await stage.run(
        workers.register(
            *("box", 7, "2026.11", ["a", "b"], ["t"], 12),
            rota_version="0.1",
            metadata={"zone": "eu", "n": 2**53 + 1},
        )
    )

    assert await stage.sql(
        "select id, host, pid, version, engine, queues, tasks, capacity, state::text, beats,"
        " metadata::text from rota.workers"
    ) == [
        (
            *(id, "box", 7, "2026.11", "0.1", ["a", "b"], ["t"], 12, "active", 0),
            '{"zone":"eu","n":9007199254740993}',
        )
    ]


async def test_register_same_host_and_pid_creates_two_workers(stage: Stage) -> None:
    """B6: in containers every process is pid 1, and a restarted one has the old host name."""
    one, two = await stage.worker(), await stage.worker()

    assert one != two
    await declare_dead(stage, one)
    assert list(await observed_workers(stage)) == [two]


async def test_register_notifies_other_workers(stage: Stage) -> None:
    listener = await stage.connect()
    await stage.sql('listen "rota.wake"', on=listener)

    await stage.run(workers.register("h", 1, "0", [], [], 1, notify=True))

    [heard] = [note async for note in listener.notifies(timeout=60, stop_after=1)]
    assert heard.payload == "!worker"


# Heartbeats


async def test_beat_returns_claims_and_increments_counter(stage: Stage) -> None:
    batch = await stage.held(2)
    before = await observe(stage, batch.worker)

    [told] = await stage.run(workers.beat(batch.worker, 5, running=2, lag=0.25))

    assert (told.drain_requested, told.jobs_to_cancel, told.claims, told.has_pending_releases) == (
        False,
        [],
        [batch.id],
        False,
    )
    assert (await observe(stage, batch.worker)).beats == before.beats + 1
    assert await stage.sql("select session_lock, running, lag from rota.workers") == [(5, 2, 0.25)]


async def test_beat_returns_cancel_requests_of_own_jobs_only(stage: Stage) -> None:
    mine, theirs = await stage.held(3), await stage.held(1)
    for job in (mine.jobs[1], theirs.jobs[0]):
        await stage.run(runs.cancel(job), stage.watch)

    [told] = await stage.run(workers.beat(mine.worker, None))

    assert told.jobs_to_cancel == [mine.jobs[1]]


async def test_beat_returns_all_claims_with_nonces(stage: Stage) -> None:
    batch = await stage.held(3)
    own = await split(stage, batch, batch.jobs[1])
    await stage.held(2)

    [told] = await stage.run(workers.beat(batch.worker, None))

    assert told.claims == [batch.id, own.id]
    assert told.nonces == await stage.sql(
        "select nonce::text from rota.claims where worker = %s order by id", batch.worker
    )


async def test_beat_after_drain_request_returns_drain_requested(stage: Stage) -> None:
    worker = await stage.worker()
    listener = await stage.connect()
    await stage.sql('listen "rota.wake"', on=listener)

    assert await stage.run(workers.request_drain(worker)) == ["active"]

    [heard] = [note async for note in listener.notifies(timeout=60, stop_after=1)]
    assert heard.payload == "!drain"
    [told] = await stage.run(workers.beat(worker, None))
    assert told.drain_requested
    assert await stage.run(workers.request_drain(12345)) == [None]


async def test_beat_with_pending_releases_returns_the_flag(stage: Stage) -> None:
    worker = await stage.worker()
    laid = await flows.start(stage, {"a": []})
    batch = await flows.claim(stage, worker)
    await stage.sql("insert into rota.pending_releases values (%s, 'succeeded')", laid["a"])

    [told] = await stage.run(workers.beat(worker, None))
    assert told.has_pending_releases

    await stage.sql("delete from rota.pending_releases")
    await flows.end(stage, batch)


@pytest.mark.parametrize("state", ["dead", "stopped"])
async def test_beat_of_ended_worker_is_refused(stage: Stage, state: str) -> None:
    worker = await stage.worker()
    await stage.sql("update rota.workers set state = %s", state)
    before = await stage.sql("select * from rota.workers")

    assert await stage.run(workers.beat(worker, 3)) == []
    assert await stage.run(workers.beat(12345, 3)) == []
    await stage.run(workers.mark_draining(worker))
    await stage.run(workers.mark_stopped(worker))
    assert await stage.sql("select * from rota.workers") == before


async def test_beat_of_draining_worker_is_accepted(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.run(workers.mark_draining(worker))

    assert len(await stage.run(workers.beat(worker, None))) == 1
    assert list(await observed_workers(stage)) == [worker]


# Observation of session locks


async def test_session_lock_is_observed_while_its_connection_lives(stage: Stage) -> None:
    one, two, pooled = [await stage.worker() for _ in range(3)]
    heart = await open_session(stage, one, 111)
    other = await open_session(stage, two, 2**31 - 1)

    assert await observed_workers(stage) == {one: True, two: True, pooled: None}
    assert await observed_workers(stage, one) == {two: True, pooled: None}

    await heart.close()
    async with asyncio.timeout(60):
        while await observed_workers(stage) != {one: False, two: True, pooled: None}:
            await asyncio.sleep(0.005)
    await other.close()


async def test_session_lock_of_terminated_session_is_released(stage: Stage) -> None:
    worker = await stage.worker()
    heart = await open_session(stage, worker, 7)

    await stage.sql("select pg_terminate_backend(%s, 5000)", heart.info.backend_pid)

    assert await observed_workers(stage) == {worker: False}
    await heart.close()


async def test_session_lock_check_ignores_similar_advisory_locks(
    own_stage: Stage, direct_dsn: str
) -> None:
    """Another kind, one number instead of two, shared, another database, or only waited for."""
    stage = own_stage
    worker = await stage.worker()
    seat = 77
    await stage.run(workers.beat(worker, seat))
    elsewhere = await psycopg.AsyncConnection.connect(
        psycopg.conninfo.make_conninfo(direct_dsn, dbname="postgres"), autocommit=True
    )
    async with elsewhere:
        await elsewhere.execute("select pg_advisory_lock(%s, %s)", [advisory_locks.WORKER, seat])
        other = await stage.connect()
        await stage.sql(
            "select pg_advisory_lock(%s::int, %s::int)", advisory_locks.RETENTION, seat, on=other
        )
        await stage.sql(
            "select pg_advisory_lock((%s::bigint << 32) | %s)",
            advisory_locks.WORKER,
            seat,
            on=other,
        )

        assert await observed_workers(stage) == {worker: False}


async def test_session_lock_held_is_not_granted_twice(stage: Stage) -> None:
    worker = await stage.worker()
    heart = await open_session(stage, worker, 9)

    assert await stage.run(workers.lock_session(9)) == [False]
    assert await stage.run(workers.lock_session(10)) == [True]
    await heart.close()


async def test_observation_lists_only_active_and_draining_workers(stage: Stage) -> None:
    active, drains, stops, dies, me = [await stage.worker() for _ in range(5)]
    await stage.run(workers.mark_draining(drains))
    await stage.run(workers.mark_stopped(stops))
    await declare_dead(stage, dies)

    assert sorted(await observed_workers(stage, me)) == [active, drains]


# Declaration of death


async def test_mark_dead_worker_beating_now_is_skipped(stage: Stage) -> None:
    beats, silent = await stage.worker(), await stage.worker()
    looked = [await observe(stage, beats), await observe(stage, silent)]
    beating = await stage.connect()

    async with beating.transaction():
        await stage.run(workers.beat(beats, None), beating)
        async with asyncio.timeout(60):
            declared = await stage.run(workers.mark_dead(looked))

    assert [(each.worker, each.host, each.pid) for each in declared] == [(silent, "host", 1)]
    # Nor afterwards, by the old observation.
    assert await stage.run(workers.mark_dead(looked)) == []
    assert list(await observed_workers(stage)) == [beats]


async def test_mark_dead_worker_that_beat_since_observation_is_skipped(stage: Stage) -> None:
    worker = await stage.worker()
    looked = await observe(stage, worker)
    await stage.run(workers.beat(worker, None))

    assert await stage.run(workers.mark_dead([looked])) == []
    assert (
        await stage.run(workers.mark_dead([ObservedWorker(worker, looked.beats + 2, None)])) == []
    )
    assert (
        len(await stage.run(workers.mark_dead([ObservedWorker(worker, looked.beats + 1, None)])))
        == 1
    )


async def test_beat_during_mark_dead_waits_and_is_refused(stage: Stage) -> None:
    worker = await stage.worker()
    looked = await observe(stage, worker)
    declaring, beating = await stage.connect(), await stage.connect()

    async with declaring.transaction():
        assert len(await stage.run(workers.mark_dead([looked]), declaring)) == 1
        beat = stage.meanwhile(stage.run(workers.beat(worker, None), beating))
        await stage.waits(beating, declaring)

    assert await beat == []


async def test_mark_dead_concurrently_succeeds_once(stage: Stage) -> None:
    worker = await stage.worker()
    looked = await observe(stage, worker)
    first = await stage.connect()

    async with first.transaction():
        assert len(await stage.run(workers.mark_dead([looked]), first)) == 1
        async with asyncio.timeout(60):
            assert await stage.run(workers.mark_dead([looked])) == []
    assert await stage.run(workers.mark_dead([looked])) == []


async def test_worker_tasks_of_ended_worker_are_deleted(stage: Stage) -> None:
    many = [f"t{number}" for number in range(30)]
    ids = [(await stage.run(workers.register("h", 1, "0", [], many, 1)))[0] for _ in range(3)]

    await declare_dead(stage, ids[0])
    await stage.run(workers.mark_stopped(ids[1]))

    assert await stage.sql("select distinct worker from rota.worker_tasks") == [ids[2]]


Held = list[tuple[int, bool | None]]
"""Claims: the number of jobs in each, and its mark of running alone."""

BLAME: list[tuple[Held, list[int], list[int]]] = [
    ([], [], []),
    ([(1, None)], [0], []),
    ([(1, True)], [0], []),
    ([(1, False)], [0], []),
    ([(2, None)], [], []),
    ([(1, None), (1, None)], [], []),
    ([(2, None), (1, True)], [2], []),
    ([(2, None), (1, False)], [], [2]),
    ([(1, True), (1, None)], [0], []),
    ([(1, False), (3, None), (1, None)], [], [0]),
]


@pytest.mark.parametrize(("held", "blamed", "doubted"), BLAME)
async def test_mark_dead_charges_single_or_exclusive_job(
    stage: Stage, held: Held, blamed: list[int], doubted: list[int]
) -> None:
    """The only held job, or the job marked as running alone, is blamed. A job that ran alone only at
    first is doubted."""
    worker = await stage.worker()
    jobs: list[int] = []
    for many, alone in held:
        await stage.start_several(many)
        batch = await stage.claim(worker)
        if alone is not None:
            mark = claims.mark_running(worker, batch.id, batch.jobs[0], exclusive=alone)
            assert await stage.run(mark) == [batch.id]
        jobs += batch.jobs
    bystander = await stage.held(1)

    await declare_dead(stage, worker)

    [found] = await stage.sql(
        "select coalesce(charged_jobs, '{}'), coalesce(doubtful_jobs, '{}') from rota.workers where"
        " id = %s",
        worker,
    )
    assert tuple(found) == ([jobs[each] for each in blamed], [jobs[each] for each in doubted])
    assert await stage.held_by(bystander.id) == bystander.jobs


async def test_mark_dead_ignores_jobs_with_visibility_timeout(stage: Stage) -> None:
    batch = await stage.held(2)
    await split(stage, batch, batch.jobs[0], seconds=60)

    await declare_dead(stage, batch.worker)

    assert await stage.one("select charged_jobs from rota.workers") == [batch.jobs[1]]


async def test_mark_stopped_charges_no_job(stage: Stage) -> None:
    await start_with(stage, (1, "mild"))
    worker = await stage.worker()
    batch = await suspect(stage, worker)
    await stage.run(workers.mark_stopped(worker))

    assert await stage.one("select charged_jobs from rota.workers") is None
    await reap(stage, batch.id)


async def test_delete_ended_removes_old_workers_without_claims(stage: Stage) -> None:
    old, holds, recent, lives = [await stage.worker() for _ in range(4)]
    await stage.start_several(1)
    batch = await stage.claim(holds)
    await declare_dead(stage, old, holds, recent)
    await stage.sql(
        "update rota.workers set ended = ended - interval '2 days' where id = any(%s)", [old, holds]
    )

    await stage.run(workers.delete_ended(24 * 3600))

    assert await stage.sql("select id from rota.workers order by 1") == [holds, recent, lives]
    assert await orphans(stage) == [batch.id]


async def test_frozen_beat_does_not_block_claims_or_observation(stage: Stage) -> None:
    """Its row is locked: observation, claims and registration continue."""
    worker = await stage.worker()
    frozen: Connection = await stage.connect()
    await stage.start_several(1)

    async with frozen.transaction():
        await stage.run(workers.beat(worker, None), frozen)
        async with asyncio.timeout(60):
            assert list(await observed_workers(stage)) == [worker]
            assert len((await stage.claim(await stage.worker())).jobs) == 1
            assert await declare_dead(stage, worker) == []
