"""Ids above 32 bits, and above the integers of a JavaScript number, through every move.

graphile/worker#617 and pgqueuer#671 failed at 2,147,483,648, one of them only at shutdown.
"""

from __future__ import annotations

import json

import pytest

from rota.app.client import Client
from rota.model.settings import Settings
from rota.store import claims, jobs, listeners, runs, timers, workers
from support.lost_workers import (
    declare_dead,
    finish_as_lost,
    observe,
    orphans,
    quarantine,
    reap,
    split,
    suspects,
)
from support.stage import Stage


@pytest.fixture(params=[2**31 + 5, 2**53 + 5], ids=["above 2^31", "above 2^53"])
async def large(own_stage: Stage, request: pytest.FixtureRequest) -> Stage:
    """Stage with large, odd ids, so that rounding to a double would be visible."""
    first: int = request.param
    for sequence in ("rota.ids", "rota.claims_id_seq", "rota.workers_id_seq"):
        await own_stage.sql("select setval(%s::regclass, %s)", sequence, first)
    return own_stage


async def test_large_ids_job_passes_through_every_move(large: Stage) -> None:
    ids = await large.start_several(6)
    assert min(ids) > 2**31

    batch = await large.claim(await large.worker(), 6)
    assert (batch.jobs, batch.id > 2**31, batch.worker > 2**31) == (ids, True, True)
    done, failed, retried, returned, cancelled, late = ids

    assert await large.complete(batch, [done]) == []
    assert await large.finish(batch, "failed", [failed]) == [failed]
    assert (await large.retry(batch, [retried], delay=0)).jobs == [retried]
    assert await large.give_back(batch, [returned]) == ["default"]
    assert await large.run(runs.cancel(cancelled), large.watch) == ["requested"]
    assert (await large.run(workers.beat(batch.worker, None)))[0].jobs_to_cancel == [cancelled]
    assert await large.finish(batch, "cancelled", [cancelled]) == [cancelled]
    assert [each.jobs for each in await large.run(claims.by_worker(batch.worker))] == [[late]]
    assert await large.complete(batch, [late]) == []

    [woken] = await large.run(timers.wake(10))
    assert woken.count == 1
    assert await large.run(runs.retry(failed)) == [["default"]]
    again = await large.claim(await large.worker(), 10)
    assert again.jobs == [returned, retried, failed]
    assert all(each.seq > 2**31 for each in again.members)
    assert await large.complete(again) == []

    assert await large.run(jobs.recorded([done], [batch.id])) == [done]
    assert {each.run for each in await large.run(runs.outcome(ids))} == set(ids)


async def test_large_ids_work_with_keys_copies_cursors_and_notifications(large: Stage) -> None:
    run = await large.start(key="k")
    assert await large.start(key="k") == run

    client = Client(large.dsn, Settings(notify=False))
    try:
        copied = await client.start_many([jobs.StartJob("work", "{}", "default")] * 600)
    finally:
        await client.close()
    ids = [each.run for each in copied]
    batch = await large.claim(await large.worker(), floor=ids[590])
    assert batch.jobs == ids[590:]

    listener = await large.connect()
    await large.sql('listen "rota.a"', on=listener)
    ended = batch.jobs[0]
    await large.run(listeners.register("rota.a", [ended]))
    await large.complete(batch)
    await large.run(listeners.notify_waiters([ended]))
    [heard] = [note async for note in listener.notifies(timeout=60, stop_after=1)]
    assert int(heard.payload) == ended


async def test_large_numbers_in_arguments_and_results_stay_exact(large: Stage) -> None:
    number = 2**53 + 1
    run = await large.start(args=json.dumps({"n": number}))
    batch = await large.claim(await large.worker())
    assert json.loads(batch.members[0].args) == {"n": number}

    await large.run(jobs.complete(batch.worker, [batch.id], batch.jobs, [str(number)], [0.0]))

    [ending] = await large.run(runs.outcome([run]))
    assert ending.result == str(number).encode()


async def test_large_ids_lost_jobs_are_reaped_and_quarantined(large: Stage) -> None:
    ids = await large.start_several(4)
    dead = await large.worker()
    batch = await large.claim(dead)
    own = await split(large, batch, ids[3])
    assert min(dead, batch.id, own.id, *ids) > 2**31
    [told] = await large.run(workers.beat(dead, 2**31 - 1))
    assert told.claims == [batch.id, own.id]
    await large.run(claims.lock_shared(dead, own.id, ids[3]))
    await large.run(jobs.checkpoint(dead, own.id, ids[3], "1"))
    await large.sql("select rota.assert_claim(%s, %s)", ids[3], own.id)

    me = await large.worker()
    assert [each.worker for each in await large.run(workers.list_others(me))] == [dead]
    assert [
        each.worker for each in await large.run(workers.mark_dead([await observe(large, dead)]))
    ] == [dead]
    assert await orphans(large, batch.id - 1) == [batch.id, own.id]
    assert (await reap(large, batch.id, ids[:1])).jobs == ids[:1]
    assert (await reap(large, batch.id)).jobs == ids[1:3]
    assert (await reap(large, own.id)).jobs == ids[3:]

    first, second, *rest = await suspects(large, me)
    assert [each.jobs[0] for each in (first, second, *rest)] == ids
    assert all(each.members[0].seq == each.jobs[0] for each in (first, second, *rest))
    assert (await quarantine(large, first)).jobs == ids[:1]
    assert (await finish_as_lost(large, second)).jobs == ids[1:2]
    assert await large.run(jobs.release_quarantined(ids[0])) == [1]
    again = await large.claim(me)
    assert again.jobs == ids[:1]
    await declare_dead(large, me)
    for claim in await orphans(large):
        await reap(large, claim)
    assert await large.sql("select job from rota.queued order by job") == [ids[0], *ids[2:]]
