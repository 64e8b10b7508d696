"""Schedule pages: the list, and one schedule with its next and latest ticks."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from rota.errors import ArgumentError
from rota.model.schedule_view import Schedule
from rota.model.timetable import Timetable, load_zone
from rota.operations.declare import OperationContext
from rota.operations.documents import Name
from rota.store.read import runs
from rota.store.read import schedules as read_schedules
from rota.web.dashboard.router import Pages, PageView
from rota.web.responses import HttpError

pages = Pages()

PAGE_SIZE = 50
MAX_TICKS = 50
"""Number of latest ticks shown with a schedule."""


class SchedulesPageQuery(msgspec.Struct, forbid_unknown_fields=True):
    state: Literal["active", "paused", "disabled", "ended"] | None = None
    tenant: Annotated[str, Meta(max_length=200)] | None = None
    prefix: Annotated[str, Meta(max_length=200)] = ""
    after: Annotated[str, Meta(max_length=200)] | None = None


@pages.page("/schedules", title="Schedules")
async def schedules(context: OperationContext, query: SchedulesPageQuery) -> PageView:
    page_query = read_schedules.schedules(
        tenant=query.tenant,
        state=query.state,
        prefix=query.prefix,
        after=query.after,
        limit=PAGE_SIZE + 1,
    )
    [found] = await context.read(page_query)
    page = found[:PAGE_SIZE]
    return PageView(
        "schedules.html",
        query=query,
        is_filtered=bool(query.state or query.tenant or query.prefix or query.after),
        schedules=[(each, describe(each)) for each in page],
        next_after=page[-1].name if len(found) > PAGE_SIZE else None,
    )


@pages.page("/schedules/{name:path}", title="Schedule")
async def schedule(context: OperationContext, name: Name) -> PageView:
    found, ticks, [now] = await context.read(
        read_schedules.schedules(name, limit=1),
        read_schedules.ticks(name, MAX_TICKS),
        runs.database_time(),
    )
    if not found:
        raise HttpError(
            404, "not_found", f"there is no schedule {name!r}; it may have been forgotten"
        )
    [row] = found
    return PageView(
        "schedule.html",
        title=row.name,
        schedule=row,
        description=describe(row),
        next=[(at, local_time(row, at)) for at in row.next],
        ticks=ticks,
        input=format_json(row.input) if context.may_see_payloads else None,
        local_now=local_time(row, now),
    )


def describe(schedule: Schedule) -> str:
    """Return the timetable as text, or "" if this machine cannot evaluate it (for example an unknown time
    zone).
    """
    try:
        timetable = Timetable(schedule.cron, schedule.tz, schedule.every, schedule.at)
        text = timetable.describe()
    except ArgumentError:
        return ""
    # The page shows the zone separately.
    return text.removesuffix(f" ({schedule.tz})")


def local_time(schedule: Schedule, at: datetime) -> str:
    """Return a time in the schedule's zone, with the UTC offset, which distinguishes the repeated hour."""
    try:
        local = at.astimezone(load_zone(schedule.tz))
    except ArgumentError:
        return ""
    return local.strftime("%a %Y-%m-%d %H:%M:%S %z")


def format_json(document: Any) -> str:
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()
