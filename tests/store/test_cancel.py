"""Cancelling finds a job in any place, and during any move.

The cancel request is written first, then each place is searched (finding 6). The two-session tests stop
in the middle of the other move, and continue once the server reports that one session waits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from psycopg import AsyncConnection
from psycopg.errors import LockNotAvailable

from rota.store import claims, listeners, runs, timers
from support.stage import Stage


async def cancel(stage: Stage, run: int) -> str | None:
    [answer] = await stage.run(runs.cancel(run), stage.watch)
    return answer


async def test_cancel_queued_job_is_cancelled_at_once(stage: Stage) -> None:
    run = await stage.start()

    assert await cancel(stage, run) == "cancelled"

    assert await stage.sql(
        "select job, claim, worker, state::text, attempt, seconds from rota.outcomes"
    ) == [(run, None, None, "cancelled", 1, None)]
    assert (await stage.claim(await stage.worker())).jobs == []
    assert await stage.sql("select job from rota.cancels") == []


async def test_cancel_requeued_job_with_new_seq_is_cancelled(stage: Stage) -> None:
    run = await stage.start()
    await stage.sql("update rota.queued set seq = 5000, attempt = 3")

    assert await cancel(stage, run) == "cancelled"
    assert await stage.sql("select attempt from rota.outcomes") == [3]


async def test_cancel_sleeping_job_is_cancelled_at_once(stage: Stage) -> None:
    batch = await stage.held(1)
    await stage.retry(batch)

    assert await cancel(stage, batch.jobs[0]) == "cancelled"
    assert await stage.sql("select attempt from rota.outcomes") == [2]
    assert await stage.sql("select job from rota.sleeping") == []


async def test_cancel_claimed_job_is_reported_by_worker_heartbeat(stage: Stage) -> None:
    batch = await stage.held(2)
    other = await stage.held(1)

    assert await cancel(stage, batch.jobs[1]) == "requested"

    assert await stage.unwanted(batch.worker) == [batch.jobs[1]]
    assert await stage.unwanted(other.worker) == []
    assert await stage.held_by(batch.id) == batch.jobs


async def test_cancel_requested_twice_writes_one_request(stage: Stage) -> None:
    batch = await stage.held(1)

    assert await cancel(stage, batch.jobs[0]) == "requested"
    assert await cancel(stage, batch.jobs[0]) == "requested"

    assert await stage.sql("select job from rota.cancels") == batch.jobs


@pytest.mark.parametrize("state", ["succeeded", "failed", "cancelled", "expired"])
async def test_cancel_finished_job_returns_its_state(stage: Stage, state: str) -> None:
    batch = await stage.held(1)
    if state == "succeeded":
        await stage.complete(batch)
    else:
        await stage.finish(batch, state)
    before = await stage.everything()

    assert await cancel(stage, batch.jobs[0]) == state
    assert await stage.everything() == before


async def test_cancel_unknown_job_returns_none_and_writes_no_request(stage: Stage) -> None:
    assert await cancel(stage, 12345) is None
    assert await stage.sql("select job from rota.cancels") == []


async def test_completed_job_with_cancel_request_leaves_no_request(
    stage: Stage,
) -> None:
    batch = await stage.held(1)
    await cancel(stage, batch.jobs[0])

    await stage.complete(batch)
    await stage.run(listeners.notify_waiters(batch.jobs))

    assert await stage.place(batch.jobs[0]) == "succeeded"
    assert await stage.sql("select job from rota.cancels") == []


# Meeting other moves


Move = Callable[[Stage], Awaitable[tuple[int, Callable[[], Awaitable[object]]]]]
"""Prepares a job; returns it, and a move of it on the engine's connection."""


async def _claiming(stage: Stage) -> tuple[int, Callable[[], Awaitable[object]]]:
    run, worker = await stage.start(), await stage.worker()
    return run, lambda: stage.claim(worker)


async def _waking(stage: Stage) -> tuple[int, Callable[[], Awaitable[object]]]:
    batch = await stage.held(1)
    await stage.retry(batch, delay=0)
    return batch.jobs[0], lambda: stage.run(timers.wake(10))


async def _completing(stage: Stage) -> tuple[int, Callable[[], Awaitable[object]]]:
    batch = await stage.held(2)
    return batch.jobs[0], lambda: stage.complete(batch, batch.jobs[:1])


async def _retrying(stage: Stage) -> tuple[int, Callable[[], Awaitable[object]]]:
    batch = await stage.held(2)
    return batch.jobs[0], lambda: stage.retry(batch, batch.jobs[:1])


