"""Attempts: their outcomes, retries, delays and expiry."""

from __future__ import annotations

import asyncio
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from pydantic import BaseModel

from rota import Context, Retry, RetryLater, Rota, RunExpired, RunFailed
from rota.model.events import JobFinished, JobRetried
from rota.store.read import runs as read_runs
from rota.testing import Harness


class Size(BaseModel):
    width: int


SOON = Retry(max_attempts=3, delay=0.01, jitter=0)


async def attempts_of(app: Rota, run: int) -> list[tuple[int, str, dict[str, Any]]]:
    client = await app.open()
    rows = await client.database.run(read_runs.attempts(run))
    return [(row.attempt, row.state, msgspec.json.decode(row.error or b"null")) for row in rows]


async def test_task_async_or_sync_returns_typed_result(rota_app: Rota) -> None:
    @rota_app.task
    async def grow(size: Size, by: int = 2) -> Size:
        return Size(width=size.width * by)

    @rota_app.task
    def where() -> str:
        return threading.current_thread().name

    async with rota_app.worker():
        grown = await grow.start(Size(width=21))
        assert await grown.result(timeout=60) == Size(width=42)
        assert (await (await where.start()).result(timeout=60)).startswith("rota")


async def test_attempt_failed_is_recorded_and_retried(rota_app: Rota) -> None:
    @rota_app.task(retry=SOON)
    async def flaky(ctx: Context) -> str:
        if ctx.attempt < 3:
            raise ValueError(f"no {ctx.attempt}")
        return f"attempt {ctx.attempt}"

    run = await flaky.start()
    async with rota_app.worker():
        assert await run.result(timeout=60) == "attempt 3"

    kept = await attempts_of(rota_app, run.id)
    assert [(number, state) for number, state, _ in kept] == [(1, "failed"), (2, "failed")]
    assert [error["message"] for _, _, error in kept] == ["no 1", "no 2"]
    assert kept[0][2]["type"] == "ValueError"
    assert "raise ValueError" in kept[0][2]["traceback"]
    assert "rota/engine" not in kept[0][2]["traceback"]


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_attempt_last_failure_becomes_run_outcome(rota_app: Rota, kind: str) -> None:
    if kind == "async":

        @rota_app.task(retry=Retry(max_attempts=2, delay=0))
        async def broken() -> None:
            raise LookupError("nothing there")
    else:

        @rota_app.task(retry=Retry(max_attempts=2, delay=0))
        def broken() -> None:
            raise LookupError("nothing there")

    run = await broken.start()
    async with rota_app.worker():
        with pytest.raises(RunFailed, match="LookupError: nothing there") as caught:
            await run.result(timeout=60)

    assert caught.value.kind == "LookupError"
    assert await run.status() == "failed"
    assert len(await attempts_of(rota_app, run.id)) == 1


async def test_retry_non_retryable_error_fails_job_at_once(rota_app: Rota) -> None:
    @rota_app.task(retry=Retry(max_attempts=5, delay=0, non_retryable=(KeyError,)))
    async def broken() -> None:
        raise KeyError("gone")

    run = await broken.start()
    async with rota_app.worker():
        with pytest.raises(RunFailed, match="attempt 1"):
            await run.result(timeout=60)


