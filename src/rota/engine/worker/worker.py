"""Worker: starts, drains and stops; registers again with a new id after it was declared dead."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rota.engine.execution.process.task_address import import_path_of
from rota.engine.worker.drain import WorkerDrain
from rota.engine.worker.heartbeat import BeatResult
from rota.engine.worker.session import WorkerConfig, WorkerSession, wait_at_most
from rota.errors import DefinitionError
from rota.model import events
from rota.store.query import load_all

log = logging.getLogger("rota")

DEAD_FLUSH_SECONDS = 2.0
"""Limit for each step of shutting down a session that was declared dead.

Outcomes of jobs that the reaper has not taken back yet can still be recorded in this time.
"""


class Worker:
    """Worker of one process.

    on_drain_request   called when an operator requests a drain, with `rota drain` or in SQL; by default the
                       worker drains and stops without ending the process
    on_drain           called when the worker begins to drain
    on_hurry           called when `hurry` is called
    """

    def __init__(
        self,
        config: WorkerConfig,
        on_drain_request: Callable[[], None] | None = None,
        on_drain: Callable[[], object] = lambda: None,
        on_hurry: Callable[[], object] = lambda: None,
    ) -> None:
        if not config.tasks:
            raise DefinitionError(
                "this worker knows no task: import the modules that define them before it starts"
            )
        self._config = config
        self._session: WorkerSession | None = None
        self._reregistering: asyncio.Task[None] | None = None
        self._drain: WorkerDrain | None = None
        self._is_stopping = False
        self._hurried = False
        self._stopped = asyncio.Event()
        self._on_drain_request = on_drain_request or self._drain_in_background
        self._on_drain = on_drain
        self._on_hurry = on_hurry
        self._drain_task: asyncio.Task[None] | None = None

    @property
    def session(self) -> WorkerSession:
        assert self._session is not None, "the worker has not been started"
        return self._session

    @property
    def is_running(self) -> bool:
        """True if the worker was started and has not stopped."""
        return self._session is not None and not self._stopped.is_set()

    @property
    def id(self) -> int:
        """Id in the registry. Each session has a new one."""
        return self.session.id

    def _drain_in_background(self) -> None:
        """Drain and stop without ending the process: the worker runs inside another program."""
        if self._drain_task is None:
            self._drain_task = asyncio.create_task(self.stop(), name="rota drain")

    async def start(self) -> None:
        load_all(self._config.database.schema)
        for task in self._config.tasks.values():
            # Find mistakes in a task's definition now, not in a job.
            task.arguments_decoder  # noqa: B018
            if task.policy.isolation is not None:
                import_path_of(task)
        self._session = await WorkerSession.start(self._config, self._on_beat)
        self._config.event_bus.publish(events.WorkerStarted(self.id))
        log.info(
            "worker %s: up to %s jobs at once from %s",
            self.id,
            self._config.concurrency,
            ", ".join(self._config.queues),
        )

    def _on_beat(self, result: BeatResult) -> None:
        if result.answer is not None and result.answer.drain_requested:
            self._on_drain_request()
        if result.declared_dead and not self._is_stopping and self._reregistering is None:
            self._reregistering = asyncio.create_task(
                self._register_again(), name="rota registration"
            )

    async def _register_again(self) -> None:
        """Stop the jobs of the session that was declared dead, and start a new session.

        Other workers take back the claims of the old session.
        """
        old = self.session
        dropped = old.slots.drop_claims()
        log.warning(
            "worker %s was declared dead: stopping its %s job(s); their outcomes are discarded",
            old.id,
            dropped,
        )
        old.claim_loop.stop_claiming()
        if not await wait_at_most(old.slots.wait_empty(), DEAD_FLUSH_SECONDS):
            old.slots.abandon(return_jobs=False)
        await wait_at_most(old.wait_flushed(), DEAD_FLUSH_SECONDS)
        await old.stop(timeout=DEAD_FLUSH_SECONDS)
        await old.stop_heartbeat()
        delay = 1.0
        while not self._is_stopping:
            try:
                self._session = await WorkerSession.start(self._config, self._on_beat)
                break
            except Exception as error:
                log.error("worker %s cannot register again; retrying: %s", old.id, error)
                await asyncio.sleep(delay)
                delay = min(delay * 2, 30.0)
        self._reregistering = None
        if self._is_stopping:
            return
        log.warning("worker %s registered again as worker %s", old.id, self.id)
        self._config.event_bus.publish(events.WorkerReregistered(self.id, old.id))

    def hurry(self) -> None:
        """Stop running jobs instead of waiting for them, in this drain or the next one."""
        self._hurried = True
        self._on_hurry()
        if self._drain is not None:
            self._drain.hurry()

    async def stop(
        self, drain_timeout: float | None = None, requests_answered: asyncio.Event | None = None
    ) -> None:
        """Drain and stop without losing work.

        Jobs that do not finish within `drain_timeout` seconds return to the queue, attempts uncounted.
        With `requests_answered`, stay registered until the event is set, `drain_timeout` at most.
        """
        if self._session is None:
            return
        if self._is_stopping:
            await self._stopped.wait()
            return
        self._is_stopping = True
        self._on_drain()
        if self._reregistering is not None:
            await asyncio.wait([self._reregistering], timeout=DEAD_FLUSH_SECONDS * 4)
        settings = self._config.database.settings
        drain_timeout = settings.drain_timeout if drain_timeout is None else drain_timeout
        self._drain = WorkerDrain(
            self.session, drain_timeout, self._config.event_bus, requests_answered
        )
        if self._hurried:
            self._drain.hurry()
        try:
            await self._drain.run()
            await self._config.notifier.close()
            self._config.event_bus.publish(events.WorkerStopped(self.id))
        finally:
            self._stopped.set()  # also after an error: other calls of stop() wait for it
