"""Manual runs of schedules: one now, or one for each past tick that has none.

They start under the schedule's lock, as in the scheduler, so that a tick is never started both manually
and by the clock.
"""

from __future__ import annotations

import os
import socket
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING

import msgspec

from rota.engine.audited import run_audited
from rota.engine.scheduling.definitions import is_past_end, lock_schedule
from rota.engine.scheduling.fire import RunToStart
from rota.errors import ArgumentError
from rota.store import flows, jobs, schedules, ticks
from rota.store.audit import AuditEntry
from rota.store.database import Database, run
from rota.store.jobs import StartJob
from rota.store.schedules import LockedSchedule, RecordedTicks, ScheduleDefinition
from rota.store.ticks import TickRecord

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

MAX_BACKFILL_TICKS = 10_000
"""Ticks in one backfill."""

MAX_BATCH_RUNS = 500
MAX_BATCH_JOBS = 20_000
"""Runs and jobs that one transaction of a backfill starts at most."""

MICROSECOND = timedelta(microseconds=1)

TickFactory = Callable[[datetime, bool], RunToStart]
TickFactoryBuilder = Callable[[ScheduleDefinition], TickFactory]


async def trigger(
    database: Database,
    name: str,
    build_factory: TickFactoryBuilder,
    audit_entry: AuditEntry | None = None,
) -> tuple[int, Sequence[str]]:
    """Start a run now, at any time and in any state. Return its id and the queues to notify."""

    async def triggering(connection: PgConnection) -> tuple[int, Sequence[str]]:
        locked = await lock_schedule(connection, database.schema, name)
        query = schedules.recorded_ticks(name, locked.now, locked.now + timedelta(seconds=1))
        [known] = await run(connection, query, database.schema)
        tick = _free_tick(locked, known)
        planned = build_factory(locked.definition)(tick, False)
        [started] = await _start(
            connection, database.schema, locked, [(tick, planned)], backfilled=False
        )
        return started, planned.queues

    return await run_audited(database, triggering, audit_entry=audit_entry)


def _free_tick(locked: LockedSchedule, known: RecordedTicks) -> datetime:
    """Return the current time, or the next microsecond that is no tick of the schedule and has no run."""
    taken, timetable = set(known.ticks), locked.definition.timetable
    tick = locked.now
    while tick in taken or timetable.after(tick - MICROSECOND, locked.anchor) == tick:
        tick += MICROSECOND
    return tick


class BackfillBatch(msgspec.Struct, frozen=True):
    """Result of one transaction of a backfill."""

    runs: list[int]
    queues: set[str]
    """Queues to notify."""
    done_ticks: int
    """Ticks handled so far, by this transaction and the earlier ones."""
    total_ticks: int
    """Ticks of the whole backfill."""


async def backfill(
    database: Database,
    name: str,
    begin: datetime,
    end: datetime,
    build_factory: TickFactoryBuilder,
    audit_entry: AuditEntry | None = None,
) -> AsyncIterator[BackfillBatch]:
    """Start a run for each tick in [`begin`, `end`) that has none.

    Many runs are started in several transactions. If one fails, the earlier ones stay committed, and the
    backfill can be repeated: a tick that has a run gets no second one.
    """

    async def list_ticks(connection: PgConnection) -> list[datetime]:
        locked = await lock_schedule(connection, database.schema, name)
        ticks = list(_ticks(locked, begin, end))
        [known] = await run(connection, schedules.recorded_ticks(name, begin, end), database.schema)
        _check_history(name, ticks, known)
        return ticks

    ticks = await run_audited(database, list_ticks)
    done = 0
    while done < len(ticks):
        fill = partial(
            _fill_batch,
            schema=database.schema,
            name=name,
            ticks=ticks[done:],
            build_factory=build_factory,
        )
        count, runs, queues = await run_audited(database, fill, audit_entry=audit_entry)
        done += count
        yield BackfillBatch(runs, queues, done, len(ticks))


