"""Schedules: what the clock starts and when; and one of them, with its next ticks and its last ones."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rota.errors import ArgumentError
from rota.model.agenda import Schedule
from rota.model.timetable import Timetable, zone
from rota.store import agenda, views
from rota.web.answers import Refused
from rota.web.api.operations import Desk
from rota.web.api.shapes import Name
from rota.web.dashboard.pages import Pages, View

table = Pages()

PAGE = 50
TICKS = 50
"""The last ones, that are shown with a schedule."""


class SchedulesQuery(msgspec.Struct, forbid_unknown_fields=True):
    state: Literal["active", "paused", "disabled", "ended"] | None = None
    tenant: Annotated[str, Meta(max_length=200)] | None = None
    begins: Annotated[str, Meta(max_length=200)] = ""
    after: Annotated[str, Meta(max_length=200)] | None = None


@table.page("/schedules", title="Schedules")
async def schedules(desk: Desk, query: SchedulesQuery) -> View:
    asked = agenda.schedules(
        tenant=query.tenant,
        state=query.state,
        begins=query.begins,
        after=query.after,
        limit=PAGE + 1,
    )
    [found] = await desk.ask(asked)
    page = found[:PAGE]
    return View(
        "schedules.html",
        query=query,
        narrowed=bool(query.state or query.tenant or query.begins or query.after),
        schedules=[(each, words(each)) for each in page],
        shows=desk.shows,
        rest=page[-1].name if len(found) > PAGE else None,
    )


@table.page("/schedules/{name:path}", title="Schedule")
async def schedule(desk: Desk, name: Name) -> View:
    found, ticks, [now] = await desk.ask(
        agenda.schedules(name, limit=1), agenda.ticks(name, TICKS), views.clock()
    )
    if not found:
        raise Refused(
            404, "not_found", f"there is no schedule {name!r}; it may have been forgotten"
        )
    [it] = found
    return View(
        "schedule.html",
        title=it.name,
        schedule=it,
        words=words(it),
        next=[(at, in_zone(it, at)) for at in it.next],
        ticks=ticks,
        shows=desk.shows,
        input=pretty(it.input) if desk.shows else None,
        here=in_zone(it, now),
    )


def words(schedule: Schedule) -> str:
    """When it comes, for people; nothing where this machine cannot read it."""
    try:
        timetable = Timetable(schedule.cron, schedule.tz, schedule.every, schedule.at)
        said = timetable.words()
    except ArgumentError:
        return ""
    # The zone stands beside it.
    return said.removesuffix(f" ({schedule.tz})")


def in_zone(schedule: Schedule, at: datetime) -> str:
    """A time as clocks show it where the schedule is, with the difference from UTC: of an hour that comes
    twice it says which."""
    try:
        there = at.astimezone(zone(schedule.tz))
    except ArgumentError:
        return ""
    return there.strftime("%a %Y-%m-%d %H:%M:%S %z")


def pretty(document: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
