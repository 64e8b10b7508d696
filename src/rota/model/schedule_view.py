"""Schedules as they are shown: what each does and when, how it stands, and what became of its ticks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.errors import ArgumentError
from rota.model.timetable import Timetable

UPCOMING_TICKS = 5
"""Ticks that are foretold."""

ACTION_PREFIX = "action."
"""What the tasks are called that carry out scheduled actions: this, and the type."""


class Tick(msgspec.Struct, frozen=True):
    """One due time of a schedule, and what became of it."""

    planned: datetime
    state: str
    """started; queued: it waits for the run before it; skipped, missed or refused: `why` says why."""
    reason: str | None
    backfilled: bool
    handled: datetime
    """When somebody saw to it, and who."""
    host: str
    pid: int
    run: int | None
    outcome: str | None
    """What the run came to; None: it has not ended."""
    ended: datetime | None

    @property
    def started(self) -> datetime | None:
        """When its run was started; None if it has started none."""
        return None if self.run is None else self.handled

    @property
    def late_seconds(self) -> float:
        """By how many seconds it was seen to after its time."""
        return (self.handled - self.planned).total_seconds()

    @property
    def seconds(self) -> float | None:
        """Seconds from the start of its run to the end of it."""
        if self.run is None or self.ended is None:
            return None
        return (self.ended - self.handled).total_seconds()


class Schedule(msgspec.Struct, frozen=True):
    """A schedule, as it is at the moment."""

    name: str
    declared: bool
    """In code; else it was made at run time."""
    kind: str
    """task, flow or action."""
    target: str
    """The name of that."""
    input: dict[str, Any]
    """Its arguments; an action's config."""
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
    state: str
    """active, paused, disabled (the code does not declare it any more) or ended."""
    reason: str | None
    """… it is paused or disabled, or what is in its way."""
    created: datetime
    next: list[datetime]
    """The next five ticks, of an active one."""
    last: Tick | None
    last_success: datetime | None
    last_failure: datetime | None
    failures: int
    """In a row, since the last success."""
    runs: int
    """So many the clock has started."""
    missed: int
    """Ticks that came while nobody was there, and have started nothing."""
    has_worker: bool
    """Whether a worker that is there knows what it starts."""

    @property
    def when(self) -> str:
        """`0 7 * * mon-fri (Europe/Paris)`."""
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
    """The next five ticks from one on, at most `left`; none where that cannot be said any more."""
    found: list[datetime] = []
    limit = UPCOMING_TICKS if remaining_runs is None else min(UPCOMING_TICKS, remaining_runs)
    try:
        while next is not None and len(found) < limit and (ends is None or next <= ends):
            found.append(next)
            next = timetable.after(next, anchor)
    except ArgumentError:
        pass  # a time zone that this machine does not know
    return found
