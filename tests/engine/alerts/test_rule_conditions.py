"""Every rule, raised and cleared by causing its real condition."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from rota import Retry, Rota
from rota.app.locks import Lock
from rota.engine.scheduling import scheduler
from rota.model import alert_rules
from rota.model.events import AlertCleared, AlertRaised, JobClaimed, OutcomeRefused
from rota.store import workers
from rota.testing import EventRecorder, Harness, SettableClock
from support.alert_helpers import HOST, QUICK, ManualEvaluator, Sql, message, rows, until
from support.owned_clock import ClockedRota

pytestmark = pytest.mark.usefixtures("short_rounds")


def watcher(dsn: str, alerts: str = "", **more: Any) -> Rota:
    """Return an instance that makes rounds and claims no jobs."""
    app = Rota(dsn, alerts=alerts, **QUICK, **more)

    @app.task(queue="elsewhere")
    async def idle() -> None: ...

    return app


@pytest.fixture
async def clock(app: Rota) -> SettableClock:
    """The clock of the database, which stands still."""
    clock = SettableClock(app)
    await clock.advance(timedelta())
    return clock


@pytest.fixture
async def app(rota_dsn: str) -> AsyncIterator[Rota]:
    async with Rota(rota_dsn, **QUICK) as app:
        yield app


# Queues


async def test_queue_age_alert_without_worker_clears_when_one_starts(
    rota_dsn: str, db: Sql, app: Rota, caplog: pytest.LogCaptureFixture
) -> None:
    @app.task(queue="images")
    async def resize() -> None: ...

    caplog.set_level("INFO", "rota")
    async with Harness(watcher(rota_dsn, "queue-age=1s")) as watching:
        async with watching.app.worker():
            run = await resize.start()
            raised = await watching.wait_for_event(
                AlertRaised, kind=alert_rules.QUEUE_OLD, subject="images"
            )
            async with app.worker():
                await run.result(timeout=60)
                await until(db, [(alert_rules.QUEUE_OLD, "images", False)])

    assert f"in queue 'images' job {run.id} (resize) has been queued for 1 s" in raised.message
    assert "no worker serves the queue; start one with `rota worker … -q images`" in raised.message
    told = [(each.levelname, each.message) for each in caplog.records if "alert" in each.message]
    assert [level for level, _ in told] == ["WARNING", "INFO"]
    assert told[1][1] == "alert cleared: queue too old: images"


async def test_queue_age_alert_message_follows_the_present_state(
    db: Sql, manual_evaluator: ManualEvaluator
) -> None:
    await db.execute("select rota.start('draw', '{}', queue => 'art')")
    await db.execute("update rota.jobs set created = created - interval '10 min'")
    await manual_evaluator.database.run(workers.register("host", 1, "0", ["art"], ["paint"], 7))
    await manual_evaluator.look()
    assert "the only worker that serves the queue does not know the task" in await message(
        db, alert_rules.QUEUE_OLD
    )
    await db.execute("update rota.workers set tasks = '{draw}', running = 3")
    await manual_evaluator.look()
    said = await message(db, alert_rules.QUEUE_OLD)
    assert "1 worker can claim it, with 3 of at most 7 jobs running" in said
    assert "has been queued for 60" in said


async def test_queue_age_alert_sleeping_job_counts_from_its_wake_up(
    rota_dsn: str, db: Sql, clock: SettableClock
) -> None:
    """The job was created long ago and has just been queued, so it is not late. Then it waits."""
    looker = ManualEvaluator(rota_dsn, alerts="queue-age=1s")
    await db.execute("select rota.start('work', '{}', delay => '1 h')")
    await db.execute("update rota.jobs set created = created - interval '1 day'")
    await db.execute(
        "with woken as (delete from rota.sleeping returning *) insert into rota.queued"
        " (seq, job, priority, queue, task) select nextval('rota.ids'), job, priority, queue, task"
        " from woken"
    )
    assert await looker.look() == []
    await clock.advance(timedelta(seconds=1.1))
    assert [each.kind for each in await looker.look()] == [alert_rules.QUEUE_OLD]
    await looker.close()


async def test_queue_age_alert_limit_of_queue_overrides_the_default(rota_dsn: str, db: Sql) -> None:
    looker = ManualEvaluator(
        rota_dsn, alerts="queue-age=1m; fast: queue-age=5s; slow: queue-age=off"
    )
    for queue in ("fast", "slow", "usual"):
        await db.execute("select rota.start('work', '{}', queue => %s)", (queue,))
    await db.execute("update rota.jobs set created = created - interval '30 s'")
    await looker.look()
    assert await rows(db) == [(alert_rules.QUEUE_OLD, "fast", True)]
    await db.execute("update rota.jobs set created = created - interval '1 h'")
    await looker.look()
    assert await rows(db) == [
        (alert_rules.QUEUE_OLD, "fast", True),
        (alert_rules.QUEUE_OLD, "usual", True),
    ]
    await looker.close()


# Schedules


async def test_schedule_late_alert_without_worker_clears_when_one_starts(
    rota_dsn: str, db: Sql
) -> None:
    async with Rota(rota_dsn, **QUICK) as app:

        @app.task
        async def report() -> None: ...

        await app.schedules.create("nightly", report, every=0.5)
        async with Harness(watcher(rota_dsn, "schedule-late=1s")) as watching:
            async with watching.app.worker():
                raised = await watching.wait_for_event(AlertRaised, kind=alert_rules.SCHEDULE_LATE)
                async with app.worker():
                    await until(db, [(alert_rules.SCHEDULE_LATE, "nightly", False)])

    assert "no live worker knows 'report'" in raised.message


async def test_schedule_late_alert_postponed_schedule_is_raised(rota_dsn: str, db: Sql) -> None:
    """Its due time moves on by a minute every minute, without a tick."""
    async with Rota(rota_dsn, **QUICK) as app:

        @app.task
        async def report() -> None: ...

        await app.schedules.create("nightly", report, every=3600)
        await db.execute(
            "update rota.schedules set reason = 'no such zone', next = now() - interval '1 h',"
            " due = now() + interval '1 minute'"
        )
        async with Harness(watcher(rota_dsn, "schedule-late=1s")) as watching:
            async with watching.app.worker():
                raised = await watching.wait_for_event(AlertRaised, kind=alert_rules.SCHEDULE_LATE)
    assert "is late by 3600 s" in raised.message


async def test_schedule_fails_alert_of_paused_schedule_clears_on_resume(
    rota_dsn: str, db: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "SWEEP_SECONDS", 0.2)
    app = Rota(rota_dsn, **QUICK)

    @app.task(retry=Retry(max_attempts=1))
    async def report() -> None:
        raise ValueError("no paper")

    async with Harness(app) as harness:
        await app.schedules.create("nightly", report, every=0.2, pause_after=2)
        async with app.worker():
            raised = await harness.wait_for_event(
                AlertRaised, kind=alert_rules.SCHEDULE_FAILS, timeout=60
            )
            await app.schedules.pause("nightly")
            assert await rows(db) == [(alert_rules.SCHEDULE_FAILS, "nightly", True)]
            await db.execute("update rota.schedules set due = now() + interval '1 h'")
            await app.schedules.resume("nightly")
            await db.execute("update rota.schedules set due = now() + interval '1 h'")
            await harness.wait_for_event(
                AlertCleared, kind=alert_rules.SCHEDULE_FAILS, subject="nightly"
            )

    assert "has failed 2 times in a row" in raised.message
    assert "was paused; fix the cause, then run `rota schedules resume nightly`" in (raised.message)


# Rejected outcomes, failures and quarantine


async def test_quarantine_alert_clears_some_time_after_release(
    db: Sql, manual_evaluator: ManualEvaluator, clock: SettableClock
) -> None:
    await db.execute("select rota.start('work', '{}')")
    await db.execute(
        "with gone as (delete from rota.queued returning *) insert into rota.quarantine"
        " (job, priority, attempt, crashes, queue, task) select job, priority, 1, 3, queue, task from gone"
    )
    await manual_evaluator.look()
    assert await rows(db) == [(alert_rules.QUARANTINE, "default", True)]
    said = await message(db, alert_rules.QUARANTINE)
    assert "queue 'default' has 1 job in quarantine, such as 1 (work)" in said
    assert "`rota release 1`" in said

    await db.execute("select rota.release(1)")
    await manual_evaluator.look()
    assert await rows(db) == [(alert_rules.QUARANTINE, "default", True)], "it may come back"
    await clock.advance(timedelta(seconds=0.3))
    await manual_evaluator.look()
    assert await rows(db) == [(alert_rules.QUARANTINE, "default", False)]


async def test_refused_outcome_alert_of_dead_worker_is_raised_and_cleared(
    rota_dsn: str, db: Sql
) -> None:
    go = asyncio.Event()
    app = Rota(rota_dsn, alerts="refused=1 worker-dead=off", **QUICK)

    @app.task
    async def slow() -> None:
        await go.wait()

    async with app:
        witness = EventRecorder(app)
        run = await slow.start()
        async with app.worker() as worker:
            await witness.wait_for_event(JobClaimed, job=run.id)
            worker.session.heartbeat._on_result = lambda pulse: (
                None
            )  # ignores results: it runs on after its death
            await db.execute("update rota.workers set state = 'dead', ended = now()")
            await db.execute("select rota.reap(id) from rota.claims")
            go.set()
            await witness.wait_for_event(OutcomeRefused, job=run.id)
            raised = await witness.wait_for_event(
                AlertRaised, kind=alert_rules.REFUSED, subject=HOST
            )
            del worker.session.heartbeat._on_result
            await db.execute("update rota.refused_outcomes set at = at - interval '5 min'")
            await witness.wait_for_event(AlertCleared, kind=alert_rules.REFUSED, subject=HOST)

    assert f"the database refused 1 completion from {HOST}" in raised.message


# The database


async def test_snapshot_alert_open_transaction_names_its_session(
    rota_dsn: str, direct_dsn: str, db: Sql
) -> None:
    patient = ManualEvaluator(rota_dsn, alerts="snapshot=1h")
    looker = ManualEvaluator(rota_dsn, alerts="snapshot=1s")
    async with await type(db).connect(direct_dsn, application_name="a report") as other:
        await other.execute("select txid_current()")
        assert await patient.look() == []
        await patient.close()
        async with asyncio.timeout(60):
            while not await looker.look():
                await asyncio.sleep(0.05)
        assert await rows(db) == [(alert_rules.SNAPSHOT_OLD, "database", True)]
        pid = other.info.backend_pid
        said = await message(db, alert_rules.SNAPSHOT_OLD)
        assert f"process {pid} of the server (a report, idle in transaction)" in said
    async with asyncio.timeout(60):
        while any(is_open for _, _, is_open in await rows(db)):
            await looker.look()
    assert await rows(db) == [(alert_rules.SNAPSHOT_OLD, "database", False)]
    await looker.close()


# Disabled rules


async def test_disabled_rule_raises_nothing_and_closes_open_alerts(
    rota_dsn: str, db: Sql, manual_evaluator: ManualEvaluator
) -> None:
    silent = ManualEvaluator(rota_dsn, alerts="off")
    await db.execute("select rota.start('work', '{}')")
    await db.execute("update rota.jobs set created = created - interval '1 day'")
    assert await silent.look() == []
    assert len(await manual_evaluator.look()) == 1
    assert [each.raised for each in await silent.look()] == [False]
    assert await rows(db) == [(alert_rules.QUEUE_OLD, "default", False)]
    await silent.close()


async def test_disabled_rules_silence_lock_and_leader_alerts(rota_dsn: str, db: Sql) -> None:
    app = ClockedRota(rota_dsn, alerts="off")

    async def renewed(lock: Lock) -> None:
        app.lease_clock.advance(0.2)
        async with asyncio.timeout(60):
            while lock._require_lease().sent_at < app.lease_clock.now():
                await asyncio.sleep(0.005)

    async with Harness(app) as harness:
        alarms = (await app.open()).coordinator.alerts
        async with app.lock("invoices", ttl=0.6, max_held=0.05) as lock:
            await renewed(lock)
            assert alarms.next_expiry() == float("inf"), "nobody waits to tell it"
            alarms.on_duplicate_token(lock._require_lease())
            alarms.on_elections("mayor", 50)
            await renewed(lock)  # the thread has written what it had to write
    assert await rows(db) == []
    assert not [each for each in harness.events if isinstance(each, AlertRaised)]
