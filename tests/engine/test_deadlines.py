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

from engine.workbench import Workbench, claimed, error
from rota import Context, Requeue, Retry, RetryLater, TaskTimeout
from rota.engine.execution import coroutines, threads
from rota.engine.execution.coroutines import CoroutineExecutor
from rota.engine.execution.executor import StopReason
from rota.engine.execution.threads import ThreadExecutor
from rota.model.outcome import Discarded, FinalOutcome, Outcome, Retried, Returned, Succeeded
from rota.model.task import TaskDefinition, TaskPolicy

LATE = ("rota.errors.TaskTimeout", "it took longer than its timeout of 0.05 s")


def define(fn: Callable[..., Any], **policy: Any) -> TaskDefinition:
    return TaskDefinition(fn, fn.__name__, TaskPolicy(**policy))


class Port:
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
def port() -> Port:
    return Port()


@pytest.fixture
async def loop(port: Port) -> AsyncIterator[Workbench]:
    async with Workbench(CoroutineExecutor, services_for=lambda _: port) as bench:
        yield bench


@pytest.fixture
async def pool(port: Port) -> AsyncIterator[Workbench]:
    async with Workbench(ThreadExecutor, services_for=lambda _: port) as bench:
        yield bench


# Before the deadline, and shortly after it


async def test_async_code_is_cancelled_at_its_deadline(loop: Workbench) -> None:
    cleaned = asyncio.Event()

    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        finally:
            cleaned.set()

    outcome = await loop.outcome(loop.start(define(slow), 0.05))
    assert error(outcome) == LATE
    assert cleaned.is_set()


async def test_a_thread_is_told_at_its_deadline(pool: Workbench, port: Port) -> None:
    def slow(ctx: Context) -> None:
        assert port.interrupted.wait(60)
        assert ctx.cancelled
        raise RuntimeError("stopped")

    outcome = await pool.outcome(pool.start(define(slow), 0.05))
    assert error(outcome) == LATE
    assert isinstance(outcome, Retried)
    assert "RuntimeError: stopped" in outcome.error  # the error after the timeout is kept


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_is_answered_after_the_deadline_counts_as_late(
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
async def test_a_task_may_say_at_its_deadline_when_to_try_again(
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


async def test_a_deadline_is_an_error_that_retries_can_name(loop: Workbench) -> None:
    async def slow() -> None:
        await asyncio.sleep(30)

    for kind in (TaskTimeout, TimeoutError):
        task = define(slow, retry=Retry(non_retryable=(kind,)))
        assert isinstance(await loop.outcome(loop.start(task, 0.05)), FinalOutcome)


async def test_being_stopped_wins_over_the_deadline(loop: Workbench) -> None:
    async def slow() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(30)

    job = loop.start(define(slow), 0.05)
    await asyncio.sleep(0.1)
    loop.stop(job, StopReason.CANCELLED)
    assert await loop.outcome(job) == FinalOutcome("cancelled", None)


async def test_a_job_that_ends_in_time_leaves_nothing_behind(
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
        assert await bench.outcome(bench.start(task, 0.05)) == Succeeded("1")
        own = [each for each in vars(bench.executor).values() if isinstance(each, dict | set)]
        assert own
        assert not any(own)
    await asyncio.sleep(0.1)  # past the deadline
    assert len(loop.ended) == len(pool.ended) == 1
    assert not given_up


# Code that ignores its cancellation


async def test_async_code_that_swallows_its_cancellation_is_given_up(
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


async def test_a_thread_that_runs_on_is_given_up(
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
    assert await asyncio.to_thread(old_ended.wait, 10)
    await asyncio.sleep(0.05)
    assert not pool.outcomes[second].done()
    assert [ctx.cancelled for ctx in contexts] == [True, False]
    second_may.set()
    assert await pool.outcome(second) == Succeeded('"new"')
    assert [job for job, _ in pool.ended] == [first, second]
    assert not any(each for each in vars(pool.executor).values() if isinstance(each, dict | set))


@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_what_was_stopped_and_is_given_up_is_what_it_was_stopped_for(
    loop: Workbench, pool: Workbench, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(coroutines, "TIMEOUT_MARGIN_SECONDS", 0.1)
    monkeypatch.setattr(threads, "TIMEOUT_MARGIN_SECONDS", 0.1)
    go, may_end = asyncio.Event(), threading.Event()

    async def awaits() -> None:
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue

    def waits() -> None:
        may_end.wait(60)

    bench, task = (loop, define(awaits)) if kind == "async" else (pool, define(waits))
    job = bench.start(task, 0.05)
    await asyncio.sleep(0.01)
    bench.stop(job, StopReason.CLAIM_LOST)
    assert await bench.outcome(job) == Discarded()
    go.set()
    may_end.set()


# Lost and returned jobs


@pytest.mark.parametrize("how", ["returns", "raises"])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_whatever_comes_of_a_job_that_is_lost_is_dropped(
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
        await asyncio.to_thread(began_too.wait, 10)
    bench.stop(job, StopReason.CLAIM_LOST)
    assert await bench.outcome(job) == Discarded()


@pytest.mark.parametrize("takes", ["a context", "nothing"])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_job_is_handed_back_while_its_worker_drains(
    loop: Workbench, pool: Workbench, port: Port, kind: str, takes: str
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

    port.draining = True
    assert await bench.run(define(fn)) == Returned()
