"""Explanation of a queued job that is not claimed: the workers that could claim it, and their obstacles."""

from __future__ import annotations

from typing import Any

import pytest

from support.explainer import Explainer


async def test_explain_queued_job_without_worker_is_stuck(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()

    why = await explainer.why(run)
    [reason] = why.reasons
    assert (reason.code, reason.is_stuck, why.status) == ("no_worker", True, "stuck")
    assert (reason.kind, reason.subject, reason.job) == ("queue", "default", run.id)
    assert reason.remedy is not None
    assert "rota worker" in reason.remedy


async def test_explain_queued_job_in_unserved_queue_is_stuck(explainer: Explainer) -> None:
    @explainer.app.task(queue="lonely")
    async def work() -> None: ...

    run = await work.start()
    await explainer.register(queues=["default", "mail"])

    reason = await explainer.first(run)

    assert (reason.code, reason.subject, reason.is_stuck) == ("queue_unserved", "lonely", True)
    assert "served: default, mail" in reason.message
    assert reason.remedy == "`rota worker MODULE:APP -q lonely`"


async def test_explain_queued_job_of_unknown_task_is_stuck(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    await explainer.register(tasks=["other"], version="v41")
    await explainer.register(queues=["elsewhere"], tasks=["work"])

    reason = await explainer.first(run)

    assert (reason.code, reason.kind, reason.subject) == ("task_unknown", "task", "work")
    assert "v41" in reason.message
    assert "1 worker knows it" in reason.message
    assert reason.is_stuck


@pytest.mark.parametrize("leaving", [{"state": "draining"}, {"drain_requested": "2026-01-01"}])
async def test_explain_queued_job_with_only_draining_workers_is_stuck(
    explainer: Explainer, leaving: dict[str, Any]
) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    worker = await explainer.register(**leaving)

    reason = await explainer.first(run)

    assert (reason.code, reason.is_stuck) == ("draining", True)
    assert f"worker {worker}" in reason.message


async def test_explain_queued_job_with_only_full_workers_is_not_stuck(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None:
        await explainer.gate.wait()

    async with explainer.app.worker(concurrency=1):
        first = await work.start()
        await explainer.until(first, "running")
        run = await work.start()

        reason = await explainer.until(run, "full")

        assert "1 full, with 1 job running" in reason.message
        assert not reason.is_stuck
        assert reason.remedy is not None
        assert "-c" in reason.remedy
        explainer.gate.set()
        await run.result(timeout=60)
        assert (await explainer.first(run)).code == "ended"


async def test_explain_queued_job_with_a_free_worker_is_next(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    await explainer.register(running=10)
    await explainer.register(running=9)

    assert (await explainer.first(run)).code == "next"


async def test_explain_queued_job_with_only_silent_workers_is_stuck(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    worker = await explainer.register()
    await explainer.sql("update rota.workers set last_beat = rota.clock() - interval '11 seconds'")

    reason = await explainer.first(run)

    assert (reason.code, reason.is_stuck) == ("silent", True)
    assert f"worker {worker}" in reason.message


async def test_explain_queued_job_with_blocked_event_loop_is_late(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    await explainer.register(lag=12.0)

    reason = await explainer.first(run)

    assert (reason.code, reason.is_stuck) == ("late", False)


async def test_explain_queued_job_beside_exclusive_claim_reports_suspect(
    explainer: Explainer,
) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    other = await work.start()
    worker = await explainer.register()
    await explainer.sql("delete from rota.queued where job = %s", other.id)
    await explainer.sql(
        "insert into rota.claims (worker, nonce, exclusive, suspicion, jobs, attempts, crashes, seqs)"
        " values (%s, gen_random_uuid(), true, 'grave', array[%s::bigint], '{1}', '{2}',"
        " array[%s::bigint])",
        worker,
        other.id,
        other.id,
    )

    reason = await explainer.first(run)

    assert reason.code == "suspect"
    assert "run alone" in reason.message


async def test_explain_queued_job_counts_the_jobs_ahead(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    await explainer.register()
    ahead = [await work.options(priority=5).start(), await work.start(), await work.start()]
    run = await work.start()
    await work.start()

    reason = await explainer.first(run)
    assert (reason.code, reason.kind, reason.subject) == ("behind", "queue", "default")
    assert f"behind {len(ahead)} other jobs" in reason.message
    assert (await explainer.first(ahead[0])).code == "next"


async def test_explain_queued_job_counts_at_most_a_thousand_ahead(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    await explainer.register()
    await explainer.app.start_many([work.bind() for _ in range(1200)])
    run = await work.start()

    assert "behind 1,000 other jobs or more" in (await explainer.first(run)).message


@pytest.mark.parametrize(
    ("suspicion", "words"), [("mild", "claimed by itself"), ("grave", "runs alone")]
)
async def test_explain_suspect_job_reports_restricted_claim(
    explainer: Explainer, suspicion: str, words: str
) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    await explainer.register()
    await explainer.sql("update rota.queued set suspicion = %s", suspicion)

    reason = await explainer.first(run)

    assert reason.code == "suspect"
    assert words in reason.message
    assert not reason.is_stuck


async def test_explain_requeued_job_is_behind_later_jobs(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    for _ in range(3):
        await work.start()
    await explainer.register()
    await explainer.sql("update rota.queued set seq = nextval('rota.ids') where job = %s", run.id)

    assert "behind 3 other jobs" in (await explainer.first(run)).message
