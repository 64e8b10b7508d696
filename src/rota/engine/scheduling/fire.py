"""Firing of due schedules, in one transaction.

The transaction locks the due schedules, records their ticks, starts the runs and advances the schedules.
All of it commits or none of it: a tick is never recorded without its run, nor a run started without its
tick. Each of three things by itself prevents that a tick is started twice: the lock on its schedule, the
key of the tick, and that a schedule advances only from the position that was read. None of them depends
on which worker fires. So two workers that both fire are harmless, and so is a worker that was declared
dead or wakes up after a long time: it still holds its locks, or the server has ended its transaction.

Locks are taken in one order: first schedules, skipping those that other transactions hold, then the
locks for cancelling a run. A transaction that holds any of the latter never locks a schedule. Each
transaction cancels one run at most, because two that cancel several could deadlock. If several runs are
open, all but the last are cancelled before, and the last in the transaction that starts the next run.

Two kinds of schedules cannot be fired by a worker: the next tick cannot be computed (the row was edited,
a time zone is missing), or the input does not fit the code. Both are first left to other workers, which
may have different code in a rolling deploy. If none fires the schedule, the first kind is postponed and
the ticks of the second are refused, with the reason recorded. The rest of the batch is fired.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec

from rota.engine.scheduling.deferred import DeferredSchedules, TickState
from rota.engine.telemetry.span_names import FLOW, TASK
from rota.engine.telemetry.tracing import SpanScope, Tracing
from rota.errors import RotaError
from rota.model.schedule import TickDecision, decide
from rota.store import flows, jobs, pg_errors, runs, ticks
from rota.store.database import Database, run
from rota.store.flows import StartRun
from rota.store.jobs import StartJob
from rota.store.schedules import LockedSchedule, ScheduleDefinition
from rota.store.ticks import ScheduleAdvance, TickRecord

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

log = logging.getLogger("rota")

MAX_BATCH_RUNS = 2000
"""Runs in one transaction, approximately. A schedule starts a thousand at most."""

MAX_BATCH_JOBS = 20_000
"""Jobs in one transaction, approximately: creating and writing them takes time, and the server ends a
transaction that takes long. No schedule catches up with more jobs, unless a single run has more.
"""

POSTPONE_SECONDS = 60.0
"""Seconds for which a schedule is postponed if its next tick cannot be computed."""

TickKey = tuple[str, datetime]
"""Name of a schedule, and one of its ticks."""


@dataclass(frozen=True, slots=True)
class RunToStart:
    """Run of a task or flow to be started for a tick."""

    start: StartJob | StartRun
    queues: Sequence[str]
    trace: str | None = None
    """Trace context of a manual start."""


RunFactory = Callable[[ScheduleDefinition, datetime, bool], RunToStart]
"""Makes the run of a tick; raises if the input does not fit any more."""


class _CannotStartHere(RotaError):
    """The schedule is left to other workers."""


class Overtaken(RotaError):
    """Another transaction has advanced a schedule meanwhile; this one was rolled back."""


class _SeveralRunsToCancel(RotaError):
    """More than one run has to be cancelled; this transaction was rolled back."""

    def __init__(self, runs: Sequence[int]) -> None:
        super().__init__("several runs are to be cancelled")
        self.runs = runs


@dataclass(slots=True)
class FireResult:
    """Result of one transaction."""

    handled: int = 0
    """Number of schedules handled."""
    has_more: bool = False
    """True if further schedules were left for the next transaction."""
    one_by_one: list[str] = field(default_factory=list)
    """Schedules that have to be fired each in a transaction of its own."""
    started: dict[TickKey, int] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)
    lateness: list[float] = field(default_factory=list)
    """Seconds between the tick and the start, for each run started."""


@dataclass(slots=True)
class _FirePlan:
    due: LockedSchedule
    decision: TickDecision
    runs: list[tuple[datetime, RunToStart]]
    open_runs: list[int]
    """Runs of the schedule that have not ended."""


async def fire(
    database: Database,
    targets: Mapping[str, RunFactory],
    process: tuple[str, int],
    deferred: DeferredSchedules,
    name: str | None = None,
    tracing: Tracing | None = None,
) -> FireResult:
    """Fire the due schedules of these targets, or only the schedule `name` if it is due."""
    cancelled: set[int] = set()
    while True:
        try:
            async with database.transaction() as connection:
                transaction = _FireTransaction(
                    connection, database.schema, targets, process, deferred, tracing or Tracing()
                )
                fired = await transaction.run(name, cancelled)
            break
        except _SeveralRunsToCancel as several:
            for each in several.runs[:-1]:
                await database.run(runs.cancel(each))
                cancelled.add(each)
    for span in transaction.spans:
        span.end()
    return fired


class _FireTransaction:
    def __init__(
        self,
        connection: PgConnection,
        schema: str,
        targets: Mapping[str, RunFactory],
        process: tuple[str, int],
        deferred: DeferredSchedules,
        tracing: Tracing,
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._targets = targets
        self._process = process
        self._deferred = deferred
        self._tracing = tracing
        self.spans: list[SpanScope] = []
        """Spans of the started runs, each the root of a trace; ended after the commit."""

    async def run(self, name: str | None, cancelled: Collection[int] = ()) -> FireResult:
        """Fire the due schedules. The runs in `cancelled` are being cancelled already."""
        await self._query(ticks.set_short_timeouts())
        deferred = self._deferred.deferred_names()
        due = await self._query(ticks.lock_due(list(self._targets), deferred, name))
        fired = FireResult()
        if not due:
            return fired
        # One time for the whole transaction: that of the lock statement, even if the clock changes
        # meanwhile.
        self._now = due[0].now
        plans = await self._plans(due, fired, in_batch=name is None)
        new_ticks = await self._record_ticks(plans)
        for plan in plans:
            await self._cancel_previous_runs(plan, new_ticks, cancelled)
        await self._start(plans, new_ticks, fired)
        await self._advance(plans, fired.started)
        return fired

    async def _plans(
        self, due: list[LockedSchedule], fired: FireResult, *, in_batch: bool
    ) -> list[_FirePlan]:
        """Decide on each due schedule. One that is left out stays unchanged and due."""
        plans: list[_FirePlan] = []
        errors: dict[str, str] = {}
        run_count = job_count = 0
        # Read after the locks were taken, so that it is not older than they are.
        found = await self._query(ticks.record_outcomes([each.name for each in due]))
        statuses = {each.name: each for each in found}
        for each in due:
            fired.handled += 1
            if statuses[each.name].is_paused:
                log.warning("schedule %r is paused: it has failed too often", each.name)
                continue
            if run_count >= MAX_BATCH_RUNS or job_count >= MAX_BATCH_JOBS:
                fired.handled -= 1
                fired.has_more = True
                continue
            try:
                plan = self._plan(each, statuses[each.name].open_runs)
            except _CannotStartHere:
                fired.handled -= 1
                continue
            except Exception as error:
                if self._deferred.defer(each.name, _tick_state(each), short_error(error)):
                    fired.handled -= 1
                    continue
                errors[each.name] = short_error(error)
                log.error("schedule %r cannot continue: %s", each.name, short_error(error))
                continue
            if in_batch and plan.decision.cancel_open_runs:
                fired.handled -= 1
                fired.one_by_one.append(each.name)
                continue
            plans.append(plan)
            run_count += len(plan.runs)
            job_count += sum(_job_count(planned) for _, planned in plan.runs)
        if errors:
            await self._query(ticks.postpone(errors, POSTPONE_SECONDS))
        return plans

    def _plan(self, due: LockedSchedule, open_runs: list[int]) -> _FirePlan:
        timetable, policy = due.definition.timetable, due.definition.policy
        position = due.position(bool(open_runs))
        decision = decide(timetable, policy, position, due.now)
        if len(decision.start) > 1:
            max_runs = MAX_BATCH_JOBS // _job_count(self._make_run(due, decision.start[-1]))
            policy = replace(policy, at_most=min(policy.at_most, max(max_runs, 1)))
            decision = decide(timetable, policy, position, due.now)
        found = [(tick, self._make_run(due, tick)) for tick in decision.start]
        startable = [(tick, each) for tick, each in found if isinstance(each, RunToStart)]
        rejected = [(tick, each) for tick, each in found if isinstance(each, str)]
        if not rejected:
            self._deferred.clear(due.name)
        else:
            reason = rejected[0][1]
            if self._deferred.defer(due.name, _tick_state(due), reason):
                raise _CannotStartHere(reason)
            log.error("schedule %r cannot start %r: %s", due.name, due.definition.target, reason)
            if not startable:
                # Ticks that start nothing do not count against `max_runs`.
                policy = replace(policy, max_runs=None)
                decision = decide(timetable, policy, position, due.now)
                rejected = [(tick, reason) for tick in decision.start]
            decision.skip += [(tick, "refused", reason) for tick, reason in rejected]
        decision.start = [tick for tick, _ in startable]
        return _FirePlan(due, decision, startable, open_runs)

    def _make_run(self, due: LockedSchedule, tick: datetime) -> RunToStart | str:
        """Return the run of a tick, or the reason why it cannot be made."""
        try:
            return self._targets[due.definition.target](due.definition, tick, False)
        except Exception as error:
            return short_error(error)

    async def _cancel_previous_runs(
        self, plan: _FirePlan, new_ticks: set[TickKey], cancelled: Collection[int]
    ) -> None:
        """Cancel the open runs if the decision requires it.

        A tick that was recorded before, by a manual start or before the clock was set back, cancels no
        run and is not queued behind one.
        """
        due, decision = plan.due, plan.decision
        if decision.cancel_open_runs and any(
            (due.name, tick) in new_ticks for tick in decision.start
        ):
            open_runs = [run for run in plan.open_runs if run not in cancelled]
            if len(open_runs) > 1:
                raise _SeveralRunsToCancel(open_runs)
            for each in open_runs:
                await self._query(runs.cancel(each))
        if (
            decision.queued not in (None, due.queued)
            and (due.name, decision.queued) not in new_ticks
        ):
            decision.queued = None
            decision.due = decision.next

    async def _record_ticks(self, plans: list[_FirePlan]) -> set[TickKey]:
        """Record every tick. Return those that were not recorded before."""
        records: list[TickRecord] = []
        queued_ticks: set[TickKey] = set()
        changed_records: list[TickRecord] = []
        for plan in plans:
            due, decision, number = plan.due, plan.decision, plan.due.ticks
            started = [(tick, "started", None) for tick in decision.start]
            for tick, state, reason in sorted([*started, *decision.skip], key=lambda each: each[0]):
                if tick != due.queued:
                    number += 1
                    records.append(TickRecord(due.name, tick, number, state, reason))
                elif state == "started":
                    queued_ticks.add((due.name, tick))  # recorded when it was queued
                else:
                    changed_records.append(TickRecord(due.name, tick, 0, state, reason))
            if (
                due.queued is not None
                and decision.queued is None
                and not _includes(plan, due.queued)
            ):
                reason = "the schedule has ended"
                changed_records.append(TickRecord(due.name, due.queued, 0, "skipped", reason))
        if changed_records:
            await self._query(ticks.update_states(changed_records, self._process, self._now))
        if not records:
            return queued_ticks
        return queued_ticks | set(
            await self._query(ticks.record(records, self._process, self._now))
        )

    async def _start(
        self, plans: list[_FirePlan], new_ticks: set[TickKey], fired: FireResult
    ) -> None:
        task_starts: list[tuple[TickKey, StartJob]] = []
        flow_starts: list[tuple[TickKey, StartRun]] = []
        for plan in plans:
            for tick, planned in plan.runs:
                key = (plan.due.name, tick)
                if key not in new_ticks:
                    continue
                fired.queues.update(planned.queues)
                if isinstance(planned.start, StartJob):
                    task_starts.append((key, planned.start))
                else:
                    flow_starts.append((key, planned.start))
        if task_starts:
            traces = self._open_spans([(key, each.task, TASK) for key, each in task_starts])
            ids = await self._query(jobs.start_many([each for _, each in task_starts], traces))
            fired.started |= dict(zip([key for key, _ in task_starts], ids, strict=True))
        if flow_starts:
            traces = self._open_spans([(key, each.flow or "", FLOW) for key, each in flow_starts])
            answers = await self._query(
                flows.start([each for _, each in flow_starts], notify=False, traces=traces)
            )
            ids = [each.run for each in answers]
            fired.started |= dict(zip([key for key, _ in flow_starts], ids, strict=True))
        fired.lateness = [(self._now - tick).total_seconds() for _, tick in fired.started]
        if fired.started:
            started = [(name, tick, id) for (name, tick), id in fired.started.items()]
            await self._query(ticks.record_runs(started, self._process, self._now))

    def _open_spans(self, started: list[tuple[TickKey, str, str]]) -> list[str | None] | None:
        """Open a span for each run. Return their traces, or None if nothing is traced."""
        spans = [
            self._tracing.start(name, kind=kind, schedule=schedule)
            for (schedule, _), name, kind in started
        ]
        self.spans += spans
        traces = [each.trace for each in spans]
        return traces if any(traces) else None

    async def _advance(self, plans: list[_FirePlan], started: dict[TickKey, int]) -> None:
        if not plans:
            return
        runs_by_schedule: dict[str, dict[datetime, int]] = {}
        for (name, tick), id in started.items():
            runs_by_schedule.setdefault(name, {})[tick] = id
        advances = []
        for plan in plans:
            decision, due = plan.decision, plan.due
            started_runs = runs_by_schedule.get(due.name, {})
            handled = [*decision.start, *(tick for tick, _, _ in decision.skip)]
            new_ticks = [tick for tick in handled if tick != due.queued]
            advances.append(
                ScheduleAdvance(
                    due,
                    decision,
                    due.ticks + len(new_ticks),
                    due.runs + len(started_runs),
                    max(new_ticks, default=None),
                    started_runs[max(started_runs)] if started_runs else None,
                    decision.missed + sum(state == "missed" for _, state, _ in decision.skip),
                )
            )
        [count] = await self._query(ticks.advance(advances))
        if count != len(advances):
            raise Overtaken("another worker advanced a schedule; this worker started nothing")

    async def _query(self, query: Any) -> list[Any]:
        return await run(self._connection, query, self._schema)


def _includes(plan: _FirePlan, tick: datetime) -> bool:
    skipped = (each for each, _, _ in plan.decision.skip)
    return tick in plan.decision.start or tick in skipped


def short_error(error: Exception) -> str:
    """Return the message of an error, short enough to be stored."""
    name = "" if isinstance(error, RotaError) else f"{type(error).__name__}: "
    return f"{name}{pg_errors.first_line(error)}"[:500]


def _job_count(planned: RunToStart | str) -> int:
    """Return the number of jobs of a run; 1 if the run cannot be made."""
    start = planned.start if isinstance(planned, RunToStart) else None
    return max(start.size, 1) if isinstance(start, StartRun) else 1


def _tick_state(due: LockedSchedule) -> TickState:
    return due.next, due.queued


def tick_options(tick: datetime, backfilled: bool) -> str:
    """Return the options of a tick's job, which its code can read."""
    return msgspec.json.encode({"tick": tick, "backfilled": backfilled}).decode()
