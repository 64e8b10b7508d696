"""Claim loop under failures: lost answers, late commits, results that PostgreSQL refuses."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import psycopg
import pytest

from rota import Rota, RunFailed
from rota.engine.alerting.evaluator import RefusedCounter
from rota.model.events import JobClaimed, JobFinished, OutcomeRefused
from rota.model.outcome import Succeeded
from rota.store import claims, jobs
from rota.store.database import pipeline
from rota.testing import Harness
from support.queries import fetch, until

# Lost answers


class LosingPipeline:
    """Pipeline that closes the connection after the commit and before the caller reads the answer."""

    def __init__(self, times: set[int]) -> None:
        self.times, self.calls, self.cuts = times, 0, 0

    async def __call__(self, connection: Any, segments: Any, schema: str) -> Any:
        answers = await pipeline(connection, segments, schema)
        self.calls += 1
        if self.calls in self.times:
            self.cuts += 1
            await connection.close()
            raise psycopg.OperationalError("the line went dead")
        return answers


async def test_claim_loop_with_lost_answers_records_each_job_once(
    rota_dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Every third answer is lost: outcomes are resent, and jobs of lost claims return to the queue."""
    caplog.set_level(logging.ERROR, "rota")
    cut = LosingPipeline(times={n for n in range(200) if n % 3 == 2})
    monkeypatch.setattr("rota.store.connection.pipeline", cut)
    runs: dict[int, int] = {}

    async with Rota(rota_dsn, poll_interval=0.05, heartbeat_interval=0.1) as app:

        @app.task
        async def count(n: int) -> int:
            runs[n] = runs.get(n, 0) + 1
            return n

        started = await app.start_many([count.bind(n=n) for n in range(300)])
        async with app.worker(concurrency=20):
            for run in started:
                await run.result(timeout=60)

    assert cut.cuts > 5
    assert set(runs.values()) == {1}
    assert await fetch(rota_dsn, "select count(*), count(distinct job) from rota.outcomes") == [
        (300, 300)
    ]
    assert await fetch(rota_dsn, "select count(*) from rota.claims") == [(0,)]


