"""Deadlines of coroutines and threads: cancellation, and abandonment of code that ignores it.

An abandoned attempt still runs beside the next attempt, and must not affect it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from rota import Context, Requeue, Retry, RetryLater, TaskTimeout
from rota.engine.execution import coroutines, threads
from rota.engine.execution.coroutines import CoroutineExecutor
from rota.engine.execution.executor import StopReason
from rota.engine.execution.threads import ThreadExecutor
from rota.model.outcome import Discarded, FinalOutcome, Outcome, Retried, Returned, Succeeded
from rota.model.task import TaskDefinition, TaskPolicy
from support.workbench import Workbench, claimed, error

LATE = ("rota.errors.TaskTimeout", "it took longer than its timeout of 0.05 s")


def define(fn: Callable[..., Any], **policy: Any) -> TaskDefinition:
    return TaskDefinition(fn, fn.__name__, TaskPolicy(**policy))


class FakeBackend:
    """Stand-in for the worker's job services: it can drain, and stores nothing."""

    is_durable = False
    forced_outcome = None

    def __init__(self) -> None:
        self.draining = False
        self.interrupted = threading.Event()

    async def end(self) -> None: ...

    def interrupt(self) -> None:
        self.interrupted.set()


@pytest.fixture
def job_backend() -> FakeBackend:
    return FakeBackend()


@pytest.fixture
async def loop(job_backend: FakeBackend) -> AsyncIterator[Workbench]:
    async with Workbench(CoroutineExecutor, backend_for=lambda _: job_backend) as bench:
        yield bench


@pytest.fixture
async def pool(job_backend: FakeBackend) -> AsyncIterator[Workbench]:
    async with Workbench(ThreadExecutor, backend_for=lambda _: job_backend) as bench:
        yield bench


# Before the deadline, and shortly after it


async def test_timeout_coroutine_is_cancelled_at_deadline(loop: Workbench) -> None:
    cleaned = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cleaned.set()

    outcome = await loop.outcome(loop.start(define(slow), 0.05))
    assert error(outcome) == LATE
    assert cleaned.is_set()


async def test_timeout_thread_is_interrupted_at_deadline(
    pool: Workbench, job_backend: FakeBackend
) -> None:
    def slow(ctx: Context) -> None:
        assert job_backend.interrupted.wait(60)
        assert ctx.cancelled
        raise RuntimeError("stopped")

    outcome = await pool.outcome(pool.start(define(slow), 0.05))
    assert error(outcome) == LATE
    assert isinstance(outcome, Retried)
    assert "RuntimeError: stopped" in outcome.error  # the error after the timeout is kept


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_timeout_result_after_deadline_counts_as_timeout(
    loop: Workbench, pool: Workbench, kind: str
) -> None:
    async def awaits() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            return "done all the same"
        return "?"

    def waits(ctx: Context) -> str:
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        return "done all the same"

    bench, task = (loop, define(awaits)) if kind == "async" else (pool, define(waits))
    assert error(await bench.outcome(bench.start(task, 0.05))) == LATE


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_timeout_retry_later_at_deadline_sets_the_delay(
    loop: Workbench, pool: Workbench, kind: str
) -> None:
    async def awaits() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            raise RetryLater(77) from None

    def waits(ctx: Context) -> None:
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        raise RetryLater(77)

    bench, task = (loop, define(awaits)) if kind == "async" else (pool, define(waits))
    outcome = await bench.outcome(bench.start(task, 0.05))
    assert isinstance(outcome, Retried)
    assert outcome.delay == 77


async def test_timeout_error_in_non_retryable_ends_job(loop: Workbench) -> None:
    async def slow() -> None:
        await asyncio.sleep(30)

    for kind in (TaskTimeout, TimeoutError):
        task = define(slow, retry=Retry(non_retryable=(kind,)))
        assert isinstance(await loop.outcome(loop.start(task, 0.05)), FinalOutcome)


async def test_cancel_after_deadline_wins_over_timeout(loop: Workbench) -> None:
    late = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            late.set()
            await asyncio.sleep(3600)

    job = loop.start(define(slow), 0.05)
    await late.wait()
    loop.stop(job, StopReason.CANCELLED)
    assert await loop.outcome(job) == FinalOutcome("cancelled", None)


async def test_job_ended_before_deadline_leaves_no_state(
    loop: Workbench, pool: Workbench, monkeypatch: pytest.MonkeyPatch
) -> None:
    given_up: list[object] = []
    for module, bench in ((coroutines, loop), (threads, pool)):
        monkeypatch.setattr(module, "TIMEOUT_MARGIN_SECONDS", 0.01)
        monkeypatch.setattr(bench.executor, "_abandon", lambda *job: given_up.append(job))

    async def quick() -> int:
        return 1

    def plain() -> int:
        return 1

    for bench, task in ((loop, define(quick)), (pool, define(plain))):
        assert await bench.outcome(bench.start(task, 600.0)) == Succeeded("1")
        own = [each for each in vars(bench.executor).values() if isinstance(each, dict | set)]
        assert own
        assert not any(own)
    now = asyncio.get_running_loop().time
    monkeypatch.setattr(asyncio.get_running_loop(), "time", lambda: now() + 601)
    await asyncio.sleep(0.01)  # all timers of the deadlines are due, so they run before this one
    assert len(loop.ended) == len(pool.ended) == 1
    assert not given_up


# Code that ignores its cancellation


