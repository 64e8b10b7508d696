"""Lifespan of an app inside a web process: `FastAPI(lifespan=app.lifespan)`.

Startup order: check of the schema, connection pool, registration, services and leaders, worker. Then the
instance is ready. Shutdown order:

    1  no new jobs are claimed, readiness fails, leaderships are resigned, services are handed over
    2  requests are still served until a load balancer has noticed
    3  the server accepts no more requests and answers the last ones
    4  jobs end or return to the queue within the drain timeout, their attempts uncounted
    5  outcomes are recorded; the worker deregisters and its heartbeat stops
    6  the connections are closed

`app.readiness.drain()` starts step 1. `rota serve` and `rota.asgi.Drain` call it at the first signal,
before the server receives it. Under any other server, the lifespan observes the signal and starts step 1 as
well. Such a server closes its sockets at once, without step 2, so requests that arrive then fail.

Any number of processes can run at the same time; each has its own worker.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Unpack

from rota.app.rota import WORKER_DEFAULTS, WorkerOptions
from rota.app.shutdown_signals import also_on_signal
from rota.model.options import check_options, show_options

if TYPE_CHECKING:
    from rota.app.client import Client
    from rota.app.rota import Rota
    from rota.engine.worker.worker import Worker

log = logging.getLogger("rota")


@dataclass(frozen=True, slots=True)
class Lifespan:
    """Lifespan that the web framework calls with its application.

    Inside your own lifespan:

        async with app.lifespan(api) as state:
            yield {**state, "engine": engine}
    """

    app: Rota
    worker: bool | None = None
    services: bool = True
    queues: Sequence[str] | None = None
    concurrency: int | None = None
    metadata: Mapping[str, Any] | None = None

    @show_options(WorkerOptions, WORKER_DEFAULTS)
    def options(self, *, worker: bool | None = None, **options: Unpack[WorkerOptions]) -> Lifespan:
        """Return the lifespan with other options.

        `worker=False` only starts runs and runs neither jobs nor services, as ROTA_WEB_WORKER=off does. The
        remaining options are those of `app.worker(…)`.
        """
        check_options(Lifespan.options, options, WorkerOptions)
        return Lifespan(self.app, worker, **options)

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
        """Start to drain at the signal: the server ends the lifespan only after its last request, which may
        take long."""
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
        """Give jobs the time of the remaining requests plus the drain timeout."""
        requests_done = asyncio.Event()

        def start_drain() -> asyncio.Task[None]:
            grace = self.app.readiness.drain_delay + self.app.settings.drain_timeout
            return asyncio.create_task(worker.stop(grace, requests_done), name="rota drain")

        async with self._drain_on_request(client, start_drain, worker.hurry):
            try:
                yield
            finally:
                # The last request has been answered.
                requests_done.set()

    @asynccontextmanager
    async def _drain_on_request(
        self,
        client: Client,
        start_drain: Callable[[], asyncio.Task[None]] | None = None,
        hurry: Callable[[], object] = lambda: None,
    ) -> AsyncIterator[None]:
        """Start to drain in this event loop when any thread requests it, and pass on a later request to
        hurry."""
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
            begin_drain()  # a request from another thread may still be pending
            try:
                await asyncio.gather(*stop_tasks)
            finally:
                unsubscribe()