def _ticks(locked: LockedSchedule, begin: datetime, end: datetime) -> Iterator[datetime]:
    definition, timetable = locked.definition, locked.definition.timetable
    if end > locked.now:
        raise ArgumentError(
            f"backfill ends at now ({locked.now.isoformat(sep=' ', timespec='seconds')}), not to "
            f"{end.isoformat(sep=' ')}; later ticks start on time"
        )
    if definition.starts is not None:
        begin = max(begin, definition.starts)
    elif definition.every is not None:
        begin = max(begin, locked.anchor + MICROSECOND)  # ticks are counted from the anchor
    tick = timetable.after(begin - MICROSECOND, locked.anchor)
    count = 0
    while tick is not None and tick < end and not is_past_end(definition, tick):
        count += 1
        if count > MAX_BACKFILL_TICKS:
            raise ArgumentError(
                f"there are more than {MAX_BACKFILL_TICKS:,} ticks of {definition.name!r} in "
                "that time; backfill a "
                f"shorter one: up to {tick.isoformat(sep=' ')}, and then the rest"
            )
        yield tick
        tick = timetable.after(tick, locked.anchor)


def _check_history(name: str, ticks: Sequence[datetime], known: RecordedTicks) -> None:
    """Raise ArgumentError for ticks without a record, if records that old may have been deleted."""
    existing = set(known.ticks)
    if known.forgotten_until is not None and any(
        tick <= known.forgotten_until and tick not in existing for tick in ticks
    ):
        raise ArgumentError(
            f"schedule {name!r} stores its last thousand ticks, back to "
            f"{known.forgotten_until.isoformat(sep=' ', timespec='seconds')}; backfill a later time, or "
            "start the earlier runs one by one"
        )


async def _fill_batch(
    connection: PgConnection,
    *,
    schema: str,
    name: str,
    ticks: Sequence[datetime],
    build_factory: TickFactoryBuilder,
) -> tuple[int, list[int], set[str]]:
    """Start the runs of the first ticks, as many as fit into one transaction."""
    locked = await lock_schedule(connection, schema, name)
    factory = build_factory(locked.definition)
    size = getattr(factory(ticks[0], True).start, "size", 1)
    batch = ticks[: min(MAX_BATCH_RUNS, max(MAX_BATCH_JOBS // max(size, 1), 1))]
    query = schedules.recorded_ticks(name, batch[0], batch[-1] + MICROSECOND)
    [known] = await run(connection, query, schema)
    existing = set(known.ticks)
    planned = [(tick, factory(tick, True)) for tick in batch if tick not in existing]
    runs = await _start(connection, schema, locked, planned, backfilled=True)
    return len(batch), runs, {queue for _, each in planned for queue in each.queues}


async def _start(
    connection: PgConnection,
    schema: str,
    locked: LockedSchedule,
    planned: Sequence[tuple[datetime, RunToStart]],
    *,
    backfilled: bool,
) -> list[int]:
    """Start the runs of ticks that have none, and record both."""
    if not planned:
        return []
    process = (socket.gethostname(), os.getpid())
    name = locked.name
    # A backfilled tick gets the number of the latest tick, and its record is deleted together with it.
    number = locked.ticks if backfilled else locked.ticks + 1
    reason = None if backfilled else "by hand"
    records = [TickRecord(name, tick, number, "started", reason, backfilled) for tick, _ in planned]
    await run(connection, ticks.record(records, process), schema)
    starts = [each.start for _, each in planned]
    traces = [each.trace for _, each in planned] if planned[0][1].trace else None
    task_starts = [each for each in starts if isinstance(each, StartJob)]
    flow_starts = [each for each in starts if not isinstance(each, StartJob)]
    if task_starts:
        ids = await run(connection, jobs.start_many(task_starts, traces), schema)
    else:
        query = flows.start(flow_starts, notify=False, traces=traces)
        ids = [each.run for each in await run(connection, query, schema)]
    started = [(name, tick, id) for (tick, _), id in zip(planned, ids, strict=True)]
    await run(connection, ticks.record_runs(started, process, backfilled=backfilled), schema)
    if not backfilled:
        await run(connection, schedules.record_manual_start(name, 1, ids[-1]), schema)
    return ids
