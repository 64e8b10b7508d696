"""Schedules and ticks as clients show them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.errors import ArgumentError
from rota.model.document import Id, Mark
from rota.model.timetable import Timetable

UPCOMING_TICKS = 5
"""Number of upcoming ticks that a schedule shows."""

ACTION_PREFIX = "action."
"""Prefix of the tasks that run scheduled actions, followed by the type of the action."""


class Tick(msgspec.Struct, frozen=True):
    """Due time of a schedule and its outcome."""

    planned: datetime
    state: str
    """started; queued, if it waits for the previous run to end; skipped, missed or
    refused, with `reason`."""
    reason: Annotated[str, Mark.NULL_FOR_VIEWERS] | None
    backfilled: bool
    handled: datetime
    """Time at which the process given by `host` and `pid` handled the tick."""
    host: str
    pid: int
    run: Id | None
    outcome: str | None
    """Outcome of the run; None if it has not ended."""
    ended: datetime | None

    @property
    def started(self) -> datetime | None:
        """Start time of the run; None if the tick started none."""
        return None if self.run is None else self.handled

    @property
    def late_seconds(self) -> float:
        """Seconds from the planned time until the tick was handled."""
        return (self.handled - self.planned).total_seconds()

    @property
    def seconds(self) -> float | None:
        """Seconds from the start to the end of the run."""
        if self.run is None or self.ended is None:
            return None
        return (self.ended - self.handled).total_seconds()


class ScheduleFields(msgspec.Struct, frozen=True):
    """Definition of a schedule, in the order of its columns."""

    name: str
    declared: Annotated[
        bool, Meta(description="True if declared in code, false if created at run time.")
    ]
    kind: Annotated[str, Meta(description="task, flow or action.")]
    target: Annotated[str, Meta(description="Name of the task, flow or action.")]
    input: Any
    tenant: str | None
    cron: str | None
    tz: str
    every: float | None
    at: datetime | None
    overlap: str
    catch_up: str
    at_most: int
    grace: float | None
    jitter: float
    starts: datetime | None
    ends: datetime | None
    max_runs: int | None
    pause_after: int | None
    queue: str | None


class Schedule(ScheduleFields, frozen=True):
    """Current state of a schedule."""

    input: Annotated[dict[str, Any], Mark.PAYLOAD]
    """Arguments of the run, or the config of an action."""
    state: Annotated[str, Meta(description="active, paused, disabled or ended.")]
    """A schedule is disabled if the code no longer declares it."""
    reason: Annotated[str, Mark.NULL_FOR_VIEWERS] | None
    """Reason why it is paused or disabled, or why a due tick could not start."""
    created: datetime
    next: Annotated[list[datetime], Meta(description="Next ticks, if the schedule is active.")]
    last: Tick | None
    last_success: datetime | None
    last_failure: datetime | None
    failures: int
    """Consecutive failures since the last success."""
    runs: int
    """Number of runs that the clock has started."""
    missed: int
    """Number of ticks that were not handled in time and started nothing."""
    has_worker: Annotated[
        bool, Meta(description="True if a live worker knows its task, flow or action.")
    ]

    @property
    def when(self) -> str:
        """Timing as text: `0 7 * * mon-fri (Europe/Paris)`."""
        if self.cron is not None:
            return f"{self.cron} ({self.tz})"
        if self.every is not None:
            return f"every {self.every:g} s"
        return "never" if self.at is None else f"at {self.at.isoformat(sep=' ')}"


def upcoming_ticks(
    timetable: Timetable,
    anchor: datetime,
    next: datetime | None,
    ends: datetime | None,
    remaining_runs: int | None,
) -> list[datetime]:
    """Return up to five ticks from `next` on, at most `remaining_runs`; stop early if the time zone is
    unknown here."""
    found: list[datetime] = []
    limit = UPCOMING_TICKS if remaining_runs is None else min(UPCOMING_TICKS, remaining_runs)
    try:
        while next is not None and len(found) < limit and (ends is None or next <= ends):
            found.append(next)
            next = timetable.after(next, anchor)
    except ArgumentError:
        pass  # a time zone that this machine does not know
    return found
