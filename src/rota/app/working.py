"""Work, as an app does it: a worker for its jobs, and its services, for a time or until told to stop."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any, cast

from rota.errors import DefinitionError, RotaError

if TYPE_CHECKING:
    import asyncio

    from rota.app.client import Client
    from rota.app.readiness import Readiness
    from rota.app.rota import Rota
    from rota.coord.services import Services
    from rota.engine.announce import Announcer
    from rota.engine.firing import Make
    from rota.engine.meters import Counted
    from rota.engine.tracing import Tracing
    from rota.engine.worker import Worker
    from rota.model.registry import Registry
    from rota.model.settings import Settings


class Working:
    """The part of `Rota` that is about running what it knows."""

    registry: Registry
    announcer: Announcer
    tracing: Tracing
    counted: Counted
    readiness: Readiness
    settings: Settings

    async def open(self) -> Client:
        raise NotImplementedError

    @asynccontextmanager
    async def services(self) -> AsyncIterator[Services]:
        """Stand by for the app's services, and run those that this instance is elected for, as long as the
        block lasts. A worker does so anyway: this is for a program that has none."""
        from rota.store.migrate import check

        if not self.registry.services:
            raise DefinitionError(
                "this app knows no service: import the modules that define them before it stands by"
            )
        client = await self.open()
        await check(client.database)
        services = self._stand_by(client)
        services.start()
        try:
            yield services
        finally:
            await self._stop(client, services)

    def _stand_by(self, client: Client) -> Services:
        from rota.coord.services import Services

        if client.services is not None:
            raise RotaError(
                "this app stands by for its services here already; a worker beside app.services() is "
                "made with app.worker(services=False)"
            )
        known = self.registry.services.values()
        for each in known:
            each.takes_context  # noqa: B018 - what is wrong with one is found now, not when it runs
        client.services = Services(client.company, client.plain, list(known))
        return client.services

    async def _stop(self, client: Client, services: Services) -> None:
        try:
            await services.stop(self.settings.drain_for)
        finally:
            client.services = None

    @asynccontextmanager
    async def worker(
        self,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        services: bool = True,
    ) -> AsyncIterator[Worker]:
        """A worker inside this program, for as long as the block lasts; then it drains. `metadata` is shown
        with it, by `rota workers` and on its page. It runs the app's services, too, unless `services` is
        false."""
        import asyncio

        from rota.engine.life import Outfit
        from rota.engine.worker import Worker
        from rota.store.migrate import check

        for flow in self.registry.flows.values():
            flow.plan  # noqa: B018 - a flow that cannot work is found now, not in a run
        client = await self.open()
        await check(client.database)
        tasks = self.registry.tasks
        if services and self.registry.services and not tasks:
            raise DefinitionError(
                "this app has services and no tasks, so there is nothing for a worker to do: run them with "
                "`async with app.services()`, app.work() or `rota worker`"
            )
        outfit = Outfit(
            client.database,
            client.listen(),
            client.news,
            client.waiting,
            client.plain,
            self.announcer,
            tasks,
            sorted({task.policy.queue for task in tasks.values()})
            if queues is None
            else list(queues),
            concurrency or self.settings.concurrency,
            metadata or {},
            await self._by_the_clock(client),
            list(cast("Rota", self).declared.values()),
            tracing=self.tracing,
            counted=self.counted,
        )
        client.worker = worker = Worker(outfit)
        if not services or not self.registry.services:
            await worker.start()
            try:
                yield worker
            finally:
                await worker.stop()
                client.worker = None
            return
        beside = self._stand_by(client)
        # Whoever drains passes its services on at once, not when the last job has ended.
        worker.when_draining(lambda: beside.begin_to_stop(self.settings.drain_for), beside.hurry)
        try:
            await worker.start()
            beside.start()
            yield worker
        finally:
            await asyncio.gather(self._stop(client, beside), worker.stop())
            client.worker = None

    async def _by_the_clock(self, client: Client) -> Mapping[str, Make]:
        """What this app starts by the clock; the database is told what its code declares."""
        from rota.app.ticking import check, makers
        from rota.engine.schedules import declare

        app: Rota = self  # type: ignore[assignment]
        for each in app.declared.values():
            check(app, each)  # what does not fit is found now, not at a tick
        targets = makers(app)
        await declare(client.database, list(app.declared.values()), list(targets))
        return targets

    async def work(
        self,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        services: bool = True,
    ) -> bool:
        """Work until SIGTERM or SIGINT, or until somebody has this worker drained, then finish what runs. A
        second signal hurries. Answers whether it was drained: then nobody wants another in its place."""
        told = Told()
        self.readiness.begin()
        try:
            with told.listening():
                return await self._work(told, queues, concurrency, metadata, services)
        finally:
            self.readiness.end()

    async def _work(
        self,
        told: Told,
        queues: Sequence[str] | None,
        concurrency: int | None,
        metadata: Mapping[str, Any] | None,
        services: bool,
    ) -> bool:
        if services and self.registry.services and not self.registry.tasks:
            async with self.services() as standing_by:
                told.when_hurried(standing_by.hurry)
                resigning = await self._until_told(told)
        else:
            async with self.worker(
                queues=queues, concurrency=concurrency, metadata=metadata, services=services
            ) as worker:
                told.when_hurried(worker.hurry)
                worker.when_asked(told.leave)
                resigning = await self._until_told(told)
        await resigning
        return told.asked

    async def _until_told(self, told: Told) -> asyncio.Task[None]:
        """Until it is to leave, whoever says so. What it leads is resigned then, at once, whatever is still
        to be ended; the answer is when the others know."""
        import asyncio

        client = await self.open()
        forget = self.readiness.when_draining(told.leave_from_anywhere)
        try:
            self.readiness.starting = False
            await told.to_stop()
        finally:
            forget()
        self.readiness.drain()
        return asyncio.create_task(client.resign(), name="rota resign")


class Told:
    """What a program that works hears from outside: to stop, to hurry, to leave."""

    def __init__(self) -> None:
        import asyncio

        self.asked = False
        """Whether somebody has asked it to leave, before any signal came."""
        self._loop = asyncio.get_running_loop()
        self._to_stop = asyncio.Event()
        self._signals = 0
        self._hurry: Callable[[], None] = lambda: None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Before it starts: a signal that comes meanwhile is obeyed when it has."""
        signals = (signal.SIGTERM, signal.SIGINT)
        for name in signals:
            self._loop.add_signal_handler(name, self._hear)
        try:
            yield
        finally:
            for name in signals:
                self._loop.remove_signal_handler(name)

    def when_hurried(self, call: Callable[[], None]) -> None:
        self._hurry = call
        if self._signals > 1:
            call()

    async def to_stop(self) -> None:
        await self._to_stop.wait()

    def leave(self) -> None:
        if not self._to_stop.is_set():
            self.asked = True
            self._to_stop.set()

    def leave_from_anywhere(self) -> None:
        """The same, in any thread."""
        self._loop.call_soon_threadsafe(self.leave)

    def _hear(self) -> None:
        self._signals += 1
        if self._to_stop.is_set():
            self._hurry()
        self._to_stop.set()
