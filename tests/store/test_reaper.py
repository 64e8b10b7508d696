"""The reaper, with claims that cannot be taken back: it continues with the rest."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from rota.engine.notify.notifier import Notifier
from rota.engine.telemetry.event_bus import EventBus
from rota.engine.worker.heartbeat import BeatResult
from rota.engine.worker.reaper import CLAIMS_PER_PAGE, Reaper
from rota.model import events
from support import flows
from support.lost_workers import declare_dead, orphans, queued_rows, split
from support.refusals import refuse
from support.stage import Stage


class Tally:
    def __init__(self) -> None:
        self.reaped: list[int] = []

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.JobsReaped):
            self.reaped += event.jobs


@pytest.fixture
async def tally() -> Tally:
    return Tally()


@pytest.fixture
async def reaper(own_stage: Stage, tally: Tally) -> AsyncIterator[Reaper]:
    announcer = EventBus()
    announcer.subscribe(tally)
    news = Notifier(own_stage.database)
    yield Reaper(own_stage.database, 0, news, announcer)
    await news.close()


async def take_back(reaper: Reaper) -> None:
    """Run one pass of the reaper."""
    reaper.on_beat(BeatResult(has_orphans=True))
    await reaper.tick()


async def test_reaper_thousand_locked_claims_do_not_block_a_free_one(
    own_stage: Stage, reaper: Reaper, tally: Tally
) -> None:
    """B10: the first pages are all pinned by a transaction that does not end."""
    stage = own_stage
    worker = await stage.worker()
    many = 10 * CLAIMS_PER_PAGE
    await stage.start_several(many + 1)
    await stage.sql(
        "with gone as (delete from rota.queued returning *)"
        " insert into rota.claims (worker, nonce, jobs, attempts, crashes, seqs)"
        " select %s, gen_random_uuid(), array[job], array[1], array[0], array[seq]"
        " from gone order by job",
        worker,
    )
    await declare_dead(stage, worker)
    *pinned, free = await orphans(stage, limit=many + 1)
    pinning = await stage.connect()

    async with pinning.transaction():
        await stage.sql(
            "select from rota.claims where id = any(%s) for key share", pinned, on=pinning
        )
        await take_back(reaper)
        assert len(tally.reaped) == 1
        assert await orphans(stage, limit=many + 1) == pinned
        assert await stage.held_by(free) == []


async def test_reaper_failing_job_does_not_block_other_jobs(
    own_stage: Stage, reaper: Reaper, tally: Tally
) -> None:
    """B9: a row that cannot be written must not stop the recovery of the rest."""
    stage = own_stage
    worker = await stage.worker()
    await stage.start_several(9)
    batches = [await stage.claim(worker, 3) for _ in range(3)]
    bad = batches[1].jobs[0]
    await refuse(stage, bad)
    await declare_dead(stage, worker)

    await take_back(reaper)

    assert await stage.sql("select jobs from rota.claims") == [[bad]]
    assert sorted(tally.reaped) == sorted(
        job for batch in batches for job in batch.jobs if job != bad
    )


async def test_reaper_blocked_claim_does_not_block_other_claims(
    own_stage: Stage, reaper: Reaper, tally: Tally
) -> None:
    """Ending a cancelled job needs the rows of its successors. A transaction that does not end has locked
    them: its process was stopped just before its commit."""
    stage = own_stage
    laid = await flows.start(stage, {"a": [], "b": [], "c": ["a", "b"]})
    worker = await stage.worker()
    batch = await flows.claim(stage, worker)
    assert await flows.cancel(stage, laid["a"]) == "requested"
    other = await stage.start_several(2)
    await stage.claim(worker)
    frozen = await stage.connect()
    own = await split(stage, batch, laid["b"])
    await declare_dead(stage, worker)

    async with frozen.transaction():
        assert await stage.complete(own, on=frozen) == []
        async with asyncio.timeout(60):
            await take_back(reaper)
        assert sorted(tally.reaped) == other

    await take_back(reaper)
    assert sorted(tally.reaped) == sorted([laid["a"], *other])
    assert list(await queued_rows(stage, "seq")) == other
