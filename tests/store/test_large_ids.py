"""Ids beyond what 32 bits and beyond what a JavaScript number can hold, through every move.

graphile/worker#617 and pgqueuer#671 fell over at 2,147,483,648, one of them only at shutdown.
"""

from __future__ import annotations

import json

import pytest

from rota.app.client import Client
from rota.model.settings import Settings
from rota.store import claims, jobs, runs, timers, waiters

from .stage import Stage


@pytest.fixture(params=[2**31 + 5, 2**53 + 5], ids=["above 2^31", "above 2^53"])
async def large(own_stage: Stage, request: pytest.FixtureRequest) -> Stage:
    """A stage where every number is large and odd, so that rounding to a double would show."""
    first: int = request.param
    for sequence in ("rota.ids", "rota.claims_id_seq", "rota.workers_id_seq"):
        await own_stage.sql("select setval(%s::regclass, %s)", sequence, first)
    return own_stage


async def test_a_job_goes_through_every_move(large: Stage) -> None:
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
    assert await large.run(jobs.unwanted(batch.worker)) == [cancelled]
    assert await large.finish(batch, "cancelled", [cancelled]) == [cancelled]
    assert [each.jobs for each in await large.run(claims.mine(batch.worker))] == [[late]]
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


async def test_ids_survive_keys_copies_floors_and_news(large: Stage) -> None:
    run = await large.start(key="k")
    assert await large.start(key="k") == run

    client = Client(large.dsn, Settings(notify=False))
    try:
        copied = await client.start_many([jobs.Start("work", "{}", "default")] * 600)
    finally:
        await client.close()
    ids = [each.run for each in copied]
    batch = await large.claim(await large.worker(), floor=ids[590])
    assert batch.jobs == ids[590:]

    listener = await large.connect()
    await large.sql('listen "rota.a"', on=listener)
    ended = batch.jobs[0]
    await large.run(waiters.register("rota.a", [ended]))
    await large.complete(batch)
    await large.run(waiters.tell([ended]))
    [heard] = [note async for note in listener.notifies(timeout=5, stop_after=1)]
    assert int(heard.payload) == ended


async def test_large_numbers_in_documents_stay_exact(large: Stage) -> None:
    number = 2**53 + 1
    run = await large.start(args=json.dumps({"n": number}))
    batch = await large.claim(await large.worker())
    assert json.loads(batch.members[0].args) == {"n": number}

    await large.run(jobs.complete(batch.worker, [batch.id], batch.jobs, [str(number)], [0.0]))

    [ending] = await large.run(runs.outcome([run]))
    assert ending.result == str(number).encode()
