"""Schedules over HTTP: list, show, make, change, pause, resume, start by hand, forget."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.model import agenda as model
from rota.model.access import Role
from rota.model.schedule import CatchUp, Overlap
from rota.model.timetable import zone
from rota.store import agenda, views
from rota.web.answers import Refused
from rota.web.api.operations import Desk, Table
from rota.web.api.run_documents import Started
from rota.web.api.shapes import Cursor, Id, Limit, Name, Next, Stored, cursor, place, shape

table = Table("schedules")

TICKS = 20
"""The last ones, that are shown with a schedule."""

Moment = Annotated[datetime, Meta(tz=True, description="With a time zone.")]
Seconds = Annotated[float, Meta(ge=0, le=3.2e9, description="Seconds.")]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Input = Annotated[dict[str, Any], Meta(description="Arguments by name; an action's config.")]


class Tick(msgspec.Struct, frozen=True):
    planned: datetime
    state: str
    why: str | None
    backfilled: bool
    seen: datetime
    host: str
    pid: int
    run: Id | None
    outcome: str | None
    ended: datetime | None


class Schedule(msgspec.Struct, frozen=True):
    name: str
    declared: Annotated[bool, Meta(description="In code; else it was made at run time.")]
    kind: Annotated[str, Meta(description="task, flow or action.")]
    target: Annotated[str, Meta(description="The name of that.")]
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
    state: Annotated[str, Meta(description="active, paused, disabled or ended.")]
    why: str | None
    created: datetime
    next: Annotated[list[datetime], Meta(description="The next ticks of an active one.")]
    last: Tick | None
    last_success: datetime | None
    last_failure: datetime | None
    failures: int
    runs: int
    missed: int
    known: Annotated[bool, Meta(description="A worker is there that knows what it starts.")]
    ticks: Annotated[list[Tick], Meta(description="The last first.")] | UnsetType = UNSET
    input: Stored = UNSET


class SchedulesQuery(msgspec.Struct, forbid_unknown_fields=True):
    tenant: Name | None = None
    state: Literal["active", "paused", "disabled", "ended"] | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class SchedulePage(msgspec.Struct, frozen=True):
    schedules: list[Schedule]
    next: Next | None


class NewSchedule(msgspec.Struct, forbid_unknown_fields=True):
    """When: one of `cron`, `every` and `at`. What: one of `task` and `action`."""

    name: Name
    task: Annotated[Name, Meta(description="A task, or a flow, of this app.")] | None = None
    action: Name | None = None
    input: Input | None = None
    config: Input | None = None
    tenant: Name | None = None
    cron: Annotated[str, Meta(max_length=200)] | None = None
    every: Seconds | None = None
    at: Moment | None = None
    tz: Annotated[str, Meta(max_length=100)] = "UTC"
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    at_most: Count = 100
    grace: Seconds | None = None
    jitter: Seconds = 0.0
    starts: Moment | None = None
    ends: Moment | None = None
    max_runs: Count | None = None
    pause_after: Count | None = None
    queue: Name | None = None


class ScheduleChanges(msgspec.Struct, forbid_unknown_fields=True):
    """What is said is changed, the rest stays."""

    input: Input | UnsetType | None = UNSET
    config: Input | UnsetType | None = UNSET
    tenant: Name | UnsetType | None = UNSET
    cron: Annotated[str, Meta(max_length=200)] | UnsetType | None = UNSET
    every: Seconds | UnsetType | None = UNSET
    at: Moment | UnsetType | None = UNSET
    tz: Annotated[str, Meta(max_length=100)] | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    at_most: Count | UnsetType = UNSET
    grace: Seconds | UnsetType | None = UNSET
    jitter: Seconds | UnsetType = UNSET
    starts: Moment | UnsetType | None = UNSET
    ends: Moment | UnsetType | None = UNSET
    max_runs: Count | UnsetType | None = UNSET
    pause_after: Count | UnsetType | None = UNSET
    queue: Name | UnsetType | None = UNSET


class Backfill(msgspec.Struct, forbid_unknown_fields=True):
    """A time without a zone is one of the schedule's own."""

    start: Annotated[str, Meta(max_length=60, description="The first time: ISO 8601.")]
    end: Annotated[str, Meta(max_length=60, description="Until before then; else now.")] | None = (
        None
    )


class Backfilled(msgspec.Struct, frozen=True):
    runs: list[Id]


class Pause(msgspec.Struct, forbid_unknown_fields=True):
    why: Name = "by hand"


@table.add("GET", "/schedules", Role.VIEWER)
async def list_schedules(desk: Desk, query: SchedulesQuery) -> SchedulePage:
    """Schedules by name."""
    after = place(query.cursor)
    [found] = await desk.ask(
        agenda.schedules(tenant=query.tenant, state=query.state, after=after, limit=query.limit + 1)
    )
    page = [_schedule(desk, each) for each in found[: query.limit]]
    return SchedulePage(page, cursor(page[-1].name) if len(found) > query.limit else None)


