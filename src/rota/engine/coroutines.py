"""Coroutines, on the worker's own event loop.

Told to stop, or at its deadline, a coroutine is cancelled. One that does not heed its deadline is given up
a margin later: the attempt has failed, its place is free, and what it still does counts for nothing.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import time
from collections.abc import Awaitable
from contextvars import Context as Surroundings
from typing import Any

from rota.engine.execute import (
    LOST,
    MARGIN,
    NOTHING,
    SKIPPED,
    Finished,
    Ports,
    Stop,
    context_of,
    done,
    fated,
    is_to_be_skipped,
    judge,
    stopped,
    too_late,
)
from rota.errors import HandBack
from rota.model import at_work
from rota.model.context import Context
from rota.model.outcome import Outcome
from rota.model.retry import Retry
from rota.model.task import Definition
from rota.store.jobs import Claimed

log = logging.getLogger("rota")


class LoopExecutor:
    def __init__(self, finished: Finished, payload_limit: int, ports: Ports | None = None) -> None:
        self._finished = finished
        self._limit = payload_limit
        self._ports = ports
        self._loop = asyncio.get_running_loop()
        # Strong references: the loop itself keeps only weak ones.
        self._tasks: dict[Claimed, asyncio.Task[None]] = {}
        self._given_up: set[asyncio.Task[None]] = set()
        self._why: dict[Claimed, Stop] = {}

    def start(
        self,
        job: Claimed,
        task: Definition,
        retry: Retry,
        timeout: float | None,
        context: Surroundings | None = None,
    ) -> None:
        attempt = self._attempt(job, task, retry, timeout)
        self._tasks[job] = self._loop.create_task(attempt, context=context)

    async def _attempt(
        self, job: Claimed, task: Definition, retry: Retry, timeout: float | None
    ) -> None:
        at_work.work.set(job)
        began = time.perf_counter()
        outcome: Outcome
        context: Context | None = None
        try:
            if self._why and job in self._why:
                raise asyncio.CancelledError  # told to stop before it began
            arguments = task.arguments.decode(job.args)
            if task.skip_if is not None and is_to_be_skipped(job, task.skip_if):
                outcome = SKIPPED
            else:
                if task.takes_context:
                    context = context_of(job, task, self._ports)
                    call = task.fn(context, **arguments)
                else:
                    call = task.fn(**arguments)
                if timeout is None:
                    value = await call
                else:
                    value = await self._within(timeout, call, job, retry)
                if context is not None:
                    await context.end()
                outcome = NOTHING if value is None else done(value, task, self._limit)
        except asyncio.CancelledError as error:
            why = self._why.get(job)
            if why is not None:
                outcome = stopped(why)
            elif context is not None and context.fate is not None:
                outcome = LOST  # its fate is looked at below; telling how it left would take longer than it
            else:
                outcome = judge(error, job, retry)
        except (Exception, SystemExit) as error:
            if context is None and isinstance(error, HandBack):
                context = context_of(job, task, self._ports)
            outcome = judge(error, job, retry, context)
        if context is not None and context.fate is not None:
            outcome = fated(context.fate, self._why.get(job))
        if self._why and self._why.pop(job, None) is Stop.LOST:
            outcome = LOST
        if self._tasks.pop(job, None) is not None:  # else it was given up
            self._finished(job, outcome, time.perf_counter() - began)

    async def _within(
        self, timeout: float, call: Awaitable[Any], job: Claimed, retry: Retry
    ) -> Any:
        last = self._loop.call_later(
            timeout + MARGIN, self._give_up, job, retry, timeout, time.perf_counter()
        )
        raised: BaseException | None = None
        try:
            async with asyncio.timeout(timeout) as scope:
                value = await call
        except asyncio.CancelledError:
            raise  # not by the deadline
        except BaseException as error:
            if not scope.expired():
                raise
            raised = None if isinstance(error, TimeoutError) else error
        finally:
            last.cancel()
        if scope.expired():
            raise too_late(timeout, raised)
        return value

    def _give_up(self, job: Claimed, retry: Retry, timeout: float, began: float) -> None:
        running = self._tasks.pop(job, None)
        if running is None:
            return
        self._given_up.add(running)
        running.add_done_callback(self._given_up.discard)
        log.warning(
            "job %s (%s) was cancelled at its timeout of %g s and runs on; it is given up, and what it "
            "still does is not looked at",
            job.job,
            job.task,
            timeout,
        )
        why = self._why.pop(job, None)
        outcome = judge(too_late(timeout), job, retry) if why is None else stopped(why)
        self._finished(job, outcome, time.perf_counter() - began)

    def stop(self, job: Claimed, why: Stop) -> None:
        task = self._tasks.get(job)
        if task is not None:
            self._why[job] = why
            # A coroutine cancelled before its first step would never get to say so.
            coroutine = task.get_coro()
            assert inspect.iscoroutine(coroutine)
            if inspect.getcoroutinestate(coroutine) != inspect.CORO_CREATED:
                task.cancel()

    def close(self) -> None:
        pass