async def test_claim_loop_resend_without_refusal_reports_none(
    rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer to a recorded outcome is lost. The resent outcome is known, so it counts as no refusal."""
    cut = LosingPipeline(times={n for n in range(200) if n % 3 == 2})
    monkeypatch.setattr("rota.store.connection.pipeline", cut)
    reported: list[int] = []
    monkeypatch.setattr(RefusedCounter, "add", lambda self, jobs: reported.append(jobs))

    async with Rota(rota_dsn, poll_interval=0.05, heartbeat_interval=0.1) as app:

        @app.task
        async def count(n: int) -> int:
            return n

        started = await app.start_many([count.bind(n=n) for n in range(100)])
        async with app.worker(concurrency=20):
            for run in started:
                await run.result(timeout=60)

    assert cut.cuts > 1
    assert reported == []


async def test_outcome_under_lost_claim_is_refused(rota_harness: Harness, rota_dsn: str) -> None:
    """The job returns to the queue while it runs; the result under the old claim is refused."""
    app = rota_harness.app
    go = asyncio.Event()

    @app.task
    async def slow() -> str:
        await go.wait()
        return "zombie"

    run = await slow.start()
    async with app.worker() as worker:
        await rota_harness.wait_for_event(JobClaimed, job=run.id)
        database = (await app.open()).database
        [held] = await database.run(claims.by_worker(worker.id))
        await database.run(jobs.return_to_queue(worker.id, [held.id], [run.id]))
        go.set()
        refused = await rota_harness.wait_for_event(OutcomeRefused, job=run.id)
        assert refused.worker == worker.id
        # Back in the queue, the job is claimed a second time and succeeds.
        assert await run.result(timeout=60) == "zombie"
    [(claim,)] = await fetch(rota_dsn, "select claim from rota.outcomes")
    assert claim != held.id


async def test_outcome_refused_by_database_fails_only_its_job(
    rota_dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A result passes the codec, but PostgreSQL refuses it: only the job with this result fails."""
    caplog.set_level(logging.CRITICAL, "rota")
    monkeypatch.setattr(
        "rota.engine.execution.coroutines.success", lambda value, task, limit: Succeeded(value)
    )
    async with Rota(rota_dsn, poll_interval=0.05) as app:

        @app.task
        async def as_it_is(text: str) -> str:
            return text

        runs = await app.start_many([as_it_is.bind(f'"{n}"') for n in range(20)])
        poison = await as_it_is.start("this is not JSON")
        async with app.worker():
            with pytest.raises(RunFailed, match="InvalidTextRepresentation"):
                await poison.result(timeout=60)
            assert [await run.result(timeout=60) for run in runs] == [f"{n}" for n in range(20)]


# Late commits


async def test_claim_loop_without_notifications_finds_jobs_by_polling(rota_dsn: str) -> None:
    async with Rota(rota_dsn, notify=False, poll_interval=0.05) as app:

        @app.task
        async def quiet() -> str:
            return "found"

        async with app.worker():
            run = await quiet.start()
            assert await run.result(timeout=60) == "found"
    assert await fetch(
        rota_dsn, "select count(*) from pg_stat_activity where query like 'listen%'"
    ) == [(0,)]


async def test_claim_job_below_cursor_is_found_by_polling(rota_dsn: str) -> None:
    """The producer got its sequence number first and committed after the cursor had passed it."""
    async with Rota(rota_dsn, notify=False, poll_interval=0.1) as app:

        @app.task
        async def job(n: int) -> int:
            return n

        async with await psycopg.AsyncConnection.connect(rota_dsn) as dawdler, app.worker():
            late = await job.options(on=dawdler).start(n=0)
            for run in await app.start_many([job.bind(n=n) for n in range(50)]):
                await run.result(timeout=60)
            await dawdler.commit()
            assert await late.result(timeout=60) == 0


async def test_listener_reconnects_after_lost_connection(rota_dsn: str) -> None:
    async with Rota(rota_dsn, poll_interval=60) as app:

        @app.task
        async def ping() -> str:
            return "pong"

        async with app.worker():
            assert await (await ping.start()).result(timeout=60) == "pong"
            killed = await fetch(
                rota_dsn,
                "select pg_terminate_backend(pid) from pg_stat_activity "
                "where query like 'listen%' and pid <> pg_backend_pid()",
            )
            assert killed
            # The next poll is a minute away: only a notification can wake the worker.
            client = await app.open()
            await until(lambda: _is_listening(client.listener))
            assert await (await ping.start()).result(timeout=60) == "pong"


async def _is_listening(wakeups: Any) -> bool:
    return bool(wakeups.is_listening("rota.wake"))


async def test_worker_start_and_stop_set_the_state_of_its_row(
    rota_app: Rota, rota_dsn: str
) -> None:
    @rota_app.task
    async def nothing() -> None:
        pass

    async with rota_app.worker() as worker:
        assert await fetch(rota_dsn, "select id, state from rota.workers") == [
            (worker.id, "active")
        ]
    assert await fetch(rota_dsn, "select id, state from rota.workers") == [(worker.id, "stopped")]


@pytest.mark.serial
async def test_worker_idle_makes_at_most_two_round_trips_a_second(
    rota_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Polls and timers together make at most two round trips a second."""
    calls = 0

    async def counted(*args: Any) -> Any:
        nonlocal calls
        calls += 1
        return await pipeline(*args)

    async with Rota(rota_dsn) as app:

        @app.task
        async def nothing() -> None:
            pass

        async with app.worker():
            await (await nothing.start()).result(timeout=60)
            began = time.monotonic()
            monkeypatch.setattr("rota.store.connection.pipeline", counted)
            await asyncio.sleep(3)  # measuring time
            made, seconds = calls, time.monotonic() - began
    assert made <= 2 * seconds


async def test_job_finished_event_follows_recorded_outcome(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app = rota_harness.app

    @app.task
    async def quick() -> None:
        pass

    run = await quick.start()
    async with app.worker():
        await rota_harness.wait_for_event(JobFinished, job=run.id)
        assert await fetch(
            rota_dsn, f"select state::text from rota.outcomes where job = {run.id}"
        ) == [("succeeded",)]


async def test_start_same_key_by_fifty_callers_creates_one_run(rota_app: Rota) -> None:
    @rota_app.task
    async def only() -> None:
        pass

    runs = await asyncio.gather(*(only.options(key="k").start() for _ in range(50)))

    assert len({run.id for run in runs}) == 1
    assert [run.created for run in runs].count(True) == 1


def test_claimed_job_row_has_no_dict() -> None:
    """One row object per job: without `__dict__` there is less work for the garbage collector."""
    row = jobs.ClaimedJob(1, 2, 1, 0, 1, 2, "t", "q", "{}", None, None, None, None)
    assert not hasattr(row, "__dict__")
