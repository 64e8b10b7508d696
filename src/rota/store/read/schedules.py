"""Read-only queries about schedules and their ticks."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.errors import ArgumentError
from rota.model.schedule_view import ACTION_PREFIX, Schedule, Tick, upcoming_ticks
from rota.model.timetable import Timetable
from rota.store.query import MAX_CHARACTER, Params, statement

TICK_FIELD_COUNT = len(Tick.__struct_fields__)


def _read_schedule(*row: Any) -> Schedule:
    columns, position, last = (
        row[: -TICK_FIELD_COUNT - 3],
        row[-TICK_FIELD_COUNT - 3 : -TICK_FIELD_COUNT],
        row[-TICK_FIELD_COUNT:],
    )
    anchor, next, runs_left = position
    fields = dict(zip(_SCHEDULE_FIELDS, columns, strict=True))
    if fields["kind"] == "action":
        fields["target"] = fields["target"].removeprefix(ACTION_PREFIX)
    fields["input"] = msgspec.json.decode(fields["input"])
    return Schedule(
        **fields,
        next=_next_ticks(fields, anchor, next, runs_left),
        last=None if last[0] is None else Tick(*last),
    )


_SCHEDULE_FIELDS = [name for name in Schedule.__struct_fields__ if name not in ("next", "last")]


def _next_ticks(
    fields: dict[str, Any], anchor: datetime, next: datetime | None, runs_left: int | None
) -> list[datetime]:
    if fields["state"] != "active":
        return []
    try:
        timetable = Timetable(fields["cron"], fields["tz"], fields["every"], fields["at"])
    except ArgumentError:
        return []  # a timetable that this machine cannot parse is still listed
    return upcoming_ticks(timetable, anchor, next, fields["ends"], runs_left)


@statement("view/schedules", _read_schedule)
def schedules(
    name: str | None = None,
    *,
    tenant: str | None = None,
    state: str | None = None,
    prefix: str = "",
    after: str | None = None,
    limit: int = 1000,
) -> Params:
    """Return schedules by name: one, or those with a prefix, after a name."""
    return {"prefix_end": prefix + MAX_CHARACTER}


@statement("view/ticks", Tick)
def ticks(name: str, limit: int) -> None:
    """Return the latest ticks, newest first."""
