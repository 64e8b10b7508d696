"""Explanation of a run of several jobs, or of one of its jobs: the reason that holds up the whole run."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rota import Context, Retry
from rota.engine.diagnosis.explain import explain
from rota.engine.diagnosis.explain import sequential_fetch as questions
from rota.errors import RunFailed, RunNotFound

from .conftest import Asking


async def job_of(asking: Asking, run: Any, task: str) -> int:
    [[id]] = await asking.sql(
        "select job from rota.job_state where run = %s and task like '%%.' || %s::text",
        run.id,
        task,
    )
    return int(id)


async def test_a_job_waits_for_its_parents_and_is_led_to_what_holds_them_up(asking: Asking) -> None:
    etl = asking.app.flow("etl")

    @etl.task(retry=Retry(max_attempts=3, delay=3600))
    async def extract() -> int:
        raise ValueError("no bread")

    @etl.task
    async def clean(extract: int) -> int:
        return extract

    @etl.task
    async def report(clean: int) -> None: ...

    async with asking.app.worker():
        run = await etl.start()
        await asking.until(run, "retry")
    root, first, last = [await job_of(asking, run, each) for each in ("extract", "clean", "report")]

    why = await asking.why(last)

    assert [each.code for each in why.reasons] == ["retry", "predecessors"]
    blocker, parents = why.reasons
    assert blocker.job == root
    assert f"attempt 1 of job {root} (etl.extract) failed with ValueError" in blocker.message
    assert parents.message == f"it waits for etl.clean (job {first}, waiting)"
    assert (parents.kind, parents.subject, parents.job) == ("job", str(first), last)
    whole = await asking.why(run)
    assert [each.code for each in whole.reasons] == ["retry"]
    assert (whole.status, whole.is_flow, whole.name) == ("waiting", True, "etl")


async def test_only_what_it_waits_for_counts(asking: Asking) -> None:
    fork = asking.app.flow("fork")

    @fork.task(queue="nobody")
    async def left() -> int:
        return 1

    @fork.task
    async def right() -> None:
        await asking.gate.wait()

    @fork.task(after=[right])
    async def follows() -> None: ...

    async with asking.app.worker(queues=["default"]):
        run = await fork.start()
        waits = await job_of(asking, run, "follows")
        reason = await asking.until(waits, "running")

        assert reason.job == await job_of(asking, run, "right")
        whole = await asking.why(run)
        assert whole.status == "stuck"
        assert [each.code for each in whole.reasons] == ["queue_unserved", "running"]
        asking.gate.set()


async def test_alike_jobs_are_one_reason_and_many_are_not_all_looked_at(asking: Asking) -> None:
    @asking.app.task
    async def part(number: int) -> None:
        await asking.gate.wait()

    @asking.app.task
    async def whole(ctx: Context) -> None:
        await ctx.map(part.bind(number=each) for each in range(70))

    async with asking.app.worker(concurrency=3):
        run = await whole.start()
        await asking.until(run, "full")

        why = await asking.why(run)

        codes = {each.code: each for each in why.reasons}
        assert codes["full"].jobs + codes["running"].jobs + why.omitted_jobs == 70
        assert why.omitted_jobs == 20
        assert f"job {codes['full'].job} (part) is queued" in codes["full"].message
        assert why.reasons[-1].code == "children"
        asking.gate.set()
        await run.result(timeout=60)


async def test_those_that_wait_for_others_are_not_what_holds_it_up(asking: Asking) -> None:
    long = asking.app.flow("long")
    before: list[Any] = []

    for number in range(60):

        async def link() -> None: ...

        before = [long.task(name=f"link{number}", after=before, queue="nobody")(link)]

    run = await long.start()

    why = await asking.why(run)

    assert [(each.code, each.jobs) for each in why.reasons] == [("no_worker", 1)]
    assert why.omitted_jobs == 0


async def test_a_job_waits_for_what_it_has_called_however_deep(asking: Asking) -> None:
    @asking.app.task(queue="nobody")
    async def bottom() -> None: ...

    @asking.app.task
    async def middle(ctx: Context) -> None:
        await ctx.run(bottom.bind())

    @asking.app.task
    async def top(ctx: Context) -> None:
        await ctx.run(middle.bind())

    async with asking.app.worker(queues=["default"]):
        run = await top.start()
        reason = await asking.until(run, "queue_unserved")

        why = await asking.why(run)
        assert reason.subject == "nobody"
        assert "(bottom)" in reason.message
        assert [each.code for each in why.reasons] == ["queue_unserved", "children", "children"]
        assert why.status == "stuck"
        [[called]] = await asking.sql("select id from rota.runs where parent = %s", run.id)
        assert (await asking.first(called)).code == "queue_unserved"
        await run.cancel()


async def test_a_call_beyond_the_limit_waits_for_one_before_it(asking: Asking) -> None:
    begun = asyncio.Semaphore(0)

    @asking.app.task
    async def part(number: int) -> None:
        begun.release()
        await asking.gate.wait()

    @asking.app.task
    async def whole(ctx: Context) -> None:
        await ctx.map((part.bind(number=each) for each in range(3)), concurrency=2)

    async with asking.app.worker():
        run = await whole.start()
        async with asyncio.timeout(60):
            for _ in range(2):
                await begun.acquire()
        [[third]] = await asking.sql("select max(id) from rota.jobs where task = 'part'")

        why = await asking.why(third)

        assert [each.code for each in why.reasons] == ["running", "limit"]
        assert "limits its concurrency" in why.reasons[1].message
        assert why.status == "waiting", "it is another that runs"
        asking.gate.set()
        await run.result(timeout=60)


async def test_a_flow_among_the_calls_is_followed_too(asking: Asking) -> None:
    inner = asking.app.flow("inner")

    @inner.task(queue="nobody")
    async def leaf() -> None: ...

    @asking.app.task
    async def whole(ctx: Context) -> None:
        await ctx.run(inner.bind())

    async with asking.app.worker(queues=["default"]):
        run = await whole.start()
        reason = await asking.until(run, "queue_unserved")

        assert "(inner.leaf)" in reason.message
        await run.cancel()


async def test_its_jobs_have_ended_and_nobody_has_passed_that_on(asking: Asking) -> None:
    etl = asking.app.flow("etl")

    @etl.task
    async def only() -> None: ...

    run = await etl.start()
    job = await job_of(asking, run, "only")
    await asking.sql("delete from rota.queued")
    await asking.sql(
        "insert into rota.outcomes (job, state, attempt) values (%s, 'succeeded', 1)", job
    )
    assert (await asking.first(run)).code == "moving"
    await asking.sql("insert into rota.pending_releases (job, kind) values (%s, 'succeeded')", job)

    assert (await asking.first(run)).code == "releasing"


async def test_a_run_that_is_to_stop_says_which_job_does_not(asking: Asking) -> None:
    etl = asking.app.flow("etl")

    @etl.task
    async def stubborn() -> None:
        while not asking.gate.is_set():
            try:
                await asking.gate.wait()
            except BaseException:
                continue

    @etl.task
    async def after(stubborn: None) -> None: ...

    async with asking.app.worker():
        run = await etl.start()
        await asking.until(run, "running")
        await run.cancel()

        reason = await asking.first(run)

        assert reason.code == "cancelling"
        assert "(etl.stubborn)" in reason.message
        asking.gate.set()


async def test_what_has_ended_says_how(asking: Asking) -> None:
    @asking.app.task(retry=Retry(max_attempts=1))
    async def fails() -> None:
        raise ValueError("no bread")

    etl = asking.app.flow("etl")

    @etl.task
    async def only() -> None: ...

    async with asking.app.worker():
        failed, done = await fails.start(), await etl.start()
        await done.result(timeout=60)
        reason = await asking.until(failed, "ended")

    assert (reason.message, reason.detail) == ("it has failed with ValueError", "no bread")
    assert reason.remedy == f"`rota retry {failed.id}` retries it"
    why = await asking.why(done)
    assert (why.status, why.reasons[0].message) == ("ended", "it has succeeded")
    assert why.reasons[0].remedy is None


async def test_what_ends_while_one_looks_says_how(asking: Asking) -> None:
    @asking.app.task(retry=Retry(max_attempts=1))
    async def fails() -> None:
        raise ValueError("no bread")

    failed = await fails.start()
    client = await asking.app.open()
    asked = 0

    async def run(query: Any) -> list[Any]:
        nonlocal asked
        answer = await client.database.run(query)
        asked += 1
        if asked == 1:
            async with asking.app.worker():
                with pytest.raises(RunFailed):
                    await failed.result(timeout=60)
        return answer

    why = await explain(questions(run), failed.id, asking.app.settings)

    assert why is not None
    assert why.status == "ended"
    [reason] = why.reasons
    assert (reason.message, reason.detail) == ("it has failed with ValueError", "no bread")
    assert reason.remedy == f"`rota retry {failed.id}` retries it"


async def test_there_is_no_such_run(asking: Asking) -> None:
    with pytest.raises(RunNotFound):
        await asking.why(4711)
