"""A claim checks which queues are paused: the cost of the check, and its visibility."""

from __future__ import annotations

from uuid import uuid4

from rota.store import jobs, queues
from support.plans import explain
from support.stage import Stage

LANES = range(9, -1, -1)


async def test_claim_paused_queue_reads_no_jobs(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.start_several(1000)
    await stage.run(queues.pause("default", "ada", ""))

    found = await explain(
        stage, jobs.claim(worker, uuid4(), ["work"], ["default"] * 10, LANES, [0] * 10, 100)
    )

    assert sum(each.read for each in found if each.table == "queued") == 0
    [pauses] = [each for each in found if each.table == "pauses"]
    assert (pauses.rounds, pauses.read) == (1, 1)  # read once for all lanes
    assert (await stage.claim(worker)).jobs == []
    await stage.run(queues.resume("default"))
    assert len((await stage.claim(worker)).jobs) == 100


async def test_claim_paused_queue_does_not_affect_other_queues(stage: Stage) -> None:
    worker = await stage.worker()
    await stage.start(queue="mail")
    other = await stage.start(queue="rest")
    await stage.run(queues.pause("mail", "ada", ""))

    batch = await stage.claim(worker, queues=["mail", "rest", "third"])

    assert batch.jobs == [other]


async def test_claim_pause_applies_after_its_commit(stage: Stage) -> None:
    worker = await stage.worker()
    first, second = await stage.start(), await stage.start()
    pausing = await stage.connect()

    async with pausing.transaction():
        await stage.run(queues.pause("default", "ada", ""), pausing)
        assert (await stage.claim(worker, 1)).jobs == [first]  # the claim does not wait

    assert (await stage.claim(worker, 1)).jobs == []
    await stage.run(queues.resume("default"))
    assert (await stage.claim(worker, 1)).jobs == [second]
