"""Jobs lost with a worker: their crashes and suspicion, their claims, and how they are cleared.

Finding 10: one poison job among 1,500 prefetched jobs had over 1,000 innocent ones quarantined.
"""

from __future__ import annotations

import pytest

from rota.store import claims, timers, workers
from support.lost_workers import (
    HISTORY,
    History,
    declare_dead,
    lost,
    queued_rows,
    reap,
    split,
    start_with,
    suspect,
    suspects,
)
from support.stage import Stage

# Crashes and suspicion before and after an event.
UNCHARGED: list[tuple[History, History]] = [
    ((0, None), (0, "mild")),
    ((0, "mild"), (0, "grave")),
    ((0, "grave"), (0, "grave")),
    ((1, "mild"), (2, "grave")),
    ((2, "grave"), (2, "grave")),
    ((5, "grave"), (5, "grave")),
    ((1, None), (1, "mild")),
    ((2, None), (2, "grave")),
    ((5, None), (5, "grave")),
]
CHARGED: list[tuple[History, History]] = [
    ((0, None), (1, "mild")),
    ((1, None), (2, "grave")),
    ((2, None), (3, "grave")),
    ((5, None), (6, "grave")),
    ((0, "mild"), (2, "grave")),
    ((0, "grave"), (3, "grave")),
    ((1, "mild"), (2, "grave")),
    ((2, "grave"), (3, "grave")),
    ((5, "grave"), (6, "grave")),
]
DOUBTFUL: list[tuple[History, History]] = [
    ((0, "grave"), (2, "grave")),
    ((1, "mild"), (2, "grave")),
    ((5, "grave"), (6, "grave")),
]
FAILED: list[tuple[History, History]] = [
    ((0, None), (0, None)),
    ((1, None), (1, None)),
    ((5, None), (5, None)),
    ((0, "mild"), (0, None)),
    ((0, "grave"), (0, None)),
    ((1, "mild"), (1, None)),
    ((2, "grave"), (2, None)),
    ((5, "grave"), (5, None)),
]


async def held_with(stage: Stage, history: History) -> tuple[list[int], list[int]]:
    """Claim a job with this history, and another one; return their claims and the jobs."""
    batch = await stage.held(2)
    own = await split(stage, batch, batch.jobs[0])
    await stage.sql(
        "update rota.claims set crashes = array[%s]::smallint[], suspicion = %s where id = %s",
        *(*history, own.id),
    )
    return [own.id, batch.id], batch.jobs


@pytest.mark.parametrize(("before", "after"), UNCHARGED)
async def test_suspect_lost_with_other_jobs_is_not_charged(
    stage: Stage, before: History, after: History
) -> None:
    held, (job, _) = await held_with(stage, before)
    await stage.sql("update rota.workers set state = 'dead'")

    for claim in held:
        await reap(stage, claim)

    assert (await queued_rows(stage, *HISTORY, "attempt"))[job] == (*after, 1)
    assert await stage.sql("select * from rota.attempts") == []


@pytest.mark.parametrize(("before", "after"), CHARGED)
async def test_suspect_charged_job_also_counts_earlier_losses(
    stage: Stage, before: History, after: History
) -> None:
    held, (job, other) = await held_with(stage, before)
    await stage.sql("update rota.workers set state = 'dead', charged_jobs = %s", [job])

    for claim in held:
        await reap(stage, claim)

    assert await queued_rows(stage, *HISTORY, "attempt") == {
        job: (*after, 2),
        other: (0, "mild", 1),
    }
    assert await stage.sql("select job, attempt from rota.attempts") == [(job, 1)]


@pytest.mark.parametrize(("before", "after"), DOUBTFUL)
async def test_suspect_doubtful_job_is_charged_with_this_loss(
    stage: Stage, before: History, after: History
) -> None:
    held, (job, other) = await held_with(stage, before)
    await stage.sql("update rota.workers set state = 'dead', doubtful_jobs = %s", [job])

    for claim in held:
        await reap(stage, claim)

    assert await queued_rows(stage, *HISTORY, "attempt") == {
        job: (*after, 2),
        other: (0, "mild", 1),
    }
    assert await stage.sql("select job, attempt from rota.attempts") == [(job, 1)]