@table.add("POST", "/schedules", Role.OPERATOR, status=201)
async def create_schedule(desk: Desk, body: NewSchedule) -> Schedule:
    """Make a schedule of a task or a flow of this app, or of an action."""
    await desk.app.schedules.create(**msgspec.structs.asdict(body), by=desk.caller.name)
    return await _show(desk, body.name)


@table.add("GET", "/schedules/{name:path}", Role.VIEWER, fails=(404,))
async def show_schedule(desk: Desk, name: Name) -> Schedule:
    """One schedule, with its last ticks."""
    return await _show(desk, name)


@table.add("PATCH", "/schedules/{name:path}", Role.OPERATOR, fails=(404,))
async def update_schedule(desk: Desk, name: Name, body: ScheduleChanges) -> Schedule:
    """Change a schedule that was made at run time."""
    said = msgspec.structs.asdict(body)
    changes: Any = {key: value for key, value in said.items() if value is not UNSET}
    await desk.app.schedules.update(name, by=desk.caller.name, **changes)
    return await _show(desk, name)


@table.add("DELETE", "/schedules/{name:path}", Role.ADMIN, status=204, fails=(404,))
async def delete_schedule(desk: Desk, name: Name) -> None:
    """Forget it and its ticks. What code declares has to go from there first, or be paused."""
    await desk.app.schedules.delete(name, by=desk.caller.name)


@table.add("POST", "/schedules/{name:path}/pause", Role.OPERATOR, fails=(404,))
async def pause_schedule(desk: Desk, name: Name, body: Pause) -> Schedule:
    """Start nothing until it is resumed; deploys do not change that."""
    await desk.app.schedules.pause(name, body.why, by=desk.caller.name)
    return await _show(desk, name)


@table.add("POST", "/schedules/{name:path}/resume", Role.OPERATOR, fails=(404,))
async def resume_schedule(desk: Desk, name: Name) -> Schedule:
    """Go on with the next tick."""
    await desk.app.schedules.resume(name, by=desk.caller.name)
    return await _show(desk, name)


@table.add("POST", "/schedules/{name:path}/trigger", Role.OPERATOR, status=201, fails=(404,))
async def trigger_schedule(desk: Desk, name: Name) -> Started:
    """Start a run of it now, besides those of its ticks."""
    run = await desk.app.schedules.trigger(name, by=desk.caller.name)
    return Started(str(run.id), True)


@table.add("POST", "/schedules/{name:path}/backfill", Role.OPERATOR, status=201, fails=(404,))
async def backfill_schedule(desk: Desk, name: Name, body: Backfill) -> Backfilled:
    """Start runs for ticks of a time that is over, where they had none. It can be done again: what has had
    a run gets no other."""
    schedule, [now] = await desk.ask(agenda.schedules(name, limit=1), views.clock())
    tz = schedule[0].tz if schedule else "UTC"
    start = _moment(tz, body.start)
    end = now if body.end is None else _moment(tz, body.end)
    runs = await desk.app.schedules.backfill(name, start, end, by=desk.caller.name)
    return Backfilled([str(run.id) for run in runs])


def _moment(tz: str, text: str) -> datetime:
    """As text, since browsers leave out seconds that are none."""
    try:
        found = datetime.fromisoformat(text)
        # Also: one that has no place in the calendar of UTC.
        return (found if found.tzinfo else found.replace(tzinfo=zone(tz))).astimezone(UTC)
    except (ValueError, OverflowError):
        raise Refused(
            422, "invalid", f"{text!r:.80} is no time; 2026-03-01T07:30 and 2026-03-01T07:30Z are"
        ) from None


async def _show(desk: Desk, name: Name) -> Schedule:
    found, ticks = await desk.ask(agenda.schedules(name, limit=1), agenda.ticks(name, TICKS))
    if not found:
        # In the words that it always has.
        return _schedule(desk, await desk.app.schedules.get(name))
    return _schedule(desk, found[0], ticks=[_tick(desk, each) for each in ticks])


def _schedule(desk: Desk, row: model.Schedule, **more: Any) -> Schedule:
    last = None if row.last is None else _tick(desk, row.last)
    input = msgspec.Raw(msgspec.json.encode(row.input)) if desk.shows else UNSET
    why = row.why if desk.shows else None
    return shape(Schedule, row, last=last, input=input, why=why, **more)


def _tick(desk: Desk, row: model.Tick) -> Tick:
    """Why one was refused may quote what it was to be started with."""
    return shape(Tick, row, why=row.why if desk.shows else None)
