"""Changes of schedules by code and by operators: declare, create, update, pause, resume, delete.

Each is one transaction under the schedule's lock. The scheduler skips locked schedules, so it fires no
tick that is about to change. Several schedules are locked in the order of their names.
"""

from __future__ import annotations

import logging
import os
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from rota.engine.audited import run_audited
from rota.errors import ArgumentError, ScheduleNotFound
from rota.model.schedule import first_tick, is_ahead_of_clock
from rota.store import pg_errors, schedules, ticks
from rota.store.audit import AuditEntry
from rota.store.database import Database, run
from rota.store.read import runs
from rota.store.schedules import LockedSchedule, ScheduleDefinition
from rota.store.ticks import TickRecord

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

log = logging.getLogger("rota")


# By code


async def declare(
    database: Database,
    definitions: Sequence[ScheduleDefinition],
    targets: Sequence[str],
    worker: int | None = None,
) -> None:
    """Write the schedules that the code declares, and disable those that no code declares any more.

    Any number of instances may do so at once; if nothing has changed, nothing is locked.

    Before a worker starts (`worker` is None), its own code decides. Later the code of the youngest live
    worker decides, so that a worker that started and stopped again has no lasting effect. While any
    worker declares a schedule, no other disables it.
    """
    declared = {each.name: each for each in sorted(definitions, key=lambda each: each.name)}
    found = await database.run_with_retry(schedules.declared(list(declared), targets, worker))
    new = [name for name in declared if name not in {each.name for each, *_ in found}]
    changed = [
        each.name
        for each, state, declared_elsewhere in found
        if not declared_elsewhere
        and (each.name not in declared or not _is_unchanged(declared[each.name], each, state))
    ]
    if not new and not changed:
        return

    async def declaring(connection: PgConnection) -> list[str]:
        [now] = await run(connection, runs.database_time(), database.schema)
        found = list(changed)
        for name in new:
            if not await _insert(connection, database.schema, declared[name], now):
                # Another instance created it meanwhile, perhaps with another definition.
                found.append(name)
        undeclared = []
        for locked in await run(connection, schedules.lock(found), database.schema):
            if definition := declared.get(locked.name):
                await _redefine(connection, database.schema, locked, definition)
            elif locked.definition.declared and locked.definition.target in targets:
                undeclared.append(locked.name)
                await _skip_queued_tick(connection, database.schema, locked, "disabled")
        return (
            await run(connection, schedules.disable(undeclared), database.schema)
            if undeclared
            else []
        )

    for name in await run_audited(database, declaring, may_retry=pg_errors.may_pass):
        log.info("schedule %r is disabled: the code does not declare it any more", name)


async def _insert(
    connection: PgConnection, schema: str, definition: ScheduleDefinition, now: datetime
) -> bool:
    anchor = _anchor(definition, now)
    next = first_tick(definition.timetable, definition.policy, now, anchor)
    query = schedules.create(definition, anchor, next, _due(definition, next))
    [inserted] = await run(connection, query, schema)
    return bool(inserted)


def _is_unchanged(definition: ScheduleDefinition, found: ScheduleDefinition, state: str) -> bool:
    return state != "disabled" and definition.is_equal(found)


async def _redefine(
    connection: PgConnection, schema: str, locked: LockedSchedule, definition: ScheduleDefinition
) -> None:
    previous, state, reason = locked.definition, locked.state, locked.reason
    if _is_unchanged(definition, previous, state):
        return
    if definition.declared and not previous.declared:
        log.warning("schedule %r was made at run time; the code declares it now", definition.name)
    anchor, next, due = locked.anchor, locked.next, locked.due
    reschedule = _must_reschedule(definition, locked)
    if not definition.has_same_times(previous):
        anchor = _anchor(definition, locked.now)
    if state == "disabled":
        reason = locked.paused_reason
        state = "active" if reason is None else "paused"
    if reschedule:
        next = _first_allowed_tick(definition, locked, anchor)
        if state in ("active", "ended"):
            state = "ended" if next is None and locked.queued is None else "active"
    if reschedule or reason is not None:
        # A queued tick waits for a run to end, not for a time.
        due = _due(definition, next) if locked.queued is None else locked.now
    if state in ("active", "ended"):
        reason = None  # its cause may be gone
    await run(connection, schedules.replace(definition, anchor, next, due, state, reason), schema)


def _must_reschedule(definition: ScheduleDefinition, locked: LockedSchedule) -> bool:
    """True if the next tick must be computed again."""
    if locked.state == "disabled" or not definition.has_same_times(locked.definition):
        return True
    return not definition.has_same_end(locked.definition) and (
        locked.next is None
        or is_past_end(definition, locked.next)
        or _has_reached_max_runs(definition, locked)
    )


def is_past_end(definition: ScheduleDefinition, tick: datetime) -> bool:
    return definition.ends is not None and tick > definition.ends


def _has_reached_max_runs(definition: ScheduleDefinition, locked: LockedSchedule) -> bool:
    """True if the schedule has had as many runs as it may have."""
    return definition.max_runs is not None and locked.runs >= definition.max_runs


def _first_allowed_tick(
    definition: ScheduleDefinition, locked: LockedSchedule, anchor: datetime
) -> datetime | None:
    if _has_reached_max_runs(definition, locked):
        return None
    return first_tick(definition.timetable, definition.policy, locked.now, anchor)


