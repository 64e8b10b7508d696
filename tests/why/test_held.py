"""Explanation of a claimed job: it runs, is about to stop, or its worker sends no heartbeats."""

from __future__ import annotations

from typing import Any

from rota import Context

from .conftest import Asking


async def held(asking: Asking, worker: int, run: Any, **more: Any) -> None:
    """Insert a claim of this worker for the run's job."""
    await asking.sql("delete from rota.queued where job = %s", run.id)
    names = "".join(f", {name}" for name in more)
    values = ", %s" * len(more)
    await asking.sql(
        f"insert into rota.claims (worker, nonce, jobs, attempts, lost, seqs{names})"
        f" values (%s, gen_random_uuid(), array[%s::bigint], '{{1}}', '{{0}}', array[%s::bigint]{values})",
        worker,
        run.id,
        run.id,
        *more.values(),
    )


async def test_it_runs_where_and_how_far_it_is(asking: Asking) -> None:
    @asking.app.task
    async def work(ctx: Context) -> None:
        ctx.progress(3, 10, "third row")
        await asking.gate.wait()

    async with asking.app.worker() as worker:
        run = await work.start()
        reason = await asking.until(run, "running")
        while "3 of 10 done" not in reason.message:
            reason = await asking.first(run)

        assert (reason.kind, reason.subject) == ("worker", str(worker.id))
        assert reason.detail == "third row"
        assert "third row" not in reason.message
        assert (await asking.why(run)).status == "running"
        assert reason.since is not None
        asking.gate.set()


async def test_it_may_wait_its_turn_in_the_worker_that_holds_it(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    runs = [await work.start() for _ in range(3)]
    worker = await asking.register(capacity=1, running=1)
    for run in runs:
        await held(asking, worker, run)

    reason = await asking.first(runs[0])

    assert reason.code == "running"
    assert "with 2 more and runs 1 at a time" in reason.message


async def test_it_was_cancelled_and_its_code_does_not_stop(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None:
        while not asking.gate.is_set():
            try:
                await asking.gate.wait()
            except BaseException:
                continue

    async with asking.app.worker():
        run = await work.start()
        await asking.until(run, "running")
        assert await run.cancel() == "requested"

        reason = await asking.first(run)

        assert (reason.code, reason.kind) == ("cancelling", "worker")
        assert reason.since is not None
        asking.gate.set()


async def test_its_worker_is_silent_and_when_it_goes_back(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    worker = await asking.register()
    other = await asking.register()
    await held(asking, worker, run)
    await asking.sql("update rota.workers set last_beat = rota.clock() - interval '15 seconds'")
    assert (await asking.first(run)).is_stuck  # the other worker sends no heartbeats either
    await asking.sql("update rota.workers set last_beat = rota.clock() where id = %s", other)

    reason = await asking.first(run)

    assert (reason.code, reason.subject, reason.is_stuck) == ("silent", str(worker), False)
    assert "in about 5 s" in reason.message


async def test_nobody_else_is_there_to_take_it_back(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    worker = await asking.register()
    await held(asking, worker, run)
    await asking.sql("update rota.workers set last_beat = rota.clock() - interval '15 seconds'")
    assert (await asking.first(run)).is_stuck

    await asking.sql("update rota.workers set state = 'dead'")
    reason = await asking.first(run)

    assert (reason.code, reason.is_stuck) == ("orphaned", True)
    assert reason.remedy is not None
    await asking.register()
    reason = await asking.first(run)
    assert (reason.code, reason.is_stuck) == ("orphaned", False)


async def test_who_drains_takes_it_back_only_while_he_is_heard_of(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    dead = await asking.register(state="dead")
    await held(asking, dead, run)
    leaving = await asking.register(state="draining")
    assert not (await asking.first(run)).is_stuck
    await asking.sql(
        "update rota.workers set last_beat = rota.clock() - interval '15 seconds' where id = %s",
        leaving,
    )

    reason = await asking.first(run)

    assert (reason.code, reason.is_stuck) == ("orphaned", True)


async def test_it_is_held_for_longer_than_its_task_allows(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None: ...

    run = await work.start()
    worker = await asking.register()
    await asking.register()
    await held(asking, worker, run, expires="2020-01-01")

    assert (await asking.first(run)).code == "visibility_timeout"


async def test_somebody_waits_for_a_lock_and_it_may_be_this(asking: Asking) -> None:
    @asking.app.task
    async def work() -> None:
        async with asking.app.lock("invoices", ttl=30):
            pass

    async with asking.app.worker():
        async with asking.app.lock("invoices", ttl=30):
            run = await work.start()
            why = await asking.why(run)
            while not any(each.code == "lock" for each in why.reasons):
                why = await asking.why(run)

            first, lock = why.reasons
            assert first.code == "running"
            assert (lock.kind, lock.subject, lock.is_certain) == ("lock", "invoices", False)
            assert not lock.is_stuck
        await run.result(timeout=60)
    assert [each.code for each in (await asking.why(run)).reasons] == ["ended"]
