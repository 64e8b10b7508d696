"""Steps that fail: handled, retried, timed out, or not stored at all."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from rota import (
    ClaimLost,
    Context,
    ReplayMismatch,
    Requeue,
    Retry,
    RetryLater,
    Rota,
    RunFailed,
    StepFailed,
)
from rota.engine.durable.journal import WorkerJournal
from rota.model.events import JobRetried, JobReturned
from rota.testing import Harness
from support.durable_helpers import steps, wait_for_suspensions, wait_until_sleeping
from support.queries import ONCE, TWICE, fetch, until

SHORT = Retry(max_attempts=3, delay=0, jitter=0)
AN_HOUR = timedelta(hours=1)
LONG = Retry(max_attempts=3, delay=3600, backoff=1, jitter=0)


@pytest.fixture(autouse=True)
def short_inline_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(WorkerJournal, "inline_wait_seconds", 0.05)


def failing(times: int, ran: list[int]) -> Any:
    """Return a coroutine function that fails `times` times."""

    async def fn() -> int:
        ran.append(len(ran) + 1)
        if len(ran) <= times:
            raise LookupError(f"try {len(ran)}")
        return len(ran)

    return fn


# Handled and unhandled failures


async def test_step_failure_handled_by_code_is_stored_and_replayed(
    rota_app: Rota, rota_dsn: str
) -> None:
    ran: list[int] = []
    told: list[tuple[str, str, str, str, Any]] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> str:
        try:
            await ctx.step("charge", failing(1, ran))
        except StepFailed as error:
            cause = type(error.__cause__)
            told.append((error.step, error.kind, error.reason, str(error), cause))
        await ctx.step("refund", lambda: None)
        if ctx.attempt == 1:
            raise ValueError("not yet")
        return "refunded"

    async with rota_app.worker():
        run = await work.start()
        assert await run.result(timeout=60) == "refunded"
    assert ran == [1]
    [new, again] = told
    assert new[:4] == again[:4]
    assert new[:3] == ("charge", "LookupError", "try 1")
    assert "step 'charge' failed: LookupError: try 1" in new[3]
    assert (new[4], again[4]) == (LookupError, type(None))
    assert await steps(rota_dsn, run) == ["step charge", "step refund"]


@pytest.mark.parametrize("how", ["sleep", "value", "wait"])
async def test_step_failure_handled_by_code_is_stored_with_next_entry(
    rota_app: Rota, how: str
) -> None:
    ran: list[int] = []

    @rota_app.task
    async def work(ctx: Context) -> int:
        try:
            await ctx.step("charge", failing(9, ran))
        except StepFailed:
            if how == "value":
                ctx.uuid()
            elif how == "wait":
                await ctx.wait_signal("word", timeout=0.1, default=None)
        await ctx.sleep(0.1)
        return len(ran)

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == 1


async def test_step_failure_that_fails_attempt_is_retried_by_next(
    rota_app: Rota, rota_dsn: str
) -> None:
    ran: list[int] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> int:
        try:
            return await ctx.step("charge", failing(1, ran))
        except StepFailed:
            ctx.now()  # a value alone does not confirm the failure
            raise

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == 2
    [(document,)] = await fetch(rota_dsn, "select error from rota.attempts")
    # The error is the original one, not StepFailed.
    assert (document["type"], document["message"]) == ("LookupError", "try 1")
    assert "step 'charge' failed" in document["traceback"]


async def test_step_failure_non_retryable_for_task_fails_job(
    rota_app: Rota,
) -> None:
    ran: list[int] = []

    @rota_app.task(retry=Retry(max_attempts=5, delay=0, non_retryable=(LookupError,)))
    async def work(ctx: Context) -> None:
        await ctx.step("charge", failing(1, ran))

    async with rota_app.worker():
        with pytest.raises(RunFailed, match="try 1"):
            await (await work.start()).result(timeout=60)
    assert ran == [1]


# Handled, and another branch continues


async def _gather(ctx: Context, apologize: Any) -> None:
    await asyncio.gather(ctx.step("apologize", apologize), ctx.step("refund", lambda: None))


async def _task_group(ctx: Context, apologize: Any) -> None:
    async def branch() -> None:
        await ctx.step("apologize", apologize)

    async with asyncio.TaskGroup() as group:
        group.create_task(branch())


async def _ensure_future(ctx: Context, apologize: Any) -> None:
    await asyncio.ensure_future(ctx.step("apologize", apologize))


async def _transaction(ctx: Context, apologize: Any) -> None:
    async with ctx.transaction() as connection:
        await connection.execute("select 1")


async def _checkpoint(ctx: Context, apologize: Any) -> None:
    await ctx.checkpoint("apologized")


async def _fence(ctx: Context, apologize: Any) -> None:
    await ctx.fence()


@pytest.mark.parametrize(
    "go_on", [_gather, _task_group, _ensure_future, _transaction, _checkpoint, _fence]
)
async def test_caught_step_failure_is_kept_before_any_later_operation(
    rota_app: Rota, go_on: Any
) -> None:
    ran: list[int] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> int:
        try:
            await ctx.step("charge", failing(1, ran))
        except StepFailed:
            await go_on(ctx, lambda: None)
        if ctx.attempt == 1:
            raise ValueError("crash")
        return len(ran)

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == 1


@pytest.mark.parametrize("how", ["map", "run"])
async def test_caught_step_failure_is_kept_before_a_child_run_starts(
    rota_app: Rota, how: str
) -> None:
    ran: list[int] = []

    @rota_app.task
    async def apologize() -> None: ...

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> int:
        try:
            await ctx.step("charge", failing(1, ran))
        except StepFailed:
            if how == "map":
                await ctx.map([apologize.bind()])
            else:
                await ctx.run(apologize.bind())
        if ctx.attempt == 1:
            raise ValueError("crash")
        return len(ran)

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == 1


async def test_step_failure_caught_by_parent_branch_is_kept(rota_app: Rota) -> None:
    ran: list[int] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> int:
        async def parent() -> None:
            try:
                await asyncio.ensure_future(ctx.step("charge", failing(1, ran)))
            except StepFailed:
                await asyncio.gather(ctx.step("apologize", lambda: None))

        await asyncio.gather(parent(), asyncio.sleep(0))
        if ctx.attempt == 1:
            raise ValueError("crash")
        return len(ran)

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == 1


async def test_step_failure_that_wakes_other_branch_is_kept(rota_app: Rota) -> None:
    """The branch that caught the failure wakes a concurrent branch, and waits for it."""
    ran: list[int] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> int:
        failed, apologized = asyncio.Event(), asyncio.Event()

        async def charge() -> None:
            try:
                await ctx.step("charge", failing(1, ran))
            except StepFailed:
                failed.set()
                await apologized.wait()
                if ctx.attempt == 1:
                    raise ValueError("crash") from None

        async def apologize() -> None:
            await failed.wait()
            await ctx.step("apologize", lambda: None)
            apologized.set()

        await asyncio.gather(charge(), apologize())
        return len(ran)

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == 1


async def test_step_failure_beside_busy_branch_is_retried_by_next_attempt(
    rota_app: Rota,
) -> None:
    """The other branch continues after the failure, but not because of it."""
    ran: list[int] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> int:
        failed = asyncio.Event()

        async def charge() -> None:
            try:
                await ctx.step("charge", failing(1, ran))
            finally:
                failed.set()

        async def pack() -> None:
            await failed.wait()
            await ctx.step("pack", lambda: None)

        found = await asyncio.gather(charge(), pack(), return_exceptions=True)
        for each in found:
            if isinstance(each, StepFailed):
                raise each
        return len(ran)

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == 2


# Retries of a step


async def test_step_retry_without_delay_runs_in_same_attempt(rota_app: Rota, rota_dsn: str) -> None:
    ran: list[int] = []

    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> int:
        return await ctx.options(retry=SHORT).step("charge", failing(2, ran))

    async with rota_app.worker():
        run = await work.start()
        assert await run.result(timeout=60) == 3
    assert await fetch(rota_dsn, "select open, tries, wake_at is null, error from rota.steps") == [
        (False, 3, False, None)
    ]


async def test_step_retries_used_up_are_stored_as_closed_failure(
    rota_app: Rota, rota_dsn: str
) -> None:
    """The step was open between its tries. Once the code handles the failure, the step is closed."""
    ran: list[int] = []

    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> int:
        for _ in range(2):
            with pytest.raises(StepFailed, match="try"):
                await ctx.options(retry=SHORT).step("charge", failing(99, ran))
        await ctx.sleep(0.1)
        return len(ran)

    async with rota_app.worker():
        run = await work.start()
        assert await run.result(timeout=60) == 6
    assert await steps(rota_dsn, run) == ["step charge", "step charge 2", "sleep sleep"]


async def test_step_retries_begin_again_in_next_attempt(rota_app: Rota) -> None:
    ran: list[int] = []

    @rota_app.task(retry=TWICE)
    async def work(ctx: Context) -> int:
        return await ctx.options(retry=SHORT).step("charge", failing(5, ran))

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == 6


async def test_step_retry_with_long_delay_suspends_job_and_counts_tries(
    rota_harness: Harness, rota_dsn: str
) -> None:
    app, clock = rota_harness.app, rota_harness.clock
    ran: list[int] = []

    @app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        await ctx.options(retry=LONG).step("charge", failing(99, ran))

    async with app.worker() as worker:
        run = await work.start()
        for tries in (1, 2):
            await until(lambda tries=tries: _is_equal(len(ran), tries))
            await wait_until_sleeping(run)
            assert worker.session.slots.running == 0
            assert await fetch(rota_dsn, "select open, tries from rota.steps") == [(True, tries)]
            await clock.advance(AN_HOUR)
        with pytest.raises(RunFailed, match="try 3"):
            await run.result(timeout=60)
    assert ran == [1, 2, 3]


async def test_step_retry_of_job_woken_early_waits_until_due(
    rota_harness: Harness, rota_dsn: str
) -> None:
    """The job is woken early, before the retry of the step is due: the step waits."""
    app, clock = rota_harness.app, rota_harness.clock
    ran: list[int] = []

    @app.task(retry=ONCE)
    async def work(ctx: Context) -> int:
        return await ctx.options(retry=LONG).step("charge", failing(1, ran))

    async with app.worker():
        run = await work.start()
        await wait_until_sleeping(run)
        await fetch(rota_dsn, "update rota.sleeping set wake_at = rota.clock() returning job")
        await wait_for_suspensions(rota_harness, run, 2)
        assert ran == [1]
        await clock.advance(AN_HOUR)
        assert await run.result(timeout=60) == 2


# Timeouts


async def test_step_beyond_timeout_fails(rota_app: Rota) -> None:
    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> str:
        try:
            await ctx.options(timeout=0.05).step("slow", asyncio.sleep, 60)
        except StepFailed as error:
            return f"{error.kind}: {error.reason}"
        return "in time"

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == (
            "rota.errors.TaskTimeout: it took longer than its timeout of 0.05 s"
        )


async def test_step_own_timeout_error_keeps_its_type(rota_app: Rota) -> None:
    async def gives_up() -> None:
        raise TimeoutError("mine")

    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> str:
        with pytest.raises(StepFailed) as failed:
            await ctx.options(timeout=60).step("slow", gives_up)
        return failed.value.kind

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == "TimeoutError"


async def test_step_timeout_applies_to_each_try(rota_app: Rota) -> None:
    ran: list[int] = []

    async def slow_at_first() -> int:
        ran.append(1)
        if len(ran) == 1:
            await asyncio.sleep(60)
        return len(ran)

    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> int:
        return await ctx.options(retry=SHORT, timeout=0.1).step("slow", slow_at_first)

    async with rota_app.worker():
        assert await (await work.start()).result(timeout=60) == 2


# Exceptions that end the whole attempt


async def test_step_raising_retry_later_delays_the_attempt(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def work(ctx: Context) -> int:
        def busy() -> int:
            if ctx.attempt == 1:
                raise RetryLater(0.01)
            return ctx.attempt

        return await ctx.options(retry=LONG).step("busy", busy)

    async with app.worker():
        run = await work.start()
        assert await run.result(timeout=60) == 2
    retried = await rota_harness.wait_for_event(JobRetried, job=run.id)
    assert retried.delay == 0.01


async def test_step_raising_requeue_returns_job_to_queue(rota_dsn: str) -> None:
    begun = asyncio.Event()
    async with Rota(rota_dsn, poll_interval=0.05) as app, Harness(app) as harness:

        @app.task(retry=ONCE)
        async def work(ctx: Context) -> str:
            async def long() -> str:
                while not ctx.draining:
                    if begun.is_set():
                        return "done"
                    await asyncio.sleep(0.01)
                begun.set()
                raise Requeue

            return await ctx.step("long", long)

        run = await work.start()
        async with app.worker() as worker:
            await until(lambda: _is_equal(worker.session.slots.running, 1))
        await harness.wait_for_event(JobReturned, job=run.id)
        async with app.worker():
            assert await run.result(timeout=60) == "done"


@pytest.mark.parametrize("error", [ClaimLost("gone"), ReplayMismatch("other")])
async def test_step_raising_claim_lost_or_mismatch_is_not_stored(
    rota_app: Rota, rota_dsn: str, error: Exception
) -> None:
    seen: list[type[BaseException]] = []

    def breaks() -> None:
        raise error

    @rota_app.task(retry=ONCE)
    async def work(ctx: Context) -> None:
        try:
            await ctx.options(retry=SHORT).step("breaks", breaks)
        except BaseException as raised:
            seen.append(type(raised))
            raise

    async with rota_app.worker():
        with pytest.raises(RunFailed):
            await (await work.start()).result(timeout=60)
    assert seen == [type(error)]
    assert await fetch(rota_dsn, "select count(*) from rota.steps") == [(0,)]


# Results that cannot be stored, and misuse


async def test_step_result_not_storable_or_mistyped_fails_job(
    rota_app: Rota, rota_dsn: str
) -> None:
    """Such a result fails the job at once. If it were stored, no attempt could read it."""
    ran: list[str] = []

    def lies() -> int:
        ran.append("lies")
        return "three"  # type: ignore[return-value]

    @rota_app.task(retry=Retry(max_attempts=5, delay=0))
    async def work(ctx: Context, what: str) -> int:
        if what == "nan":
            await ctx.step("nan", lambda: [float("nan")])
        elif what == "big":
            await ctx.step("big", lambda: "x" * 2_000_000)
        return await ctx.step("lies", lies)

    messages = {
        "nan": r"step 'nan' cannot be stored: nan is not a number JSON has",
        "big": r"step 'big' would take 1\.9 MiB",
        "lies": r"the result of .*lies is not int: Expected `int`, got `str`",
    }
    async with rota_app.worker():
        for what, message in messages.items():
            run = await work.start(what)
            with pytest.raises(RunFailed, match=message):
                await run.result(timeout=60)
        assert ran == ["lies"]
        assert await fetch(rota_dsn, "select count(*) from rota.steps") == [(0,)]
        ran.clear()
        await run.retry()
        with pytest.raises(RunFailed, match="is not int"):
            await run.result(timeout=60)
        assert ran == ["lies"]  # the step ran again


async def _is_equal(found: int, wanted: int) -> bool:
    return found == wanted
