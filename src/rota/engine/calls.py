"""Calls a job makes: other jobs and flows, started for it and waited for.

They are a run of their own that knows its parent and which of its calls it is. So a job that is tried
again finds the calls it has made before, keeps what they came to, and has only those run again that failed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from rota.engine import spans
from rota.engine.call import Call, FlowCall, failed_by
from rota.engine.desk import Desk
from rota.engine.news import News
from rota.engine.otel import is_kept
from rota.engine.tracing import Spanning, Tracing
from rota.engine.waiting import Waiting
from rota.errors import ArgumentError, CallsChanged, ClaimLost, RunCancelled, RunExpired, RunFailed
from rota.model import codec
from rota.model.context import CallOf, Failure
from rota.model.flow import LARGEST
from rota.store import claims, flows, links, runs
from rota.store.arrays import inside
from rota.store.database import Database
from rota.store.flows import Caller, Columns, StartRun
from rota.store.jobs import Claimed
from rota.store.runs import Called


class Calls:
    def __init__(
        self,
        database: Database,
        waiting: Waiting,
        news: News,
        worker: int,
        desk: Desk,
        tracing: Tracing | None = None,
    ) -> None:
        self._database = database
        self._waiting = waiting
        self._news = news
        self._worker = worker
        self._desk = desk
        self._tracing = tracing or Tracing()

    async def make(
        self,
        job: Claimed,
        number: int,
        calls: Sequence[CallOf[Any]],
        limit: int | None,
        collect: bool,
    ) -> list[Any]:
        made = checked(calls, limit)
        if not made:
            return []
        with self._tracing.map(job, made[0].name, len(made)) as span:
            with self._desk.parked(job):
                run = await self._start(job, number, made, limit, span)
                ending = await self._waiting.outcome(run, or_failure=not collect)
            if ending.state is None:
                # What still runs is of no use any more. It is not waited for: it may take its time to stop.
                await self._database.insist_on(
                    [claims.assert_held(job.claim, job.job), runs.cancel(run)]
                )
            called = await self._database.insist(runs.called(run))
            if span.trace is not None and is_kept(span.trace):
                span.link(await self._database.insist(links.of_calls(job.job, run)))
            return await self.results(made, called, collect)

    async def _start(
        self,
        job: Claimed,
        number: int,
        calls: list[Call[Any] | FlowCall],
        limit: int | None,
        span: Spanning,
    ) -> int:
        """Start the calls, or find those made before."""
        now = digest(calls)
        caller = Caller(job.job, job.claim, self._worker, number, job.attempt)
        whole = _run_of(calls, limit, now)
        traces = None if span.trace is None else [span.trace] * len(whole)
        _, started = await self._database.insist_on(
            [
                claims.hold(self._worker, [job.claim]),
                flows.start(whole, notify=False, caller=caller, traces=traces),
            ]
        )
        if started:
            queues = {call.start.queue for call in calls if isinstance(call, Call)}
            queues.update(*(call.plan.queues for call in calls if isinstance(call, FlowCall)))
            self._news.tell(sorted(queues))
            run: int = started[0].run
            return run
        known = await self._database.insist(runs.calls(job.job, number))
        if not known:
            raise ClaimLost(
                f"job {job.job} is no longer held by this worker, or was cancelled: it starts nothing more"
            )
        [before] = known
        span.tell({spans.REPLAYED: True})
        if before.digest != now:
            raise CallsChanged(
                f"job {job.job} made other calls in an earlier attempt (run {before.run}) than now, as its "
                f"call {number + 1}; what a job calls must follow from its arguments alone"
            )
        failed = before.failing or before.state not in (None, "succeeded")
        if failed and before.attempt < job.attempt:
            # It failed in an earlier attempt: what failed of it is part of this attempt.
            await self._waiting.outcome(before.run)
            _, [again] = await self._database.insist_on(
                [claims.assert_held(job.claim, job.job), runs.retry(before.run, job.attempt)]
            )
            self._news.tell(again or [])
        return before.run

    async def results(
        self, calls: list[Call[Any] | FlowCall], called: list[Called], collect: bool
    ) -> list[Any]:
        jobs = iter([each for each in called if not each.is_flow])
        inner = iter([each for each in called if each.is_flow])
        found: list[Any] = []
        first: RunFailed | None = None
        for number, call in enumerate(calls, 1):
            each = next(jobs) if isinstance(call, Call) else next(inner)
            if each.state == "succeeded":
                if isinstance(call, Call):
                    found.append(call.read(each.result))
                else:
                    found.append(call.read(await self._database.insist(runs.results(each.run))))
                continue
            error = await self._error(call, number, each)
            found.append(error)
            # A call that was cancelled because another failed is not why.
            if first is None or isinstance(first, RunCancelled):
                first = error
        if first is not None and not collect:
            raise first
        return found

    async def _error(self, call: Call[Any] | FlowCall, number: int, each: Called) -> RunFailed:
        what = f"call {number}, run {each.run} ({call.name}),"
        if each.state == "cancelled" or each.state is None:
            return RunCancelled(f"{what} was cancelled")
        if each.state == "expired":
            return RunExpired(f"{what} expired before a worker took it")
        error = each.error
        if each.is_flow:
            [*failed] = await self._database.insist(runs.failures(each.run, 1))
            error = failed[0].error if failed else None
        return failed_by(what, error)

    async def failures(self, job: Claimed) -> list[Failure]:
        run = job.job if job.run is None else job.run
        found = await self._database.insist(runs.failures(run, 100))
        answer = []
        for each in found:
            error = codec.read_error(each.error)
            task = each.task.rpartition(".")[2]
            answer.append(Failure(each.job, task, error.type or each.state, error.message))
        return answer


def checked(calls: Sequence[CallOf[Any]], limit: int | None) -> list[Call[Any] | FlowCall]:
    if limit is not None and limit < 1:
        raise ArgumentError(f"limit is how many calls run at a time, at least 1, not {limit}")
    if len(calls) > LARGEST:
        raise ArgumentError(
            f"{len(calls):,} calls are more than the {LARGEST:,} one job can wait for; call in portions"
        )
    found: list[Call[Any] | FlowCall] = []
    for call in calls:
        if isinstance(call, Call):
            plain = call.start
            own = (plain.key, plain.at, plain.delay, plain.expires, plain.expires_in)
        elif isinstance(call, FlowCall):
            whole = call.run
            own = (whole.key, whole.at, whole.delay, whole.expires, whole.expires_in)
        else:
            raise ArgumentError(
                f"ctx.map and ctx.run take calls, made with task.call(…), not {type(call).__name__}"
            )
        if limit is not None and isinstance(call, FlowCall):
            raise ArgumentError(
                f"limit is for calls of tasks, and {call.name!r} is a flow; call it from a task of your own"
            )
        if any(each is not None for each in own):
            raise ArgumentError(
                f"a call of {call.name!r} made by a job is started once, at once: it cannot have a key, a "
                "time or an expiry of its own"
            )
        found.append(call)
    return found


def digest(calls: list[Call[Any] | FlowCall]) -> str:
    """What is called with what, in short."""
    whole = hashlib.sha256()
    for call in calls:
        text = call.start.args if isinstance(call, Call) else call.run.input
        whole.update(f"{call.name}\0{text}\0".encode())
    return whole.hexdigest()


def _run_of(calls: list[Call[Any] | FlowCall], limit: int | None, digest: str) -> list[StartRun]:
    """The run that waits for the calls, and the flows that are parts of it. With a limit, each call waits
    for the one that many before it."""
    tasks = [call.start for call in calls if isinstance(call, Call)]
    limit = len(tasks) if limit is None else limit
    many = len(tasks)
    columns = Columns(
        tasks=inside(each.task for each in tasks),
        queues=inside(each.queue for each in tasks),
        lanes=",".join(str(each.priority) for each in tasks),
        args=inside(each.args for each in tasks),
        options=inside(each.options for each in tasks),
        rules=",".join(["all_done"] * many),
        parents=",".join("0" if at < limit else "1" for at in range(many)),
        children=",".join(
            f'"{{{at + limit + 1},0}}"' if at + limit < many else '"{0}"' for at in range(many)
        ),
        takes=",".join(["NULL"] * many),
    )
    note = f'{{"calls":"{digest}"}}'
    whole = StartRun(flow=None, input=note, size=many, open=len(calls), jobs=columns)
    parts = [
        msgspec.structs.replace(call.run, part=1) for call in calls if isinstance(call, FlowCall)
    ]
    return [whole, *parts]
