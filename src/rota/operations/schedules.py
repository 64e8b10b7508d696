"""Operations on schedules: list, show, create, update, pause, resume, trigger, backfill, delete."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.errors import ArgumentError, ScheduleNotFound
from rota.model.access import Role
from rota.model.document import Id
from rota.model.schedule_options import CatchUp, Overlap
from rota.model.schedule_view import Schedule, Tick
from rota.model.timetable import load_zone
from rota.operations.declare import OperationContext, OperationGroup
from rota.operations.documents import (
    Cursor,
    Limit,
    Name,
    Next,
    cut_page,
    decode_cursor,
    extend,
)
from rota.operations.run_documents import StartedRun
from rota.store.read import runs as read_runs
from rota.store.read import schedules as read_schedules

group = OperationGroup("schedules")

MAX_TICKS = 20
"""Number of latest ticks shown with a schedule."""

Timestamp = Annotated[datetime, Meta(tz=True, description="With a time zone.")]
Seconds = Annotated[float, Meta(ge=0, le=3.2e9, description="Seconds.")]
Count = Annotated[int, Meta(ge=1, le=2**31 - 1)]
Input = Annotated[dict[str, Any], Meta(description="Arguments by name; an action's config.")]


class ScheduleDocument(Schedule, frozen=True):
    ticks: Annotated[list[Tick], Meta(description="Latest ticks first.")] | UnsetType = UNSET


class ScheduleListQuery(msgspec.Struct, forbid_unknown_fields=True):
    tenant: Name | None = None
    state: Literal["active", "paused", "disabled", "ended"] | None = None
    limit: Limit = 50
    cursor: Cursor | None = None


class TickListQuery(msgspec.Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1000, description="Maximum number of ticks.")] = MAX_TICKS


class SchedulePage(msgspec.Struct, frozen=True):
    schedules: list[ScheduleDocument]
    next: Next | None


class CreateScheduleRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A new schedule: exactly one of `cron`, `every` and `at`, and exactly one of `task` and `action`."""

    name: Name
    task: Annotated[Name, Meta(description="A task, or a flow, of this app.")] | None = None
    action: Name | None = None
    input: Input | None = None
    config: Input | None = None
    tenant: Name | None = None
    cron: Annotated[str, Meta(max_length=200)] | None = None
    every: Seconds | None = None
    at: Timestamp | None = None
    tz: Annotated[str, Meta(max_length=100)] = "UTC"
    overlap: Overlap = "skip"
    catch_up: CatchUp = "latest"
    at_most: Count = 100
    grace: Seconds | None = None
    jitter: Seconds = 0.0
    starts: Timestamp | None = None
    ends: Timestamp | None = None
    max_runs: Count | None = None
    pause_after: Count | None = None
    queue: Name | None = None


class UpdateScheduleRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Fields to change; absent fields keep their values."""

    input: Input | UnsetType | None = UNSET
    config: Input | UnsetType | None = UNSET
    tenant: Name | UnsetType | None = UNSET
    cron: Annotated[str, Meta(max_length=200)] | UnsetType | None = UNSET
    every: Seconds | UnsetType | None = UNSET
    at: Timestamp | UnsetType | None = UNSET
    tz: Annotated[str, Meta(max_length=100)] | UnsetType = UNSET
    overlap: Overlap | UnsetType = UNSET
    catch_up: CatchUp | UnsetType = UNSET
    at_most: Count | UnsetType = UNSET
    grace: Seconds | UnsetType | None = UNSET
    jitter: Seconds | UnsetType = UNSET
    starts: Timestamp | UnsetType | None = UNSET
    ends: Timestamp | UnsetType | None = UNSET
    max_runs: Count | UnsetType | None = UNSET
    pause_after: Count | UnsetType | None = UNSET
    queue: Name | UnsetType | None = UNSET


class BackfillRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A period to backfill. A time without a zone is in the schedule's time zone."""

    start: Annotated[str, Meta(max_length=60, description="Start of the period, as ISO 8601.")]
    end: (
        Annotated[
            str, Meta(max_length=60, description="End of the period, exclusive; default: now.")
        ]
        | None
    ) = None


class BackfillResult(msgspec.Struct, frozen=True):
    runs: list[Id]


class PauseScheduleRequest(msgspec.Struct, forbid_unknown_fields=True):
    reason: Name = "by hand"


@group.operation("GET /schedules", Role.VIEWER)
async def list_schedules(context: OperationContext, query: ScheduleListQuery) -> SchedulePage:
    """List schedules by name."""
    after = decode_cursor(query.cursor)
    [found] = await context.read(
        read_schedules.schedules(
            tenant=query.tenant, state=query.state, after=after, limit=query.limit + 1
        )
    )
    page, next = cut_page(found, query.limit, "name")
    return SchedulePage([extend(ScheduleDocument, each) for each in page], next)