async def test_retry_later_sleeps_for_requested_delay(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def later(ctx: Context) -> int:
        if ctx.attempt == 1:
            raise RetryLater(timedelta(hours=1))
        return ctx.attempt

    run = await later.start()
    await rota_harness.run_until_idle()
    retried = await rota_harness.wait_for_event(JobRetried, job=run.id)
    assert retried.delay == 3600
    assert await run.status() == "sleeping"

    await rota_harness.clock.advance(timedelta(hours=1, seconds=1))
    await rota_harness.run_until_idle()

    assert await run.result(timeout=60) == 2


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_attempt_beyond_timeout_fails(rota_app: Rota, kind: str) -> None:
    if kind == "async":

        @rota_app.task(timeout=0.05, retry=Retry(max_attempts=1))
        async def slow() -> None:
            await asyncio.sleep(30)
    else:
        finish = threading.Event()

        @rota_app.task(timeout=0.05, retry=Retry(max_attempts=1))
        def slow() -> None:
            finish.wait(0.3)

    run = await slow.start()
    async with rota_app.worker():
        with pytest.raises(RunFailed, match=r"Timeout: it took .*timeout of 0.05 s"):
            await run.result(timeout=60)


async def test_attempt_own_timeout_error_is_ordinary_failure(rota_app: Rota) -> None:
    @rota_app.task(timeout=30, retry=Retry(max_attempts=1))
    async def asks() -> None:
        async with asyncio.timeout(0.01):
            await asyncio.sleep(30)

    run = await asks.start()
    async with rota_app.worker():
        with pytest.raises(RunFailed) as caught:
            await run.result(timeout=60)
    assert caught.value.kind == "TimeoutError"


async def test_attempt_exit_or_cancelled_error_fails_only_its_job(rota_app: Rota) -> None:
    @rota_app.task(retry=Retry(max_attempts=1))
    async def leaves() -> None:
        raise SystemExit(3)

    @rota_app.task(retry=Retry(max_attempts=1))
    async def gives_up() -> None:
        raise asyncio.CancelledError

    @rota_app.task
    async def stays() -> str:
        return "here"

    async with rota_app.worker():
        for task in (leaves, gives_up):
            with pytest.raises(RunFailed):
                await (await task.start()).result(timeout=60)
        assert await (await stays.start()).result(timeout=60) == "here"


async def test_start_retry_option_overrides_task_policy(rota_app: Rota) -> None:
    seen: list[int] = []

    @rota_app.task(retry=Retry(max_attempts=1))
    async def stubborn(ctx: Context) -> None:
        seen.append(ctx.attempt)
        raise ValueError

    run = await stubborn.options(retry=Retry(max_attempts=3, delay=0)).start()
    async with rota_app.worker():
        with pytest.raises(RunFailed):
            await run.result(timeout=60)

    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("a\x00b", "NUL"),
        (float("nan"), "not a number JSON has"),
        ("\ud800", "lone surrogate"),
        (object(), "no form in JSON"),
        ("x" * 300_000, "more than the 256 KiB allowed"),
    ],
    ids=["nul", "nan", "surrogate", "object", "too big"],
)
async def test_result_not_storable_fails_job_without_retry(
    rota_app: Rota, value: object, why: str
) -> None:
    @rota_app.task(retry=Retry(max_attempts=5))
    async def returns() -> Any:
        return value

    run = await returns.start()
    async with rota_app.worker():
        with pytest.raises(RunFailed, match=why) as caught:
            await run.result(timeout=60)

    assert caught.value.kind.endswith("Unstorable")
    assert await attempts_of(rota_app, run.id) == []  # a retry would fail the same way


