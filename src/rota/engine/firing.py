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

from rota.engine.misfits import Misfits, Where
from rota.engine.spans import FLOW, TASK
from rota.engine.tracing import Around, Tracing
from rota.errors import RotaError
from rota.model.schedule import Decision, decide
from rota.store import failures, flows, jobs, runs, ticks
from rota.store.database import Database, run
from rota.store.flows import StartRun
from rota.store.jobs import Start
from rota.store.ticks import Due, Mark, Moved

if TYPE_CHECKING:
    from rota.store.session import Session

log = logging.getLogger("rota")

MANY_RUNS = 2000
"""Runs in one transaction, about. A schedule has a thousand at most."""

MANY_JOBS = 20_000
"""Jobs in one transaction, about: to make and to write them takes time, and the server ends it if it takes
long. No schedule catches up with more than that, unless one run of it is more."""

PUT_OFF = 60.0
"""Seconds until somebody tries again what cannot be decided on."""

Place = tuple[str, datetime]
"""A schedule and one of its ticks."""


@dataclass(frozen=True, slots=True)
class Made:
    """A run to be started for a tick: of a task or of a flow."""

    start: Start | StartRun
    queues: Sequence[str]
    trace: str | None = None
    """Where who starts it by hand is in a trace."""


Make = Callable[[Due, datetime, bool], Made]
"""Makes the run of a tick; raises where the input does not fit any more."""


class _Misfit(RotaError):
    """To be left to others."""


class Overtaken(RotaError):
    """Somebody else has moved a schedule on meanwhile: nothing has happened here."""


class _Several(RotaError):
    """More than one run is to be cancelled: nothing has happened yet."""

    def __init__(self, runs: Sequence[int]) -> None:
        super().__init__("several runs are to be cancelled")
        self.runs = runs


@dataclass(slots=True)
class Fired:
    """What has come of it."""

    seen: int = 0
    """Schedules seen to."""
    more: bool = False
    """Whether there are others that were left for the next time."""
    alone: list[str] = field(default_factory=list)
    """… and those to be seen to each by itself."""
    started: dict[Place, int] = field(default_factory=dict)
    queues: set[str] = field(default_factory=set)
    lateness: list[float] = field(default_factory=list)
    """Of each that was started, how many seconds after its tick."""


@dataclass(slots=True)
class _Plan:
    due: Due
    decision: Decision
    runs: list[tuple[datetime, Made]]
    open: list[int]
    """Runs of it that have not ended."""


async def fire(
    database: Database,
    targets: Mapping[str, Make],
    who: tuple[str, int],
    misfits: Misfits,
    name: str | None = None,
    tracing: Tracing | None = None,
) -> Fired:
    """See to what is due of these targets, or to one schedule if it is."""
    cancelled: set[int] = set()
    while True:
        try:
            async with database.transaction() as connection:
                firing = _Firing(
                    connection, database.schema, targets, who, misfits, tracing or Tracing()
                )
                fired = await firing.run(name, cancelled)
            break
        except _Several as several:
            for each in several.runs[:-1]:
                await database.run(runs.cancel(each))
                cancelled.add(each)
    for span in firing.traced:
        span.end()
    return fired


