"""A signal and a job that is about to wait for it, at every point: never lost, never received twice.

Both lock the row of the signal first. So a sender waits while the job suspends, and then finds it
sleeping. If the signal was sent before, the job finds it and does not suspend.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from psycopg.errors import SerializationFailure

from rota.store import timers
from support import flows
from support.journals import (
    claim_queued,
    make_timers_due,
    read_journal,
    read_signal,
    record_entries,
    send_signal,
    start_suspended,
    suspend_job,
    suspend_statements,
    wait,
)
from support.lost_workers import declare_dead, queued_rows, reap
from support.stage import Batch, Connection, Stage

STATEMENTS = ["register waits", "lock", "record", "suspend"]


@pytest.fixture
async def job(stage: Stage) -> Connection:
    """Session in which a job suspends."""
    return await stage.connect(engine=True)


@pytest.fixture
async def sender(stage: Stage) -> Connection:
    return await stage.connect()


async def expect_payload_once(stage: Stage, batch: Batch, payload: str = "1") -> None:
    """Check that the job is queued, in one place, and receives the payload once."""
    assert await stage.sql("select job from rota.queued") == batch.jobs
    assert await stage.sql("select job from rota.sleeping") == []
    new = await claim_queued(stage)
    assert [each.payload for each in await read_journal(stage, new)] == [payload]
    assert await stage.complete(new) == []


# Before, during and after the suspension


@pytest.mark.parametrize("waited_before", [True, False])
@pytest.mark.parametrize("committed", STATEMENTS)
async def test_signal_during_suspension_waits_and_wakes_the_job(
    stage: Stage, job: Connection, sender: Connection, committed: str, waited_before: bool
) -> None:
    """For every statement of the suspension, with an existing and with a new row of the signal."""
    batch = await stage.held(1)
    if waited_before:
        await stage.sql(
            "insert into rota.signals (run, name, jobs) values (%s, 'go', %s)",
            *(batch.jobs[0], batch.jobs),
        )
    upto = STATEMENTS.index(committed) + 1
    queries = suspend_statements(batch, wait("go"))
    assert len(queries) == len(STATEMENTS)

    async with job.transaction():
        for query in queries[:upto]:
            await stage.run(query, job)
        sending = stage.meanwhile(send_signal(stage, batch.jobs[0], payload='"now"', on=sender))
        await stage.waits(sender, job)
        for query in queries[upto:]:
            await stage.run(query, job)

    assert await sending == "sent"
    await expect_payload_once(stage, batch, '"now"')


async def test_suspend_during_signal_waits_and_queues_the_job(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)

    async with sender.transaction():
        assert await send_signal(stage, batch.jobs[0], on=sender) == "sent"
        going = stage.meanwhile(suspend_job(stage, batch, wait("go"), on=job))
        await stage.waits(job, sender)

    assert (await going).queues == ["default"]
    await expect_payload_once(stage, batch)


async def test_signal_rolled_back_during_suspension_leaves_job_sleeping(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)

    async with sender.transaction(force_rollback=True):
        await send_signal(stage, batch.jobs[0], payload='"undone"', on=sender)
        going = stage.meanwhile(suspend_job(stage, batch, wait("go"), on=job))
        await stage.waits(job, sender)

    await going
    assert await stage.place(batch.jobs[0]) == "sleeping"
    assert await send_signal(stage, batch.jobs[0]) == "sent"
    await expect_payload_once(stage, batch)


async def test_signal_during_rolled_back_suspension_is_received_later(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)

    async with job.transaction(force_rollback=True):
        await suspend_job(stage, batch, wait("go"), on=job)
        sending = stage.meanwhile(send_signal(stage, batch.jobs[0], on=sender))
        await stage.waits(sender, job)
    assert await sending == "sent"
    assert await stage.place(batch.jobs[0]) == "running"

    await suspend_job(stage, batch, wait("go"))
    await expect_payload_once(stage, batch)


async def test_job_waiting_for_two_signals_receives_both(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)
    other = await stage.connect()

    async with job.transaction():
        await suspend_job(stage, batch, wait("a"), wait("b", position=2), on=job)
        first = stage.meanwhile(send_signal(stage, batch.jobs[0], "b", on=sender))
        second = stage.meanwhile(send_signal(stage, batch.jobs[0], "a", on=other))
        await stage.waits(sender, job)
        await stage.waits(other, job)

    assert [await first, await second] == ["sent", "sent"]
    assert await stage.sql("select job from rota.queued") == batch.jobs
    found = await read_journal(stage, await claim_queued(stage))
    assert [each.payload for each in found] == ["1", "1"]


async def test_two_jobs_suspending_for_one_signal_are_both_woken(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    laid = await flows.start(stage, {"a": [], "b": []})
    worker = await stage.worker()
    a = await flows.claim_only(stage, worker, "a")
    b = await flows.claim_only(stage, worker, "b")
    second = await stage.connect(engine=True)

    async with job.transaction():
        await suspend_job(stage, a, wait("go"), on=job)
        going = stage.meanwhile(suspend_job(stage, b, wait("go"), on=second))
        await stage.waits(second, job)
        sending = stage.meanwhile(send_signal(stage, laid.run, on=sender))
        await stage.waits(sender, job)
    await going

    assert await sending == "sent"
    assert sorted(await queued_rows(stage, "seq")) == [laid["a"], laid["b"]]


# Two senders


@pytest.mark.parametrize("expected", [True, False])
@pytest.mark.parametrize("kept", [True, False])
async def test_two_concurrent_signals_send_one_payload(
    stage: Stage, sender: Connection, expected: bool, kept: bool
) -> None:
    batch = await start_suspended(stage, wait("go")) if expected else await stage.held(1)
    second = await stage.connect()

    async with sender.transaction(force_rollback=not kept):
        assert await send_signal(stage, batch.jobs[0], payload='"one"', on=sender) == "sent"
        sending = stage.meanwhile(send_signal(stage, batch.jobs[0], payload='"two"', on=second))
        await stage.waits(second, sender)

    assert await sending == ("known" if kept else "sent")
    assert await read_signal(stage, batch.jobs[0]) == ('"one"' if kept else '"two"')
    if expected:
        await expect_payload_once(stage, batch, '"one"' if kept else '"two"')


async def test_many_concurrent_signals_send_exactly_one(stage: Stage) -> None:
    sessions = [await stage.connect() for _ in range(8)]
    for number in range(25):
        batch = await start_suspended(stage, wait("go"))
        answers = await asyncio.gather(
            *(
                send_signal(stage, batch.jobs[0], payload=f"[{number}, {each}]", on=session)
                for each, session in enumerate(sessions)
            )
        )
        assert Counter(answers) == {"sent": 1, "known": 7}
        await expect_payload_once(stage, batch, f"[{number}, {answers.index('sent')}]")


# Old snapshots


@pytest.mark.parametrize("waited_before", [True, False])
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_signal_with_old_snapshot_fails_instead_of_being_lost(
    stage: Stage, sender: Connection, level: str, waited_before: bool
) -> None:
    """The sender does not see the sleeping job, and so must not report that the signal was sent."""
    batch = await stage.held(1)
    if waited_before:
        await stage.sql("insert into rota.signals (run, name) values (%s, 'go')", batch.jobs[0])
    async with sender.transaction():
        await stage.sql(f"set transaction isolation level {level}", on=sender)
        assert await stage.sql("select count(*) from rota.sleeping", on=sender) == [0]
        await suspend_job(stage, batch, wait("go"))

        with pytest.raises(SerializationFailure):
            async with sender.transaction():
                await send_signal(stage, batch.jobs[0], on=sender)

    assert await stage.place(batch.jobs[0]) == "sleeping"
    assert await send_signal(stage, batch.jobs[0], on=sender) == "sent"
    await expect_payload_once(stage, batch)


# Timers


async def test_signal_after_timer_wake_is_received(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await start_suspended(stage, wait("go", seconds=60))
    await make_timers_due(stage)

    async with job.transaction():
        [woken] = await stage.run(timers.wake(10), job)
        assert woken.count == 1
        sending = stage.meanwhile(send_signal(stage, batch.jobs[0], on=sender))
        await stage.waits(sender, job)

    assert await sending == "sent"
    await expect_payload_once(stage, batch)


async def test_timer_after_signal_wakes_nothing(stage: Stage, sender: Connection) -> None:
    batch = await start_suspended(stage, wait("go", seconds=60))
    await make_timers_due(stage)

    async with sender.transaction():
        assert await send_signal(stage, batch.jobs[0], on=sender) == "sent"
        async with asyncio.timeout(60):
            [woken] = await stage.run(timers.wake(10))
        assert woken.count == 0

    assert (await stage.run(timers.wake(10)))[0].count == 0
    await expect_payload_once(stage, batch)


# Cancel


async def test_signal_during_cancel_wakes_nothing(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await start_suspended(stage, wait("go"))

    async with job.transaction():
        assert await flows.cancel(stage, batch.jobs[0], job) == "cancelled"
        sending = stage.meanwhile(send_signal(stage, batch.jobs[0], on=sender))
        await stage.waits(sender, job)

    assert await sending == "sent", "it had not ended when it was said"
    assert await stage.place(batch.jobs[0]) == "cancelled"
    assert await stage.sql("select job from rota.queued") == []


async def test_cancel_during_signal_cancels_the_woken_job(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await start_suspended(stage, wait("go"))

    async with sender.transaction():
        await send_signal(stage, batch.jobs[0], on=sender)
        cancelling = stage.meanwhile(flows.cancel(stage, batch.jobs[0], job))
        await stage.waits(job, sender)

    assert await cancelling == "cancelled"
    assert await stage.place(batch.jobs[0]) == "cancelled"
    assert await stage.sql("select job from rota.queued") == []
    assert await stage.sql("select job from rota.cancels") == []


@pytest.mark.parametrize("signalled", [True, False])
async def test_cancel_during_suspension_cancels_the_job(
    stage: Stage, job: Connection, sender: Connection, signalled: bool
) -> None:
    batch = await stage.held(1)
    canceller = await stage.connect()

    async with job.transaction():
        await suspend_job(stage, batch, wait("go"), on=job)
        sending = (
            stage.meanwhile(send_signal(stage, batch.jobs[0], on=sender)) if signalled else None
        )
        if signalled:
            await stage.waits(sender, job)
        cancelling = stage.meanwhile(flows.cancel(stage, batch.jobs[0], canceller))
        await stage.waits(canceller, job)

    assert await cancelling == "cancelled"
    if sending is not None:
        await sending
    assert await stage.place(batch.jobs[0]) == "cancelled"


async def test_cancel_while_suspension_waits_for_signal_is_applied(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)

    async with sender.transaction():
        await send_signal(stage, batch.jobs[0], on=sender)
        going = stage.meanwhile(suspend_job(stage, batch, wait("go"), on=job))
        await stage.waits(job, sender)
        async with asyncio.timeout(60):
            assert await flows.cancel(stage, batch.jobs[0]) == "requested"

    assert (await going).jobs == batch.jobs
    assert await stage.place(batch.jobs[0]) == "cancelled"


# Lost workers


async def test_signal_during_reap_is_received_by_next_attempt(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)
    await record_entries(stage, batch, wait("go"))
    await declare_dead(stage, batch.worker)

    async with job.transaction():
        await reap(stage, batch.id, on=job)
        async with asyncio.timeout(60):
            assert await send_signal(stage, batch.jobs[0], on=sender) == "sent"

    assert await stage.place(batch.jobs[0]) == "queued"
    assert [each.payload for each in await read_journal(stage, batch)] == ["1"]
