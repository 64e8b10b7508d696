"""A worker: it lives, leaves, and if it was declared dead in between, lives again under another number."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from rota.engine.address import address_of
from rota.engine.drain import Drain
from rota.engine.heart import Pulse
from rota.engine.life import Life, Outfit, soon
from rota.errors import DefinitionError
from rota.model import events
from rota.store.query import load_all

log = logging.getLogger("rota")

LAST_WORDS = 2.0
"""Seconds in which a worker that was declared dead may still record what nobody has taken back yet."""


class Worker:
    def __init__(self, outfit: Outfit) -> None:
        if not outfit.tasks:
            raise DefinitionError(
                "this worker knows no task: import the modules that define them before it starts"
            )
        self._outfit = outfit
        self._life: Life | None = None
        self._changing: asyncio.Task[None] | None = None
        self._drain: Drain | None = None
        self._leaving = False
        self._hurried = False
        self._left = asyncio.Event()
        self._on_asked: Callable[[], None] = self._leave
        self._on_draining: Callable[[], object] = lambda: None
        self._on_hurried: Callable[[], object] = lambda: None
        self._going: asyncio.Task[None] | None = None

    @property
    def life(self) -> Life:
        assert self._life is not None, "the worker has not been started"
        return self._life

    @property
    def lives(self) -> bool:
        """Whether it has been started, and has not left."""
        return self._life is not None and not self._left.is_set()

    @property
    def id(self) -> int:
        """Its number in the registry: a new one with each life."""
        return self.life.id

    def when_asked(self, leave: Callable[[], None]) -> None:
        """What to do when somebody wants it to leave: `rota drain`, or the same from SQL."""
        self._on_asked = leave

    def when_draining(self, drain: Callable[[], object], hurry: Callable[[], object]) -> None:
        """What else is to be done as soon as it drains, and as soon as it is to hurry."""
        self._on_draining = drain
        self._on_hurried = hurry

    def _leave(self) -> None:
        """Inside a program that goes on: drain, and be there no more."""
        if self._going is None:
            self._going = asyncio.create_task(self.stop(), name="rota drain")

    async def start(self) -> None:
        load_all(self._outfit.database.schema)
        for task in self._outfit.tasks.values():
            # What is wrong with a task is found now, not in a job.
            task.arguments  # noqa: B018
            if task.policy.isolation is not None:
                address_of(task)
        self._life = await Life.begin(self._outfit, self._hear)
        self._outfit.announcer.announce(events.WorkerStarted(self.id))
        log.info(
            "worker %s: up to %s jobs at once from %s",
            self.id,
            self._outfit.concurrency,
            ", ".join(self._outfit.queues),
        )

    def _hear(self, pulse: Pulse) -> None:
        if pulse.told is not None and pulse.told.asked:
            self._on_asked()
        if pulse.died and not self._leaving and self._changing is None:
            self._changing = asyncio.create_task(self._live_again(), name="rota rebirth")

    async def _live_again(self) -> None:
        """What the old number holds is being taken away: stop it, and begin anew."""
        old = self.life
        lost = old.desk.lose()
        log.warning(
            "worker %s was declared dead: its %s job(s) are stopped, what they did counts for nothing",
            old.id,
            lost,
        )
        old.exchange.stop_claiming()
        if not await soon(old.desk.until_empty(), LAST_WORDS):
            old.desk.abandon(give_back=False)
        await soon(old.until_recorded(), LAST_WORDS)
        await old.stop(within=LAST_WORDS)
        await old.end_heart()
        rest = 1.0
        while not self._leaving:
            try:
                self._life = await Life.begin(self._outfit, self._hear)
                break
            except Exception as error:
                log.error("worker %s cannot begin anew, trying on: %s", old.id, error)
                await asyncio.sleep(rest)
                rest = min(rest * 2, 30.0)
        self._changing = None
        if self._leaving:
            return
        log.warning("worker %s lives on as worker %s", old.id, self.id)
        self._outfit.announcer.announce(events.WorkerReborn(self.id, old.id))

    def hurry(self) -> None:
        """Do not wait for what runs, now or when it drains."""
        self._hurried = True
        self._on_hurried()
        if self._drain is not None:
            self._drain.hurry()

    async def stop(self, grace: float | None = None, stay: asyncio.Event | None = None) -> None:
        """Leave without losing work: what cannot finish in time goes back, the attempt uncounted. `stay`:
        sign off when this is set, within the grace, and not before."""
        if self._life is None:
            return
        if self._leaving:
            await self._left.wait()
            return
        self._leaving = True
        self._on_draining()
        if self._changing is not None:
            await asyncio.wait([self._changing], timeout=LAST_WORDS * 4)
        settings = self._outfit.database.settings
        grace = settings.drain_for if grace is None else grace
        self._drain = Drain(self.life, grace, self._outfit.announcer, stay)
        if self._hurried:
            self._drain.hurry()
        try:
            await self._drain.run()
            await self._outfit.news.close()
            self._outfit.announcer.announce(events.WorkerStopped(self.id))
        finally:
            self._left.set()  # others wait for it, whatever became of it
