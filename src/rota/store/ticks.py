"""The ticks of schedules: which are due, what was started for each, and where their schedules go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.model.schedule import SchedulePolicy, SchedulePosition, TickDecision
from rota.model.timetable import Timetable
from rota.store.query import Query

BATCH_SCHEDULES = 200
"""Schedules seen to in one transaction."""


class DueSchedule(msgspec.Struct, frozen=True):
    """A schedule that is due, under lock."""

    name: str
    kind: str
    target: str
    input: bytes
    cron: str | None
    tz: str
    every: float | None
    at: datetime | None
    overlap: Any
    catch_up: Any
    at_most: int
    grace: float | None
    jitter: float
    ends: datetime | None
    max_runs: int | None
    pause_after: int | None
    queue: str | None
    anchor: datetime
    next: datetime | None
    queued: datetime | None
    ticks: int
    runs: int
    run: int | None
    now: datetime

    @property
    def timetable(self) -> Timetable:
        return Timetable(self.cron, self.tz, self.every, self.at)

    @property
    def policy(self) -> SchedulePolicy:
        return SchedulePolicy(
            self.overlap,
            self.catch_up,
            self.at_most,
            self.grace,
            self.jitter,
            None,
            self.ends,
            self.max_runs,
            self.pause_after,
        )

    def position(self, busy: bool) -> SchedulePosition:
        return SchedulePosition(self.next, self.anchor, self.queued, self.runs, busy)


class ScheduleStatus(msgspec.Struct, frozen=True):
    """How a schedule under lock is doing."""

    name: str
    is_paused: bool
    """Just now: it has failed too often."""
    open_runs: list[int]
    """Its runs that have not ended, apart from what was backfilled."""


class TickRecord(msgspec.Struct, frozen=True):
    """What is written down of a tick."""

    schedule: str
    tick: datetime
    number: int
    state: str
    reason: str | None
    backfilled: bool = False


class ScheduleAdvance(msgspec.Struct, frozen=True):
    """Where a schedule goes on."""

    schedule: DueSchedule
    decision: TickDecision
    ticks: int
    runs: int
    last: datetime | None
    run: int | None
    missed: int


class OpenTicks(msgspec.Struct, frozen=True):
    ended_schedules: list[str]
    """Schedules with runs that have ended, and nobody has noted it."""
    has_open: bool
    """Whether there are runs at all whose end is not noted."""


# When to look


def next_due(targets: Sequence[str], deferred: Sequence[str] = ()) -> Query[float | None]:
    """In how many seconds. `others`: schedules that are left to others."""
    params = {"targets": list(targets), "others": list(deferred)}
    return Query("tick/next", params, lambda rest: rest)


def due_names(
    targets: Sequence[str], deferred: Sequence[str] = (), limit: int = BATCH_SCHEDULES
) -> Query[str]:
    params = {"targets": list(targets), "others": list(deferred), "limit": limit}
    return Query("tick/names", params, str)


# In one transaction


def set_short_timeouts() -> Query[Any]:
    return Query("tick/hurry", {}, lambda *_: None)


def lock_due(
    targets: Sequence[str],
    deferred: Sequence[str] = (),
    name: str | None = None,
    limit: int = BATCH_SCHEDULES,
) -> Query[DueSchedule]:
    params = {
        "targets": list(targets),
        "others": list(deferred),
        "names": None if name is None else [name],
        "limit": limit,
    }
    return Query("tick/due", params, DueSchedule)


def record_outcomes(names: Sequence[str]) -> Query[ScheduleStatus]:
    return Query("tick/settle", {"names": list(names)}, ScheduleStatus)


def postpone(reasons: Mapping[str, str | None], seconds: float) -> Query[Any]:
    params = {"names": list(reasons), "whys": list(reasons.values()), "seconds": seconds}
    return Query("tick/put_off", params, lambda: None)


def record(
    records: Sequence[TickRecord], process: tuple[str, int], at: datetime | None = None
) -> Query[tuple[str, datetime]]:
    """Answers those that were not there. `at`: when they were seen to; None: now."""
    params = {
        **_columns(records, process, at),
        "numbers": [each.number for each in records],
        "backfilled": [each.backfilled for each in records],
    }
    return Query("tick/mark", params, lambda name, tick: (name, tick))


def update_states(
    records: Sequence[TickRecord], process: tuple[str, int], at: datetime
) -> Query[Any]:
    return Query("tick/restate", _columns(records, process, at), lambda: None)


def _columns(
    records: Sequence[TickRecord], process: tuple[str, int], at: datetime | None
) -> dict[str, Any]:
    return {
        "at": at,
        "names": [each.schedule for each in records],
        "ticks": [each.tick for each in records],
        "states": [each.state for each in records],
        "whys": [each.reason for each in records],
        "host": process[0],
        "pid": process[1],
    }


def record_runs(
    runs: Sequence[tuple[str, datetime, int]],
    process: tuple[str, int],
    at: datetime | None = None,
    *,
    backfilled: bool = False,
) -> Query[Any]:
    params = {
        "at": at,
        "names": [name for name, _, _ in runs],
        "ticks": [tick for _, tick, _ in runs],
        "runs": [run for _, _, run in runs],
        "host": process[0],
        "pid": process[1],
        "backfilled": backfilled,
    }
    return Query("tick/started", params, lambda: None)


def advance(advances: Sequence[ScheduleAdvance]) -> Query[int]:
    params = {
        "names": [each.schedule.name for each in advances],
        "olds": [each.schedule.next for each in advances],
        "waits": [each.schedule.queued for each in advances],
        "nexts": [each.decision.next for each in advances],
        "dues": [each.decision.due for each in advances],
        "queueds": [each.decision.queued for each in advances],
        "ticks": [each.ticks for each in advances],
        "runs": [each.runs for each in advances],
        "lasts": [each.last for each in advances],
        "last_runs": [each.run for each in advances],
        "missed": [each.missed for each in advances],
    }
    return Query("tick/advance", params, int)


# Afterwards


def open_ticks(limit: int = BATCH_SCHEDULES) -> Query[OpenTicks]:
    return Query("tick/open", {"limit": limit}, OpenTicks)


def lock(names: Sequence[str]) -> Query[str]:
    return Query("tick/hold", {"names": list(names)}, str)