async def test_error_with_unstorable_message_is_still_recorded(
    rota_app: Rota,
) -> None:
    class Odd(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no words")

    @rota_app.task(retry=Retry(max_attempts=1))
    async def odd() -> None:
        raise Odd

    @rota_app.task(retry=Retry(max_attempts=1))
    async def nul() -> None:
        raise ValueError("a\x00b\ud800")

    async with rota_app.worker():
        with pytest.raises(RunFailed, match="its message could not be had"):
            await (await odd.start()).result(timeout=60)
        with pytest.raises(RunFailed, match=r"a\\0b"):
            await (await nul.start()).result(timeout=60)


async def test_job_not_claimed_in_time_expires(rota_harness: Harness) -> None:
    app = rota_harness.app
    ran = False

    @app.task
    async def fresh() -> None:
        nonlocal ran
        ran = True

    run = await fresh.options(expires=60).start()
    await rota_harness.clock.advance(timedelta(seconds=61))
    await rota_harness.run_until_idle()

    with pytest.raises(RunExpired):
        await run.result(timeout=60)
    assert not ran


async def test_job_delayed_sleeps_until_due(rota_harness: Harness) -> None:
    app = rota_harness.app

    @app.task
    async def patient() -> str:
        return "now"

    noon = datetime.now(UTC) + timedelta(days=365)
    by_delay = await patient.options(delay=timedelta(days=365)).start()
    by_time = await patient.options(at=noon).start()
    many = await app.start_many([patient.options(delay=86400 * 365).bind() for _ in range(3)])
    await rota_harness.run_until_idle()
    assert {await run.status() for run in (by_delay, by_time, *many)} == {"sleeping"}

    await rota_harness.clock.advance(timedelta(days=366))
    await rota_harness.run_until_idle()

    assert {await run.status() for run in (by_delay, by_time, *many)} == {"succeeded"}


async def test_retry_short_delay_does_not_wait_for_next_poll(rota_dsn: str) -> None:
    """The worker knows when the next job is due, and claims at that time."""
    async with Rota(rota_dsn, poll_interval=30) as app:

        @app.task(retry=Retry(max_attempts=2, delay=0.05))
        async def twice(ctx: Context) -> int:
            if ctx.attempt == 1:
                raise ValueError
            return ctx.attempt

        async with app.worker():
            assert await (await twice.start()).result(timeout=60) == 2


async def test_run_retry_of_failed_run_makes_next_attempt(rota_app: Rota) -> None:
    works = False

    @rota_app.task(retry=Retry(max_attempts=1))
    async def moody(ctx: Context) -> int:
        if not works:
            raise ValueError("not yet")
        return ctx.attempt

    async with rota_app.worker():
        run = await moody.start()
        with pytest.raises(RunFailed):
            await run.result(timeout=60)

        works = True
        await run.retry()

        assert await run.result(timeout=60) == 2
    [(number, state, error)] = await attempts_of(rota_app, run.id)
    assert (number, state, error["message"]) == (1, "failed", "not yet")


async def test_claim_high_priority_is_first_and_low_does_not_starve(rota_app: Rota) -> None:
    order: list[str] = []

    @rota_app.task
    async def note(name: str) -> None:
        order.append(name)

    await app_start(rota_app, [note.bind(f"low {n}") for n in range(5)])
    await app_start(rota_app, [note.options(priority=9).bind(f"high {n}") for n in range(200)])
    async with rota_app.worker(concurrency=1) as worker:
        # Without prefetching, as with long jobs.
        worker.session.claim_loop._planner._prefetch._limit = 0
        while len(order) < 205:
            await asyncio.sleep(0.01)

    assert order[:3] == ["high 0", "high 1", "high 2"]
    low = [order.index(f"low {n}") for n in range(5)]
    assert low == sorted(low)
    assert low[0] < 20
    assert low[-1] < 80


async def app_start(app: Rota, calls: list[Any]) -> None:
    await app.start_many(calls)


async def test_job_of_unregistered_task_stays_queued_for_other_worker(rota_dsn: str) -> None:
    async with Rota(rota_dsn, poll_interval=0.05) as old, Rota(rota_dsn, poll_interval=0.05) as new:

        @old.task(name="known")
        async def known() -> str:
            return "old"

        @new.task
        async def brand_new() -> str:
            return "new"

        run = await brand_new.start()
        async with old.worker():
            await (await known.start()).result(timeout=60)
            assert await run.status() == "queued"
        async with new.worker():
            assert await run.result(timeout=60) == "new"


async def test_sync_start_works_without_and_beside_event_loop(rota_app: Rota) -> None:
    @rota_app.task
    async def double(n: int) -> int:
        return n * 2

    def script() -> tuple[int, str]:
        run = double.sync.start(n=4)
        answer = run.result(timeout=60), run.status()
        rota_app.close_sync()
        return answer

    async with rota_app.worker():
        assert await asyncio.to_thread(script) == (8, "succeeded")


async def test_sync_start_many_and_run_by_id_return_results(rota_app: Rota) -> None:
    @rota_app.task
    async def double(n: int) -> int:
        return n * 2

    def script() -> list[int]:
        runs = rota_app.sync.start_many([double.bind(n) for n in (1, 2)])
        assert runs[0].explain().reasons
        answer = [rota_app.run(run.id).sync.result(timeout=60) for run in runs]
        rota_app.close_sync()
        return answer

    async with rota_app.worker():
        assert await asyncio.to_thread(script) == [2, 4]


async def test_job_finished_event_is_published(rota_harness: Harness) -> None:
    @rota_harness.app.task
    async def fine() -> None:
        pass

    run = await fine.start()
    await rota_harness.run_until_idle()

    event = await rota_harness.wait_for_event(JobFinished, job=run.id)
    assert (event.state, event.attempt, event.task) == ("succeeded", 1, "fine")