class _Firing:
    def __init__(
        self,
        connection: Session,
        schema: str,
        targets: Mapping[str, Make],
        who: tuple[str, int],
        misfits: Misfits,
        tracing: Tracing,
    ) -> None:
        self._connection = connection
        self._schema = schema
        self._targets = targets
        self._who = who
        self._misfits = misfits
        self._tracing = tracing
        self.traced: list[Around] = []
        """Spans of what was started, each the first of a trace; told of once that has committed."""

    async def run(self, name: str | None, cancelled: Collection[int] = ()) -> Fired:
        """`cancelled`: runs that are on their way out."""
        await self._ask(ticks.hurry())
        others = self._misfits.left_to_others()
        due = await self._ask(ticks.due(list(self._targets), others, name))
        fired = Fired()
        if not due:
            return fired
        # One time for all of it, as it was when these were due, whatever the clock does meanwhile.
        self._now = due[0].now
        plans = await self._plans(due, fired, several=name is None)
        new = await self._mark(plans)
        for plan in plans:
            await self._make_way(plan, new, cancelled)
        await self._start(plans, new, fired)
        await self._advance(plans, fired.started)
        return fired

    async def _plans(self, due: list[Due], fired: Fired, *, several: bool) -> list[_Plan]:
        """Decide on each. What is left out stays as it is, and due."""
        plans: list[_Plan] = []
        wrong: dict[str, str] = {}
        many = total = 0
        # After the locks, so that nothing is older than they are.
        found = await self._ask(ticks.settle([each.name for each in due]))
        now = {each.name: each for each in found}
        for each in due:
            fired.seen += 1
            if now[each.name].paused:
                log.warning("schedule %r is paused: it has failed too often", each.name)
                continue
            if many >= MANY_RUNS or total >= MANY_JOBS:
                fired.seen -= 1
                fired.more = True
                continue
            try:
                plan = self._plan(each, now[each.name].open)
            except _Misfit:
                fired.seen -= 1
                continue
            except Exception as error:
                if self._misfits.leave(each.name, _where(each), told(error)):
                    fired.seen -= 1
                    continue
                wrong[each.name] = told(error)
                log.error("schedule %r cannot go on: %s", each.name, told(error))
                continue
            if several and plan.decision.cancel:
                fired.seen -= 1
                fired.alone.append(each.name)
                continue
            plans.append(plan)
            many += len(plan.runs)
            total += sum(_size(made) for _, made in plan.runs)
        if wrong:
            await self._ask(ticks.put_off(wrong, PUT_OFF))
        return plans

    def _plan(self, due: Due, open: list[int]) -> _Plan:
        policy, position = due.policy, due.position(bool(open))
        decision = decide(due.timetable, policy, position, due.now)
        if len(decision.start) > 1:
            most = MANY_JOBS // _size(self._make(due, decision.start[-1]))
            policy = replace(policy, at_most=min(policy.at_most, max(most, 1)))
            decision = decide(due.timetable, policy, position, due.now)
        found = [(tick, self._make(due, tick)) for tick in decision.start]
        made = [(tick, each) for tick, each in found if isinstance(each, Made)]
        unfit = [(tick, each) for tick, each in found if isinstance(each, str)]
        if not unfit:
            self._misfits.fits(due.name)
        else:
            why = unfit[0][1]
            if self._misfits.leave(due.name, _where(due), why):
                raise _Misfit(why)
            log.error("schedule %r cannot start %r: %s", due.name, due.target, why)
            if not made:
                # What starts nothing uses up none of the runs that it may have.
                policy = replace(policy, max_runs=None)
                decision = decide(due.timetable, policy, position, due.now)
                unfit = [(tick, why) for tick in decision.start]
            decision.skip += [(tick, "refused", why) for tick, why in unfit]
        decision.start = [tick for tick, _ in made]
        return _Plan(due, decision, made, open)

    def _make(self, due: Due, tick: datetime) -> Made | str:
        """The run of a tick, or why there can be none."""
        try:
            return self._targets[due.target](due, tick, False)
        except Exception as error:
            return told(error)

    async def _make_way(self, plan: _Plan, new: set[Place], cancelled: Collection[int]) -> None:
        """A tick that was there already has been seen to, by hand or before the clock went back: no run is
        cancelled for it, and it does not wait for one."""
        due, decision = plan.due, plan.decision
        if decision.cancel and any((due.name, tick) in new for tick in decision.start):
            several = [run for run in plan.open if run not in cancelled]
            if len(several) > 1:
                raise _Several(several)
            for each in several:
                await self._ask(runs.cancel(each))
        if decision.queued not in (None, due.queued) and (due.name, decision.queued) not in new:
            decision.queued = None
            decision.due = decision.next

    async def _mark(self, plans: list[_Plan]) -> set[Place]:
        """Write every tick down. Answers those that nobody had seen to before."""
        marks: list[Mark] = []
        waited: set[Place] = set()
        restated: list[Mark] = []
        for plan in plans:
            due, decision, number = plan.due, plan.decision, plan.due.ticks
            began = [(tick, "started", None) for tick in decision.start]
            for tick, state, why in sorted([*began, *decision.skip], key=lambda each: each[0]):
                if tick != due.queued:
                    number += 1
                    marks.append(Mark(due.name, tick, number, state, why))
                elif state == "started":
                    waited.add((due.name, tick))  # it was written down when it had to wait
                else:
                    restated.append(Mark(due.name, tick, 0, state, why))
            if due.queued is not None and decision.queued is None and not _has(plan, due.queued):
                why = "the schedule has ended"
                restated.append(Mark(due.name, due.queued, 0, "skipped", why))
        if restated:
            await self._ask(ticks.restate(restated, self._who, self._now))
        if not marks:
            return waited
        return waited | set(await self._ask(ticks.mark(marks, self._who, self._now)))

    async def _start(self, plans: list[_Plan], new: set[Place], fired: Fired) -> None:
        alone: list[tuple[Place, Start]] = []
        whole: list[tuple[Place, StartRun]] = []
        for plan in plans:
            for tick, made in plan.runs:
                place = (plan.due.name, tick)
                if place not in new:
                    continue
                fired.queues.update(made.queues)
                if isinstance(made.start, Start):
                    alone.append((place, made.start))
                else:
                    whole.append((place, made.start))
        if alone:
            traces = self._trace([(place, each.task, TASK) for place, each in alone])
            ids = await self._ask(jobs.start_many([each for _, each in alone], traces))
            fired.started |= dict(zip([place for place, _ in alone], ids, strict=True))
        if whole:
            traces = self._trace([(place, each.flow or "", FLOW) for place, each in whole])
            answers = await self._ask(
                flows.start([each for _, each in whole], notify=False, traces=traces)
            )
            ids = [each.run for each in answers]
            fired.started |= dict(zip([place for place, _ in whole], ids, strict=True))
        fired.lateness = [(self._now - tick).total_seconds() for _, tick in fired.started]
        if fired.started:
            ran = [(name, tick, id) for (name, tick), id in fired.started.items()]
            await self._ask(ticks.started(ran, self._who, self._now))

    def _trace(self, started: list[tuple[Place, str, str]]) -> list[str | None] | None:
        """A trace for each, where there are any."""
        made = [
            self._tracing.start(name, what=what, schedule=schedule)
            for (schedule, _), name, what in started
        ]
        self.traced += made
        traces = [each.trace for each in made]
        return traces if any(traces) else None

    async def _advance(self, plans: list[_Plan], started: dict[Place, int]) -> None:
        if not plans:
            return
        mine: dict[str, dict[datetime, int]] = {}
        for (name, tick), id in started.items():
            mine.setdefault(name, {})[tick] = id
        moved = []
        for plan in plans:
            decision, due = plan.decision, plan.due
            ran = mine.get(due.name, {})
            seen = [*decision.start, *(tick for tick, _, _ in decision.skip)]
            fresh = [tick for tick in seen if tick != due.queued]
            moved.append(
                Moved(
                    due,
                    decision,
                    due.ticks + len(fresh),
                    due.runs + len(ran),
                    max(fresh, default=None),
                    ran[max(ran)] if ran else None,
                    decision.missed + sum(state == "missed" for _, state, _ in decision.skip),
                )
            )
        [count] = await self._ask(ticks.advance(moved))
        if count != len(moved):
            raise Overtaken("a schedule was moved on by somebody else; nothing was started here")

    async def _ask(self, query: Any) -> list[Any]:
        return await run(self._connection, query, self._schema)


def _has(plan: _Plan, tick: datetime) -> bool:
    told = (each for each, _, _ in plan.decision.skip)
    return tick in plan.decision.start or tick in told


def told(error: Exception) -> str:
    """What an error says, short enough to be kept."""
    name = "" if isinstance(error, RotaError) else f"{type(error).__name__}: "
    return f"{name}{failures.first_line(error)}"[:500]


def _size(made: Made | str) -> int:
    """So many jobs it has; what cannot be made is as little as there can be."""
    start = made.start if isinstance(made, Made) else None
    return max(start.size, 1) if isinstance(start, StartRun) else 1


def _where(due: Due) -> Where:
    return due.next, due.queued


def options_of(tick: datetime, backfilled: bool) -> str:
    """What the job of a tick is started with, so that its code can know."""
    return msgspec.json.encode({"tick": tick, "backfilled": backfilled}).decode()
