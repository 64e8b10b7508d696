"""Runs of schedules that somebody starts himself: one now, or those of ticks that had none.

Under the schedule's lock, as the scheduler does it: nothing is started by hand that the clock has started,
or the other way round.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from rota.engine.deeds import transact
from rota.engine.firing import Made
from rota.engine.schedules import is_over, lock
from rota.errors import ArgumentError
from rota.store import flows, jobs, schedules, ticks
from rota.store.audit import Deed
from rota.store.database import Database, run
from rota.store.jobs import Start
from rota.store.schedules import Definition, Known, Locked
from rota.store.ticks import Mark

if TYPE_CHECKING:
    from rota.store.session import Session

MOST = 10_000
"""Ticks in one backfill."""

RUNS_AT_ONCE = 500
JOBS_AT_ONCE = 20_000
"""What one transaction of a backfill starts, at most."""

MICROSECOND = timedelta(microseconds=1)

Making = Callable[[datetime, bool], Made]
Make = Callable[[Definition], Making]


async def trigger(
    database: Database, name: str, make: Make, deed: Deed | None = None
) -> tuple[int, Sequence[str]]:
    """Start a run now, whatever the time and the state. Answers it, and the queues that have news."""

    async def triggering(connection: Session) -> tuple[int, Sequence[str]]:
        locked = await lock(connection, database.schema, name)
        query = schedules.known(name, locked.now, locked.now + timedelta(seconds=1))
        [known] = await run(connection, query, database.schema)
        tick = _free_moment(locked, known)
        made = make(locked.definition)(tick, False)
        [started] = await _start(
            connection, database.schema, locked, [(tick, made)], backfilled=False
        )
        return started, made.queues

    return await transact(database, triggering, deed=deed)


def _free_moment(locked: Locked, known: Known) -> datetime:
    """Now, or next to it: not a time at which the clock will start a run, or somebody has."""
    taken, timetable = set(known.ticks), locked.definition.timetable
    tick = locked.now
    while tick in taken or timetable.after(tick - MICROSECOND, locked.anchor) == tick:
        tick += MICROSECOND
    return tick


class Filled(msgspec.Struct, frozen=True):
    """What one transaction of a backfill came to."""

    runs: list[int]
    queues: set[str]
    """Those that have news."""
    done: int
    """So many ticks are seen to, with those before."""
    many: int
    """… of so many."""


async def backfill(
    database: Database,
    name: str,
    begin: datetime,
    end: datetime,
    make: Make,
    deed: Deed | None = None,
) -> AsyncIterator[Filled]:
    """Start a run for each tick from one time until before another that had none.

    Many are started in several transactions. Where one fails those before it stand, and all of it can be
    done again: what has had a run gets no other.
    """

    async def looking(connection: Session) -> list[datetime]:
        locked = await lock(connection, database.schema, name)
        ticks = list(_ticks(locked, begin, end))
        [known] = await run(connection, schedules.known(name, begin, end), database.schema)
        _check_remembered(name, ticks, known)
        return ticks

    ticks = await transact(database, looking)
    done = 0
    while done < len(ticks):
        filling = partial(_fill, schema=database.schema, name=name, ticks=ticks[done:], make=make)
        seen, runs, queues = await transact(database, filling, deed=deed)
        done += seen
        yield Filled(runs, queues, done, len(ticks))


def _ticks(locked: Locked, begin: datetime, end: datetime) -> Iterator[datetime]:
    definition, timetable = locked.definition, locked.definition.timetable
    if end > locked.now:
        raise ArgumentError(
            f"backfill goes up to now ({locked.now.isoformat(sep=' ', timespec='seconds')}), not to "
            f"{end.isoformat(sep=' ')}: what is to come, comes by itself"
        )
    if definition.starts is not None:
        begin = max(begin, definition.starts)
    elif definition.every is not None:
        begin = max(begin, locked.anchor + MICROSECOND)  # from then on it is counted
    tick = timetable.after(begin - MICROSECOND, locked.anchor)
    many = 0
    while tick is not None and tick < end and not is_over(definition, tick):
        many += 1
        if many > MOST:
            raise ArgumentError(
                f"there are more than {MOST:,} ticks of {definition.name!r} in that time; backfill a "
                f"shorter one: up to {tick.isoformat(sep=' ')}, and then the rest"
            )
        yield tick
        tick = timetable.after(tick, locked.anchor)


def _check_remembered(name: str, ticks: Sequence[datetime], known: Known) -> None:
    """Refuse ticks of which nobody knows any more whether they have had a run."""
    had = set(known.ticks)
    if known.forgotten is not None and any(
        tick <= known.forgotten and tick not in had for tick in ticks
    ):
        raise ArgumentError(
            f"which ticks of {name!r} have had a run is known from "
            f"{known.forgotten.isoformat(sep=' ', timespec='seconds')} on: the last thousand are kept; "
            "backfill from then on, or start the runs of the time before yourself"
        )


async def _fill(
    connection: Session, *, schema: str, name: str, ticks: Sequence[datetime], make: Make
) -> tuple[int, list[int], set[str]]:
    """The first of these ticks, as many as one transaction takes."""
    locked = await lock(connection, schema, name)
    making = make(locked.definition)
    size = getattr(making(ticks[0], True).start, "size", 1)
    some = ticks[: min(RUNS_AT_ONCE, max(JOBS_AT_ONCE // max(size, 1), 1))]
    query = schedules.known(name, some[0], some[-1] + MICROSECOND)
    [known] = await run(connection, query, schema)
    had = set(known.ticks)
    made = [(tick, making(tick, True)) for tick in some if tick not in had]
    runs = await _start(connection, schema, locked, made, backfilled=True)
    return len(some), runs, {queue for _, each in made for queue in each.queues}


async def _start(
    connection: Session,
    schema: str,
    locked: Locked,
    made: Sequence[tuple[datetime, Made]],
    *,
    backfilled: bool,
) -> list[int]:
    """Start runs for ticks that have none, and write them down."""
    if not made:
        return []
    who = (socket.gethostname(), os.getpid())
    name = locked.definition.name
    # What is backfilled comes between two ticks, and is forgotten when the one before it is.
    number = locked.ticks if backfilled else locked.ticks + 1
    why = None if backfilled else "by hand"
    marks = [Mark(name, tick, number, "started", why, backfilled) for tick, _ in made]
    await run(connection, ticks.mark(marks, who), schema)
    starts = [each.start for _, each in made]
    traces = [each.trace for _, each in made] if made[0][1].trace else None
    alone = [each for each in starts if isinstance(each, Start)]
    whole = [each for each in starts if not isinstance(each, Start)]
    if alone:
        ids = await run(connection, jobs.start_many(alone, traces), schema)
    else:
        query = flows.start(whole, notify=False, traces=traces)
        ids = [each.run for each in await run(connection, query, schema)]
    ran = [(name, tick, id) for (tick, _), id in zip(made, ids, strict=True)]
    await run(connection, ticks.started(ran, who, backfilled=backfilled), schema)
    if not backfilled:
        await run(connection, schedules.touch(name, 1, ids[-1]), schema)
    return ids
