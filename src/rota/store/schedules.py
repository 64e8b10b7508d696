"""Schedules as they are defined, by code and by people; what becomes of them is in `ticks`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from rota.model.schedule import SchedulePolicy
from rota.model.schedule_view import ACTION_PREFIX
from rota.model.timetable import Timetable
from rota.store.query import Query


class ScheduleDefinition(msgspec.Struct, frozen=True):
    """How a schedule is defined."""

    name: str
    declared: bool
    kind: str
    target: str
    input: bytes
    tenant: str | None
    cron: str | None
    tz: str
    every: float | None
    at: datetime | None
    overlap: Any
    catch_up: Any
    at_most: int
    grace: float | None
    jitter: float
    starts: datetime | None
    ends: datetime | None
    max_runs: int | None
    pause_after: int | None
    queue: str | None

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
            self.starts,
            self.ends,
            self.max_runs,
            self.pause_after,
        )

    def params(self) -> dict[str, Any]:
        values = msgspec.structs.asdict(self)
        return {**values, "input": self.input.decode()}

    def has_same_times(self, other: ScheduleDefinition) -> bool:
        """Whether both come at the same times, apart from how long."""
        own_times = (self.cron, self.tz, self.every, self.at, self.starts)
        return own_times == (other.cron, other.tz, other.every, other.at, other.starts)

    def has_same_end(self, other: ScheduleDefinition) -> bool:
        return (self.ends, self.max_runs) == (other.ends, other.max_runs)

    def is_equal(self, other: ScheduleDefinition) -> bool:
        without = msgspec.structs.replace
        same = without(self, input=b"") == without(other, input=b"")
        return same and _canonical(self.input) == _canonical(other.input)


def _canonical(document: bytes) -> bytes:
    """Not as values: 1 and true are the same to Python."""
    return msgspec.json.encode(msgspec.json.decode(document), order="sorted")


class LockedSchedule(msgspec.Struct, frozen=True):
    """A schedule under lock: its definition, and where it is."""

    definition: ScheduleDefinition
    state: str
    reason: str | None
    paused_reason: str | None
    anchor: datetime
    next: datetime | None
    due: datetime | None
    queued: datetime | None
    ticks: int
    runs: int
    now: datetime


FIELD_COUNT = len(ScheduleDefinition.__struct_fields__)


def _read_locked(*row: Any) -> LockedSchedule:
    return LockedSchedule(ScheduleDefinition(*row[:FIELD_COUNT]), *row[FIELD_COUNT:])


def declared(
    names: Sequence[str], targets: Sequence[str], worker: int | None
) -> Query[tuple[ScheduleDefinition, str, bool]]:
    """Definitions and states, of these names and of what code has declared for these targets; and of each
    whether it is another worker's to see to."""
    params = {"names": list(names), "targets": list(targets), "worker": worker}
    return Query(
        "schedule/declared", params, lambda *row: (ScheduleDefinition(*row[:-2]), *row[-2:])
    )


def is_declared(name: str) -> Query[bool]:
    """By the code of anybody who is there."""
    return Query("schedule/declaring", {"name": name}, bool)


def create(
    definition: ScheduleDefinition, anchor: datetime, next: datetime | None, due: datetime | None
) -> Query[bool]:
    params = {**definition.params(), "anchor": anchor, "next": next, "due": due}
    return Query("schedule/put", params, bool)


def lock(names: Sequence[str]) -> Query[LockedSchedule]:
    return Query("schedule/lock", {"names": list(names)}, _read_locked)


def replace(
    definition: ScheduleDefinition,
    anchor: datetime,
    next: datetime | None,
    due: datetime | None,
    state: str,
    reason: str | None,
) -> Query[Any]:
    params = {
        **definition.params(),
        "anchor": anchor,
        "next": next,
        "due": due,
        "state": state,
        "why": reason,
    }
    return Query("schedule/replace", params, lambda: None)


def set_state(
    name: str, state: str, reason: str | None, next: datetime | None, due: datetime | None
) -> Query[Any]:
    params = {"name": name, "state": state, "why": reason, "next": next, "due": due}
    return Query("schedule/change", params, lambda: None)


def disable(names: Sequence[str]) -> Query[str]:
    return Query("schedule/disable", {"names": list(names)}, str)


def delete(name: str) -> Query[bool]:
    return Query("schedule/delete", {"name": name}, bool)


def record_manual_start(name: str, ticks: int, run: int | None) -> Query[Any]:
    return Query("schedule/touch", {"name": name, "ticks": ticks, "run": run}, lambda: None)


class RecordedTicks(msgspec.Struct, frozen=True):
    ticks: list[datetime]
    """Those of a time that have had a run, or wait for one."""
    forgotten_until: datetime | None
    """Until when there may have been others; None: there were none."""


def recorded_ticks(name: str, begin: datetime, end: datetime) -> Query[RecordedTicks]:
    return Query("schedule/known", {"name": name, "begin": begin, "end": end}, RecordedTicks)


class UnstartableSchedule(msgspec.Struct, frozen=True):
    """A schedule that nobody can start."""

    name: str
    kind: str
    target: str

    @property
    def target_label(self) -> str:
        return f"{self.kind} {self.target.removeprefix(ACTION_PREFIX)!r}"


def unstartable(targets: Sequence[str]) -> Query[UnstartableSchedule]:
    return Query("schedule/strangers", {"targets": list(targets)}, UnstartableSchedule)
