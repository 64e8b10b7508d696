"""Questions about schedules and their ticks, read-only."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from rota.errors import ArgumentError
from rota.model.agenda import ACTION, Schedule, Tick, upcoming
from rota.model.timetable import Timetable
from rota.store.query import LAST, Query

TICK = len(Tick.__struct_fields__)


def schedules(
    name: str | None = None,
    *,
    tenant: str | None = None,
    state: str | None = None,
    begins: str = "",
    after: str | None = None,
    limit: int = 1000,
) -> Query[Schedule]:
    """By name: one, or those that begin so, after a name."""
    params = {
        "name": name,
        "tenant": tenant,
        "state": state,
        "first": begins,
        "beyond": begins + LAST,
        "after": after,
        "limit": limit,
    }
    return Query("view/schedules", params, _schedule)


def ticks(name: str, limit: int) -> Query[Tick]:
    """The last ones, the last first."""
    return Query("view/ticks", {"name": name, "limit": limit}, Tick)


def _schedule(*row: Any) -> Schedule:
    told, rest, last = row[: -TICK - 3], row[-TICK - 3 : -TICK], row[-TICK:]
    anchor, next, runs_left = rest
    fields = dict(zip(_NAMES, told, strict=True))
    if fields["kind"] == "action":
        fields["target"] = fields["target"].removeprefix(ACTION)
    fields["input"] = msgspec.json.decode(fields["input"])
    return Schedule(
        **fields,
        next=_next(fields, anchor, next, runs_left),
        last=None if last[0] is None else Tick(*last),
    )


_NAMES = [name for name in Schedule.__struct_fields__ if name not in ("next", "last")]


def _next(
    fields: dict[str, Any], anchor: datetime, next: datetime | None, left: int | None
) -> list[datetime]:
    if fields["state"] != "active":
        return []
    try:
        timetable = Timetable(fields["cron"], fields["tz"], fields["every"], fields["at"])
    except ArgumentError:
        return []  # what this machine cannot read is still shown
    return upcoming(timetable, anchor, next, fields["ends"], left)
