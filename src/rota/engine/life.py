"""One life of a worker: from its number in the registry until it leaves, or was declared dead.

      wakeups ─────────────┐ (NOTIFY; polling if it fails)
                           ▼
ready ──▶ exchange ──▶ desk: backlog ──▶ executors ──▶ finished ──▶ exchange ──▶ outcomes
  ▲                                                                    │
  │◀──────────────── timers (with the claim) ◀─── asleep ◀── failed ───┘

`Exchange` trades finished jobs for new ones; `Scribe` writes down what their code comes to meanwhile.
`Heart` says the worker lives, in a thread of its own, and hears what is asked of it; `Presence` does that,
`Reaper` takes back what dead workers held, `Prune` and `Tidy` remove what is old, `Watchman` looks for what
somebody should know and `Courier` tells it. The desk holds what is in between.
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

from rota.engine.announce import Announcer
from rota.engine.calls import Calls
from rota.engine.clock import Clock
from rota.engine.courier import Courier
from rota.engine.desk import Desk
from rota.engine.exchange import Exchange
from rota.engine.firing import Make
from rota.engine.heart import Heart, Pulse
from rota.engine.meters import Counted
from rota.engine.news import News
from rota.engine.port import JobPort
from rota.engine.presence import Presence
from rota.engine.prune import Prune
from rota.engine.reaper import Reaper
from rota.engine.scheduler import Scheduler
from rota.engine.scribe import Scribe
from rota.engine.tally import Tally
from rota.engine.threads import MOST_THREADS
from rota.engine.tidy import Tidy
from rota.engine.tracing import Tracing
from rota.engine.waiting import Waiting
from rota.engine.wakeups import Wakeups
from rota.engine.watchman import Refusals, Watchman
from rota.loop import Loop
from rota.model import at_work
from rota.model.context import Port
from rota.model.task import Definition
from rota.store import claims, views, waiters, workers
from rota.store.database import Database
from rota.store.jobs import Claimed
from rota.store.plain import Plain
from rota.store.query import in_schema
from rota.store.schedules import Definition as Schedule

log = logging.getLogger("rota")


@dataclass(frozen=True, slots=True)
class Outfit:
    """What a worker works with, in every life."""

    database: Database
    wakeups: Wakeups
    news: News
    waiting: Waiting
    plain: Plain
    announcer: Announcer
    tasks: Mapping[str, Definition]
    queues: Sequence[str]
    concurrency: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    schedules: Mapping[str, Make] = field(default_factory=dict)
    """What schedules may start, and how it is made."""
    declared: Sequence[Schedule] = ()
    """Schedules, as the code declares them."""
    refusals: Refusals = field(default_factory=Refusals)
    tracing: Tracing = field(default_factory=Tracing)
    counted: Counted = field(default_factory=Counted)


class Life:
    def __init__(
        self, outfit: Outfit, id: int, hear: Callable[[Pulse], None], now: datetime
    ) -> None:
        database, news = outfit.database, outfit.news
        self.id = id
        self.draining = False
        self.clock = Clock(now)
        self.database = database
        self.news = news
        self.plain = outfit.plain
        self.tasks = outfit.tasks
        self.tracing = outfit.tracing
        self._outfit = outfit
        self._on_pulse = hear
        self.meters = outfit.counted.begin()
        self.desk = Desk(
            outfit.tasks,
            outfit.concurrency,
            database.settings.payload_limit,
            self._port,
            database.settings.children,
            self._mark,
            id,
            outfit.tracing,
        )
        self.meters.started = self.desk.started
        self.scribe = Scribe(database, id)
        self.calls = Calls(database, outfit.waiting, news, id, self.desk, outfit.tracing)
        self.exchange = Exchange(
            database,
            id,
            self.desk,
            outfit.tasks,
            outfit.queues,
            news.tell,
            outfit.announcer,
            self.clock,
            outfit.tracing,
            self.meters,
        )
        self.presence = Presence(database, id, self.desk, self.exchange, news)
        self.reaper = Reaper(database, id, news, outfit.announcer, self.meters)
        self.prune = Prune(database, id)
        self.scheduler = Scheduler(
            database, news, outfit.announcer, id, outfit.schedules, outfit.tracing, outfit.declared
        )
        self.scheduler.meters = self.meters
        self.tally = Tally(database, id, self.clock, self.meters)
        self.exchange.when_scheduled(self.scheduler.hear)
        self.tidy = Tidy(database, id)
        self.courier = Courier(database)
        self.watchman = Watchman(database, outfit.announcer, outfit.refusals, self.courier.wake)
        self.exchange.when_refused(outfit.refusals.add)
        self.heart = Heart(database, id, lambda: self.desk.running, self._hear)
        self.presence.listen_to(self.heart)
        self.threads = ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="rota step")
        """For steps of coroutines that are plain functions."""
        self._services: list[Loop] = [
            self.exchange,
            self.presence,
            self.reaper,
            self.prune,
            self.scheduler,
            self.tally,
            self.watchman,
            self.courier,
            self.tidy,
        ]
        self._loops: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = lambda: None

    @classmethod
    async def begin(cls, outfit: Outfit, hear: Callable[[Pulse], None]) -> Life:
        settings = outfit.database.settings
        [id] = await outfit.database.insist(
            workers.register(
                socket.gethostname(),
                os.getpid(),
                settings.version,
                outfit.queues,
                list(outfit.tasks),
                outfit.concurrency,
                [name for name, task in outfit.tasks.items() if not task.policy.patient],
                schedules=[each.name for each in outfit.declared],
                engine=version("rota"),
                metadata=outfit.metadata,
                notify=settings.notify,
            )
        )
        [now] = await outfit.database.insist(views.clock())
        life = cls(outfit, id, hear, now)
        if settings.notify:
            channel = in_schema(waiters.NEWS, outfit.database.schema)
            life._unsubscribe = outfit.wakeups.subscribe(channel, life._hear_word)
        life.heart.start()
        around = copy_context()
        around.run(at_work.worker.set, id)  # so that log lines say whose they are
        life._loops = [
            asyncio.create_task(
                each.run(), name=f"rota {type(each).__name__.lower()}", context=around
            )
            for each in life._services
        ]
        return life

    def _port(self, job: Claimed) -> Port:
        """What a job's context reaches the rest by."""
        return JobPort(self, job)

    async def _mark(self, job: Claimed, alone: bool) -> bool:
        query = claims.mark(self.id, job.claim, job.job, alone=alone)
        return bool(await self.database.insist(query))

    def _hear(self, pulse: Pulse) -> None:
        if pulse.told is not None:
            self.clock.set(pulse.told.now)
        self.presence.hear(pulse)
        self.reaper.hear(pulse)
        self._on_pulse(pulse)

    def _hear_word(self, word: str) -> None:
        if word in (waiters.CANCEL, waiters.DRAIN):
            self.heart.ask()
        elif word == waiters.WORKER:
            self.heart.look()
        elif word == waiters.SCHEDULE:
            self.scheduler.look()
        elif word in self._outfit.queues:
            self.exchange.look_again()
        elif word == waiters.LOST:
            self.exchange.look_again(suspects=True)
        elif word == waiters.MISSED:
            # It may have been any of these. Somebody who came unseen could die unseen, too.
            self.heart.ask()
            self.scheduler.look()
            self.exchange.look_again(suspects=True)

    # Ending it

    def take_nothing_more(self) -> None:
        """Stop claiming, and let what runs know."""
        self.draining = True
        self.prune.stop()
        self.tidy.stop()
        self.scheduler.stop()
        self.exchange.stop_claiming()
        self.desk.drain()

    async def retire(self) -> None:
        """Say in the registry that nothing more is taken: from then on claiming refuses, too."""
        await self.database.run(workers.retire(self.id))

    async def until_recorded(self) -> None:
        while not self.exchange.is_clear:
            self.exchange.wake()
            await asyncio.sleep(0.01)

    async def stop(self, within: float) -> None:
        """Stop every loop but the heart."""
        self._unsubscribe()
        self._unsubscribe = lambda: None
        for service in self._services:
            service.stop()
        if not self._loops:
            return
        _, stuck = await asyncio.wait(self._loops, timeout=within)
        for each in stuck:
            each.cancel()
        self._loops = []
        await soon(self.exchange.close(), within)
        await soon(self.scribe.close(), within)
        await soon(self.tally.close(), within)
        await soon(self.desk.close(), within)
        self.threads.shutdown(wait=False, cancel_futures=True)

    async def leave(self) -> None:
        """Sign off; the heart stops last."""
        try:
            if await soon(self.database.insist(workers.leave(self.id), patience=1.0), 1.0):
                return
            error: object = "the database does not answer"
        except Exception as trouble:
            error = trouble
        log.warning("worker %s could not sign off: %s", self.id, error)

    async def end_heart(self) -> None:
        self._outfit.counted.end(self.meters)
        self.heart.end()
        await self.heart.ended()


_left_alone: set[asyncio.Future[object]] = set()
"""What is cancelled and not waited for: kept, lest it be collected on its way."""


async def soon(doing: Coroutine[Any, Any, object], within: float) -> bool:
    """Do something, for so many seconds at most. Was it done?

    What was not is cancelled and left alone: a query on a connection that is dead takes seconds to be
    cancelled.
    """
    task: asyncio.Future[object] = asyncio.ensure_future(doing)
    await asyncio.wait([task], timeout=max(within, 0.0))
    if task.done():
        task.result()
        return True
    _left_alone.add(task)
    task.add_done_callback(_let_go)
    task.cancel()
    return False


def _let_go(task: asyncio.Future[object]) -> None:
    _left_alone.discard(task)
    if not task.cancelled():
        task.exception()
