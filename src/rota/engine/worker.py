"""A worker: which services run, and how it leaves.

      wakeups ─────────────┐ (NOTIFY; polling if it fails)
                           ▼
ready ──▶ exchange ──▶ desk: backlog ──▶ executors ──▶ finished ──▶ exchange ──▶ outcomes
  ▲                                                                    │
  │◀──────────────── timers (with the claim) ◀─── asleep ◀── failed ───┘

`Exchange` trades finished jobs for new ones, `Presence` says the worker is there and hears wishes to
cancel, `Wakeups` listens, `Prune` removes what is old. The desk holds what is in between.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Mapping, Sequence
from importlib.metadata import version

from rota.engine.announce import Announcer
from rota.engine.calls import CallPort, Calls
from rota.engine.desk import Desk
from rota.engine.exchange import Exchange
from rota.engine.news import News
from rota.engine.presence import Presence
from rota.engine.prune import Prune
from rota.engine.waiting import Waiting
from rota.engine.wakeups import Wakeups
from rota.errors import DefinitionError
from rota.model.context import Port
from rota.model.events import WorkerStarted, WorkerStopped
from rota.model.task import Definition
from rota.store import waiters, workers
from rota.store.database import Database
from rota.store.jobs import Claimed
from rota.store.query import in_schema

log = logging.getLogger("rota")


class Worker:
    def __init__(
        self,
        database: Database,
        wakeups: Wakeups,
        news: News,
        waiting: Waiting,
        announcer: Announcer,
        tasks: Mapping[str, Definition],
        queues: Sequence[str],
        concurrency: int,
    ) -> None:
        if not tasks:
            raise DefinitionError(
                "this worker knows no task: import the modules that define them before it starts"
            )
        self._database = database
        self._wakeups = wakeups
        self._news = news
        self._waiting = waiting
        self._announcer = announcer
        self._tasks = tasks
        self._queues = list(queues)
        self._concurrency = concurrency
        self._loops: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        settings = self._database.settings
        for task in self._tasks.values():
            task.arguments  # noqa: B018 - type hints that do not resolve are found now, not in a job
        [self.id] = await self._database.insist(
            workers.register(
                socket.gethostname(),
                os.getpid(),
                version("rota"),
                self._queues,
                list(self._tasks),
                self._concurrency,
                [name for name, task in self._tasks.items() if task.policy.retry.attempts == 1],
            )
        )
        self.desk = Desk(self._tasks, self._concurrency, settings.payload_limit, self._port)
        self._calls = Calls(self._database, self._waiting, self._news, self.id, self.desk)
        self.exchange = Exchange(
            self._database,
            self.id,
            self.desk,
            self._tasks,
            self._queues,
            self._news.tell,
            self._announcer,
        )
        self.presence = Presence(self._database, self.id, self.desk, self.exchange, self._news)
        self.prune = Prune(self._database, self.id)
        if settings.notify:
            self._unsubscribe = self._wakeups.subscribe(
                in_schema(waiters.NEWS, self._database.schema), self._hear
            )
        self._loops = [
            asyncio.create_task(self.exchange.run(), name="rota exchange"),
            asyncio.create_task(self.presence.run(), name="rota presence"),
            asyncio.create_task(self.prune.run(), name="rota prune"),
        ]
        self._announcer.announce(WorkerStarted(self.id))
        log.info(
            "worker %s: up to %s jobs at once from %s",
            self.id,
            self._concurrency,
            ", ".join(self._queues),
        )

    def _port(self, job: Claimed) -> Port:
        """What a job's context reaches the rest by."""
        return CallPort(self._calls, job)

    def _hear(self, word: str) -> None:
        if word == waiters.CANCEL:
            self.presence.wake()
        elif word in self._queues or word.startswith("!"):
            self.exchange.look_again()

    async def stop(self, patience: float | None = None) -> None:
        """Leave without losing work: what cannot finish in time goes back, the attempt uncounted."""
        patience = self._database.settings.drain_for if patience is None else patience
        if not self._loops:
            return
        self.prune.stop()
        self.exchange.stop_claiming()
        self.desk.put_away(older_than=0)
        self.desk.stop_parked()
        self.exchange.wake()
        if not await self._within(patience, self.desk.until_empty()):
            self.desk.stop_all()
            if not await self._within(2.0, self.desk.until_empty()):
                self.desk.abandon()
        self.exchange.wake()
        await self._within(max(patience, 5.0), self._until_recorded())
        if self._database.settings.notify:
            self._unsubscribe()
        self.exchange.stop()
        self.presence.stop()
        await asyncio.gather(*self._loops)
        self._loops = []
        await self.exchange.close()
        self.desk.close()
        await self._news.close()
        try:
            await self._database.insist(workers.leave(self.id), patience=2.0)
        except Exception as error:
            log.warning("worker %s could not sign off: %s", self.id, error)
        self._announcer.announce(WorkerStopped(self.id))

    async def _until_recorded(self) -> None:
        while not self.exchange.is_clear:
            self.exchange.wake()
            await asyncio.sleep(0.01)

    @staticmethod
    async def _within(patience: float, waiting: object) -> bool:
        try:
            async with asyncio.timeout(patience):
                await waiting  # type: ignore[misc]
        except TimeoutError:
            return False
        return True
