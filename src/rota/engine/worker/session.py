"""Session of a worker: one registration, from its id in the registry until it stops or is declared dead.

     notifications (polls if they are lost)
               │
               ▼
queued ──▶ claim loop ──▶ slots: backlog ──▶ executors ──▶ outcomes ──▶ claim loop ──▶ database
  ▲                                                                         │
  └──────────── timers (with the claim) ◀── sleeping ◀── retried, suspended ┘

    ClaimLoop          records outcomes and claims jobs
    JobSlots           holds the claimed jobs and starts them
    StepWriter         writes journal entries, progress and log lines of running jobs
    ChildCalls         starts the tasks and flows that jobs call, and waits for them
    Heartbeat          shows that the worker is alive and receives requests, in a thread of its own
    ClaimReconciler    handles these requests, and compares the worker's claims with the database
    Reaper             takes back the jobs of dead workers
    Scheduler          starts runs of due schedules
    Pruner, Cleaner    delete old runs; old alerts, locks, rate limits and the like
    MinuteStats        writes the worker's counters, minute by minute
    AlertEvaluator     raises and resolves alerts; `AlertDelivery` sends them
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from typing import Any

from rota.engine.alerting.delivery import AlertDelivery
from rota.engine.alerting.evaluator import AlertEvaluator, RefusedCounter
from rota.engine.db_clock import DatabaseClock
from rota.engine.durable.step_writer import StepWriter
from rota.engine.execution.child_calls import ChildCalls
from rota.engine.execution.job_backend import JobBackend
from rota.engine.execution.job_services import JobServices, JobStorage
from rota.engine.execution.threads import MAX_THREADS
from rota.engine.maintenance.cleaner import Cleaner
from rota.engine.maintenance.pruner import Pruner
from rota.engine.notify.listener import Listener
from rota.engine.notify.notifier import Notifier
from rota.engine.notify.result_waiter import ResultWaiter
from rota.engine.scheduling.fire import RunFactory
from rota.engine.scheduling.scheduler import Scheduler
from rota.engine.telemetry.counters import ProcessCounters
from rota.engine.telemetry.event_bus import EventBus
from rota.engine.telemetry.minute_stats import MinuteStats
from rota.engine.telemetry.tracing import Tracing
from rota.engine.worker.claim_loop import ClaimLoop
from rota.engine.worker.heartbeat import BeatResult, Heartbeat
from rota.engine.worker.outcomes import OutcomeQueue
from rota.engine.worker.reaper import Reaper
from rota.engine.worker.reconciler import ClaimReconciler
from rota.engine.worker.slots import JobSlots
from rota.loop import Loop
from rota.model import current_job
from rota.model.context import ContextBackend
from rota.model.task import TaskDefinition
from rota.store import claims, listeners, workers
from rota.store.database import Database
from rota.store.jobs import ClaimedJob
from rota.store.query import in_schema
from rota.store.raw_connections import RawConnections
from rota.store.read import runs
from rota.store.schedules import ScheduleDefinition as Schedule

log = logging.getLogger("rota")


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """Configuration of a worker, the same for all its sessions."""

    database: Database
    listener: Listener
    notifier: Notifier
    results: ResultWaiter
    raw_connections: RawConnections
    event_bus: EventBus
    tasks: Mapping[str, TaskDefinition]
    queues: Sequence[str]
    concurrency: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    run_factories: Mapping[str, RunFactory] = field(default_factory=dict)
    """Factory of the runs of each task or flow that schedules may start, by name."""
    declared_schedules: Sequence[Schedule] = ()
    """Schedules declared in code."""
    refused_counter: RefusedCounter = field(default_factory=RefusedCounter)
    tracing: Tracing = field(default_factory=Tracing)
    process_counters: ProcessCounters = field(default_factory=ProcessCounters)


class WorkerSession:
    def __init__(
        self, config: WorkerConfig, id: int, on_beat: Callable[[BeatResult], None], now: datetime
    ) -> None:
        database, notifier = config.database, config.notifier
        settings = database.settings
        self.id = id
        self.draining = False
        self.clock = DatabaseClock(now)
        self.database = database
        self._config = config
        self._on_beat = on_beat
        self.counters = config.process_counters.begin_session()
        outcomes = OutcomeQueue()
        self.slots = JobSlots(
            config.tasks,
            config.concurrency,
            settings.payload_limit,
            outcomes,
            self._backend_for,
            settings.max_processes,
            self._mark_exclusive,
            id,
            config.tracing,
            self.counters.started,
        )
        self.step_writer = StepWriter(database, id)
        self.child_calls = ChildCalls(
            database, config.results, notifier, id, self.slots, config.tracing
        )
        self.scheduler = Scheduler(
            database,
            notifier,
            config.event_bus,
            id,
            config.run_factories,
            config.tracing,
            config.declared_schedules,
            self.counters,
        )
        self.heartbeat = Heartbeat(database, id, lambda: self.slots.running, self._on_result)
        self.claim_loop = ClaimLoop(
            database,
            id,
            self.slots,
            outcomes,
            config.tasks,
            config.queues,
            notifier.notify,
            config.event_bus,
            self.clock,
            config.tracing,
            self.counters,
            self.scheduler.on_next_schedule,
            config.refused_counter.add,
            self.heartbeat.beat_now,
        )
        self.reconciler = ClaimReconciler(
            database, id, self.slots, self.claim_loop, notifier, self.heartbeat
        )
        self.reaper = Reaper(database, id, notifier, config.event_bus, self.counters)
        self.pruner = Pruner(database, id)
        self.minute_stats = MinuteStats(database, id, self.clock, self.counters)
        self.cleaner = Cleaner(database, id)
        self.alert_delivery = AlertDelivery(database)
        self.alert_evaluator = AlertEvaluator(
            database, config.event_bus, config.refused_counter, self.alert_delivery.wake
        )
        self.step_threads = ThreadPoolExecutor(MAX_THREADS, thread_name_prefix="rota step")
        self._job_services = JobServices(
            tasks=config.tasks,
            payload_limit=settings.payload_limit,
            clock=self.clock,
            slots=self.slots,
            child_calls=self.child_calls,
            progress_writer=self.step_writer,
            tracing=config.tracing,
            is_draining=lambda: self.draining,
            step_threads=self.step_threads,
            storage=JobStorage(
                id,
                database,
                config.raw_connections,
                notifier,
                self.step_writer,
                self.slots.expected_nonces,
            ),
        )
        self._loops: list[Loop] = [
            self.claim_loop,
            self.reconciler,
            self.reaper,
            self.pruner,
            self.scheduler,
            self.minute_stats,
            self.alert_evaluator,
            self.alert_delivery,
            self.cleaner,
        ]
        self._loop_tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = lambda: None

    @classmethod
    async def start(
        cls, config: WorkerConfig, on_beat: Callable[[BeatResult], None]
    ) -> WorkerSession:
        settings = config.database.settings
        [id] = await config.database.run_with_retry(
            workers.register(
                socket.gethostname(),
                os.getpid(),
                settings.version,
                config.queues,
                list(config.tasks),
                config.concurrency,
                [name for name, task in config.tasks.items() if not task.policy.prefetchable],
                schedules=[each.name for each in config.declared_schedules],
                rota_version=version("pgrota"),
                metadata=config.metadata,
                notify=settings.notify,
            )
        )
        [now] = await config.database.run_with_retry(runs.database_time())
        session = cls(config, id, on_beat, now)
        if settings.notify:
            channel = in_schema(listeners.WAKE_CHANNEL, config.database.schema)
            session._unsubscribe = config.listener.subscribe(channel, session._on_notification)
        session.heartbeat.start()
        context = copy_context()
        context.run(current_job.worker.set, id)  # log lines carry the worker's id
        session._loop_tasks = [
            asyncio.create_task(
                each.run(), name=f"rota {type(each).__name__.lower()}", context=context
            )
            for each in session._loops
        ]
        return session

    def _backend_for(self, job: ClaimedJob) -> ContextBackend:
        return JobBackend(self._job_services, job)

    async def _mark_exclusive(self, job: ClaimedJob, exclusive: bool) -> bool:
        query = claims.mark_running(self.id, job.claim, job.job, exclusive=exclusive)
        return bool(await self.database.run_with_retry(query))

    def _on_result(self, result: BeatResult) -> None:
        if result.answer is not None:
            self.clock.set(result.answer.now)
        self.reconciler.on_beat(result)
        self.reaper.on_beat(result)
        self._on_beat(result)

    def _on_notification(self, payload: str) -> None:
        if payload in (listeners.CANCEL_REQUESTED, listeners.DRAIN_REQUESTED):
            self.heartbeat.beat_now()
        elif payload == listeners.WORKER_REGISTERED:
            self.heartbeat.observe_now()
        elif payload == listeners.SCHEDULE_CHANGED:
            self.scheduler.on_schedules_changed()
        elif payload in self._config.queues:
            self.claim_loop.poll_now()
        elif payload == listeners.JOBS_LOST:
            self.claim_loop.poll_now(suspects=True)
        elif payload == listeners.MAY_HAVE_MISSED:
            # The missed notification may be any of these. Beat, too: a beat observes the other workers,
            # and a worker that registered unobserved could also die unobserved.
            self.heartbeat.beat_now()
            self.scheduler.on_schedules_changed()
            self.claim_loop.poll_now(suspects=True)

    # Shutdown

    def stop_claiming(self) -> None:
        """Stop claiming, and set `ctx.draining` for running jobs."""
        self.draining = True
        self.pruner.stop()
        self.cleaner.stop()
        self.scheduler.stop()
        self.claim_loop.stop_claiming()
        self.slots.drain()

    async def mark_draining(self) -> None:
        """Mark the worker as draining in the registry: from then on the claim statement refuses, too."""
        await self.database.run(workers.mark_draining(self.id))

    async def wait_flushed(self) -> None:
        while not self.claim_loop.is_flushed:
            self.claim_loop.wake()
            await asyncio.sleep(0.01)

    async def stop(self, timeout: float) -> None:
        """Stop every loop except the heartbeat, and close their connections."""
        self._unsubscribe()
        self._unsubscribe = lambda: None
        for loop in self._loops:
            loop.stop()
        if not self._loop_tasks:
            return
        _, stuck = await asyncio.wait(self._loop_tasks, timeout=timeout)
        for each in stuck:
            each.cancel()
        self._loop_tasks = []
        await wait_at_most(self.claim_loop.close(), timeout)
        await wait_at_most(self.step_writer.close(), timeout)
        await wait_at_most(self.minute_stats.close(), timeout)
        await wait_at_most(self.slots.close(), timeout)
        self.step_threads.shutdown(wait=False, cancel_futures=True)

    async def mark_stopped(self) -> None:
        """Mark the worker as stopped in the registry. Call before `stop_heartbeat`."""
        try:
            if await wait_at_most(
                self.database.run_with_retry(workers.mark_stopped(self.id), outage_timeout=1.0), 1.0
            ):
                return
            error: object = "the database does not answer"
        except Exception as raised:
            error = raised
        log.warning("worker %s could not sign off: %s", self.id, error)

    async def stop_heartbeat(self) -> None:
        self._config.process_counters.end_session(self.counters)
        self.heartbeat.request_stop()
        await self.heartbeat.join(1.0)


_cancelled_tasks: set[asyncio.Future[object]] = set()
"""Cancelled tasks that are not awaited. The references keep them from being garbage-collected."""


async def wait_at_most(coroutine: Coroutine[Any, Any, object], timeout: float) -> bool:
    """Await a coroutine for `timeout` seconds at most. Return True if it finished.

    Otherwise it is cancelled and not awaited: cancelling a query on a dead connection takes seconds.
    """
    task: asyncio.Future[object] = asyncio.ensure_future(coroutine)
    await asyncio.wait([task], timeout=max(timeout, 0.0))
    if task.done():
        task.result()
        return True
    _cancelled_tasks.add(task)
    task.add_done_callback(_discard_cancelled)
    task.cancel()
    return False


def _discard_cancelled(task: asyncio.Future[object]) -> None:
    _cancelled_tasks.discard(task)
    if not task.cancelled():
        task.exception()
