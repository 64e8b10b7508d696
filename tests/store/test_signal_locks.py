"""Order of locks of signals: signals, then claims, then sleeping jobs, each by id."""

from __future__ import annotations

import asyncio

import pytest

from rota.engine.worker import outcomes
from rota.model.outcome import Suspended
from support import flows
from support.journals import record_entries, send_signal, sleep, start_suspended, suspend_job, wait
from support.stage import Connection, Stage


@pytest.fixture
async def job(stage: Stage) -> Connection:
    """Session in which a job suspends."""
    return await stage.connect(engine=True)


@pytest.fixture
async def sender(stage: Stage) -> Connection:
    return await stage.connect()


async def is_free(stage: Stage, run: int, name: str = "go") -> bool:
    found = await stage.sql(
        "select from rota.signals where run = %s and name = %s for update skip locked", run, name
    )
    return len(found) == 1


@pytest.mark.parametrize("given", [[0, 1, 2], [2, 1, 0], [1, 2, 0]])
async def test_suspend_locks_signals_in_order_before_claims(
    stage: Stage, job: Connection, sender: Connection, given: list[int]
) -> None:
    batch = await stage.held(3)
    for each in batch.members:
        await stage.sql("insert into rota.signals (run, name) values (%s, 'go')", each.job)
    going = [(batch.members[n], Suspended((wait("go"),), (wait("go"),))) for n in given]

    async with job.transaction(force_rollback=True):
        async with sender.transaction():
            await send_signal(stage, batch.jobs[1], on=sender)
            first, *_ = outcomes.suspend(batch.worker, going)
            expecting = stage.meanwhile(stage.run(first, job))
            await stage.waits(job, sender)
            assert not await is_free(stage, batch.jobs[0])
            assert await is_free(stage, batch.jobs[2])
            assert len(await stage.sql("select id from rota.claims for update skip locked")) == 1
        await expecting


async def test_signal_wakes_sleeping_jobs_by_rising_id(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    laid = await flows.start(stage, {"a": [], "b": [], "c": []})
    worker = await stage.worker()
    for name in ("c", "b", "a"):
        await suspend_job(stage, await flows.claim_only(stage, worker, name), wait("go"))
    await stage.sql("update rota.signals set jobs = %s", [laid["c"], laid["a"], laid["b"]])

    async with job.transaction():
        await stage.sql("select from rota.sleeping where job = %s for update", laid["b"], on=job)
        sending = stage.meanwhile(send_signal(stage, laid.run, on=sender))
        await stage.waits(sender, job)
        free = await stage.sql("select job from rota.sleeping for update skip locked")

    assert free == [laid["c"]]
    assert await sending == "sent"
    assert await stage.sql("select job from rota.queued order by seq") == list(laid.jobs.values())


async def test_cancel_locks_sleeping_jobs_by_rising_id(stage: Stage, job: Connection) -> None:
    laid = await flows.start(stage, {"a": [], "b": [], "c": []})
    worker = await stage.worker()
    for name in ("c", "a", "b"):
        await suspend_job(stage, await flows.claim_only(stage, worker, name), wait("go"))
    canceller = await stage.connect()

    async with job.transaction():
        await stage.sql("select from rota.sleeping where job = %s for update", laid["b"], on=job)
        cancelling = stage.meanwhile(flows.cancel(stage, laid.run, canceller))
        await stage.waits(canceller, job)
        free = await stage.sql("select job from rota.sleeping for update skip locked")

    assert free == [laid["c"]]
    assert await cancelling == "cancelled"


@pytest.mark.parametrize("strength", ["key share", "update"])
async def test_signal_send_does_not_wait_for_a_claim(
    stage: Stage, job: Connection, sender: Connection, strength: str
) -> None:
    """The job's own transaction may take its time, and so may a session that ends other jobs of the
    claim."""
    batch = await stage.held(2)
    await record_entries(stage, batch, wait("go"))

    async with job.transaction():
        await stage.sql(f"select from rota.claims for {strength}", on=job)
        async with asyncio.timeout(60):
            assert await send_signal(stage, batch.jobs[0], on=sender) == "sent"


async def test_signal_send_does_not_wait_for_another_run_or_name(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch, other = await stage.held(1), await start_suspended(stage, wait("go"))

    async with job.transaction():
        await suspend_job(stage, batch, wait("go"), on=job)
        async with asyncio.timeout(60):
            assert await send_signal(stage, other.jobs[0], on=sender) == "sent"
            assert await send_signal(stage, batch.jobs[0], "other", on=sender) == "sent"


async def test_suspend_for_sleep_locks_no_signal(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)

    async with job.transaction():
        await suspend_job(stage, batch, sleep(60), on=job)
        async with asyncio.timeout(60):
            assert await send_signal(stage, batch.jobs[0], on=sender) == "sent"

    assert await stage.sql("select jobs from rota.signals") == [[]]
