"""Entry points that run an app's jobs and services, during an `async with` block or until a signal."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, cast

from rota.errors import DefinitionError, RotaError

if TYPE_CHECKING:
    import asyncio

    from rota.app.client import Client
    from rota.app.readiness import Readiness
    from rota.app.rota import Rota
    from rota.app.shutdown_signals import ShutdownSignals
    from rota.coord.services import ServiceGroup
    from rota.engine.scheduling.fire import RunFactory
    from rota.engine.telemetry.counters import ProcessCounters
    from rota.engine.telemetry.event_bus import EventBus
    from rota.engine.telemetry.tracing import Tracing
    from rota.engine.worker.worker import Worker
    from rota.model.registry import Registry
    from rota.model.settings import Settings


class WorkerEntry:
    """Base class of `Rota`: runs workers and services."""

    registry: Registry
    event_bus: EventBus
    tracing: Tracing
    process_counters: ProcessCounters
    readiness: Readiness
    settings: Settings

    async def open(self) -> Client:
        raise NotImplementedError

    @asynccontextmanager
    async def services(self) -> AsyncIterator[ServiceGroup]:
        """Be a candidate for the app's services during the block, and run them while elected.

        For a program without a worker. Workers run the services by default.
        """
        from rota.store.migrate import check

        if not self.registry.services:
            raise DefinitionError(
                "this app has no service: import the modules that define them first"
            )
        client = await self.open()
        await check(client.database)
        services = self._create_services(client)
        services.start()
        try:
            yield services
        finally:
            await self._stop_services(client, services)

    def _create_services(self, client: Client) -> ServiceGroup:
        from rota.coord.services import ServiceGroup

        if client.services is not None:
            raise RotaError(
                "this program already stands by for the app's services; add a worker with "
                "app.worker(services=False)"
            )
        definitions = self.registry.services.values()
        for each in definitions:
            each.takes_context  # noqa: B018 - raises now if the signature is invalid
        client.services = ServiceGroup(
            client.coordinator, client.raw_connections, list(definitions)
        )
        return client.services

    async def _stop_services(self, client: Client, services: ServiceGroup) -> None:
        try:
            await services.stop(self.settings.drain_timeout)
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
        """Run a worker inside this program during the block; then drain it.

        `rota workers` and the dashboard show `metadata`. The worker also runs the app's services, unless
        `services` is false.
        """
        import asyncio

        from rota.engine.worker.session import WorkerConfig
        from rota.engine.worker.worker import Worker
        from rota.store.migrate import check

        for flow in self.registry.flows.values():
            flow.plan  # noqa: B018 - raises now if the flow is invalid
        client = await self.open()
        await check(client.database)
        tasks = self.registry.tasks
        if services and self.registry.services and not tasks:
            raise DefinitionError(
                "this app has services but no tasks: run them with `async with app.services()`, "
                "app.work() or `rota worker`"
            )
        config = WorkerConfig(
            client.database,
            client.listen(),
            client.notifier,
            client.results,
            client.raw_connections,
            self.event_bus,
            tasks,
            sorted({task.policy.queue for task in tasks.values()})
            if queues is None
            else list(queues),
            concurrency or self.settings.concurrency,
            metadata or {},
            await self._declare_schedules(client),
            list(cast("Rota", self).declared_schedules.values()),
            tracing=self.tracing,
            process_counters=self.process_counters,
        )
        client.worker = worker = Worker(config)
        if not services or not self.registry.services:
            await worker.start()
            try:
                yield worker
            finally:
                await worker.stop()
                client.worker = None
            return
        service_group = self._create_services(client)
        # A draining worker hands over its services at once, not after its last job.
        worker.on_drain(
            lambda: service_group.request_stop(self.settings.drain_timeout), service_group.hurry
        )
        try:
            await worker.start()
            service_group.start()
            yield worker
        finally:
            await asyncio.gather(self._stop_services(client, service_group), worker.stop())
            client.worker = None

    async def _declare_schedules(self, client: Client) -> Mapping[str, RunFactory]:
        """Store the declared schedules, and return the run factories of this app."""
        from rota.app.schedule_targets import check_schedule, run_factories
        from rota.engine.scheduling.definitions import declare

        app: Rota = self  # type: ignore[assignment]
        for each in app.declared_schedules.values():
            check_schedule(app, each)  # raises now instead of at a tick
        factories = run_factories(app)
        await declare(client.database, list(app.declared_schedules.values()), list(factories))
        return factories

    async def work(
        self,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        services: bool = True,
    ) -> bool:
        """Work until SIGTERM, SIGINT or a drain request, then finish the running jobs.

        A signal during that shortens it. Return True if a drain request came before any signal: a
        supervisor should then not restart the worker.
        """
        from rota.app.shutdown_signals import ShutdownSignals

        shutdown = ShutdownSignals()
        self.readiness.mark_starting()
        try:
            with shutdown.handle_signals():
                return await self._work(shutdown, queues, concurrency, metadata, services)
        finally:
            self.readiness.mark_stopped()

    async def _work(
        self,
        shutdown: ShutdownSignals,
        queues: Sequence[str] | None,
        concurrency: int | None,
        metadata: Mapping[str, Any] | None,
        services: bool,
    ) -> bool:
        if services and self.registry.services and not self.registry.tasks:
            async with self.services() as service_group:
                shutdown.on_hurry(service_group.hurry)
                resignation = await self._wait_for_shutdown(shutdown)
        else:
            async with self.worker(
                queues=queues, concurrency=concurrency, metadata=metadata, services=services
            ) as worker:
                shutdown.on_hurry(worker.hurry)
                worker.on_drain_request(shutdown.request_drain)
                resignation = await self._wait_for_shutdown(shutdown)
        await resignation
        return shutdown.drain_requested

    async def _wait_for_shutdown(self, shutdown: ShutdownSignals) -> asyncio.Task[None]:
        """Wait for a request to stop, then begin to resign leaderships. Return that task."""
        import asyncio

        client = await self.open()
        unsubscribe = self.readiness.on_drain(shutdown.request_drain_threadsafe)
        try:
            self.readiness.is_starting = False
            await shutdown.wait()
        finally:
            unsubscribe()
        self.readiness.drain()
        return asyncio.create_task(client.resign(), name="rota resign")
