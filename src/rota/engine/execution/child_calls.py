"""Child calls: tasks and flows that a job starts with `ctx.run` or `ctx.map` and waits for.

The calls form a run that stores its parent job and the number of the call. So a later attempt of the job
finds the calls made before, reuses their results, and retries only those that failed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from rota.engine.execution.call import BoundFlow, BoundTask, run_failed
from rota.engine.execution.job_services import Slots
from rota.engine.notify.notifier import Notifier
from rota.engine.notify.result_waiter import ResultWaiter
from rota.engine.telemetry import span_names
from rota.engine.telemetry.otel import is_sampled
from rota.engine.telemetry.tracing import ActiveSpan, Tracing
from rota.errors import (
    ArgumentError,
    ChildCallsChanged,
    ClaimLost,
    RunCancelled,
    RunExpired,
    RunFailed,
)
from rota.model import codec
from rota.model.context import BoundCall, Failure
from rota.model.flow import MAX_JOBS
from rota.store import claims, flows, runs, trace_links
from rota.store.array_literals import array_items
from rota.store.database import Database
from rota.store.flows import CallingJob, JobColumns, StartRun
from rota.store.jobs import ClaimedJob
from rota.store.query import Query
from rota.store.runs import CalledRow

Row = TypeVar("Row")


class ReadOnlyDatabase(Protocol):
    """Database access that only reads."""

    async def run_with_retry(self, query: Query[Row]) -> list[Row]: ...


class ChildCalls:
    def __init__(
        self,
        database: Database,
        results: ResultWaiter,
        notifier: Notifier,
        worker: int,
        slots: Slots,
        tracing: Tracing | None = None,
    ) -> None:
        self._database = database
        self._results = results
        self._notifier = notifier
        self._worker = worker
        self._slots = slots
        self._tracing = tracing or Tracing()
        self._call_results = CallResults(database)

    async def run_calls(
        self,
        job: ClaimedJob,
        number: int,
        calls: Sequence[BoundCall[Any]],
        concurrency: int | None,
        return_exceptions: bool,
    ) -> list[Any]:
        bound = validate_calls(calls, concurrency)
        if not bound:
            return []
        with self._tracing.map(job, bound[0].name, len(bound)) as span:
            with self._slots.parked(job):
                run = await self._start(job, number, bound, concurrency, span)
                outcome = await self._results.outcome(run, or_failure=not return_exceptions)
            if outcome.state is None:
                # A call has failed: cancel the rest, without waiting for them to stop.
                await self._database.transact_with_retry(
                    [claims.assert_held(job.claim, job.job), runs.cancel(run)]
                )
            children = await self._database.run_with_retry(runs.call_results(run))
            if span.trace is not None and is_sampled(span.trace):
                span.link(
                    await self._database.run_with_retry(trace_links.read_of_calls(job.job, run))
                )
            return await self._call_results.read(bound, children, return_exceptions)

    async def _start(
        self,
        job: ClaimedJob,
        number: int,
        calls: list[BoundTask[Any] | BoundFlow],
        concurrency: int | None,
        span: ActiveSpan,
    ) -> int:
        """Start the calls, or find those of an earlier attempt. Return their run."""
        calls_digest = digest(calls)
        caller = CallingJob(job.job, job.claim, self._worker, number, job.attempt)
        start_runs = _start_runs(calls, concurrency, calls_digest)
        traces = None if span.trace is None else [span.trace] * len(start_runs)
        _, started = await self._database.transact_with_retry(
            [
                claims.lock(self._worker, [job.claim]),
                flows.start(start_runs, notify=False, caller=caller, traces=traces),
            ]
        )
        if started:
            queues = {call.start.queue for call in calls if isinstance(call, BoundTask)}
            queues.update(*(call.plan.queues for call in calls if isinstance(call, BoundFlow)))
            self._notifier.notify(sorted(queues))
            run: int = started[0].run
            return run
        return await self._find_started(job, number, calls_digest, span)

    async def _find_started(
        self, job: ClaimedJob, number: int, calls_digest: str, span: ActiveSpan
    ) -> int:
        """Return the run of calls that an earlier attempt started, after a retry of the failed ones."""
        found = await self._database.run_with_retry(runs.calls(job.job, number))
        if not found:
            raise ClaimLost(
                f"job {job.job} is no longer held by this worker, or was cancelled: it starts nothing more"
            )
        [previous] = found
        span.set_attributes({span_names.REPLAYED: True})
        if previous.digest != calls_digest:
            raise ChildCallsChanged(
                f"call {number + 1} of job {job.job} differs from an earlier attempt (run "
                f"{previous.run}); the calls of a job must depend on its arguments alone"
            )
        failed = previous.is_failing or previous.state not in (None, "succeeded")
        if failed and previous.attempt < job.attempt:
            # The calls failed in an earlier attempt: retry the failed ones as part of this attempt.
            await self._results.outcome(previous.run)
            _, [retried_queues] = await self._database.transact_with_retry(
                [claims.assert_held(job.claim, job.job), runs.retry(previous.run, job.attempt)]
            )
            self._notifier.notify(retried_queues or [])
        return previous.run

    async def failures(self, job: ClaimedJob) -> list[Failure]:
        return await self._call_results.failures(job)


class CallResults:
    """Results and errors of child calls that have ended."""

    def __init__(self, database: ReadOnlyDatabase) -> None:
        self._database = database

    async def read(
        self,
        calls: list[BoundTask[Any] | BoundFlow],
        children: list[CalledRow],
        return_exceptions: bool,
    ) -> list[Any]:
        job_rows = iter([each for each in children if not each.is_flow])
        flow_rows = iter([each for each in children if each.is_flow])
        results: list[Any] = []
        first_error: RunFailed | None = None
        for number, call in enumerate(calls, 1):
            each = next(job_rows) if isinstance(call, BoundTask) else next(flow_rows)
            if each.state == "succeeded":
                if isinstance(call, BoundTask):
                    results.append(call.read(each.result))
                else:
                    results.append(
                        call.read(await self._database.run_with_retry(runs.results(each.run)))
                    )
                continue
            error = await self._error_of(call, number, each)
            results.append(error)
            # A call that was cancelled because another one failed is not the cause.
            if first_error is None or isinstance(first_error, RunCancelled):
                first_error = error
        if first_error is not None and not return_exceptions:
            raise first_error
        return results

    async def _error_of(
        self, call: BoundTask[Any] | BoundFlow, number: int, child: CalledRow
    ) -> RunFailed:
        subject = f"call {number}, run {child.run} ({call.name}),"
        if child.state == "cancelled" or child.state is None:
            return RunCancelled(f"{subject} was cancelled")
        if child.state == "expired":
            return RunExpired(f"{subject} expired before a worker took it")
        error = child.error
        if child.is_flow:
            [*failed] = await self._database.run_with_retry(runs.failures(child.run, 1))
            error = failed[0].error if failed else None
        return run_failed(subject, error)

    async def failures(self, job: ClaimedJob) -> list[Failure]:
        run = job.job if job.run is None else job.run
        found = await self._database.run_with_retry(runs.failures(run, 100))
        failures = []
        for each in found:
            error = codec.decode_error(each.error)
            task = each.task.rpartition(".")[2]
            failures.append(Failure(each.job, task, error.type or each.state, error.message))
        return failures


def validate_calls(
    calls: Sequence[BoundCall[Any]], concurrency: int | None
) -> list[BoundTask[Any] | BoundFlow]:
    if concurrency is not None and concurrency < 1:
        raise ArgumentError(
            f"concurrency is how many calls run at a time, at least 1, not {concurrency}"
        )
    if len(calls) > MAX_JOBS:
        raise ArgumentError(
            f"{len(calls):,} calls are more than the {MAX_JOBS:,} one job can wait for; call in portions"
        )
    found: list[BoundTask[Any] | BoundFlow] = []
    for call in calls:
        if isinstance(call, BoundTask):
            start = call.start
            start_options = (start.key, start.at, start.delay, start.expires, start.expires_in)
        elif isinstance(call, BoundFlow):
            start_run = call.run
            start_options = (
                start_run.key,
                start_run.at,
                start_run.delay,
                start_run.expires,
                start_run.expires_in,
            )
        else:
            raise ArgumentError(
                f"ctx.map and ctx.run take calls, made with task.bind(…), not {type(call).__name__}"
            )
        if concurrency is not None and isinstance(call, BoundFlow):
            raise ArgumentError(
                f"concurrency is for calls of tasks, and {call.name!r} is a flow;"
                " call it from a task of your own"
            )
        if any(each is not None for each in start_options):
            raise ArgumentError(
                f"a call of {call.name!r} made by a job is started once, at once: it cannot have a key, a "
                "time or an expiry of its own"
            )
        found.append(call)
    return found


def digest(calls: list[BoundTask[Any] | BoundFlow]) -> str:
    """Return a hash of the names and arguments of the calls."""
    hasher = hashlib.sha256()
    for call in calls:
        text = call.start.args if isinstance(call, BoundTask) else call.run.input
        hasher.update(f"{call.name}\0{text}\0".encode())
    return hasher.hexdigest()


def _start_runs(
    calls: list[BoundTask[Any] | BoundFlow], concurrency: int | None, digest: str
) -> list[StartRun]:
    """Return the run that contains the calls, and the runs of called flows as its parts.

    With `concurrency`, each call waits for the call that is `concurrency` positions before it.
    """
    tasks = [call.start for call in calls if isinstance(call, BoundTask)]
    concurrency = len(tasks) if concurrency is None else concurrency
    count = len(tasks)
    columns = JobColumns(
        tasks=array_items(each.task for each in tasks),
        queues=array_items(each.queue for each in tasks),
        priorities=",".join(str(each.priority) for each in tasks),
        args=array_items(each.args for each in tasks),
        options=array_items(each.options for each in tasks),
        rules=",".join(["all_done"] * count),
        predecessor_counts=",".join("0" if index < concurrency else "1" for index in range(count)),
        successors=",".join(
            f'"{{{index + concurrency + 1},0}}"' if index + concurrency < count else '"{0}"'
            for index in range(count)
        ),
        input_jobs=",".join(["NULL"] * count),
    )
    run_input = f'{{"calls":"{digest}"}}'
    outer_run = StartRun(flow=None, input=run_input, size=count, open_jobs=len(calls), jobs=columns)
    flow_runs = [
        msgspec.structs.replace(call.run, part_of=1)
        for call in calls
        if isinstance(call, BoundFlow)
    ]
    return [outer_run, *flow_runs]
