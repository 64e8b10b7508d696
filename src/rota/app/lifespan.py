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

from rota.app.shutdown_signals import also_on_signal

if TYPE_CHECKING:
    from rota.app.client import Client
    from rota.app.rota import Rota
    from rota.engine.worker.worker import Worker

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

    def options(
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
        return self._run()

    @asynccontextmanager
    async def _run(self) -> AsyncIterator[dict[str, Any]]:
        from rota.store.migrate import check

        app, readiness = self.app, self.app.readiness
        readiness.mark_starting()
        try:
            client = await app.open()
            await check(client.database)
            async with self._run_worker(client):
                readiness.is_starting = False
                with self._drain_on_signal():
                    yield {"rota": app}
        finally:
            readiness.mark_stopped()
            await app.close()

    @contextmanager
    def _drain_on_signal(self) -> Iterator[None]:
        """What the server was told, it tells us when its last request has ended: that may be long."""
        readiness, loop = self.app.readiness, asyncio.get_running_loop()
        try:
            if readiness.is_drain_managed:
                yield
                return
            with also_on_signal(lambda: loop.call_soon_threadsafe(readiness.drain)):
                yield
        finally:
            readiness.drain()

    @asynccontextmanager
    async def _run_worker(self, client: Client) -> AsyncIterator[None]:
        registry, settings = self.app.registry, self.app.settings
        runs_worker = settings.web_worker if self.worker is None else self.worker
        if runs_worker and registry.tasks:
            async with self.app.worker(
                queues=self.queues,
                concurrency=self.concurrency,
                metadata=self.metadata,
                services=self.services,
            ) as worker:
                async with self._drain_after_requests(client, worker):
                    yield
        elif runs_worker and self.services and registry.services:
            async with self.app.services() as service_group:

                def stop_services() -> asyncio.Task[None]:
                    return service_group.request_stop(
                        self.app.readiness.drain_delay + settings.drain_timeout
                    )

                async with self._drain_on_request(client, stop_services, service_group.hurry):
                    yield
        else:
            log.info("no worker here: runs are only started")
            async with self._drain_on_request(client):
                yield

    @asynccontextmanager
    async def _drain_after_requests(self, client: Client, worker: Worker) -> AsyncIterator[None]:
        """Jobs may take as long as the requests and the grace after them."""
        requests_done = asyncio.Event()

        def start_drain() -> asyncio.Task[None]:
            grace = self.app.readiness.drain_delay + self.app.settings.drain_timeout
            return asyncio.create_task(worker.stop(grace, requests_done), name="rota drain")

        async with self._drain_on_request(client, start_drain, worker.hurry):
            try:
                yield
            finally:
                # Here the last request has been answered.
                requests_done.set()

    @asynccontextmanager
    async def _drain_on_request(
        self,
        client: Client,
        start_drain: Callable[[], asyncio.Task[None]] | None = None,
        hurry: Callable[[], object] = lambda: None,
    ) -> AsyncIterator[None]:
        """Hear, in this loop, that this instance leaves, whoever says so and in whichever thread; and until
        it has left, that it is to hurry."""
        loop = asyncio.get_running_loop()
        stop_tasks: list[asyncio.Task[None]] = []

        def begin_drain() -> None:
            if not stop_tasks:
                stop_tasks.append(asyncio.create_task(client.resign(), name="rota resign"))
                stop_tasks.extend([] if start_drain is None else [start_drain()])

        unsubscribe = self.app.readiness.on_drain(
            lambda: loop.call_soon_threadsafe(begin_drain), lambda: loop.call_soon_threadsafe(hurry)
        )
        try:
            yield
        finally:
            begin_drain()  # what was said a moment ago may not have been heard yet
            try:
                await asyncio.gather(*stop_tasks)
            finally:
                unsubscribe()
