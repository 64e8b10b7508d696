"""Liveness: heartbeats keep a worker alive, and a worker declared dead can change nothing."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from rota import Context, Rota
from rota.engine.worker import failure_detector
from rota.model.events import JobClaimed, JobsReaped, OutcomeRefused, WorkerDied, WorkerReregistered
from rota.testing import EventRecorder
from support.queries import fetch, until, wait_for_beats

QUICK: dict[str, Any] = {"heartbeat_interval": 0.1, "dead_after": 60, "poll_interval": 0.1}


@pytest.fixture
async def app(rota_dsn: str) -> AsyncIterator[Rota]:
    async with Rota(rota_dsn, **QUICK) as app:
        yield app


@pytest.fixture
async def other(rota_dsn: str) -> AsyncIterator[Rota]:
    """Yield a second app whose worker observes and reaps, but claims no job of the first."""
    async with Rota(rota_dsn, **QUICK) as app:

        @app.task(queue="elsewhere")
        async def idle() -> None: ...

        yield app


async def declare_dead(dsn: str, worker: int) -> None:
    sql = f"update rota.workers set state = 'dead' where id = {worker} returning id"
    assert await fetch(dsn, sql) == [(worker,)]


async def test_worker_declared_dead_stops_jobs_and_registers_again(
    app: Rota, rota_dsn: str
) -> None:
    ended: list[str] = []
    started = asyncio.Event()

    @app.task
    async def slow(ctx: Context) -> str:
        if not started.is_set():
            started.set()
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                ended.append("told")
                raise
        return "second life"

    witness = EventRecorder(app)
    run = await slow.start()
    async with app.worker() as worker:
        await started.wait()
        first = worker.id
        await declare_dead(rota_dsn, first)
        reborn = await witness.wait_for_event(WorkerReregistered, previous_worker=first)
        assert ended == ["told"]
        assert worker.id == reborn.worker != first
        # The worker takes back the jobs of its previous registration.
        await witness.wait_for_event(JobsReaped, dead_worker=first)
        assert await run.result(timeout=60) == "second life"
    assert await fetch(rota_dsn, "select worker from rota.outcomes") == [(worker.id,)]


async def test_outcome_of_dead_worker_is_refused(app: Rota, rota_dsn: str) -> None:
    """The jobs were taken back before the worker received the answer to a heartbeat."""
    go = asyncio.Event()
    runs = 0

    @app.task
    async def slow() -> str:
        nonlocal runs
        runs += 1
        if runs > 1:
            return "new"
        await go.wait()
        return "zombie"

    witness = EventRecorder(app)
    run = await slow.start()
    async with app.worker() as worker:
        await witness.wait_for_event(JobClaimed, job=run.id)
        worker.session.heartbeat._on_result = lambda pulse: None  # it ignores that it is dead
        old = worker.id
        await declare_dead(rota_dsn, old)
        await fetch(rota_dsn, "select (rota.reap(id)).jobs from rota.claims")
        go.set()
        await witness.wait_for_event(OutcomeRefused, job=run.id, worker=old)
        assert await fetch(rota_dsn, "select * from rota.outcomes") == []
        del worker.session.heartbeat._on_result
    async with app.worker():
        assert await run.result(timeout=60) == "new"


@pytest.mark.parametrize("queue", ["default", "elsewhere"])
async def test_job_with_missing_claim_is_stopped_within_a_heartbeat(
    app: Rota, rota_dsn: str, caplog: pytest.LogCaptureFixture, queue: str
) -> None:
    """The worker is alive, but one claim is missing, as after a server crash that lost it. The same worker
    may claim the job a second time before it detects the loss."""
    stopped, started = asyncio.Event(), asyncio.Event()

    @app.task
    async def slow() -> str:
        if started.is_set():
            return "again"
        started.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.set()
            raise
        return "never"

    run = await slow.start()
    async with app.worker() as worker:
        await started.wait()
        old = worker.id
        await fetch(
            rota_dsn,
            "with gone as (delete from rota.claims returning *) insert into rota.queued"
            f" (seq, job, priority, queue, task) select seqs[1], jobs[1], 0, '{queue}', 'slow' from gone"
            " returning 1",
        )
        await asyncio.wait_for(stopped.wait(), 60)
        if queue == "default":
            assert await run.result(timeout=60) == "again"
        else:
            assert "this worker no longer holds their claims" in caplog.text
        assert worker.id == old


async def test_job_of_new_claim_survives_late_heartbeat_answer(app: Rota, rota_dsn: str) -> None:
    """The answer to a heartbeat arrives late, after jobs of newer claims have begun."""

    began: list[int] = []

    @app.task
    async def short(n: int) -> int:
        began.append(n)
        await asyncio.sleep(0.02)
        return n

    async with app.worker(concurrency=5) as worker:
        heart = worker.session.heartbeat
        real = heart._on_result

        def late(pulse: Any) -> None:
            asyncio.get_running_loop().call_later(0.15, real, pulse)

        heart._on_result = late
        runs = await app.start_many([short.bind(n=n) for n in range(200)])
        for number, run in enumerate(runs):
            assert await run.result(timeout=60) == number
    assert sorted(began) == list(range(200))
    assert await fetch(rota_dsn, "select max(attempt), count(*) from rota.outcomes") == [(1, 200)]


@pytest.mark.parametrize("holding_the_gil", [False, True])
async def test_worker_with_blocked_event_loop_stays_alive(
    app: Rota, other: Rota, rota_dsn: str, holding_the_gil: bool
) -> None:
    """The heartbeat continues while the loop is blocked, and after the GIL was held."""
    libc = ctypes.PyDLL(None)

    @app.task
    async def blocks() -> str:
        if holding_the_gil:
            libc.usleep(400_000)
        wait_for_beats(rota_dsn, worker.id)
        return "alive"

    watching = EventRecorder(other)
    run = await blocks.start()
    async with other.worker():
        async with app.worker() as worker:
            before = worker.id
            assert await run.result(timeout=60) == "alive"
            assert worker.id == before
    assert [event for event in watching.events if isinstance(event, WorkerDied)] == []


async def test_worker_with_blocked_event_loop_logs_code_location(
    app: Rota, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task
    async def blocks() -> None:
        while not any("has been blocked" in line for line in caplog.messages):
            time.sleep(0.01)  # noqa: ASYNC251 - blocks on purpose

    caplog.set_level(logging.WARNING, "rota")
    run = await blocks.start()
    async with app.worker():
        await run.result(timeout=60)
    [warning] = [line for line in caplog.messages if "has been blocked" in line]
    assert "blocks" in warning
    assert "test_liveness.py" in warning


async def test_worker_with_exhausted_pool_stays_alive(rota_dsn: str, other: Rota) -> None:
    watching = EventRecorder(other)
    async with Rota(rota_dsn, connections=1, outage_timeout=60, **QUICK) as app:

        @app.task
        async def hogs() -> str:
            client = await app.open()
            async with client.database.connection():
                await asyncio.to_thread(wait_for_beats, rota_dsn, worker.id)
            return "done"

        run = await hogs.start()
        async with other.worker(), app.worker() as worker:
            before = worker.id
            while await run.status() != "succeeded":
                await asyncio.sleep(0.05)
            assert worker.id == before
    assert [event for event in watching.events if isinstance(event, WorkerDied)] == []


async def session_lock(dsn: str, worker: int) -> int | None:
    """Return the session lock of the worker's row if the server holds it."""
    rows = await fetch(
        dsn,
        "select session_lock from rota.workers join pg_locks on objid::bigint = session_lock"
        f" where locktype = 'advisory' and workers.id = {worker}",
    )
    return rows[0][0] if rows else None


