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
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, get_args

from rota.errors import ArgumentError
from rota.model.timetable import MAX_PERIOD_SECONDS, Timetable, check_datetime

Overlap = Literal["skip", "queue_one", "cancel_running", "allow"]
CatchUp = Literal["none", "latest", "all"]

MISSED_AFTER = timedelta(seconds=60)
"""With catch_up="none" and without `grace`, a tick that is later than this is missed."""

MIN_RECHECK = timedelta(seconds=1)
MAX_RECHECK = timedelta(seconds=15)
"""Bounds of the time between two checks of a queued tick, which waits for the previous run to end.

The time is a twentieth of the wait so far, so checks become less frequent.
"""

MAX_TICKS = 1000
"""Maximum number of ticks that one check starts."""

MAX_COUNT = 1_000_000_000
"""Maximum of `max_runs` and `pause_after`."""

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SchedulePolicy:
    """Rules of a schedule for overlapping, missed and late ticks."""

    overlap: Overlap = "skip"
    """Rule for a tick that is due while a run of the schedule is open.

    The run may have been started by a tick or by hand; backfilled runs do not count. `skip` starts nothing.
    `queue_one` starts the tick when no run is open, and skips further ticks meanwhile. `cancel_running`
    cancels the open runs and starts the tick. `allow` starts the tick.
    """
    catch_up: CatchUp = "latest"
    """Rule for several ticks that are due because no worker checked in between.

    `none` starts the latest one unless it is later than a minute (or `grace`). `latest` starts the latest
    one, however late (unless `grace` is set). `all` starts the latest `at_most` ticks at once.

    These runs do not count as overlapping each other: `overlap` applies to a run that was open before. If
    such a run is open, `skip` skips all of them; `queue_one` queues the first and skips the rest. With
    `cancel_running` each run would cancel the one before, so `all` acts as `latest`.
    """
    at_most: int = 100
    """Number of ticks to catch up with, the latest ones. Older ticks are missed."""
    grace: float | None = None
    """Seconds, in addition to the jitter, after which a tick starts nothing. A tick that was queued for a
    run to end counts as in time."""
    jitter: float = 0.0
    """Maximum random delay of a tick in seconds. It may be longer than the interval: ticks are neither lost
    nor reordered."""
    starts: datetime | None = None
    """No ticks before this time. `every` is counted from it."""
    ends: datetime | None = None
    """No ticks after this time. A tick at exactly this time, and an earlier one that is queued, still
    start."""
    max_runs: int | None = None
    """Number of runs that the clock starts. Then the schedule has ended."""
    pause_after: int | None = None
    """Number of consecutive failures after which the schedule is paused until it is resumed."""

    def __post_init__(self) -> None:
        if self.overlap not in get_args(Overlap):
            raise ArgumentError(
                f"overlap is one of {', '.join(get_args(Overlap))}, not {self.overlap!r}"
            )
        if self.catch_up not in get_args(CatchUp):
            raise ArgumentError(
                f"catch_up is one of {', '.join(get_args(CatchUp))}, not {self.catch_up!r}"
            )
        _check_number("at_most", self.at_most, MAX_TICKS)
        if self.jitter is None:
            raise ArgumentError("jitter is a number of seconds; 0 is none")
        for name in ("grace", "jitter"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= MAX_PERIOD_SECONDS:
                raise ArgumentError(f"{name} is {value:g} s; it can be from 0 to ten years")
        for name in ("max_runs", "pause_after"):
            if getattr(self, name) is not None:
                _check_number(name, getattr(self, name), MAX_COUNT)
        for name in ("starts", "ends"):
            if getattr(self, name) is not None:
                check_datetime(name, getattr(self, name))
        if self.starts is not None and self.ends is not None and self.ends < self.starts:
            raise ArgumentError(
                f"it ends ({self.ends.isoformat(sep=' ')}) before it starts "
                f"({self.starts.isoformat(sep=' ')})"
            )


def _check_number(name: str, value: object, maximum: int) -> None:
    if type(value) is not int or not 1 <= value <= maximum:
        raise ArgumentError(f"{name} is a whole number from 1 to {maximum:,}, not {value!r}")


@dataclass(frozen=True, slots=True)
class SchedulePosition:
    """Current state of a schedule."""

    next: datetime | None
    anchor: datetime
    queued: datetime | None = None
    runs: int = 0
    has_open_run: bool = False
    """True if a run of the schedule is still open."""


@dataclass(slots=True)
class TickDecision:
    start: list[datetime] = field(default_factory=list)
    """Ticks that start a run now."""
    skip: list[tuple[datetime, str, str]] = field(default_factory=list)
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
