"""Explanation of a claimed job: it runs, is about to stop, or its worker sends no heartbeats."""

from __future__ import annotations

from typing import Any

from rota import Context
from support.explainer import Explainer


async def insert_claim(asking: Explainer, worker: int, run: Any, **more: Any) -> None:
    """Insert a claim of this worker for the run's job."""
    await asking.sql("delete from rota.queued where job = %s", run.id)
    names = "".join(f", {name}" for name in more)
    values = ", %s" * len(more)
    await asking.sql(
        f"insert into rota.claims (worker, nonce, jobs, attempts, crashes, seqs{names})"
        f" values (%s, gen_random_uuid(), array[%s::bigint], '{{1}}', '{{0}}', array[%s::bigint]{values})",
        worker,
        run.id,
        run.id,
        *more.values(),
    )


async def test_explain_running_job_reports_worker_and_progress(explainer: Explainer) -> None:
    @explainer.app.task
    async def work(ctx: Context) -> None:
        ctx.progress(3, 10, "third row")
        await explainer.gate.wait()

    async with explainer.app.worker() as worker:
        run = await work.start()
        reason = await explainer.until(run, "running")
        while "3 of 10 done" not in reason.message:
            reason = await explainer.first(run)

        assert (reason.kind, reason.subject) == ("worker", str(worker.id))
        assert reason.detail == "third row"
        assert "third row" not in reason.message
        assert (await explainer.why(run)).status == "running"
        assert reason.since is not None
        explainer.gate.set()


async def test_explain_claimed_job_of_full_worker_reports_its_concurrency(
    explainer: Explainer,
) -> None:
    @explainer.app.task
    async def work() -> None: ...

    runs = [await work.start() for _ in range(3)]
    worker = await explainer.register(capacity=1, running=1)
    for run in runs:
        await insert_claim(explainer, worker, run)

    reason = await explainer.first(runs[0])

    assert reason.code == "running"
    assert "with 2 more and runs 1 at a time" in reason.message


async def test_explain_cancelled_job_that_does_not_stop_is_cancelling(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None:
        while not explainer.gate.is_set():
            try:
                await explainer.gate.wait()
            except BaseException:
                continue

    async with explainer.app.worker():
        run = await work.start()
        await explainer.until(run, "running")
        assert await run.cancel() == "requested"

        reason = await explainer.first(run)

        assert (reason.code, reason.kind) == ("cancelling", "worker")
        assert reason.since is not None
        explainer.gate.set()


async def test_explain_silent_worker_reports_when_job_is_taken_back(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    worker = await explainer.register()
    other = await explainer.register()
    await insert_claim(explainer, worker, run)
    await explainer.sql("update rota.workers set last_beat = rota.clock() - interval '15 seconds'")
    assert (await explainer.first(run)).is_stuck  # the other worker sends no heartbeats either
    await explainer.sql("update rota.workers set last_beat = rota.clock() where id = %s", other)

    reason = await explainer.first(run)

    assert (reason.code, reason.subject, reason.is_stuck) == ("silent", str(worker), False)
    assert "in about 5 s" in reason.message


async def test_explain_orphaned_job_without_other_worker_is_stuck(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    worker = await explainer.register()
    await insert_claim(explainer, worker, run)
    await explainer.sql("update rota.workers set last_beat = rota.clock() - interval '15 seconds'")
    assert (await explainer.first(run)).is_stuck

    await explainer.sql("update rota.workers set state = 'dead'")
    reason = await explainer.first(run)

    assert (reason.code, reason.is_stuck) == ("orphaned", True)
    assert reason.remedy is not None
    await explainer.register()
    reason = await explainer.first(run)
    assert (reason.code, reason.is_stuck) == ("orphaned", False)


async def test_explain_orphaned_job_with_silent_draining_worker_is_stuck(
    explainer: Explainer,
) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    dead = await explainer.register(state="dead")
    await insert_claim(explainer, dead, run)
    leaving = await explainer.register(state="draining")
    assert not (await explainer.first(run)).is_stuck
    await explainer.sql(
        "update rota.workers set last_beat = rota.clock() - interval '15 seconds' where id = %s",
        leaving,
    )

    reason = await explainer.first(run)

    assert (reason.code, reason.is_stuck) == ("orphaned", True)


async def test_explain_expired_claim_reports_visibility_timeout(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None: ...

    run = await work.start()
    worker = await explainer.register()
    await explainer.register()
    await insert_claim(explainer, worker, run, expires="2020-01-01")

    assert (await explainer.first(run)).code == "visibility_timeout"


async def test_explain_running_job_reports_awaited_lock_as_possible(explainer: Explainer) -> None:
    @explainer.app.task
    async def work() -> None:
        async with explainer.app.lock("invoices", ttl=30):
            pass

    async with explainer.app.worker():
        async with explainer.app.lock("invoices", ttl=30):
            run = await work.start()
            why = await explainer.why(run)
            while not any(each.code == "lock" for each in why.reasons):
                why = await explainer.why(run)

            first, lock = why.reasons
            assert first.code == "running"
            assert (lock.kind, lock.subject, lock.is_certain) == ("lock", "invoices", False)
            assert not lock.is_stuck
        await run.result(timeout=60)
    assert [each.code for each in (await explainer.why(run)).reasons] == ["ended"]
