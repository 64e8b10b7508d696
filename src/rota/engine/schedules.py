"""What is done to schedules by code and by people: declared, made, changed, paused.

Each is one transaction under the schedule's lock, and what is locked the scheduler passes over: no tick is
fired that is about to be moved. Several are locked in the order of their names.
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

from rota.engine.deeds import transact
from rota.errors import ArgumentError, ScheduleNotFound
from rota.model.schedule import Position, first, is_astray
from rota.store import failures, schedules, ticks, views
from rota.store.audit import Deed
from rota.store.database import Database, run
from rota.store.schedules import Definition, Locked
from rota.store.ticks import Mark

if TYPE_CHECKING:
    from rota.store.session import Session

log = logging.getLogger("rota")


# By code


async def declare(
    database: Database,
    definitions: Sequence[Definition],
    targets: Sequence[str],
    worker: int | None = None,
) -> None:
    """Have the database know what the code declares, and disable what no code declares any more. Any number
    of instances may do so at once; where nothing has changed, nothing is locked.

    Before a worker starts (None) its code has the say. Later on the youngest has that is there, so that one
    which started and is gone has not changed anything for good; and while anybody declares a schedule, no
    other disables it.
    """
    wanted = {each.name: each for each in sorted(definitions, key=lambda each: each.name)}
    found = await database.insist(schedules.declared(list(wanted), targets, worker))
    fresh = [name for name in wanted if name not in {each.name for each, *_ in found}]
    others = [
        each.name
        for each, state, anothers in found
        if not anothers and (each.name not in wanted or not _is_as(wanted[each.name], each, state))
    ]
    if not fresh and not others:
        return

    async def declaring(connection: Session) -> list[str]:
        [now] = await run(connection, views.clock(), database.schema)
        found = list(others)
        for name in fresh:
            if not await _put(connection, database.schema, wanted[name], now):
                found.append(name)  # somebody else did so meanwhile, perhaps in other words
        gone = []
        for locked in await run(connection, schedules.lock(found), database.schema):
            if definition := wanted.get(locked.definition.name):
                await _redefine(connection, database.schema, locked, definition)
            elif locked.definition.declared and locked.definition.target in targets:
                gone.append(locked.definition.name)
                await _give_up_waiting(connection, database.schema, locked, "disabled")
        return await run(connection, schedules.disable(gone), database.schema) if gone else []

    for name in await transact(database, declaring, again=failures.is_passing):
        log.info("schedule %r is disabled: the code does not declare it any more", name)


async def _put(connection: Session, schema: str, definition: Definition, now: datetime) -> bool:
    anchor = _anchor(definition, now)
    next = first(definition.timetable, definition.policy, now, anchor)
    query = schedules.put(definition, anchor, next, _due(definition, next))
    [made] = await run(connection, query, schema)
    return bool(made)


def _is_as(definition: Definition, found: Definition, state: str) -> bool:
    return state != "disabled" and definition.equals(found)


async def _redefine(
    connection: Session, schema: str, locked: Locked, definition: Definition
) -> None:
    before, state, why = locked.definition, locked.state, locked.why
    if _is_as(definition, before, state):
        return
    if definition.declared and not before.declared:
        log.warning("schedule %r was made at run time; the code declares it now", definition.name)
    anchor, next, due = locked.anchor, locked.next, locked.due
    moves = not definition.comes_as(before)
    if moves:
        anchor = _anchor(definition, locked.now)
    if state == "disabled":
        state, why, moves = ("active" if locked.held is None else "paused"), locked.held, True
    if not definition.lasts_as(before):
        moves |= next is None or is_over(definition, next) or _is_used_up(definition, locked)
    if moves:
        next = _first(definition, locked, anchor)
        if state in ("active", "ended"):
            state = "ended" if next is None and locked.queued is None else "active"
    if moves or why is not None:
        # What waits for a run to end does not wait for a time.
        due = _due(definition, next) if locked.queued is None else locked.now
    if state in ("active", "ended"):
        why = None  # what was in its way may be gone
    await run(connection, schedules.replace(definition, anchor, next, due, state, why), schema)


def is_over(definition: Definition, tick: datetime) -> bool:
    return definition.ends is not None and tick > definition.ends


def _is_used_up(definition: Definition, locked: Locked) -> bool:
    """Whether it has had all the runs that it may have."""
    return definition.max_runs is not None and locked.runs >= definition.max_runs


def _first(definition: Definition, locked: Locked, anchor: datetime) -> datetime | None:
    if _is_used_up(definition, locked):
        return None
    return first(definition.timetable, definition.policy, locked.now, anchor)


def _anchor(definition: Definition, now: datetime) -> datetime:
    """From when on `every` is counted."""
    return definition.starts or now


def _due(definition: Definition, next: datetime | None) -> datetime | None:
    if next is None or not definition.jitter:
        return next
    return next + timedelta(seconds=definition.jitter * random.random())


# By people


async def create(database: Database, definition: Definition, deed: Deed | None = None) -> bool:
    """Answers whether it was made; no: there is one of that name."""

    async def creating(connection: Session) -> bool:
        [now] = await run(connection, views.clock(), database.schema)
        if first(definition.timetable, definition.policy, now, _anchor(definition, now)) is None:
            why = "there is no such time after its start"
            if definition.ends is not None:
                why = "it ends before its first tick"
            raise ArgumentError(f"schedule {definition.name!r} would never come: {why}")
        return await _put(connection, database.schema, definition, now)

    return await transact(database, creating, deed=deed, did=bool)


async def update(
    database: Database,
    name: str,
    changes: Mapping[str, Any],
    check: Callable[[Definition], object],
    deed: Deed | None = None,
) -> None:
    async def updating(connection: Session) -> None:
        locked = await lock(connection, database.schema, name)
        if locked.definition.declared:
            raise ArgumentError(
                f"schedule {name!r} is declared in code, so it is changed there; at run time it can be "
                "paused and resumed"
            )
        definition = msgspec.structs.replace(locked.definition, **changes)
        check(definition)
        await _redefine(connection, database.schema, locked, definition)

    await transact(database, updating, again=failures.is_passing, deed=deed)


async def pause(database: Database, name: str, why: str, deed: Deed | None = None) -> None:
    async def pausing(connection: Session) -> None:
        locked = await lock(connection, database.schema, name)
        if locked.state in ("ended", "disabled"):
            raise ArgumentError(f"schedule {name!r} {_no_more(locked)}: there is nothing to pause")
        query = schedules.change(name, "paused", why, locked.next, locked.due)
        await run(connection, query, database.schema)
        await _give_up_waiting(connection, database.schema, locked, "paused")

    await transact(database, pausing, again=failures.is_passing, deed=deed)


async def _give_up_waiting(connection: Session, schema: str, locked: Locked, what: str) -> None:
    """A tick that waited for the run before it to end does not start any more, and its record says so."""
    if locked.queued is not None:
        name = locked.definition.name
        mark = Mark(name, locked.queued, 0, "skipped", f"the schedule was {what}")
        who = (socket.gethostname(), os.getpid())
        await run(connection, ticks.restate([mark], who, locked.now), schema)


async def resume(database: Database, name: str, deed: Deed | None = None) -> None:
    """Go on from the next tick after now: what it missed while it was paused it has missed. One that was
    moved on by a clock that has gone back since comes again from now on, too."""

    async def resuming(connection: Session) -> bool:
        locked = await lock(connection, database.schema, name)
        definition = locked.definition
        here = Position(locked.next, locked.anchor)
        if locked.state == "active" and not is_astray(
            definition.timetable, definition.policy, here, locked.now
        ):
            return False
        if locked.state == "disabled":
            raise ArgumentError(
                f"schedule {name!r} {_no_more(locked)}; declare it again, or make one at run time under "
                "another name"
            )
        next = _first(definition, locked, locked.anchor)
        if locked.state == "ended" or next is None:
            raise ArgumentError(
                f"schedule {name!r} has ended: nothing comes after it; give it other times, a later end "
                "or more runs"
            )
        query = schedules.change(name, "active", None, next, _due(definition, next))
        await run(connection, query, database.schema)
        return True

    await transact(database, resuming, again=failures.is_passing, deed=deed, did=bool)


def _no_more(locked: Locked) -> str:
    return "has ended" if locked.state == "ended" else f"is disabled ({locked.why})"


async def delete(database: Database, name: str, deed: Deed | None = None) -> None:
    tried = False

    async def deleting(connection: Session) -> bool:
        nonlocal tried
        found = await run(connection, schedules.lock([name]), database.schema)
        if not found and not tried:
            raise missing(name)
        [declared] = await run(connection, schedules.is_declared(name), database.schema)
        if declared:
            raise ArgumentError(
                f"schedule {name!r} is declared by the code of a worker that is there, and would begin "
                "anew with the next one: take it out of the code first, or pause it"
            )
        tried = True  # it may be done, whatever is heard of it: then it is gone the next time
        [gone] = await run(connection, schedules.delete(name), database.schema)
        return gone

    await transact(database, deleting, again=failures.is_passing, deed=deed, did=bool)


async def lock(connection: Session, schema: str, name: str) -> Locked:
    rows = await run(connection, schedules.lock([name]), schema)
    if not rows:
        raise missing(name)
    return rows[0]


def missing(name: str) -> ScheduleNotFound:
    return ScheduleNotFound(
        f"there is no schedule called {name!r}; `rota schedules` lists those there are"
    )
