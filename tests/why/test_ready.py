"""Explanation of a queued job that is not claimed: the workers that could claim it, and their obstacles."""

from __future__ import annotations

from typing import Any

import pytest

from .conftest import Asking


async def test_no_worker_is_there(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()

    why = await asking.why(run)
    [reason] = why.reasons
    assert (reason.code, reason.is_stuck, why.status) == ("no_worker", True, "stuck")
    assert (reason.kind, reason.subject, reason.job) == ("queue", "default", run.id)
    assert reason.remedy is not None
    assert "rota worker" in reason.remedy


async def test_nobody_serves_its_queue(asking: Asking) -> None:
    @asking.app.task(queue="lonely")
    async def work() -> None: ...

    run = await work.start()
    await asking.register(queues=["default", "mail"])

    reason = await asking.first(run)

    assert (reason.code, reason.subject, reason.is_stuck) == ("queue_unserved", "lonely", True)
    assert "served: default, mail" in reason.message
    assert reason.remedy == "`rota worker MODULE:APP -q lonely`"


async def test_nobody_who_serves_its_queue_knows_its_task(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    await asking.register(tasks=["other"], version="v41")
    await asking.register(queues=["elsewhere"], tasks=["work"])

    reason = await asking.first(run)

    assert (reason.code, reason.kind, reason.subject) == ("task_unknown", "task", "work")
    assert "v41" in reason.message
    assert "1 worker knows it" in reason.message
    assert reason.is_stuck


@pytest.mark.parametrize("leaving", [{"state": "draining"}, {"drain_requested": "2026-01-01"}])
async def test_whoever_would_take_it_is_leaving(asking: Asking, leaving: dict[str, Any]) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    worker = await asking.register(**leaving)

    reason = await asking.first(run)

    assert (reason.code, reason.is_stuck) == ("draining", True)
    assert f"worker {worker}" in reason.message


async def test_all_that_would_take_it_are_full(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None:
        await asking.gate.wait()

    async with asking.app.worker(concurrency=1):
        first = await work.start()
        await asking.until(first, "running")
        run = await work.start()

        reason = await asking.until(run, "full")

        assert "1 full, with 1 job running" in reason.message
        assert not reason.is_stuck
        assert reason.remedy is not None
        assert "-c" in reason.remedy
        asking.gate.set()
        await run.result(timeout=60)
        assert (await asking.first(run)).code == "ended"


async def test_one_that_is_free_outweighs_those_that_are_full(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    await asking.register(running=10)
    await asking.register(running=9)

    assert (await asking.first(run)).code == "next"


async def test_those_that_would_take_it_are_silent(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    worker = await asking.register()
    await asking.sql("update rota.workers set last_beat = rota.clock() - interval '11 seconds'")

    reason = await asking.first(run)

    assert (reason.code, reason.is_stuck) == ("silent", True)
    assert f"worker {worker}" in reason.message


async def test_their_event_loops_are_blocked(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    await asking.register(lag=12.0)

    reason = await asking.first(run)

    assert (reason.code, reason.is_stuck) == ("late", False)


async def test_a_worker_is_kept_for_a_job_that_runs_alone(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    other = await work.start()
    worker = await asking.register()
    await asking.sql("delete from rota.queued where job = %s", other.id)
    await asking.sql(
        "insert into rota.claims (worker, nonce, exclusive, jobs, attempts, lost, seqs)"
        " values (%s, gen_random_uuid(), true, array[%s::bigint], '{1}', '{-4}', array[%s::bigint])",
        worker,
        other.id,
        other.id,
    )

    reason = await asking.first(run)

    assert reason.code == "suspect"
    assert "run alone" in reason.message


async def test_it_is_behind_others_and_by_how_many(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    await asking.register()
    ahead = [await work.options(priority=5).start(), await work.start(), await work.start()]
    run = await work.start()
    await work.start()

    reason = await asking.first(run)
    assert (reason.code, reason.kind, reason.subject) == ("behind", "queue", "default")
    assert f"behind {len(ahead)} other jobs" in reason.message
    assert (await asking.first(ahead[0])).code == "next"


async def test_so_many_are_counted_and_no_more(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    await asking.register()
    await asking.app.start_many([work.bind() for _ in range(1200)])
    run = await work.start()

    assert "behind 1,000 other jobs or more" in (await asking.first(run)).message


@pytest.mark.parametrize(("lost", "words"), [(-1, "claimed by itself"), (-4, "runs alone")])
async def test_it_was_lost_with_a_worker(asking: Asking, lost: int, words: str) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    await asking.register()
    await asking.sql("update rota.queued set lost = %s", lost)

    reason = await asking.first(run)

    assert reason.code == "suspect"
    assert words in reason.message
    assert not reason.is_stuck


async def test_one_that_came_back_is_found_behind_its_number(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    for _ in range(3):
        await work.start()
    await asking.register()
    await asking.sql("update rota.queued set seq = nextval('rota.ids') where job = %s", run.id)

    assert "behind 3 other jobs" in (await asking.first(run)).message
