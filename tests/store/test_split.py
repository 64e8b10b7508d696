"""Moving a job from a shared claim to its own claim."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from rota.store import claims
from rota.store.query import Query
from support.lost_workers import declare_dead, reap, split
from support.stage import Stage


async def numbers(stage: Stage, claim: int) -> tuple[list[int], list[int], list[int], list[int]]:
    [row] = await stage.sql(
        "select jobs, attempts, crashes, seqs from rota.claims where id = %s", claim
    )
    return tuple(row)


@pytest.mark.parametrize("which", [0, 1, 2, 3])
async def test_split_keeps_claim_arrays_aligned_on_both_sides(stage: Stage, which: int) -> None:
    batch = await stage.held(4)
    attempts, crashes, seqs = [1, 2, 3, 4], [0, 1, 5, 3], [40, 30, 20, 10]
    await stage.sql(
        "update rota.claims set attempts = %s, crashes = %s, seqs = %s", attempts, crashes, seqs
    )
    job = batch.jobs[which]

    own = await split(stage, batch, job)

    rest = [number for number in range(4) if number != which]
    assert await numbers(stage, own.id) == (
        [job],
        [attempts[which]],
        [crashes[which]],
        [seqs[which]],
    )
    assert await numbers(stage, batch.id) == tuple(
        [each[number] for number in rest] for each in (batch.jobs, attempts, crashes, seqs)
    )
    assert own.id > batch.id
    assert await stage.sql("select distinct worker from rota.claims") == [batch.worker]


async def test_split_one_by_one_gives_each_job_its_own_claim(stage: Stage) -> None:
    batch = await stage.held(4)

    own = [await split(stage, batch, job) for job in reversed(batch.jobs)]

    assert [each.jobs for each in own] == [[job] for job in reversed(batch.jobs)]
    # The last remaining job keeps the original claim.
    assert own[-1].id == batch.id
    assert len({each.id for each in own}) == 4
    for each in own:
        assert await stage.complete(each) == []


async def test_split_repeated_after_lost_answer_changes_nothing(stage: Stage) -> None:
    batch = await stage.held(3)
    job, nonce = batch.jobs[1], uuid4()
    asked: list[Query[Any]] = [
        claims.lock(batch.worker, [batch.id]),
        claims.split(batch.worker, batch.id, job, nonce, 60.0),
        claims.by_job(batch.worker, job),
    ]

    _, _, [first] = await stage.together(*asked)
    before = await stage.everything()
    _, _, [second] = await stage.together(*asked)

    assert first == second
    assert await stage.everything() == before
    assert await stage.sql("select nonce from rota.claims where id = %s", first) == [nonce]


async def test_split_only_job_keeps_its_claim(stage: Stage) -> None:
    batch = await stage.held(1)
    before = await stage.everything()

    own = await split(stage, batch, batch.jobs[0])

    assert own.id == batch.id
    assert await stage.everything() == before


@pytest.mark.parametrize("many", [1, 3])
async def test_split_with_timeout_expires_only_that_claim(stage: Stage, many: int) -> None:
    batch = await stage.held(many)

    own = await split(stage, batch, batch.jobs[0], seconds=60)

    [left] = await stage.sql(
        "select extract(epoch from expires - rota.clock())::float8 from rota.claims"
        " where expires is not null"
    )
    assert 50 < left <= 60
    assert await stage.sql("select id from rota.claims where expires is not null") == [own.id]


async def test_split_without_timeout_keeps_existing_expiry(stage: Stage) -> None:
    """ctx.transaction() in a task with a visibility timeout must not remove the timeout."""
    batch = await stage.held(2)
    own = await split(stage, batch, batch.jobs[0], seconds=60)
    until = await stage.one("select expires from rota.claims where id = %s", own.id)

    again = await split(stage, own, own.jobs[0])

    assert again.id == own.id
    assert await stage.one("select expires from rota.claims where id = %s", own.id) == until


async def test_split_after_waiting_for_complete_uses_remaining_jobs(stage: Stage) -> None:
    """Finding 3: the split waited for a completion of another job, and works on the remaining jobs."""
    batch = await stage.held(4)
    completing, splitting = await stage.connect(engine=True), await stage.connect(engine=True)

    async with completing.transaction():
        assert await stage.complete(batch, batch.jobs[:2], on=completing) == []
        own_claim = stage.meanwhile(split(stage, batch, batch.jobs[2], on=splitting))
        await stage.waits(splitting, completing)
    own = await own_claim

    assert await stage.held_by(own.id) == [batch.jobs[2]]
    assert await stage.held_by(batch.id) == [batch.jobs[3]]


async def test_split_job_completed_meanwhile_gets_no_claim(stage: Stage) -> None:
    batch = await stage.held(2)
    completing, splitting = await stage.connect(engine=True), await stage.connect(engine=True)

    async with completing.transaction():
        assert await stage.complete(batch, batch.jobs[:1], on=completing) == []
        asked = stage.meanwhile(
            stage.together(
                claims.lock(batch.worker, [batch.id]),
                claims.split(batch.worker, batch.id, batch.jobs[0], uuid4(), None),
                claims.by_job(batch.worker, batch.jobs[0]),
                on=splitting,
            )
        )
        await stage.waits(splitting, completing)

    assert (await asked)[2] == []
    assert await stage.sql("select jobs from rota.claims") == [batch.jobs[1:]]


async def test_complete_after_waiting_for_split_refuses_the_split_job(
    stage: Stage,
) -> None:
    """Finding 2: the old claim is no fence for a job that has left it. The other jobs are completed."""
    batch = await stage.held(3)
    splitting = await stage.connect(engine=True)

    async with splitting.transaction():
        own = await split(stage, batch, batch.jobs[1], on=splitting)
        completing = stage.meanwhile(stage.complete(batch))
        await stage.waits(stage.engine, splitting)

    assert await completing == [batch.jobs[1]]
    assert await stage.sql("select jobs from rota.claims") == [[batch.jobs[1]]]
    assert await stage.complete(own) == []


async def test_split_reaped_claim_changes_nothing(stage: Stage) -> None:
    batch = await stage.held(2)
    await declare_dead(stage, batch.worker)
    await reap(stage, batch.id)
    before = await stage.everything()

    held, _, found = await stage.together(
        claims.lock(batch.worker, [batch.id]),
        claims.split(batch.worker, batch.id, batch.jobs[0], uuid4(), 5.0),
        claims.by_job(batch.worker, batch.jobs[0]),
    )

    assert (held, found) == ([], [])
    assert await stage.everything() == before
