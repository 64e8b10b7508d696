"""Stage: a database in which tests run statements directly, without the engine.

It has one connection with the engine's settings, and as many more as a test opens to let two sessions
meet. After each test, every job must be in exactly one place.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID, uuid4

from psycopg import AsyncConnection

from rota.model.settings import Settings
from rota.store import jobs, workers
from rota.store.database import Database, run
from rota.store.jobs import ClaimedJob, MoveResult, StartJob
from rota.store.query import Query

T = TypeVar("T")
Row = TypeVar("Row")
Connection = AsyncConnection[Any]

PLACES = """
select job, array_agg(place order by place)
  from (select id as job, 'known' as place from rota.jobs
         union all select job, 'queued' from rota.queued
         union all select id, 'known' from rota.runs
         union all select job, 'sleeping' from rota.sleeping
         union all select job, 'waiting' from rota.waiting
         union all select job, 'quarantine' from rota.quarantine
         union all select unnest(jobs), 'claims' from rota.claims
         union all select job, 'outcomes' from rota.outcomes) as found
 group by job
"""

# A waiting row counts its open predecessors correctly, and has at least one.
MISCOUNTED = """
select waiting.job, waiting.open, count(parent.id) as parents
  from rota.waiting
  left join (select id, unnest(successors) as child from rota.jobs
              union all select id, unnest(successors) from rota.runs) as parent
    on parent.child = waiting.job
   and (not exists (select from rota.outcomes where outcomes.job = parent.id)
        or exists (select from rota.pending_releases where pending_releases.job = parent.id))
 group by waiting.job, waiting.open
having waiting.open <> count(parent.id)
"""

MISSHAPEN = """
select id from rota.claims
 where cardinality(jobs) = 0
    or cardinality(jobs) <> all(array[cardinality(attempts), cardinality(crashes), cardinality(seqs)])
"""

# `truncate` would take ten times as long, because it creates files.
EMPTY = """
with a as (delete from rota.jobs), b as (delete from rota.queued), c as (delete from rota.sleeping),
     d as (delete from rota.claims), e as (delete from rota.outcomes), f as (delete from rota.attempts),
     g as (delete from rota.keys), h as (delete from rota.cancels), i as (delete from rota.waiters),
     j as (delete from rota.workers), k as (delete from rota.runs), l as (delete from rota.waiting),
     m as (delete from rota.pending_releases), n as (delete from rota.worker_tasks),
            o as (delete from rota.quarantine),
     p as (delete from rota.checkpoints), q as (delete from rota.steps), r as (delete from rota.signals),
     s as (delete from rota.progress), t as (delete from rota.logs), u as (delete from rota.schedules),
     v as (delete from rota.ticks), w as (delete from rota.minute_stats),
            x as (delete from rota.queue_samples),
     trace_links as (delete from rota.trace_links), y as (delete from rota.refused_outcomes),
            z as (delete from rota.alert_rounds),
     tokens as (delete from rota.access_tokens), pauses as (delete from rota.pauses),
     instances as (delete from rota.instances)
select setval('rota.ids', 1, false)
"""


A_SESSION_WAITS = """
select exists (select from pg_stat_activity as session
                where session.datname = current_database()
                  and cardinality(pg_blocking_pids(session.pid)) > 0)
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """Claim, as its worker knows it."""

    worker: int
    id: int
    jobs: list[int]
    members: list[ClaimedJob]


