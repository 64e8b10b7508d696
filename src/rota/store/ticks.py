"""Queries for ticks: the schedules that are due, the runs started for them, and their next position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.model.schedule import TickDecision
from rota.store.query import Params, Query, identity, no_row, statement
from rota.store.schedules import LockedSchedule, read_locked

BATCH_SCHEDULES = 200
"""Schedules handled in one transaction."""


class ScheduleStatus(msgspec.Struct, frozen=True):
    """State of a locked schedule."""

    name: str
    is_paused: bool
    """True if it was paused just now because it failed too often."""
    open_runs: list[int]
    """Runs that have not ended, without backfilled ones."""


class TickRecord(msgspec.Struct, frozen=True):
    """Tick to record."""

    schedule: str
    tick: datetime
    number: int
    state: str
    reason: str | None
    backfilled: bool = False


class ScheduleAdvance(msgspec.Struct, frozen=True):
    """New position of a schedule."""

    schedule: LockedSchedule
    decision: TickDecision
    ticks: int
    runs: int
    last: datetime | None
    run: int | None
    missed: int


class OpenTicks(msgspec.Struct, frozen=True):
    ended_schedules: list[str]
    """Schedules with runs that have ended but are not recorded as ended."""
    has_open: bool
    """True if there are runs whose end is not recorded yet."""


# Finding due schedules


def next_due(targets: Sequence[str], deferred: Sequence[str] = ()) -> Query[float | None]:
    """Return the seconds until the next schedule is due. `deferred` are schedules left to other workers."""
    params = {"targets": list(targets), "deferred": list(deferred)}
    return Query("tick/next_due", params, identity)


@statement("tick/due_names", str)
def due_names(
    targets: Sequence[str], deferred: Sequence[str] = (), limit: int = BATCH_SCHEDULES
) -> None: ...


# In one transaction


@statement("tick/set_short_timeouts", no_row)
def set_short_timeouts() -> None: ...


@statement("tick/lock_due", read_locked)
def lock_due(
    targets: Sequence[str],
    deferred: Sequence[str] = (),
    name: str | None = None,
    limit: int = BATCH_SCHEDULES,
) -> Params:
    return {"names": None if name is None else [name]}


@statement("tick/record_outcomes", ScheduleStatus)
def record_outcomes(names: Sequence[str]) -> None: ...


def postpone(reasons: Mapping[str, str | None], seconds: float) -> Query[Any]:
    params = {"names": list(reasons), "reasons": list(reasons.values()), "seconds": seconds}
    return Query("tick/postpone", params, no_row)


def record(
    records: Sequence[TickRecord], process: tuple[str, int], at: datetime | None = None
) -> Query[tuple[str, datetime]]:
    """Record ticks. Return those that were new. `at` is when they were handled; None means now."""
    params = {
        **_columns(records, process, at),
        "numbers": [each.number for each in records],
        "backfilled": [each.backfilled for each in records],
    }
    return Query("tick/record", params, lambda name, tick: (name, tick))


def update_states(
    records: Sequence[TickRecord], process: tuple[str, int], at: datetime
) -> Query[Any]:
    return Query("tick/update_states", _columns(records, process, at), no_row)


def _columns(
    records: Sequence[TickRecord], process: tuple[str, int], at: datetime | None
) -> dict[str, Any]:
    return {
        "at": at,
        "names": [each.schedule for each in records],
        "ticks": [each.tick for each in records],
        "states": [each.state for each in records],
        "reasons": [each.reason for each in records],
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
    return Query("tick/record_runs", params, no_row)


def advance(advances: Sequence[ScheduleAdvance]) -> Query[int]:
    params = {
        "names": [each.schedule.name for each in advances],
        "expected_nexts": [each.schedule.next for each in advances],
        "expected_queueds": [each.schedule.queued for each in advances],
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


@statement("tick/open_ticks", OpenTicks)
def open_ticks(limit: int = BATCH_SCHEDULES) -> None: ...


@statement("tick/lock", str)
def lock(names: Sequence[str]) -> None: ...