async def _giving_back(stage: Stage) -> tuple[int, Callable[[], Awaitable[object]]]:
    batch = await stage.held(2)
    return batch.jobs[0], lambda: stage.give_back(batch, batch.jobs[:1])


MOVES = {
    "claim": (_claiming, "requested", "running"),
    "wake": (_waking, "cancelled", "cancelled"),
    "complete": (_completing, "succeeded", "succeeded"),
    "retry": (_retrying, "cancelled", "cancelled"),
    "give back": (_giving_back, "cancelled", "cancelled"),
}


@pytest.mark.parametrize("name", MOVES)
async def test_cancel_during_move_finds_job_in_its_new_place(stage: Stage, name: str) -> None:
    prepare, answer, place = MOVES[name]
    run, move = await prepare(stage)
    canceller = await stage.connect()

    async with stage.engine.transaction():
        await move()
        cancelling = stage.meanwhile(stage.run(runs.cancel(run), canceller))
        await stage.waits(canceller, stage.engine)

    assert await cancelling == [answer]
    assert await stage.place(run) == place


@pytest.mark.parametrize("name", ["complete", "retry", "give back"])
async def test_move_during_cancel_waits_for_the_request(stage: Stage, name: str) -> None:
    prepare, _, place = MOVES[name]
    run, move = await prepare(stage)
    canceller = await stage.connect()

    async with canceller.transaction():
        assert await stage.run(runs.cancel(run), canceller) == ["requested"]
        moving = stage.meanwhile(_awaited(move))
        await stage.waits(stage.engine, canceller)
    await moving

    assert await stage.place(run) == place


async def test_completion_that_waited_for_cancel_leaves_no_request(stage: Stage) -> None:
    batch = await stage.held(2)
    canceller = await stage.connect()

    async with canceller.transaction():
        await stage.run(runs.cancel(batch.jobs[0]), canceller)
        completing = stage.meanwhile(stage.complete(batch, batch.jobs[:1]))
        await stage.waits(stage.engine, canceller)
    await completing
    await stage.run(listeners.notify_waiters(batch.jobs[:1]))

    assert await stage.sql("select job from rota.cancels") == []


async def test_notify_waiters_keeps_cancel_request_of_running_job(stage: Stage) -> None:
    batch = await stage.held(1)
    await cancel(stage, batch.jobs[0])

    await stage.run(listeners.notify_waiters(batch.jobs))

    assert await stage.sql("select job from rota.cancels") == batch.jobs


@pytest.mark.parametrize("name", ["claim", "wake"])
async def test_claim_and_wake_skip_job_being_cancelled(stage: Stage, name: str) -> None:
    prepare, _, _ = MOVES[name]
    run, move = await prepare(stage)
    canceller = await stage.connect()

    async with canceller.transaction():
        assert await stage.run(runs.cancel(run), canceller) == ["cancelled"]
        await move()

    assert await stage.place(run) == "cancelled"


async def test_two_concurrent_cancels_both_return_cancelled(stage: Stage) -> None:
    run = await stage.start()
    first, second = await stage.connect(), await stage.connect()

    async with first.transaction():
        assert await stage.run(runs.cancel(run), first) == ["cancelled"]
        waiting = stage.meanwhile(stage.run(runs.cancel(run), second))
        await stage.waits(second, first)

    assert await waiting == ["cancelled"]
    assert await stage.sql("select job from rota.cancels") == []


async def test_cancel_of_locked_claim_times_out_on_any_connection(stage: Stage) -> None:
    batch = await stage.held(1)
    holder = await stage.connect(engine=True)

    async with holder.transaction(), await AsyncConnection.connect(stage.dsn) as anybodys:
        await stage.run(claims.lock(batch.worker, [batch.id]), holder)
        with pytest.raises(LockNotAvailable):
            await anybodys.execute("select rota.cancel(%s)", batch.jobs)

    assert await stage.sql("select job from rota.cancels") == []


async def test_cancel_notifies_registered_waiters(stage: Stage) -> None:
    run = await stage.start()
    listener = await stage.connect()
    await stage.sql('listen "rota.someone"', on=listener)
    await stage.sql("insert into rota.waiters values (%s, 'rota.someone')", run)

    await cancel(stage, run)

    [heard] = [note async for note in listener.notifies(timeout=60, stop_after=1)]
    assert (heard.channel, heard.payload) == ("rota.someone", str(run))


async def _awaited(move: Callable[[], Awaitable[object]]) -> None:
    await move()