class Stage:
    def __init__(self, dsn: str, settings: Settings | None = None) -> None:
        self.dsn = dsn
        self.database = Database(dsn, settings or Settings())
        self.schema = self.database.schema
        self._opened: list[Connection] = []
        self._beside: list[asyncio.Task[Any]] = []

    async def open(self) -> None:
        self.engine = await self.connect(engine=True)
        self.watch = await self.connect()

    async def close(self) -> None:
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        for connection in self._opened:
            await connection.close()
        await self.database.close()

    async def connect(self, *, engine: bool = False) -> Connection:
        connection = await self.database.connect(engine=engine)
        self._opened.append(connection)
        return connection

    async def run(self, query: Query[Row], on: Connection | None = None) -> list[Row]:
        return await run(on or self.engine, query, self.schema)

    async def sql(self, text: str, *params: Any, on: Connection | None = None) -> list[Any]:
        """Return the rows of a statement; those with one column as plain values."""
        cursor = await (on or self.watch).execute(text.encode(), params)
        if cursor.description is None:
            return []
        rows = await cursor.fetchall()
        return [row[0] for row in rows] if len(cursor.description) == 1 else rows

    async def one(self, text: str, *params: Any) -> Any:
        [row] = await self.sql(text, *params)
        return row

    # Moves of jobs

    async def start(self, task: str = "work", queue: str = "default", **more: Any) -> int:
        start = StartJob(task=task, queue=queue, **{"args": "{}", **more})
        [started] = await self.run(jobs.start(start, notify=False))
        return started.run

    async def start_several(self, count: int, task: str = "work", **more: Any) -> list[int]:
        start = StartJob(task=task, args="{}", queue="default", **more)
        return await self.run(jobs.start_many([start] * count))

    async def worker(self) -> int:
        [id] = await self.run(workers.register("host", 1, "0", ["default"], ["work"], 10))
        return id

    async def claim(
        self,
        worker: int,
        limit: int = 100,
        *,
        tasks: Sequence[str] = ("work",),
        queues: Sequence[str] = ("default",),
        floor: int = 0,
        nonce: UUID | None = None,
        on: Connection | None = None,
    ) -> Batch:
        """Claim as a worker does that reads every lane of these queues."""
        places = [(queue, lane) for lane in range(9, -1, -1) for queue in queues]
        query = jobs.claim(
            worker,
            nonce or uuid4(),
            list(tasks),
            [queue for queue, _ in places],
            [lane for _, lane in places],
            [floor] * len(places),
            limit,
        )
        found = await self.run(query, on)
        return Batch(worker, found[0].claim if found else 0, [each.job for each in found], found)

    async def unwanted(self, worker: int) -> list[int]:
        """Return the jobs for which a worker's heartbeat reports a cancel request."""
        [told] = await self.run(workers.beat(worker, None))
        return told.jobs_to_cancel

    async def held(self, count: int, **more: Any) -> Batch:
        """Start jobs and claim them in one batch."""
        await self.start_several(count, **more)
        return await self.claim(await self.worker(), count)

    async def together(self, *queries: Query[Any], on: Connection | None = None) -> list[Any]:
        """Run queries in one transaction, or in the open one; return the rows of each."""
        connection = on or self.engine
        if connection.info.transaction_status:
            return [await self.run(query, connection) for query in queries]
        async with connection.transaction():
            return [await self.run(query, connection) for query in queries]

    async def give_back(
        self, batch: Batch, given: Sequence[int] | None = None, on: Connection | None = None
    ) -> list[str]:
        """Return jobs of a batch to the queue, as the engine does; return the queues with queued jobs."""
        which = batch.jobs if given is None else given
        [moved] = await self.run(
            jobs.return_to_queue(batch.worker, [batch.id] * len(which), which), on
        )
        answer: list[str] = moved.queues
        return answer

    async def finish(
        self, batch: Batch, state: str, given: Sequence[int] | None = None
    ) -> list[int]:
        """Finish jobs of a batch without success, as the engine does; return those accepted."""
        which = batch.jobs if given is None else given
        many = len(which)
        query = jobs.finish(
            *(batch.worker, [batch.id] * many, which, [state] * many),
            *(['{"type": "E"}'] * many, [0.5] * many),
        )
        [moved] = await self.run(query)
        answer: list[int] = moved.jobs
        return answer

    async def retry(
        self,
        batch: Batch,
        given: Sequence[int] | None = None,
        delay: float = 60.0,
        on: Connection | None = None,
    ) -> MoveResult:
        """Fail jobs of a batch with attempts left, as the engine does; return those accepted."""
        which = batch.jobs if given is None else given
        many = len(which)
        query = jobs.retry(
            *(batch.worker, [batch.id] * many, which, [delay] * many),
            *(['{"type": "E"}'] * many, [0.5] * many),
        )
        [moved] = await self.run(query, on)
        answer: MoveResult = moved
        return answer

    async def complete(
        self, batch: Batch, given: Sequence[int] | None = None, on: Connection | None = None
    ) -> list[int]:
        """Complete jobs of a batch; return those refused."""
        which = batch.jobs if given is None else given
        return await self.complete_all(batch.worker, [batch.id] * len(which), which, on)

    async def complete_all(
        self,
        worker: int,
        claims: Sequence[int],
        given: Sequence[int],
        on: Connection | None = None,
    ) -> list[int]:
        """Complete jobs, each under its claim; return those refused."""
        many = len(given)
        [moved] = await self.run(
            jobs.complete(worker, claims, given, [None] * many, [0.25] * many, [True] * many),
            on,
        )
        return moved.jobs

    # Places of jobs

    async def place(self, job: int) -> str:
        """Return the state of a job, from the view `job_state`."""
        state: str = await self.one("select state from rota.job_state where job = %s", job)
        return state

    async def held_by(self, claim: int) -> list[int]:
        found = await self.sql("select jobs from rota.claims where id = %s", claim)
        return found[0] if found else []

    async def everything(self, on: Connection | None = None) -> list[Any]:
        """Return all rows that statements can change, to show that a statement changed none."""
        return [
            await self.sql(f"select each::text from rota.{table} as each order by 1", on=on)
            for table in (
                "jobs",
                "queued",
                "sleeping",
                "claims",
                "outcomes",
                "attempts",
                "keys",
                "cancels",
                "runs",
                "waiting",
                "pending_releases",
                "quarantine",
                "checkpoints",
                "steps",
                "signals",
                "progress",
                "logs",
            )
        ]

    async def check(self) -> None:
        """Check that every job is in one place, and that the arrays of claims agree."""
        assert await self.sql(MISSHAPEN) == []
        lost = {
            job: places
            for job, places in await self.sql(PLACES)
            if len(places) != 2 or "known" not in places
        }
        assert not lost, f"not in exactly one place: {lost}"
        assert await self.sql(MISCOUNTED) == []

    # Two sessions that meet

    async def waits(self, waiting: Connection, holding: Connection, within: float = 60) -> None:
        """Return when the server reports that one session waits for a lock of the other."""
        waiter, holder = waiting.info.backend_pid, holding.info.backend_pid
        async with asyncio.timeout(within):
            while True:
                if getattr(waiting, "pooled", False):
                    # A pooler does not disclose the server's session, so any blocked session counts.
                    blocked = await self.one(A_SESSION_WAITS)
                else:
                    blocked = holder in await self.one("select pg_blocking_pids(%s)", waiter)
                if blocked:
                    return
                await asyncio.sleep(0.002)

    def meanwhile(self, doing: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a coroutine beside the test; it is cancelled at the end of the test."""
        task = asyncio.create_task(doing)
        self._beside.append(task)
        return task