@group.operation("POST /schedules", Role.OPERATOR, status=201, audit="create schedule")
async def create_schedule(
    context: OperationContext, body: CreateScheduleRequest
) -> ScheduleDocument:
    """Create a schedule of a task or a flow of this app, or of an action."""
    await context.app.schedules.create(**msgspec.structs.asdict(body), by=context.caller.name)
    return await _read_schedule(context, body.name)


@group.operation("GET /schedules/{name:path}", Role.VIEWER, refuses=(ScheduleNotFound,))
async def show_schedule(
    context: OperationContext, name: Name, query: TickListQuery
) -> ScheduleDocument:
    """Show a schedule with its latest ticks."""
    return await _read_schedule(context, name, query.limit)


@group.operation(
    "PATCH /schedules/{name:path}",
    Role.OPERATOR,
    audit="update schedule",
    refuses=(ScheduleNotFound,),
)
async def update_schedule(
    context: OperationContext, name: Name, body: UpdateScheduleRequest
) -> ScheduleDocument:
    """Update a schedule that was created at run time."""
    fields = msgspec.structs.asdict(body)
    changes: Any = {key: value for key, value in fields.items() if value is not UNSET}
    await context.app.schedules.update(name, by=context.caller.name, **changes)
    return await _read_schedule(context, name)


@group.operation(
    "DELETE /schedules/{name:path}",
    Role.ADMIN,
    status=204,
    audit="delete schedule",
    refuses=(ScheduleNotFound,),
)
async def delete_schedule(context: OperationContext, name: Name) -> None:
    """Delete a schedule and its ticks. A schedule declared in code must be removed there first, or be
    paused.
    """
    await context.app.schedules.delete(name, by=context.caller.name)


@group.operation(
    "POST /schedules/{name:path}/pause",
    Role.OPERATOR,
    audit="pause schedule",
    refuses=(ScheduleNotFound,),
)
async def pause_schedule(
    context: OperationContext, name: Name, body: PauseScheduleRequest
) -> ScheduleDocument:
    """Pause a schedule until it is resumed. A deploy does not resume it."""
    await context.app.schedules.pause(name, body.reason, by=context.caller.name)
    return await _read_schedule(context, name)


@group.operation(
    "POST /schedules/{name:path}/resume",
    Role.OPERATOR,
    audit="resume schedule",
    refuses=(ScheduleNotFound,),
)
async def resume_schedule(context: OperationContext, name: Name) -> ScheduleDocument:
    """Resume a schedule with its next tick."""
    await context.app.schedules.resume(name, by=context.caller.name)
    return await _read_schedule(context, name)


@group.operation(
    "POST /schedules/{name:path}/trigger",
    Role.OPERATOR,
    status=201,
    audit="trigger schedule",
    refuses=(ScheduleNotFound,),
)
async def trigger_schedule(context: OperationContext, name: Name) -> StartedRun:
    """Start a run of a schedule now, in addition to its ticks."""
    run = await context.app.schedules.trigger(name, by=context.caller.name)
    return StartedRun(run.id, True)


@group.operation(
    "POST /schedules/{name:path}/backfill",
    Role.OPERATOR,
    status=201,
    audit="backfill schedule",
    refuses=(ScheduleNotFound,),
)
async def backfill_schedule(
    context: OperationContext, name: Name, body: BackfillRequest
) -> BackfillResult:
    """Start runs for past ticks that have none. Repeating it is safe: a tick gets at most one run."""
    schedule, [now] = await context.read(
        read_schedules.schedules(name, limit=1), read_runs.database_time()
    )
    tz = schedule[0].tz if schedule else "UTC"
    start = _parse_time(tz, body.start)
    end = now if body.end is None else _parse_time(tz, body.end)
    runs = await context.app.schedules.backfill(name, start, end, by=context.caller.name)
    return BackfillResult([run.id for run in runs])


def _parse_time(tz: str, text: str) -> datetime:
    """Parse a time. It is passed as text because browsers omit seconds that are zero."""
    try:
        found = datetime.fromisoformat(text)
        # OverflowError: the time is outside the calendar in UTC.
        return (found if found.tzinfo else found.replace(tzinfo=load_zone(tz))).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ArgumentError(
            f"{text!r:.80} is no time; 2026-03-01T07:30 and 2026-03-01T07:30Z are"
        ) from None


async def _read_schedule(
    context: OperationContext, name: Name, max_ticks: int = MAX_TICKS
) -> ScheduleDocument:
    found, ticks = await context.read(
        read_schedules.schedules(name, limit=1), read_schedules.ticks(name, max_ticks)
    )
    if not found:
        # get() raises ScheduleNotFound with its usual message.
        return extend(ScheduleDocument, await context.app.schedules.get(name))
    return extend(ScheduleDocument, found[0], ticks=ticks)
