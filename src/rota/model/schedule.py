"""Decisions of a schedule: which ticks start a run, which do not and why, and when to check again.

Pure functions: the result depends only on the row and the time, so years can be simulated in a moment. The
ticks of a long outage are not iterated: those that start nothing are counted.

These ticks are due: the next one, once its time has come, and later ones whose time plus the maximum
jitter has passed. `catch_up` selects among them, `grace` drops those that are too late, and `overlap`
decides about the rest. Each tick is handled once: it starts a run, or it is recorded with the reason why
not, or it is counted as missed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from datetime import datetime, timedelta

import msgspec

from rota.model.schedule_options import SchedulePolicy
from rota.model.timetable import Timetable

MISSED_AFTER = timedelta(seconds=60)
"""With catch_up="none" and without `grace`, a tick that is later than this is missed."""

MIN_RECHECK = timedelta(seconds=1)
MAX_RECHECK = timedelta(seconds=15)
"""Bounds of the time between two checks of a queued tick, which waits for the previous run to end.

The time is a twentieth of the wait so far, so checks become less frequent.
"""

MICROSECOND = timedelta(microseconds=1)


class SchedulePosition(msgspec.Struct, frozen=True):
    """Current state of a schedule."""

    next: datetime | None
    anchor: datetime
    queued: datetime | None = None
    runs: int = 0
    has_open_run: bool = False
    """True if a run of the schedule is still open."""


class TickDecision(msgspec.Struct):
    start: list[datetime] = []
    """Ticks that start a run now."""
    skip: list[tuple[datetime, str, str]] = []
    """Ticks that start no run, with their state and the reason."""
    missed: int = 0
    """Number of further due ticks that start nothing."""
    cancel_open_runs: bool = False
    """True if the open runs are to be cancelled."""
    next: datetime | None = None
    queued: datetime | None = None
    due: datetime | None = None
    """Time of the next check; None if there is none."""


def first_tick(
    timetable: Timetable, policy: SchedulePolicy, now: datetime, anchor: datetime
) -> datetime | None:
    """Return the first tick of a schedule that becomes active now."""
    if timetable.at is not None:
        # A single tick stays due after its time; `grace` and `catch_up` decide whether it starts.
        return _unless_ended(timetable.at, policy)
    begin = now if policy.starts is None else max(now, policy.starts - MICROSECOND)
    return _unless_ended(timetable.after(begin, anchor), policy)


def is_ahead_of_clock(
    timetable: Timetable, policy: SchedulePolicy, position: SchedulePosition, now: datetime
) -> bool:
    """True if the next tick of the schedule is later than its first tick from now.

    This happens after the clock was set back. Every tick before the next one has been handled already.
    Resuming the schedule makes it tick from now on again.
    """
    if position.next is None or timetable.at is not None:
        return False
    next_tick = first_tick(timetable, policy, now, position.anchor)
    return next_tick is not None and next_tick < position.next


def decide(
    timetable: Timetable,
    policy: SchedulePolicy,
    position: SchedulePosition,
    now: datetime,
    random_fraction: Callable[[], float] = random.random,
) -> TickDecision:
    decision = TickDecision(next=position.next, queued=position.queued)
    remaining_runs = math.inf if policy.max_runs is None else policy.max_runs - position.runs
    has_open_run = position.has_open_run
    may_start = not has_open_run or policy.overlap == "allow"
    # A queued tick was due already. If the clock was set back since, it waits for its time again.
    if decision.queued is not None and decision.queued <= now and remaining_runs > 0 and may_start:
        decision.start.append(decision.queued)
        decision.queued = None
        has_open_run = True
        remaining_runs -= 1
    # A run that this decision starts cannot be cancelled by it. Other due ticks follow at the next check.
    if not (decision.start and policy.overlap == "cancel_running"):
        ticks = _due_ticks(timetable, policy, position, now, decision)
        for tick in ticks:
            if remaining_runs <= 0:
                break
            if not has_open_run or policy.overlap == "allow":
                decision.start.append(tick)
                remaining_runs -= 1
            elif policy.overlap == "cancel_running":
                decision.cancel_open_runs = True
                decision.start.append(tick)
                remaining_runs -= 1
            elif policy.overlap == "queue_one" and decision.queued is None:
                decision.queued = tick
                decision.skip.append((tick, "queued", "the run before it has not ended"))
            else:
                decision.skip.append((tick, "skipped", "the run before it has not ended"))
    if remaining_runs <= 0:
        decision.next = decision.queued = None
    decision.due = _next_check(policy, decision, now, random_fraction)
    return decision


def _due_ticks(
    timetable: Timetable,
    policy: SchedulePolicy,
    position: SchedulePosition,
    now: datetime,
    decision: TickDecision,
) -> list[datetime]:
    """Return the due ticks to handle, and move the schedule past all due ticks."""
    tick, anchor = position.next, position.anchor
    if tick is None or tick > now:
        return []
    due_before = now - timedelta(seconds=policy.jitter)
    until = due_before if policy.ends is None else min(due_before, policy.ends)
    last = max(timetable.latest(until, anchor) or tick, tick)
    decision.next = _unless_ended(timetable.after(last, anchor), policy)
    # With cancel_running each run would cancel the one before.
    takes_all = policy.catch_up == "all" and policy.overlap != "cancel_running"
    found = _last_ticks(timetable, anchor, tick, last, policy.at_most if takes_all else 1)
    decision.missed = 1 + timetable.count(tick, last, anchor) - len(found)
    grace = None if policy.grace is None else timedelta(seconds=policy.grace)
    if policy.catch_up == "none" and grace is None:
        grace = MISSED_AFTER
    if grace is None:
        return found
    earliest = due_before - grace
    decision.skip += [(tick, "missed", "it was too late") for tick in found if tick < earliest]
    return [tick for tick in found if tick >= earliest]


def _last_ticks(
    timetable: Timetable, anchor: datetime, tick: datetime, last: datetime, limit: int
) -> list[datetime]:
    """Return the last ticks from `tick` to `last`, at most `limit`."""
    found = [last]
    while last > tick and len(found) < limit:
        last = max(timetable.latest(last - MICROSECOND, anchor) or tick, tick)
        found.append(last)
    return found[::-1]


def _next_check(
    policy: SchedulePolicy,
    decision: TickDecision,
    now: datetime,
    random_fraction: Callable[[], float],
) -> datetime | None:
    due = decision.next
    if due is not None and policy.jitter:
        due += timedelta(seconds=policy.jitter * random_fraction())
    if decision.queued is not None:
        pause = min(max((now - decision.queued) / 20, MIN_RECHECK), MAX_RECHECK)
        recheck_at = max(now + pause, decision.queued)
        return recheck_at if due is None else min(due, recheck_at)
    return due


def _unless_ended(tick: datetime | None, policy: SchedulePolicy) -> datetime | None:
    return None if tick is None or (policy.ends is not None and tick > policy.ends) else tick