def _anchor(definition: ScheduleDefinition, now: datetime) -> datetime:
    """Return the time from which `every` is counted."""
    return definition.starts or now


def _due(definition: ScheduleDefinition, next: datetime | None) -> datetime | None:
    if next is None or not definition.jitter:
        return next
    return next + timedelta(seconds=definition.jitter * random.random())


# By operators


async def create(
    database: Database, definition: ScheduleDefinition, audit_entry: AuditEntry | None = None
) -> bool:
    """Create a schedule. Return False if there is one with that name."""

    async def creating(connection: PgConnection) -> bool:
        [now] = await run(connection, runs.database_time(), database.schema)
        if (
            first_tick(definition.timetable, definition.policy, now, _anchor(definition, now))
            is None
        ):
            reason = "there is no such time after its start"
            if definition.ends is not None:
                reason = "it ends before its first tick"
            raise ArgumentError(f"schedule {definition.name!r} would never come: {reason}")
        return await _insert(connection, database.schema, definition, now)

    return await run_audited(database, creating, audit_entry=audit_entry, was_done=bool)


async def update(
    database: Database,
    name: str,
    changes: Mapping[str, Any],
    check: Callable[[ScheduleDefinition], object],
    audit_entry: AuditEntry | None = None,
) -> None:
    async def updating(connection: PgConnection) -> None:
        locked = await lock_schedule(connection, database.schema, name)
        if locked.definition.declared:
            raise ArgumentError(
                f"schedule {name!r} is declared in code, so it is changed there; at run time it can be "
                "paused and resumed"
            )
        definition = msgspec.structs.replace(locked.definition, **changes)
        check(definition)
        await _redefine(connection, database.schema, locked, definition)

    await run_audited(database, updating, may_retry=pg_errors.may_pass, audit_entry=audit_entry)


async def pause(
    database: Database, name: str, reason: str, audit_entry: AuditEntry | None = None
) -> None:
    async def pausing(connection: PgConnection) -> None:
        locked = await lock_schedule(connection, database.schema, name)
        if locked.state in ("ended", "disabled"):
            raise ArgumentError(
                f"schedule {name!r} {_inactive_reason(locked)}: there is nothing to pause"
            )
        query = schedules.set_state(name, "paused", reason, locked.next, locked.due)
        await run(connection, query, database.schema)
        await _skip_queued_tick(connection, database.schema, locked, "paused")

    await run_audited(database, pausing, may_retry=pg_errors.may_pass, audit_entry=audit_entry)


async def _skip_queued_tick(
    connection: PgConnection, schema: str, locked: LockedSchedule, state: str
) -> None:
    """Mark a tick as skipped that was queued behind the run before it."""
    if locked.queued is not None:
        name = locked.name
        record = TickRecord(name, locked.queued, 0, "skipped", f"the schedule was {state}")
        process = (socket.gethostname(), os.getpid())
        await run(connection, ticks.update_states([record], process, locked.now), schema)


async def resume(database: Database, name: str, audit_entry: AuditEntry | None = None) -> None:
    """Continue with the next tick after now. Ticks missed during the pause are not made up.

    A schedule that is ahead of the clock, because the clock was set back, also continues from now.
    """

    async def resuming(connection: PgConnection) -> bool:
        locked = await lock_schedule(connection, database.schema, name)
        definition = locked.definition
        if locked.state == "active" and not is_ahead_of_clock(
            definition.timetable, definition.policy, locked.position(), locked.now
        ):
            return False
        if locked.state == "disabled":
            raise ArgumentError(
                f"schedule {name!r} {_inactive_reason(locked)}; declare it again, or make one at "
                "run time under "
                "another name"
            )
        next = _first_allowed_tick(definition, locked, locked.anchor)
        if locked.state == "ended" or next is None:
            raise ArgumentError(
                f"schedule {name!r} has ended: nothing comes after it; give it other times, a later end "
                "or more runs"
            )
        query = schedules.set_state(name, "active", None, next, _due(definition, next))
        await run(connection, query, database.schema)
        return True

    await run_audited(
        database, resuming, may_retry=pg_errors.may_pass, audit_entry=audit_entry, was_done=bool
    )


def _inactive_reason(locked: LockedSchedule) -> str:
    return "has ended" if locked.state == "ended" else f"is disabled ({locked.reason})"


async def delete(database: Database, name: str, audit_entry: AuditEntry | None = None) -> None:
    attempted = False

    async def deleting(connection: PgConnection) -> bool:
        nonlocal attempted
        found = await run(connection, schedules.lock([name]), database.schema)
        if not found and not attempted:
            raise not_found(name)
        [declared] = await run(connection, schedules.is_declared(name), database.schema)
        if declared:
            raise ArgumentError(
                f"schedule {name!r} is declared in the code of a live worker, and the next worker would "
                "create it again; remove it from the code first, or pause it"
            )
        # the delete may have committed although its answer was lost; the next attempt then finds no row
        attempted = True
        [deleted] = await run(connection, schedules.delete(name), database.schema)
        return deleted

    await run_audited(
        database, deleting, may_retry=pg_errors.may_pass, audit_entry=audit_entry, was_done=bool
    )


async def lock_schedule(connection: PgConnection, schema: str, name: str) -> LockedSchedule:
    rows = await run(connection, schedules.lock([name]), schema)
    if not rows:
        raise not_found(name)
    return rows[0]


def not_found(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(
        f"there is no schedule called {name!r}; `rota schedules` lists those there are"
    )
