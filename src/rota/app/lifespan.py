"""An app's life inside a web process: `FastAPI(lifespan=app.lifespan)`.

It starts in order: is the schema one we know, the pool, a number in the registry, services and leaders,
the worker; then it is ready. It leaves in order, too:

    1  nothing new: no job is claimed, readiness says no, what it leads is resigned, services are passed on
    2  requests are served on for as long as a load balancer takes to notice
    3  the server accepts no more, and the last requests are answered
    4  jobs end, or go back within the grace, their attempts uncounted
    5  what ended is recorded; the worker signs off, its heart stops
    6  the connections are closed

1 begins with `app.readiness.drain()`, which `rota serve` and `rota.asgi.Drain` call at the first signal,
ahead of the server. Under a server that knows neither it begins at the signal, too, which is overheard; but
then the server closes its sockets at once, without 2, and requests that come then fail.

Any number of processes may do so at once: each is a worker of its own.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from rota.app.overhearing import overhearing

if TYPE_CHECKING:
    from rota.app.client import Client
    from rota.app.rota import Rota
    from rota.engine.worker import Worker

log = logging.getLogger("rota")


@dataclass(frozen=True, slots=True)
class Lifespan:
    """Called with the web application, by its framework. Within a lifespan of your own:

    async with app.lifespan(api) as state:
        yield {**state, "engine": engine}
    """

    app: Rota
    worker: bool | None = None
    services: bool = True
    queues: Sequence[str] | None = None
    concurrency: int | None = None
    metadata: Mapping[str, Any] | None = None

    def using(
        self,
        *,
        worker: bool | None = None,
        services: bool = True,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> Lifespan:
        """The same, another way. `worker=False`: only start runs, and leave jobs and services to others
        (as ROTA_WEB_WORKER=off does); the rest is as with `app.worker(…)`."""
        return replace(
            self,
            worker=worker,
            services=services,
            queues=queues,
            concurrency=concurrency,
            metadata=metadata,
        )

    def __call__(self, api: object = None) -> AbstractAsyncContextManager[dict[str, Any]]:
        return self._live()

    @asynccontextmanager
    async def _live(self) -> AsyncIterator[dict[str, Any]]:
        from rota.store.migrate import check

        app, readiness = self.app, self.app.readiness
        readiness.begin()
        try:
            client = await app.open()
            await check(client.database)
            async with self._working(client):
                readiness.starting = False
                with self._overhearing():
                    yield {"rota": app}
        finally:
            readiness.end()
            await app.close()

    @contextmanager
    def _overhearing(self) -> Iterator[None]:
        """What the server was told, it tells us when its last request has ended: that may be long."""
        readiness, loop = self.app.readiness, asyncio.get_running_loop()
        try:
            if readiness.conducted:
                yield
                return
            with overhearing(lambda: loop.call_soon_threadsafe(readiness.drain)):
                yield
        finally:
            readiness.drain()

    @asynccontextmanager
    async def _working(self, client: Client) -> AsyncIterator[None]:
        registry, settings = self.app.registry, self.app.settings
        works = settings.web_worker if self.worker is None else self.worker
        if works and registry.tasks:
            async with self.app.worker(
                queues=self.queues,
                concurrency=self.concurrency,
                metadata=self.metadata,
                services=self.services,
            ) as worker:
                async with self._leaving_in_order(client, worker):
                    yield
        elif works and self.services and registry.services:
            async with self.app.services() as standing_by:

                def pass_on() -> asyncio.Task[None]:
                    return standing_by.begin_to_stop(self.app.readiness.delay + settings.drain_for)

                async with self._told(client, pass_on, standing_by.hurry):
                    yield
        else:
            log.info("no worker here: runs are only started")
            async with self._told(client):
                yield

    @asynccontextmanager
    async def _leaving_in_order(self, client: Client, worker: Worker) -> AsyncIterator[None]:
        """Jobs may take as long as the requests and the grace after them."""
        served = asyncio.Event()

        def leave() -> asyncio.Task[None]:
            grace = self.app.readiness.delay + self.app.settings.drain_for
            return asyncio.create_task(worker.stop(grace, served), name="rota drain")

        async with self._told(client, leave, worker.hurry):
            try:
                yield
            finally:
                # Here the last request has been answered.
                served.set()

    @asynccontextmanager
    async def _told(
        self,
        client: Client,
        leave: Callable[[], asyncio.Task[None]] | None = None,
        hurry: Callable[[], object] = lambda: None,
    ) -> AsyncIterator[None]:
        """Hear, in this loop, that this instance leaves, whoever says so and in whichever thread; and until
        it has left, that it is to hurry."""
        loop = asyncio.get_running_loop()
        leaving: list[asyncio.Task[None]] = []

        def begin() -> None:
            if not leaving:
                leaving.append(asyncio.create_task(client.resign(), name="rota resign"))
                leaving.extend([] if leave is None else [leave()])

        forget = self.app.readiness.when_draining(
            lambda: loop.call_soon_threadsafe(begin), lambda: loop.call_soon_threadsafe(hurry)
        )
        try:
            yield
        finally:
            begin()  # what was said a moment ago may not have been heard yet
            try:
                await asyncio.gather(*leaving)
            finally:
                forget()