@pytest.mark.parametrize(("before", "after"), FAILED)
async def test_suspect_failed_without_crash_is_cleared(
    stage: Stage, before: History, after: History
) -> None:
    """The job failed without a crash of its worker. Its earlier crashes still count."""
    [job] = await start_with(stage, before)
    worker = await stage.worker()
    batch = await suspect(stage, worker) if before[1] else await stage.claim(worker)

    await stage.retry(batch, delay=0)
    assert await stage.sql("select crashes from rota.sleeping") == [after[0]]

    await stage.run(timers.wake(10))
    assert await queued_rows(stage, *HISTORY, "attempt") == {job: (*after, 2)}
    assert (await stage.claim(worker)).members[0].crashes == after[0]


@pytest.mark.parametrize("history", [(0, None), (3, None), (0, "mild"), (0, "grave"), (3, "grave")])
async def test_suspect_returned_to_queue_keeps_its_suspicion(
    stage: Stage, history: History
) -> None:
    [job] = await start_with(stage, history, attempt=4)
    worker = await stage.worker()
    batch = await suspect(stage, worker) if history[1] else await stage.claim(worker)

    await stage.give_back(batch)

    assert await queued_rows(stage, *HISTORY, "attempt") == {job: (*history, 4)}


# Claims of suspects


@pytest.mark.parametrize("history", [(0, "mild"), (0, "grave"), (1, "mild")])
async def test_claim_skips_suspects(stage: Stage, history: History) -> None:
    await start_with(stage, history)
    [plain] = await stage.start_several(1)

    assert (await stage.claim(await stage.worker())).jobs == [plain]


@pytest.mark.parametrize("history", [(0, None), (1, None), (7, None)])
async def test_claim_suspects_skips_jobs_without_suspicion(stage: Stage, history: History) -> None:
    await start_with(stage, history)

    assert await suspects(stage, await stage.worker()) == []


async def test_claim_suspects_gives_each_job_its_own_claim(stage: Stage) -> None:
    jobs = await lost(stage, 5)

    taken = await suspects(stage, await stage.worker())

    assert [each.jobs for each in taken] == [[job] for job in jobs]
    assert len({each.id for each in taken}) == 5
    for each in taken:
        assert await stage.held_by(each.id) == each.jobs
        [member] = each.members
        assert (member.crashes, member.suspicion, member.seq) == (0, "mild", each.jobs[0])


@pytest.mark.parametrize("once", [(0, "mild"), (1, "mild")])
@pytest.mark.parametrize("again", [(0, "grave"), (2, "grave"), (7, "grave")])
async def test_claim_suspects_takes_one_grave_only_without_mild_ones(
    stage: Stage, once: History, again: History
) -> None:
    """Jobs that were lost once run like any other."""
    mild = await start_with(stage, once, 2)
    grave = await start_with(stage, again, 2)
    worker = await stage.worker()

    taken = await suspects(stage, worker, grave=True)
    assert [each.jobs for each in taken] == [[job] for job in mild]

    assert await suspects(stage, worker, grave=False) == []
    assert (await suspect(stage, worker)).jobs == grave[:1]


async def test_claim_suspects_unserved_mild_does_not_block_grave(
    stage: Stage,
) -> None:
    await start_with(stage, (0, "mild"))
    await stage.sql("update rota.queued set queue = 'elsewhere'")
    [grave] = await start_with(stage, (2, "grave"))

    assert (await suspect(stage, await stage.worker())).jobs == [grave]
    await stage.sql("update rota.queued set queue = 'default'")


async def test_claim_suspects_takes_up_to_limit_by_priority_and_age(stage: Stage) -> None:
    jobs = await lost(stage, 4)
    await stage.sql("update rota.queued set priority = 9 where job = %s", jobs[3])

    taken = await suspects(stage, await stage.worker(), 2)

    assert sorted(each.jobs[0] for each in taken) == [jobs[0], jobs[3]]


async def test_claim_suspects_skips_unknown_tasks_and_queues(stage: Stage) -> None:
    await lost(stage, 3)
    worker = await stage.worker()

    assert await suspects(stage, worker, tasks=["other"]) == []
    assert await suspects(stage, worker, queues=["other"]) == []
    assert len(await suspects(stage, worker, tasks=["other", "work"])) == 3


