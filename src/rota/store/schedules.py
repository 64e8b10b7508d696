"""Queries for schedule definitions, by code or by operators. Ticks are in `ticks`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

import msgspec

from rota.model.schedule import SchedulePosition
from rota.model.schedule_options import SchedulePolicy
from rota.model.schedule_view import ACTION_PREFIX, ScheduleFields
from rota.model.timetable import Timetable
from rota.store.query import Params, Query, no_row, statement

POLICY_FIELDS = fields(SchedulePolicy)


class ScheduleDefinition(ScheduleFields, frozen=True):
    """Definition of a schedule as it is stored: durations in seconds, times in UTC, the input as JSON."""

    input: bytes

    @property
    def timetable(self) -> Timetable:
        return Timetable(self.cron, self.tz, self.every, self.at)

    @property
    def policy(self) -> SchedulePolicy:
        values: dict[str, Any] = {each.name: getattr(self, each.name) for each in POLICY_FIELDS}
        return SchedulePolicy(**values)

    def params(self) -> dict[str, Any]:
        values = msgspec.structs.asdict(self)
        return {**values, "input": self.input.decode()}

    def has_same_times(self, other: ScheduleDefinition) -> bool:
        """True if both have the same times, not counting their end."""
        own_times = (self.cron, self.tz, self.every, self.at, self.starts)
        return own_times == (other.cron, other.tz, other.every, other.at, other.starts)

    def has_same_end(self, other: ScheduleDefinition) -> bool:
        return (self.ends, self.max_runs) == (other.ends, other.max_runs)

    def is_equal(self, other: ScheduleDefinition) -> bool:
        without = msgspec.structs.replace
        same = without(self, input=b"") == without(other, input=b"")
        return same and _canonical(self.input) == _canonical(other.input)


def _canonical(document: bytes) -> bytes:
    """Return JSON with sorted keys. Decoded values would not do: 1 equals True in Python."""
    return msgspec.json.encode(msgspec.json.decode(document), order="sorted")


class LockedSchedule(msgspec.Struct, frozen=True):
    """Locked schedule: its definition, its state and its position."""

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
    run: int | None
    now: datetime

    @property
    def name(self) -> str:
        return self.definition.name

    def position(self, has_open_run: bool = False) -> SchedulePosition:
        return SchedulePosition(self.next, self.anchor, self.queued, self.runs, has_open_run)


FIELD_COUNT = len(ScheduleDefinition.__struct_fields__)


def read_locked(*row: Any) -> LockedSchedule:
    return LockedSchedule(ScheduleDefinition(*row[:FIELD_COUNT]), *row[FIELD_COUNT:])


def declared(
    names: Sequence[str], targets: Sequence[str], worker: int | None
) -> Query[tuple[ScheduleDefinition, str, bool]]:
    """Return definitions and states, and for each True if another worker must handle it.

    Includes these names, and all that code has declared for these targets.
    """
    params = {"names": list(names), "targets": list(targets), "worker": worker}
    return Query(
        "schedule/declared", params, lambda *row: (ScheduleDefinition(*row[:-2]), *row[-2:])
    )


@statement("schedule/is_declared", bool)
def is_declared(name: str) -> None:
    """Return True if the code of a registered worker declares the schedule."""


@statement("schedule/create", bool)
def create(
    definition: ScheduleDefinition, anchor: datetime, next: datetime | None, due: datetime | None
) -> Params:
    return definition.params()


@statement("schedule/lock", read_locked)
def lock(names: Sequence[str]) -> None: ...


@statement("schedule/replace", no_row)
def replace(
    definition: ScheduleDefinition,
    anchor: datetime,
    next: datetime | None,
    due: datetime | None,
    state: str,
    reason: str | None,
) -> Params:
    return definition.params()


@statement("schedule/set_state", no_row)
def set_state(
    name: str, state: str, reason: str | None, next: datetime | None, due: datetime | None
) -> None: ...


@statement("schedule/disable", str)
def disable(names: Sequence[str]) -> None: ...


@statement("schedule/delete", bool)
def delete(name: str) -> None: ...


@statement("schedule/record_manual_start", no_row)
def record_manual_start(name: str, ticks: int, run: int | None) -> None: ...


class RecordedTicks(msgspec.Struct, frozen=True):
    ticks: list[datetime]
    """Ticks of the interval that have a run or wait for one."""
    forgotten_until: datetime | None
    """Time before which records of ticks may have been removed; None if none were."""


@statement("schedule/recorded_ticks", RecordedTicks)
def recorded_ticks(name: str, begin: datetime, end: datetime) -> None: ...


class UnstartableSchedule(msgspec.Struct, frozen=True):
    """Due schedule whose target is known neither here nor to an active worker."""

    name: str
    kind: str
    target: str

    @property
    def target_label(self) -> str:
        return f"{self.kind} {self.target.removeprefix(ACTION_PREFIX)!r}"


@statement("schedule/unstartable", UnstartableSchedule)
def unstartable(targets: Sequence[str]) -> None: ...
