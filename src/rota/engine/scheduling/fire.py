"""Sees to what is due, in one transaction.

What is due is locked, its ticks written down, their runs started and the schedules moved on, or nothing of
it: there is no moment at which a tick is taken and its run not started, nor the other way round. Each of
three things by itself keeps a tick from being started twice: the lock on its schedule, the key of the
tick, and that a schedule is moved on only from where it was read to be. None of them is about who does it,
so there is no harm in two who believe that it is their turn, in one that was declared dead, or in one that
wakes up after a long time: its locks are its own still, or the server has ended its transaction.

Locks are taken in one order: schedules, without waiting for those that others have in hand; then what
cancelling a run takes. Nobody who holds any of the latter asks for a schedule. Runs are cancelled one to a
transaction, for two could wait for each other crosswise: where several are open the last of them is
cancelled in the transaction that starts the next, and the others before it.

A schedule that cannot be decided on here (somebody has changed its row, a time zone is gone) or whose input
does not fit the code here is first left to others: in a rolling deploy it may fit theirs. Where they do not
take it, the one is put off and the other refused, and says why; the others of its batch are seen to.
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
from rota.store.ticks import DueSchedule, ScheduleAdvance, TickRecord

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

log = logging.getLogger("rota")

MAX_BATCH_RUNS = 2000
"""Runs in one transaction, about. A schedule has a thousand at most."""

MAX_BATCH_JOBS = 20_000
"""Jobs in one transaction, about: to make and to write them takes time, and the server ends it if it takes
long. No schedule catches up with more than that, unless one run of it is more."""

POSTPONE_SECONDS = 60.0
"""Seconds until somebody tries again what cannot be decided on."""

TickKey = tuple[str, datetime]
"""A schedule and one of its ticks."""


@dataclass(frozen=True, slots=True)
class RunToStart:
    """A run to be started for a tick: of a task or of a flow."""

    start: StartJob | StartRun
    queues: Sequence[str]
    trace: str | None = None
    """Where who starts it by hand is in a trace."""


RunFactory = Callable[[DueSchedule, datetime, bool], RunToStart]
"""Makes the run of a tick; raises where the input does not fit any more."""


class _CannotStartHere(RotaError):
    """To be left to others."""


class Overtaken(RotaError):
    """Somebody else has moved a schedule on meanwhile: nothing has happened here."""


class _SeveralRunsToCancel(RotaError):
    """More than one run is to be cancelled: nothing has happened yet."""

    def __init__(self, runs: Sequence[int]) -> None:
        super().__init__("several runs are to be cancelled")
        self.runs = runs


@dataclass(slots=True)
class FireResult:
    """What has come of it."""

    handled: int = 0
    """Schedules seen to."""
    has_more: bool = False
    """Whether there are others that were left for the next time."""
    one_by_one: list[str] = field(default_factory=list)
    """… and those to be seen to each by itself."""
    started: dict[TickKey, int] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)
    lateness: list[float] = field(default_factory=list)
    """Of each that was started, how many seconds after its tick."""


@dataclass(slots=True)
class _FirePlan:
    due: DueSchedule
    decision: TickDecision
    runs: list[tuple[datetime, RunToStart]]
    open_runs: list[int]
    """Runs of it that have not ended."""


async def fire(
    database: Database,
    targets: Mapping[str, RunFactory],
    process: tuple[str, int],
    deferred: DeferredSchedules,
    name: str | None = None,
    tracing: Tracing | None = None,
) -> FireResult:
    """See to what is due of these targets, or to one schedule if it is."""
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
        """Spans of what was started, each the first of a trace; told of once that has committed."""

    async def run(self, name: str | None, cancelled: Collection[int] = ()) -> FireResult:
        """`cancelled`: runs that are on their way out."""
        await self._query(ticks.set_short_timeouts())
        deferred = self._deferred.deferred_names()
        due = await self._query(ticks.lock_due(list(self._targets), deferred, name))
        fired = FireResult()
        if not due:
            return fired
        # One time for all of it, as it was when these were due, whatever the clock does meanwhile.
        self._now = due[0].now
        plans = await self._plans(due, fired, in_batch=name is None)
        new_ticks = await self._record_ticks(plans)
        for plan in plans:
            await self._cancel_previous_runs(plan, new_ticks, cancelled)
        await self._start(plans, new_ticks, fired)
        await self._advance(plans, fired.started)
        return fired

    async def _plans(
        self, due: list[DueSchedule], fired: FireResult, *, in_batch: bool
    ) -> list[_FirePlan]:
        """Decide on each. What is left out stays as it is, and due."""
        plans: list[_FirePlan] = []
        errors: dict[str, str] = {}
        run_count = job_count = 0
        # After the locks, so that nothing is older than they are.
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
                log.error("schedule %r cannot go on: %s", each.name, short_error(error))
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

    def _plan(self, due: DueSchedule, open_runs: list[int]) -> _FirePlan:
        policy, position = due.policy, due.position(bool(open_runs))
        decision = decide(due.timetable, policy, position, due.now)
        if len(decision.start) > 1:
            max_runs = MAX_BATCH_JOBS // _job_count(self._make_run(due, decision.start[-1]))
            policy = replace(policy, at_most=min(policy.at_most, max(max_runs, 1)))
            decision = decide(due.timetable, policy, position, due.now)
        found = [(tick, self._make_run(due, tick)) for tick in decision.start]
        startable = [(tick, each) for tick, each in found if isinstance(each, RunToStart)]
        rejected = [(tick, each) for tick, each in found if isinstance(each, str)]
        if not rejected:
            self._deferred.clear(due.name)
        else:
            reason = rejected[0][1]
            if self._deferred.defer(due.name, _tick_state(due), reason):
                raise _CannotStartHere(reason)
            log.error("schedule %r cannot start %r: %s", due.name, due.target, reason)
            if not startable:
                # What starts nothing uses up none of the runs that it may have.
                policy = replace(policy, max_runs=None)
                decision = decide(due.timetable, policy, position, due.now)
                rejected = [(tick, reason) for tick in decision.start]
            decision.skip += [(tick, "refused", reason) for tick, reason in rejected]
        decision.start = [tick for tick, _ in startable]
        return _FirePlan(due, decision, startable, open_runs)

    def _make_run(self, due: DueSchedule, tick: datetime) -> RunToStart | str:
        """The run of a tick, or why there can be none."""
        try:
            return self._targets[due.target](due, tick, False)
        except Exception as error:
            return short_error(error)

    async def _cancel_previous_runs(
        self, plan: _FirePlan, new_ticks: set[TickKey], cancelled: Collection[int]
    ) -> None:
        """A tick that was there already has been seen to, by hand or before the clock went back: no run is
        cancelled for it, and it does not wait for one."""
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
        """Write every tick down. Answers those that nobody had seen to before."""
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
                    queued_ticks.add((due.name, tick))  # it was written down when it had to wait
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
        """A trace for each, where there are any."""
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
            raise Overtaken("a schedule was moved on by somebody else; nothing was started here")

    async def _query(self, query: Any) -> list[Any]:
        return await run(self._connection, query, self._schema)


def _includes(plan: _FirePlan, tick: datetime) -> bool:
    skipped = (each for each, _, _ in plan.decision.skip)
    return tick in plan.decision.start or tick in skipped


def short_error(error: Exception) -> str:
    """What an error says, short enough to be kept."""
    name = "" if isinstance(error, RotaError) else f"{type(error).__name__}: "
    return f"{name}{pg_errors.first_line(error)}"[:500]


def _job_count(planned: RunToStart | str) -> int:
    """So many jobs it has; what cannot be made is as little as there can be."""
    start = planned.start if isinstance(planned, RunToStart) else None
    return max(start.size, 1) if isinstance(start, StartRun) else 1


def _tick_state(due: DueSchedule) -> TickState:
    return due.next, due.queued


def tick_options(tick: datetime, backfilled: bool) -> str:
    """What the job of a tick is started with, so that its code can know."""
    return msgspec.json.encode({"tick": tick, "backfilled": backfilled}).decode()
