"""Resources of an app in one event loop: database, listener, notifier and coordinator.

Resources open on first use. A program with several event loops, one after the other or one per thread, has
one client in each.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import compress
from operator import attrgetter
from typing import TYPE_CHECKING

from rota.coord.coordinator import CoordinationCounters, Coordinator
from rota.coord.lease import LeaseClock
from rota.coord.services import ServiceGroup
from rota.engine.execution.call import BoundFlow
from rota.engine.notify.listener import Listener
from rota.engine.notify.notifier import Notifier
from rota.engine.notify.result_waiter import ResultWaiter
from rota.engine.telemetry import tracing
from rota.engine.telemetry.counters import ProcessCounters
from rota.engine.telemetry.span_names import FLOW
from rota.engine.telemetry.tracing import Tracing
from rota.model.events import Event
from rota.model.settings import Settings
from rota.store import flows, jobs
from rota.store.database import Database
from rota.store.database import run as run_query
from rota.store.flows import StartRun
from rota.store.jobs import StartedJob, StartJob
from rota.store.raw_connections import RawConnections

if TYPE_CHECKING:
    from rota.engine.worker.worker import Worker

COPY_CHUNK_JOBS = 2000
"""Jobs in one chunk of a COPY."""

MIN_COPY_JOBS = 500
"""Number of simple jobs in one call from which COPY is cheaper than a statement with arrays."""


MAX_STATEMENT_JOBS = 20_000
"""Maximum number of jobs of flows in one statement."""


_QUEUE_TASK = attrgetter("queue", "task")

SHUTDOWN_REASON = "this instance is shutting down"
"""Reason given when leadership ends at shutdown."""


class Client:
    def __init__(
        self,
        dsn: str,
        settings: Settings,
        direct: str | None = None,
        publish: Callable[[Event], None] = lambda event: None,
        app_tracing: Tracing | None = None,
        process_counters: ProcessCounters | None = None,
        lease_clock: LeaseClock | None = None,
    ) -> None:
        self.database = Database(dsn, settings, direct)
        self.notifier = Notifier(self.database)
        self.listener = Listener(self.database)
        self.results = ResultWaiter(self.database, self.listener)
        self.raw_connections = RawConnections(self.database)
        self._publish = publish
        self._process_counters = process_counters or ProcessCounters()
        self.worker: Worker | None = None
        """Worker of this event loop, if there is one."""
        self._tracing = app_tracing or Tracing()
        self._lease_clock = lease_clock
        self.coordination_counters = CoordinationCounters()
        self.services: ServiceGroup | None = None
        """Services for which this instance is a candidate."""
        self._coordinator: Coordinator | None = None
        self._listener_task: asyncio.Task[None] | None = None

    def listen(self) -> Listener:
        if self._listener_task is None:
            self._listener_task = asyncio.create_task(self.listener.run(), name="rota wakeups")
        return self.listener

    @property
    def coordinator(self) -> Coordinator:
        """Coordinator of locks, leaders, rate limits and `once` calls."""
        if self._coordinator is None:
            self._coordinator = Coordinator(
                self.database,
                self.listen,
                self._publish,
                self.coordination_counters,
                self._lease_clock,
            )
        return self._coordinator

    async def resign(self) -> None:
        """Resign all leaderships except services, because this instance stops."""
        if self._coordinator is not None:
            await self._coordinator.resign(SHUTDOWN_REASON, except_services=True)

    @property
    def _outage_timeout(self) -> float:
        """Seconds for which a start is repeated while its error proves that it had no effect. After a lost
        answer it is not repeated: without a key, that could start two jobs."""
        return self.database.settings.outage_timeout

    async def start(self, job: StartJob) -> StartedJob:
        is_immediate = job.at is None and job.delay is None
        notify_in_transaction = is_immediate and self.notifier.may_notify_in_transaction()
        with self._tracing.start(job.task, [job.queue]) as span:
            query = jobs.start(job, notify=notify_in_transaction, trace=span.trace)
            [started] = await self.database.run(query, self._outage_timeout)
            span.set_attributes(tracing.start_attributes(started))
        if started.created:
            self._process_counters.count_enqueued((job.queue, job.task))
        if is_immediate and not notify_in_transaction and started.created:
            self.notifier.notify([job.queue])
        return started

    async def start_many(self, starts: Sequence[StartJob]) -> list[StartedJob]:
        """Start all jobs or none, in one transaction. Return the results in the given order."""
        queues = {each.queue for each in starts}
        created: Iterable[StartJob] = starts
        with self._tracing.start(starts[0].task, list(queues), count=len(starts)) as span:
            if len(starts) >= MIN_COPY_JOBS and all(each.is_simple for each in starts):
                copying = partial(self._copy_jobs, starts, span.trace)
                ids = await self.database.retry(copying, self._outage_timeout)
                started = [StartedJob(id, True) for id in ids]
            else:
                started = await self._insert_jobs(starts, span.trace)
                created = compress(starts, [each.created for each in started])
        self.notifier.notify(queues)
        for queue_task, count in Counter(map(_QUEUE_TASK, created)).items():
            self._process_counters.count_enqueued(queue_task, count)
        return started

    async def start_runs(self, calls: Sequence[BoundFlow]) -> list[StartedJob]:
        """Start all flows or none, in one transaction. Return the results in the given order."""
        # Sorted by key, so that two calls with the same keys wait for each other instead of deadlocking.
        order = sorted(range(len(calls)), key=lambda at: (calls[at].name, calls[at].run.key or ""))
        any_immediate = any(call.run.at is None and call.run.delay is None for call in calls)
        notify_in_transaction = any_immediate and self.notifier.may_notify_in_transaction()
        chunks = _chunk_runs([calls[index].run for index in order])
        with self._tracing.start(calls[0].name, count=len(calls), kind=FLOW) as span:
            queries = [
                flows.start(
                    chunk, notify=notify_in_transaction, traces=_repeat_trace(span.trace, chunk)
                )
                for chunk in chunks
            ]
            [answers] = await self.database.pipeline([queries], self._outage_timeout)
            if len(calls) == 1:
                span.set_attributes(tracing.start_attributes(answers[0][0]))
        if any_immediate and not notify_in_transaction:
            self.notifier.notify({queue for call in calls for queue in call.plan.queues})
        started = dict(zip(order, (each for chunk in answers for each in chunk), strict=True))
        for index, each in started.items():
            for node in calls[index].plan.nodes if each.created else ():
                self._process_counters.count_enqueued((node.task.policy.queue, node.task.name))
        return [started[index] for index in range(len(calls))]

    async def _copy_jobs(self, starts: Sequence[StartJob], trace: str | None) -> list[int]:
        database = self.database
        jobs_copy: tuple[str, Callable[..., bytes]] = "job/copy_jobs", jobs.rows_for_jobs
        if trace is not None:
            jobs_copy = "job/copy_traced_jobs", partial(jobs.rows_for_traced_jobs, trace=trace)
        async with database.transaction() as connection:
            [id_list] = await run_query(connection, jobs.reserve_ids(len(starts)), database.schema)
            ids = id_list.split(",")
            chunks = [
                (ids[offset : offset + COPY_CHUNK_JOBS], starts[offset : offset + COPY_CHUNK_JOBS])
                for offset in range(0, len(starts), COPY_CHUNK_JOBS)
            ]
            for statement, rows in (
                jobs_copy,
                ("job/copy_queued", jobs.rows_for_queued),
            ):
                await database.copy(statement, (rows(*chunk) for chunk in chunks), connection)
        return [int(id) for id in ids]

    async def _insert_jobs(self, starts: Sequence[StartJob], trace: str | None) -> list[StartedJob]:
        """Insert keyed jobs sorted by key, one statement each, and the remaining jobs with one statement.

        The order makes two calls with the same keys wait for each other instead of deadlocking.
        """
        unkeyed = [index for index, each in enumerate(starts) if each.key is None]
        keyed = sorted(
            (index for index, each in enumerate(starts) if each.key is not None),
            key=lambda index: (starts[index].task, starts[index].key),
        )
        keyed_queries = [jobs.start(starts[index], notify=False, trace=trace) for index in keyed]
        unkeyed_queries = (
            [jobs.start_many([starts[at] for at in unkeyed], _repeat_trace(trace, unkeyed))]
            if unkeyed
            else []
        )
        [answers] = await self.database.pipeline(
            [[*keyed_queries, *unkeyed_queries]], self._outage_timeout
        )
        started_by_index: dict[int, StartedJob] = {}
        for index, [started] in zip(keyed, answers, strict=False):
            started_by_index[index] = started
        for index, id in zip(unkeyed, answers[-1] if unkeyed else (), strict=True):
            started_by_index[index] = StartedJob(id, True)
        return [started_by_index[index] for index in range(len(starts))]

    async def close(self) -> None:
        if self._coordinator is not None:
            await self._coordinator.close()
        await self.notifier.close()
        if self._listener_task is not None:
            self.listener.stop()
            await self._listener_task
            await self.listener.close()
        await self.raw_connections.close()
        await self.database.close()


def _chunk_runs(runs: Sequence[StartRun]) -> list[list[StartRun]]:
    """Split runs into those of one statement each."""
    chunks, size = [list(runs[:1])], 0
    for run in runs[1:]:
        size += run.size
        if size > MAX_STATEMENT_JOBS:
            chunks.append([])
            size = 0
        chunks[-1].append(run)
    return chunks


def _repeat_trace(trace: str | None, starts: Sequence[object]) -> list[str] | None:
    """Return the same trace context for each start."""
    return None if trace is None else [trace] * len(starts)