async def test_timeout_coroutine_ignoring_cancellation_is_abandoned(
    loop: Workbench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The next attempt begins while the old code still runs; each ends on its own."""
    monkeypatch.setattr(coroutines, "TIMEOUT_MARGIN_SECONDS", 0.05)
    go, second_may = asyncio.Event(), asyncio.Event()
    old_ended = asyncio.Event()

    async def stubborn() -> str:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await go.wait()
        old_ended.set()
        return "old"

    async def next_one() -> str:
        await second_may.wait()
        return "new"

    first = loop.start(define(stubborn), 0.05)
    outcome = await loop.outcome(first)
    assert error(outcome) == LATE
    [warning] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "the attempt is abandoned" in warning.message

    second = loop.put(claimed("next_one", job=first.job), define(next_one))
    await asyncio.sleep(0)
    loop.stop(first, StopReason.CANCELLED)  # the attempt is abandoned: no effect
    go.set()
    await old_ended.wait()
    await asyncio.sleep(0.02)
    assert not loop.outcomes[second].done()
    second_may.set()
    assert await loop.outcome(second) == Succeeded('"new"')
    assert [job for job, _ in loop.ended] == [first, second]


async def test_timeout_thread_running_on_is_abandoned(
    pool: Workbench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(threads, "TIMEOUT_MARGIN_SECONDS", 0.05)
    go, second_may, old_ended = threading.Event(), threading.Event(), threading.Event()
    contexts: list[Context] = []

    def stubborn(ctx: Context) -> str:
        contexts.append(ctx)
        go.wait(60)
        old_ended.set()
        return "old"

    def next_one(ctx: Context) -> str:
        contexts.append(ctx)
        second_may.wait(60)
        return "new"

    first = pool.start(define(stubborn), 0.05)
    assert error(await pool.outcome(first)) == LATE
    [warning] = [each for each in caplog.records if each.levelno == logging.WARNING]
    assert "the attempt is abandoned and its thread runs on" in warning.message

    second = pool.put(claimed("next_one", job=first.job), define(next_one), 20)
    pool.stop(first, StopReason.CANCELLED)  # the attempt is abandoned: no effect
    go.set()
    assert await asyncio.to_thread(old_ended.wait, 60)
    await asyncio.sleep(0.05)
    assert not pool.outcomes[second].done()
    assert [ctx.cancelled for ctx in contexts] == [True, False]
    second_may.set()
    assert await pool.outcome(second) == Succeeded('"new"')
    assert [job for job, _ in pool.ended] == [first, second]
    assert not any(each for each in vars(pool.executor).values() if isinstance(each, dict | set))


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_stopped_attempt_when_abandoned_keeps_its_stop_outcome(
    loop: Workbench, pool: Workbench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(coroutines, "TIMEOUT_MARGIN_SECONDS", 0.1)
    monkeypatch.setattr(threads, "TIMEOUT_MARGIN_SECONDS", 0.1)
    go, may_end, started = asyncio.Event(), threading.Event(), threading.Event()

    async def awaits() -> None:
        started.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    def waits() -> None:
        started.set()
        may_end.wait(60)

    bench, task = (loop, define(awaits)) if kind == "async" else (pool, define(waits))
    job = bench.start(task, 2.0)
    assert await asyncio.to_thread(started.wait, 60)
    bench.stop(job, StopReason.CLAIM_LOST)
    assert await bench.outcome(job) == Discarded()
    go.set()
    may_end.set()


# Lost and returned jobs


@pytest.mark.parametrize("how", ["returns", "raises"])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_job_with_lost_claim_discards_its_outcome(
    loop: Workbench, pool: Workbench, kind: str, how: str
) -> None:
    began, began_too = asyncio.Event(), threading.Event()

    def end() -> str:
        if how == "raises":
            raise ValueError
        return "a result"

    async def awaits() -> str:
        began.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return end()
        return "?"

    def waits(ctx: Context) -> str:
        began_too.set()
        while not ctx.cancelled:
            threading.Event().wait(0.005)
        return end()

    if kind == "async":
        bench, job = loop, loop.start(define(awaits))
        await began.wait()
    else:
        bench, job = pool, pool.start(define(waits))
        await asyncio.to_thread(began_too.wait, 60)
    bench.stop(job, StopReason.CLAIM_LOST)
    assert await bench.outcome(job) == Discarded()


@pytest.mark.parametrize("takes", ["a context", "nothing"])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_requeue_returns_job_only_while_worker_drains(
    loop: Workbench, pool: Workbench, job_backend: FakeBackend, kind: str, takes: str
) -> None:
    async def awaits(ctx: Context) -> None:
        raise Requeue

    async def awaits_alone() -> None:
        raise Requeue

    def waits(ctx: Context) -> None:
        raise Requeue

    def waits_alone() -> None:
        raise Requeue

    if kind == "async":
        bench, fn = loop, awaits if takes == "a context" else awaits_alone
    else:
        bench, fn = pool, waits if takes == "a context" else waits_alone  # type: ignore[assignment]

    outcome: Outcome = await bench.run(define(fn))
    assert isinstance(outcome, Retried)  # without a drain it is an ordinary failure
    assert outcome.delay == 1.0
    assert isinstance(await bench.run(define(fn, retry=Retry(max_attempts=1))), FinalOutcome)

    job_backend.draining = True
    assert await bench.run(define(fn)) == Returned()