async def test_claim_suspects_with_many_tasks_uses_the_registered_list(stage: Stage) -> None:
    await lost(stage, 2)
    many = ["work", *(f"t{number}" for number in range(30))]
    [knows] = await stage.run(workers.register("h", 1, "0", ["default"], many, 1))
    [ignorant] = await stage.run(workers.register("h", 1, "0", ["default"], many[1:], 1))

    assert await suspects(stage, ignorant, tasks=[]) == []
    assert len(await suspects(stage, knows, tasks=[])) == 2


async def test_claim_suspects_concurrently_returns_different_jobs(stage: Stage) -> None:
    jobs = await lost(stage, 4)
    first = await stage.connect(engine=True)

    async with first.transaction():
        mine = await suspects(stage, await stage.worker(), 2, on=first)
        theirs = await suspects(stage, await stage.worker(), 4)

    assert sorted(each.jobs[0] for each in [*mine, *theirs]) == jobs


@pytest.mark.parametrize("state", ["draining", "stopped", "dead", None])
@pytest.mark.parametrize("history", [(0, None), (0, "mild"), (0, "grave")])
async def test_claim_by_draining_or_ended_worker_returns_nothing(
    stage: Stage, state: str | None, history: History
) -> None:
    await start_with(stage, history)
    worker = await stage.worker()
    if state is None:
        await stage.sql("delete from rota.workers")
    else:
        await stage.sql("update rota.workers set state = %s", state)

    assert (await stage.claim(worker)).jobs == []
    assert await suspects(stage, worker) == []

    await stage.sql("delete from rota.workers")
    healthy = await stage.worker()
    assert (await stage.claim(healthy)).jobs or await suspects(stage, healthy)


# Isolation of a poison job


async def test_suspects_only_the_poison_job_is_charged(stage: Stage) -> None:
    """The first two losses blame no job; the third, when the job runs alone, does."""
    jobs = await lost(stage, 6)
    poison = jobs[2]
    assert set((await queued_rows(stage, *HISTORY)).values()) == {(0, "mild")}

    # They run together in one worker, which crashes.
    worker = await stage.worker()
    taken = await suspects(stage, worker)
    assert len(taken) == 6
    await declare_dead(stage, worker)
    for each in taken:
        await reap(stage, each.id)
    assert set((await queued_rows(stage, *HISTORY)).values()) == {(0, "grave")}

    # From here each runs alone. Jobs beside it began before it, and have done no harm so far.
    while len(await queued_rows(stage, *HISTORY)) > 1:
        worker = await stage.worker()
        await stage.start_several(20)
        beside = await stage.claim(worker)
        one = await suspect(stage, worker)
        assert await stage.run(
            claims.mark_running(worker, one.id, one.jobs[0], exclusive=True)
        ) == [one.id]
        if one.jobs == [poison]:
            await declare_dead(stage, worker)
            await reap(stage, beside.id)
            await reap(stage, one.id)
            break
        assert await stage.complete(one) == []
        assert await stage.complete(beside) == []

    rows = await queued_rows(stage, *HISTORY, "attempt")
    assert rows.pop(poison) == (3, "grave", 2)
    assert set(rows.values()) <= {(0, "mild", 1), (0, "grave", 1)}
    assert await stage.sql("select job from rota.attempts") == [poison]


async def test_mark_running_is_accepted_only_from_the_holder(stage: Stage) -> None:
    await start_with(stage, (0, "grave"))
    worker = await stage.worker()
    batch = await suspect(stage, worker)
    [job] = batch.jobs

    assert await stage.run(claims.mark_running(worker, batch.id, job, exclusive=True)) == [batch.id]
    assert await stage.run(claims.mark_running(worker + 1, batch.id, job, exclusive=False)) == []
    assert await stage.run(claims.mark_running(worker, batch.id, job + 1, exclusive=False)) == []
    assert await stage.sql("select exclusive from rota.claims") == [True]

    await stage.give_back(batch)
    assert await stage.run(claims.mark_running(worker, batch.id, job, exclusive=True)) == []
    await suspect(stage, worker)
    assert await stage.sql("select exclusive from rota.claims") == [None]
