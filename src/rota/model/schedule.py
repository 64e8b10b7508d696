"""What a schedule does when it is looked at: which ticks start a run, which do not and why, and when to
look again.

Pure: the same answer for the same row and the same time, so that it can be tried out over years in a
moment. Nothing loops over the ticks of a long absence: those that start nothing are counted.

What has come due is the next tick, once its time has come, and those after it whose time, with all that
they may jitter, is over. `catch_up` chooses among them, `grace` leaves out what is too late, `overlap` has
its say about what remains. Each tick is seen to once: it starts, or it is written down why it does not, or
it is counted among the missed.
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
"""Without catching up: a tick that is later than this is missed."""

MIN_RECHECK = timedelta(seconds=1)
MAX_RECHECK = timedelta(seconds=15)
"""While a tick waits for the run before it to end it is looked at every second, and less often the longer
it waits: after a twentieth of that, but so often at least."""

MAX_TICKS = 1000
"""Ticks started in one look, at most."""

MAX_COUNT = 1_000_000_000
"""Runs and failures that can be asked for."""

MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class SchedulePolicy:
    """What each allows, exactly."""

    overlap: Overlap = "skip"
    """A tick that comes due while a run is open, of another tick or by hand, backfilled ones apart: `skip`
    starts nothing; `queue_one` has it wait until none is open, and skips those that come while one waits;
    `cancel_running` cancels what is open and starts it; `allow` starts it."""
    catch_up: CatchUp = "latest"
    """Several that have come due, for nobody looked in between: `none` starts the latest unless that is
    later than a minute (or `grace`); `latest` starts the latest, however late; `all` starts the latest
    `at_most` of them at once. They do not overlap one another: `overlap` is about a run that is open from
    before, and one that is makes `skip` skip them all, and `queue_one` all but the first of them. With
    `cancel_running`, under which each would cancel the one before, `all` is `latest`."""
    at_most: int = 100
    """So many are caught up with, the latest; what is older is missed."""
    grace: float | None = None
    """Seconds (and those that it may jitter) after which a tick starts nothing. One that waited for a run
    to end was in time."""
    jitter: float = 0.0
    """Up to so many seconds after its time, by chance, a tick comes due; never after the one that follows
    it, and none is lost by it, however short the time between two."""
    starts: datetime | None = None
    """Nothing before this; `every` is counted from it."""
    ends: datetime | None = None
    """Nothing after this, but a tick of this very time, and one of before that waited."""
    max_runs: int | None = None
    """So many runs are started by the clock, the first that come; then it has ended."""
    pause_after: int | None = None
    """After so many failures in a row nothing is started until somebody resumes it."""

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
    """Where a schedule is."""

    next: datetime | None
    anchor: datetime
    queued: datetime | None = None
    runs: int = 0
    has_open_run: bool = False
    """Whether a run of it is still open."""


@dataclass(slots=True)
class TickDecision:
    start: list[datetime] = field(default_factory=list)
    """Ticks whose runs begin now."""
    skip: list[tuple[datetime, str, str]] = field(default_factory=list)
    """Ticks whose runs do not: state and why."""
    missed: int = 0
    """So many have come due beside those, and start nothing."""
    cancel_open_runs: bool = False
    """Whether the runs that are open are to be cancelled."""
    next: datetime | None = None
    queued: datetime | None = None
    due: datetime | None = None
    """When to look again; None: not at all."""


def first_tick(
    timetable: Timetable, policy: SchedulePolicy, now: datetime, anchor: datetime
) -> datetime | None:
    """The first tick of a schedule that begins now."""
    if timetable.at is not None:
        # Once is once, however late.
        return _unless_ended(timetable.at, policy)
    begin = now if policy.starts is None else max(now, policy.starts - MICROSECOND)
    return _unless_ended(timetable.after(begin, anchor), policy)


def is_ahead_of_clock(
    timetable: Timetable, policy: SchedulePolicy, position: SchedulePosition, now: datetime
) -> bool:
    """Whether it waits for a later tick than the next from now: it was moved on by a clock that has gone
    back since. Up to where it waits it has seen to every tick; to resume it makes it come again from now
    on."""
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
    # What waits has had its time once; where the clock has been set back since, it has it again.
    if decision.queued is not None and decision.queued <= now and remaining_runs > 0 and may_start:
        decision.start.append(decision.queued)
        decision.queued = None
        has_open_run = True
        remaining_runs -= 1
    # A run that begins at this look cannot be cancelled by it: what else is due is, the next time.
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
    """The ticks to see to, of those that have come due. Moves the schedule on behind these."""
    tick, anchor = position.next, position.anchor
    if tick is None or tick > now:
        return []
    due_before = now - timedelta(seconds=policy.jitter)
    until = due_before if policy.ends is None else min(due_before, policy.ends)
    last = max(timetable.latest(until, anchor) or tick, tick)
    decision.next = _unless_ended(timetable.after(last, anchor), policy)
    # With cancel_running each would cancel the one before.
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
    """The last so many ticks from one to another."""
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
