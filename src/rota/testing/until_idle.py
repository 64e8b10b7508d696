"""Running a worker until no work is left.

Idle means that no job is queued or running, no sleeping job is due, and no schedule of a known target is
due. Later work is not waited for: move the clock and run again.

One statement counts the work left. In every snapshot a job is in exactly one place, so a job that moves
between places is not missed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rota.errors import RotaError
from rota.model.events import Event
from rota.store.query import in_schema

if TYPE_CHECKING:
    from rota.app import Rota

_UNFINISHED_SQL = """
select place, queue, task, count(*), min(job)
  from (select 'queued' as place, queued.queue, queued.task, queued.job
          from rota.queued
         union all
        select 'due', sleeping.queue, sleeping.task, sleeping.job
          from rota.sleeping
         where sleeping.wake_at <= rota.clock()
         union all
        select 'running', jobs.queue, jobs.task, jobs.id
          from rota.claims
         cross join lateral unnest(claims.jobs) as member (job)
          join rota.jobs on jobs.id = member.job
         union all
        -- Ended, but not passed on yet to those who wait for it.
        select 'running', coalesce(jobs.queue, ''), coalesce(jobs.task, ''), pending_releases.job
          from rota.pending_releases
          left join rota.jobs on jobs.id = pending_releases.job
         union all
        select 'scheduled', schedules.name, schedules.target, 0
          from rota.schedules
         where schedules.state = 'active'
           and schedules.due <= rota.clock()) as left_over
 group by place, queue, task
 order by place, queue, task
"""

POLL_SECONDS = 0.05
"""Interval between checks if no event arrives."""


class NotIdle(RotaError, TimeoutError):
    """Work is left; the message lists it, and the reasons it does not run."""


@dataclass(frozen=True, slots=True)
class UnfinishedJobs:
    """Unfinished jobs of one task, in one state."""

    state: str
    queue: str
    task: str
    count: int
    example_job: int


async def run_until_idle(
    app: Rota,
    *,
    timeout: float = 30.0,
    queues: Sequence[str] | None = None,
    concurrency: int | None = None,
) -> None:
    """Run a worker of this app until no work is left, or raise NotIdle."""
    known_tasks = app.registry.tasks
    served_queues = (
        {task.policy.queue for task in known_tasks.values()} if queues is None else set(queues)
    )
    async with app.worker(queues=queues, concurrency=concurrency):
        await _until_idle(app, timeout, served_queues, known_tasks.keys())


async def until_idle(app: Rota, *, timeout: float = 30.0) -> None:
    """Wait until the workers already running have no work left, or raise NotIdle."""
    await _until_idle(app, timeout, None, ())


async def _until_idle(
    app: Rota, timeout: float, served_queues: Collection[str] | None, known_tasks: Collection[str]
) -> None:
    deadline = time.monotonic() + timeout
    event_seen = asyncio.Event()
    loop = asyncio.get_running_loop()

    def on_event(_: Event) -> None:
        loop.call_soon_threadsafe(event_seen.set)

    unsubscribe = app.subscribe(on_event)
    try:
        while True:
            event_seen.clear()
            unfinished = [
                each
                for each in await _fetch_unfinished(app)
                if each.state != "scheduled" or _knows_target(app, each)
            ]
            if not unfinished:
                return
            is_stuck = served_queues is not None and all(
                _never_runs_reason(each, served_queues, known_tasks) for each in unfinished
            )
            if is_stuck or time.monotonic() > deadline:
                raise NotIdle(_describe(unfinished, timeout, served_queues or (), known_tasks))
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await event_seen.wait()
    finally:
        unsubscribe()


async def _fetch_unfinished(app: Rota) -> list[UnfinishedJobs]:
    client = await app.open()
    async with client.database.connection() as connection:
        cursor = await connection.execute(in_schema(_UNFINISHED_SQL, app.settings.schema).encode())
        return [UnfinishedJobs(*row) for row in await cursor.fetchall()]


def _knows_target(app: Rota, schedule: UnfinishedJobs) -> bool:
    return schedule.task in app.registry.tasks or schedule.task in app.registry.flows


def _never_runs_reason(
    each: UnfinishedJobs, served_queues: Collection[str], known_tasks: Collection[str]
) -> str:
    """Return the reason this worker will never run a job, or "" if it may run it."""
    if each.state in ("running", "scheduled"):
        return ""
    if each.task not in known_tasks:
        return "this app has no task of that name"
    return "" if each.queue in served_queues else "this worker does not serve that queue"


def _describe(
    unfinished: Sequence[UnfinishedJobs],
    timeout: float,
    served_queues: Collection[str],
    known_tasks: Collection[str],
) -> str:
    lines = []
    for each in unfinished:
        if each.state == "scheduled":
            lines.append(f"  schedule {each.queue!r} of {each.task} is due")
            continue
        reason = _never_runs_reason(each, served_queues, known_tasks) if known_tasks else ""
        lines.append(
            f"  {each.count} {each.state}: {each.task} in queue {each.queue}, such as job "
            f"{each.example_job}{f' ({reason})' if reason else ''}"
        )
    return "\n".join([f"there is work left, after up to {timeout:g} s:", *lines])
