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

from . import flows
from .durably import again, asleep, come_due, keep, known, lie_down, lying, said, say, wait
from .losses import bury, ready, reap
from .stage import Batch, Connection, Stage

STATEMENTS = ["expect", "hold", "record", "suspend", "release"]


@pytest.fixture
async def job(stage: Stage) -> Connection:
    """Session in which a job suspends."""
    return await stage.connect(engine=True)


@pytest.fixture
async def sender(stage: Stage) -> Connection:
    return await stage.connect()


async def has_it_once(stage: Stage, batch: Batch, payload: str = "1") -> None:
    """Check that the job is queued, in one place, and receives the payload once."""
    assert await stage.sql("select job from rota.queued") == batch.jobs
    assert await stage.sql("select job from rota.sleeping") == []
    new = await again(stage)
    assert [each.payload for each in await known(stage, new)] == [payload]
    assert await stage.complete(new) == []


# Before, during and after the suspension


@pytest.mark.parametrize("waited_before", [True, False])
@pytest.mark.parametrize("committed", STATEMENTS)
async def test_a_signal_that_comes_while_a_job_lies_down_waits_and_wakes_it(
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
    queries = lying(batch, wait("go"))
    assert len(queries) == len(STATEMENTS)

    async with job.transaction():
        for query in queries[:upto]:
            await stage.run(query, job)
        sending = stage.meanwhile(say(stage, batch.jobs[0], payload='"now"', on=sender))
        await stage.waits(sender, job)
        for query in queries[upto:]:
            await stage.run(query, job)

    assert await sending == "sent"
    await has_it_once(stage, batch, '"now"')


async def test_a_job_that_comes_while_a_signal_is_sent_waits_and_does_not_lie_down(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)

    async with sender.transaction():
        assert await say(stage, batch.jobs[0], on=sender) == "sent"
        going = stage.meanwhile(lie_down(stage, batch, wait("go"), on=job))
        await stage.waits(job, sender)

    assert (await going).queues == ["default"]
    await has_it_once(stage, batch)


async def test_one_that_is_not_sent_after_all_leaves_the_job_to_wait(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)

    async with sender.transaction(force_rollback=True):
        await say(stage, batch.jobs[0], payload='"undone"', on=sender)
        going = stage.meanwhile(lie_down(stage, batch, wait("go"), on=job))
        await stage.waits(job, sender)

    await going
    assert await stage.place(batch.jobs[0]) == "sleeping"
    assert await say(stage, batch.jobs[0]) == "sent"
    await has_it_once(stage, batch)


async def test_one_sent_while_a_job_does_not_lie_down_after_all_is_there_the_next_time(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)

    async with job.transaction(force_rollback=True):
        await lie_down(stage, batch, wait("go"), on=job)
        sending = stage.meanwhile(say(stage, batch.jobs[0], on=sender))
        await stage.waits(sender, job)
    assert await sending == "sent"
    assert await stage.place(batch.jobs[0]) == "running"

    await lie_down(stage, batch, wait("go"))
    await has_it_once(stage, batch)


async def test_a_job_that_waits_for_several_is_woken_by_one_and_sees_all_that_came(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)
    other = await stage.connect()

    async with job.transaction():
        await lie_down(stage, batch, wait("a"), wait("b", position=2), on=job)
        first = stage.meanwhile(say(stage, batch.jobs[0], "b", on=sender))
        second = stage.meanwhile(say(stage, batch.jobs[0], "a", on=other))
        await stage.waits(sender, job)
        await stage.waits(other, job)

    assert [await first, await second] == ["sent", "sent"]
    assert await stage.sql("select job from rota.queued") == batch.jobs
    found = await known(stage, await again(stage))
    assert [each.payload for each in found] == ["1", "1"]


async def test_two_jobs_of_a_run_that_lie_down_for_the_same_signal_are_both_woken(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    laid = await flows.start(stage, {"a": [], "b": []})
    worker = await stage.worker()
    a = await flows.claim_only(stage, worker, "a")
    b = await flows.claim_only(stage, worker, "b")
    second = await stage.connect(engine=True)

    async with job.transaction():
        await lie_down(stage, a, wait("go"), on=job)
        going = stage.meanwhile(lie_down(stage, b, wait("go"), on=second))
        await stage.waits(second, job)
        sending = stage.meanwhile(say(stage, laid.run, on=sender))
        await asyncio.sleep(0.02)
    await going

    assert await sending == "sent"
    assert sorted(await ready(stage, "seq")) == [laid["a"], laid["b"]]


# Two senders


@pytest.mark.parametrize("expected", [True, False])
@pytest.mark.parametrize("kept", [True, False])
async def test_of_two_signals_at_once_one_is_sent(
    stage: Stage, sender: Connection, expected: bool, kept: bool
) -> None:
    batch = await asleep(stage, wait("go")) if expected else await stage.held(1)
    second = await stage.connect()

    async with sender.transaction(force_rollback=not kept):
        assert await say(stage, batch.jobs[0], payload='"one"', on=sender) == "sent"
        sending = stage.meanwhile(say(stage, batch.jobs[0], payload='"two"', on=second))
        await stage.waits(second, sender)

    assert await sending == ("known" if kept else "sent")
    assert await said(stage, batch.jobs[0]) == ('"one"' if kept else '"two"')
    if expected:
        await has_it_once(stage, batch, '"one"' if kept else '"two"')


async def test_of_many_signals_at_once_exactly_one_is_sent(stage: Stage) -> None:
    sessions = [await stage.connect() for _ in range(8)]
    for number in range(25):
        batch = await asleep(stage, wait("go"))
        answers = await asyncio.gather(
            *(
                say(stage, batch.jobs[0], payload=f"[{number}, {each}]", on=session)
                for each, session in enumerate(sessions)
            )
        )
        assert Counter(answers) == {"sent": 1, "known": 7}
        await has_it_once(stage, batch, f"[{number}, {answers.index('sent')}]")


# Old snapshots


@pytest.mark.parametrize("waited_before", [True, False])
@pytest.mark.parametrize("level", ["repeatable read", "serializable"])
async def test_in_a_transaction_that_sees_the_past_a_signal_is_refused_rather_than_lost(
    stage: Stage, sender: Connection, level: str, waited_before: bool
) -> None:
    """The sender does not see the sleeping job, and so must not report that the signal was sent."""
    batch = await stage.held(1)
    if waited_before:
        await stage.sql("insert into rota.signals (run, name) values (%s, 'go')", batch.jobs[0])
    async with sender.transaction():
        await stage.sql(f"set transaction isolation level {level}", on=sender)
        assert await stage.sql("select count(*) from rota.sleeping", on=sender) == [0]
        await lie_down(stage, batch, wait("go"))

        with pytest.raises(SerializationFailure):
            async with sender.transaction():
                await say(stage, batch.jobs[0], on=sender)

    assert await stage.place(batch.jobs[0]) == "sleeping"
    assert await say(stage, batch.jobs[0], on=sender) == "sent"
    await has_it_once(stage, batch)


# Timers


async def test_a_timer_that_wakes_the_job_first_leaves_the_signal_to_be_read(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await asleep(stage, wait("go", seconds=60))
    await come_due(stage)

    async with job.transaction():
        [woken] = await stage.run(timers.wake(10), job)
        assert woken.count == 1
        sending = stage.meanwhile(say(stage, batch.jobs[0], on=sender))
        await stage.waits(sender, job)

    assert await sending == "sent"
    await has_it_once(stage, batch)


async def test_a_signal_that_wakes_the_job_first_leaves_the_timer_nothing(
    stage: Stage, sender: Connection
) -> None:
    batch = await asleep(stage, wait("go", seconds=60))
    await come_due(stage)

    async with sender.transaction():
        assert await say(stage, batch.jobs[0], on=sender) == "sent"
        async with asyncio.timeout(60):
            [woken] = await stage.run(timers.wake(10))
        assert woken.count == 0

    assert (await stage.run(timers.wake(10)))[0].count == 0
    await has_it_once(stage, batch)


# Cancel


async def test_a_cancel_that_comes_first_lets_nothing_be_woken(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await asleep(stage, wait("go"))

    async with job.transaction():
        assert await flows.cancel(stage, batch.jobs[0], job) == "cancelled"
        sending = stage.meanwhile(say(stage, batch.jobs[0], on=sender))
        await stage.waits(sender, job)

    assert await sending == "sent", "it had not ended when it was said"
    assert await stage.place(batch.jobs[0]) == "cancelled"
    assert await stage.sql("select job from rota.queued") == []


async def test_a_cancel_that_comes_second_finds_the_job_where_the_signal_put_it(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await asleep(stage, wait("go"))

    async with sender.transaction():
        await say(stage, batch.jobs[0], on=sender)
        cancelling = stage.meanwhile(flows.cancel(stage, batch.jobs[0], job))
        await stage.waits(job, sender)

    assert await cancelling == "cancelled"
    assert await stage.place(batch.jobs[0]) == "cancelled"
    assert await stage.sql("select job from rota.queued") == []
    assert await stage.sql("select job from rota.cancels") == []


@pytest.mark.parametrize("signalled", [True, False])
async def test_a_cancel_that_comes_while_the_job_lies_down_finds_it_asleep(
    stage: Stage, job: Connection, sender: Connection, signalled: bool
) -> None:
    batch = await stage.held(1)
    canceller = await stage.connect()

    async with job.transaction():
        await lie_down(stage, batch, wait("go"), on=job)
        sending = stage.meanwhile(say(stage, batch.jobs[0], on=sender)) if signalled else None
        if signalled:
            await stage.waits(sender, job)
        cancelling = stage.meanwhile(flows.cancel(stage, batch.jobs[0], canceller))
        await stage.waits(canceller, job)

    assert await cancelling == "cancelled"
    if sending is not None:
        await sending
    assert await stage.place(batch.jobs[0]) == "cancelled"


async def test_a_wish_to_cancel_written_while_the_job_waits_for_a_signals_row_is_obeyed(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)

    async with sender.transaction():
        await say(stage, batch.jobs[0], on=sender)
        going = stage.meanwhile(lie_down(stage, batch, wait("go"), on=job))
        await stage.waits(job, sender)
        async with asyncio.timeout(60):
            assert await flows.cancel(stage, batch.jobs[0]) == "requested"

    assert (await going).jobs == batch.jobs
    assert await stage.place(batch.jobs[0]) == "cancelled"


# Lost workers


async def test_a_signal_for_a_job_that_is_being_reaped_is_there_for_the_next(
    stage: Stage, job: Connection, sender: Connection
) -> None:
    batch = await stage.held(1)
    await keep(stage, batch, wait("go"))
    await bury(stage, batch.worker)

    async with job.transaction():
        await reap(stage, batch.id, on=job)
        async with asyncio.timeout(60):
            assert await say(stage, batch.jobs[0], on=sender) == "sent"

    assert await stage.place(batch.jobs[0]) == "queued"
    assert [each.payload for each in await known(stage, batch)] == ["1"]