async def hang_up(dsn: str, worker: int) -> None:
    """Terminate the session of the worker's heartbeat; wait until the next one has beaten."""

    async def has_lock() -> bool:
        return await session_lock(dsn, worker) is not None

    await until(has_lock)
    before = await session_lock(dsn, worker)
    await fetch(
        dsn, f"select pg_terminate_backend(pid) from pg_locks where objid = {before}::bigint"
    )

    async def has_another() -> bool:
        return await session_lock(dsn, worker) not in (None, before)

    await until(has_another)


async def test_heartbeat_of_terminated_session_beats_at_once(direct_dsn: str) -> None:
    """Beats are an hour apart, so only the watched socket causes the next one."""
    async with Rota(
        direct_dsn, heartbeat_interval=3600, dead_after=14400, poll_interval=0.1
    ) as app:
        app.task(name="nothing")(lambda: None)
        async with app.worker() as worker:
            for _ in range(2):
                await hang_up(direct_dsn, worker.id)


async def test_heartbeat_reconnects_before_worker_is_declared_dead(
    app: Rota, other: Rota, direct_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The backend is terminated five times, and each time the session lock is lost."""
    monkeypatch.setattr(failure_detector, "CONFIRM_SECONDS", 60.0)

    @app.task
    async def nothing() -> None: ...

    watching = EventRecorder(other)
    async with other.worker() as observer, app.worker() as worker:
        before = worker.id
        for _ in range(5):
            await hang_up(direct_dsn, before)

        async def trusts() -> bool:
            return observer.session.heartbeat._detector.confirm_in_seconds is None

        await until(trusts)
        assert worker.id == before
    assert [event for event in watching.events if isinstance(event, WorkerDied)] == []


async def test_heartbeat_after_listener_reconnect_observes_new_worker(direct_dsn: str) -> None:
    """A worker that registered while the listener was disconnected is observed after the reconnect."""
    async with Rota(direct_dsn, heartbeat_interval=60, dead_after=240, poll_interval=0.1) as app:

        @app.task
        async def nothing() -> None: ...

        async with app.worker() as worker:
            heart = worker.session.heartbeat

            async def alone() -> bool:
                return heart._alone

            async def sees_one() -> bool:
                return heart._other_workers == 1

            await until(alone)
            await fetch(
                direct_dsn,
                "insert into rota.workers (host, pid, version, engine, queues, tasks, capacity, metadata)"
                " values ('elsewhere', 1, '', '', '{}', '{}', 1, '{}') returning id",
            )
            assert await fetch(
                direct_dsn,
                "select pg_terminate_backend(pid) from pg_stat_activity where query ilike 'listen %'"
                " and datname = current_database()",
            )
            await until(sees_one)


async def test_worker_without_heartbeat_is_declared_dead_and_reaped(
    app: Rota, rota_dsn: str
) -> None:
    started = asyncio.Event()

    @app.task
    async def slow() -> None:
        started.set()
        await asyncio.sleep(3600)

    other = Rota(rota_dsn, **(QUICK | {"dead_after": 2}))
    other.task(name="idle", queue="elsewhere")(lambda: None)

    watching = EventRecorder(other)
    run = await slow.start()
    async with other, other.worker():
        async with app.worker() as worker:
            await started.wait()
            dead = worker.id
            # As if the process were frozen: it holds its session lock, but its heartbeat stops.
            heart = worker.session.heartbeat

            async def stands_still() -> float:
                return 0.1

            heart.tick = stands_still  # type: ignore[method-assign]
            await watching.wait_for_event(WorkerDied, dead_worker=dead)
            reaped = await watching.wait_for_event(JobsReaped, dead_worker=dead)
            assert reaped.jobs == (run.id,)
            del heart.tick
            assert await run.status() == "queued"
            worker.hurry()


async def test_heartbeat_row_updates_are_all_hot(app: Rota, rota_dsn: str) -> None:
    @app.task
    async def nothing() -> None: ...

    async with app.worker() as worker:
        await asyncio.to_thread(wait_for_beats, rota_dsn, worker.id)
    counts = "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'workers'"

    async def reported() -> bool:
        """PostgreSQL reports statistics with a delay."""
        [(updates, _)] = await fetch(rota_dsn, counts)
        return bool(updates > 5)

    await until(reported)
    [(updates, hot)] = await fetch(rota_dsn, counts)
    assert hot == updates
