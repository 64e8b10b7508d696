"""Explanation of a run of several jobs, or of one of its jobs: the reason that holds up the whole run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import Context, Retry
from rota.engine.diagnosis.explain import explain
from rota.engine.diagnosis.explain import sequential_fetch as questions
from rota.errors import RunFailed, RunNotFound
from support.explainer import Explainer


async def job_of(asking: Explainer, run: Any, task: str) -> int:
    [[id]] = await asking.sql(
        "select job from rota.job_state where run = %s and task like '%%.' || %s::text",
        run.id,
        task,
    )
    return int(id)


async def test_explain_waiting_job_reports_cause_of_its_predecessors(explainer: Explainer) -> None:
    etl = explainer.app.flow("etl")

    @etl.task(retry=Retry(max_attempts=3, delay=3600))
    async def extract() -> int:
        raise ValueError("no bread")

    @etl.task
    async def clean(extract: int) -> int:
        return extract

    @etl.task
    async def report(clean: int) -> None: ...

    async with explainer.app.worker():
        run = await etl.start()
        await explainer.until(run, "retry")
    root, first, last = [
        await job_of(explainer, run, each) for each in ("extract", "clean", "report")
    ]

    why = await explainer.why(last)

    assert [each.code for each in why.reasons] == ["retry", "predecessors"]
    blocker, parents = why.reasons
    assert blocker.job == root
    assert f"attempt 1 of job {root} (etl.extract) failed with ValueError" in blocker.message
    assert parents.message == f"it waits for etl.clean (job {first}, waiting)"
    assert (parents.kind, parents.subject, parents.job) == ("job", str(first), last)
    whole = await explainer.why(run)
    assert [each.code for each in whole.reasons] == ["retry"]
    assert (whole.status, whole.is_flow, whole.name) == ("waiting", True, "etl")


async def test_explain_waiting_job_ignores_unrelated_jobs(explainer: Explainer) -> None:
    fork = explainer.app.flow("fork")

    @fork.task(queue="nobody")
    async def left() -> int:
        return 1

    @fork.task
    async def right() -> None:
        await explainer.gate.wait()

    @fork.task(after=[right])
    async def follows() -> None: ...

    async with explainer.app.worker(queues=["default"]):
        run = await fork.start()
        waits = await job_of(explainer, run, "follows")
        reason = await explainer.until(waits, "running")

        assert reason.job == await job_of(explainer, run, "right")
        whole = await explainer.why(run)
        assert whole.status == "stuck"
        assert [each.code for each in whole.reasons] == ["queue_unserved", "running"]
        explainer.gate.set()


async def test_explain_many_alike_jobs_are_one_reason_and_limited(explainer: Explainer) -> None:
    @explainer.app.task
    async def part(number: int) -> None:
        await explainer.gate.wait()

    @explainer.app.task
    async def whole(ctx: Context) -> None:
        await ctx.map(part.bind(number=each) for each in range(70))

    async with explainer.app.worker(concurrency=3):
        run = await whole.start()
        await explainer.until(run, "full")

        why = await explainer.why(run)

        codes = {each.code: each for each in why.reasons}
        assert codes["full"].jobs + codes["running"].jobs + why.omitted_jobs == 70
        assert why.omitted_jobs == 20
        assert f"job {codes['full'].job} (part) is queued" in codes["full"].message
        assert why.reasons[-1].code == "children"
        explainer.gate.set()
        await run.result(timeout=60)


async def test_explain_long_chain_reports_only_its_first_job(explainer: Explainer) -> None:
    long = explainer.app.flow("long")
    before: list[Any] = []

    for number in range(60):

        async def link() -> None: ...

        before = [long.task(name=f"link{number}", after=before, queue="nobody")(link)]

    run = await long.start()

    why = await explainer.why(run)

    assert [(each.code, each.jobs) for each in why.reasons] == [("no_worker", 1)]
    assert why.omitted_jobs == 0


async def test_explain_nested_child_runs_report_the_deepest_cause(explainer: Explainer) -> None:
    @explainer.app.task(queue="nobody")
    async def bottom() -> None: ...

    @explainer.app.task
    async def middle(ctx: Context) -> None:
        await ctx.run(bottom.bind())

    @explainer.app.task
    async def top(ctx: Context) -> None:
        await ctx.run(middle.bind())

    async with explainer.app.worker(queues=["default"]):
        run = await top.start()
        reason = await explainer.until(run, "queue_unserved")

        why = await explainer.why(run)
        assert reason.subject == "nobody"
        assert "(bottom)" in reason.message
        assert [each.code for each in why.reasons] == ["queue_unserved", "children", "children"]
        assert why.status == "stuck"
        [[called]] = await explainer.sql("select id from rota.runs where parent = %s", run.id)
        assert (await explainer.first(called)).code == "queue_unserved"
        await run.cancel()


async def test_explain_child_run_beyond_concurrency_reports_limit(explainer: Explainer) -> None:
    begun = asyncio.Semaphore(0)

    @explainer.app.task
    async def part(number: int) -> None:
        begun.release()
        await explainer.gate.wait()

    @explainer.app.task
    async def whole(ctx: Context) -> None:
        await ctx.map((part.bind(number=each) for each in range(3)), concurrency=2)

    async with explainer.app.worker():
        run = await whole.start()
        async with asyncio.timeout(60):
            for _ in range(2):
                await begun.acquire()
        [[third]] = await explainer.sql("select max(id) from rota.jobs where task = 'part'")

        why = await explainer.why(third)

        assert [each.code for each in why.reasons] == ["running", "limit"]
        assert "limits its concurrency" in why.reasons[1].message
        assert why.status == "waiting", "it is another that runs"
        explainer.gate.set()
        await run.result(timeout=60)


async def test_explain_child_flow_reports_its_blocked_job(explainer: Explainer) -> None:
    inner = explainer.app.flow("inner")

    @inner.task(queue="nobody")
    async def leaf() -> None: ...

    @explainer.app.task
    async def whole(ctx: Context) -> None:
        await ctx.run(inner.bind())

    async with explainer.app.worker(queues=["default"]):
        run = await whole.start()
        reason = await explainer.until(run, "queue_unserved")

        assert "(inner.leaf)" in reason.message
        await run.cancel()


async def test_explain_flow_with_ended_jobs_reports_pending_release(explainer: Explainer) -> None:
    etl = explainer.app.flow("etl")

    @etl.task
    async def only() -> None: ...

    run = await etl.start()
    job = await job_of(explainer, run, "only")
    await explainer.sql("delete from rota.queued")
    await explainer.sql(
        "insert into rota.outcomes (job, state, attempt) values (%s, 'succeeded', 1)", job
    )
    assert (await explainer.first(run)).code == "moving"
    await explainer.sql(
        "insert into rota.pending_releases (job, kind) values (%s, 'succeeded')", job
    )

    assert (await explainer.first(run)).code == "releasing"


async def test_explain_cancelled_flow_names_the_job_that_does_not_stop(
    explainer: Explainer,
) -> None:
    etl = explainer.app.flow("etl")

    @etl.task
    async def stubborn() -> None:
        while not explainer.gate.is_set():
            try:
                await explainer.gate.wait()
            except BaseException:
                continue

    @etl.task
    async def after(stubborn: None) -> None: ...

    async with explainer.app.worker():
        run = await etl.start()
        await explainer.until(run, "running")
        await run.cancel()

        reason = await explainer.first(run)

        assert reason.code == "cancelling"
        assert "(etl.stubborn)" in reason.message
        explainer.gate.set()


async def test_explain_ended_run_reports_its_outcome(explainer: Explainer) -> None:
    @explainer.app.task(retry=Retry(max_attempts=1))
    async def fails() -> None:
        raise ValueError("no bread")

    etl = explainer.app.flow("etl")

    @etl.task
    async def only() -> None: ...

    async with explainer.app.worker():
        failed, done = await fails.start(), await etl.start()
        await done.result(timeout=60)
        reason = await explainer.until(failed, "ended")

    assert (reason.message, reason.detail) == ("it has failed with ValueError", "no bread")
    assert reason.remedy == f"`rota retry {failed.id}` retries it"
    why = await explainer.why(done)
    assert (why.status, why.reasons[0].message) == ("ended", "it has succeeded")
    assert why.reasons[0].remedy is None


async def test_explain_run_ending_during_query_reports_its_outcome(explainer: Explainer) -> None:
    @explainer.app.task(retry=Retry(max_attempts=1))
    async def fails() -> None:
        raise ValueError("no bread")

    failed = await fails.start()
    client = await explainer.app.open()
    asked = 0

    async def run(query: Any) -> list[Any]:
        nonlocal asked
        answer = await client.database.run(query)
        asked += 1
        if asked == 1:
            async with explainer.app.worker():
                with pytest.raises(RunFailed):
                    await failed.result(timeout=60)
        return answer

    why = await explain(questions(run), failed.id, explainer.app.settings)

    assert why is not None
    assert why.status == "ended"
    [reason] = why.reasons
    assert (reason.message, reason.detail) == ("it has failed with ValueError", "no bread")
    assert reason.remedy == f"`rota retry {failed.id}` retries it"


async def test_explain_unknown_run_raises_not_found(explainer: Explainer) -> None:
    with pytest.raises(RunNotFound):
        await explainer.why(4711)
