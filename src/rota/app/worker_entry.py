"""Entry points that run an app's jobs and services, during an `async with` block or until a signal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any, Unpack

from rota.app.schedule_targets import check_schedule, run_factories
from rota.app.shutdown_signals import ShutdownSignals
from rota.coord.services import ServiceGroup
from rota.engine.scheduling.definitions import declare
from rota.engine.worker.session import WorkerConfig
from rota.engine.worker.worker import Worker
from rota.errors import DefinitionError, RotaError
from rota.store.migrate import check

if TYPE_CHECKING:
    from rota.app.client import Client
    from rota.app.rota import Rota, WorkerOptions
    from rota.engine.scheduling.fire import RunFactory


@asynccontextmanager
async def run_services(app: Rota) -> AsyncIterator[ServiceGroup]:
    """Be a candidate for the app's services during the block."""
    if not app.registry.services:
        raise DefinitionError("this app has no service: import the modules that define them first")
    client = await app.open()
    await check(client.database)
    services = _create_services(app, client)
    services.start()
    try:
        yield services
    finally:
        await _stop_services(app, client, services)


def _create_services(app: Rota, client: Client) -> ServiceGroup:
    if client.services is not None:
        raise RotaError(
            "this program already stands by for the app's services; add a worker with "
            "app.worker(services=False)"
        )
    definitions = app.registry.services.values()
    for each in definitions:
        each.takes_context  # noqa: B018 - raises now if the signature is invalid
    client.services = ServiceGroup(client.coordinator, client.raw_connections, list(definitions))
    return client.services


async def _stop_services(app: Rota, client: Client, services: ServiceGroup) -> None:
    try:
        await services.stop(app.settings.drain_timeout)
    finally:
        client.services = None


@asynccontextmanager
async def run_worker(
    app: Rota,
    queues: Sequence[str] | None = None,
    concurrency: int | None = None,
    metadata: Mapping[str, Any] | None = None,
    services: bool = True,
    on_drain_request: Callable[[], None] | None = None,
) -> AsyncIterator[Worker]:
    """Run a worker during the block, with the app's services unless `services` is false."""
    for flow in app.registry.flows.values():
        flow.plan  # noqa: B018 - raises now if the flow is invalid
    client = await app.open()
    await check(client.database)
    if services and app.registry.services and not app.registry.tasks:
        raise DefinitionError(
            "this app has services but no tasks: run them with `async with app.services()`, "
            "app.work() or `rota worker`"
        )
    config = await _worker_config(app, client, queues, concurrency, metadata)
    if not services or not app.registry.services:
        client.worker = worker = Worker(config, on_drain_request)
        try:
            await worker.start()
            yield worker
        finally:
            await worker.stop()
            client.worker = None
        return
    service_group = _create_services(app, client)
    # A draining worker hands over its services at once, not after its last job.
    client.worker = worker = Worker(
        config,
        on_drain_request,
        on_drain=lambda: service_group.request_stop(app.settings.drain_timeout),
        on_hurry=service_group.hurry,
    )
    try:
        await worker.start()
        service_group.start()
        yield worker
    finally:
        await asyncio.gather(_stop_services(app, client, service_group), worker.stop())
        client.worker = None


async def _worker_config(
    app: Rota,
    client: Client,
    queues: Sequence[str] | None,
    concurrency: int | None,
    metadata: Mapping[str, Any] | None,
) -> WorkerConfig:
    tasks = app.registry.tasks
    if queues is None:
        queues = sorted({task.policy.queue for task in tasks.values()})
    return WorkerConfig(
        client.database,
        client.listen(),
        client.notifier,
        client.results,
        client.raw_connections,
        app.event_bus,
        tasks,
        list(queues),
        concurrency or app.settings.concurrency,
        metadata or {},
        await declare_schedules(app, client),
        list(app.declared_schedules.values()),
        tracing=app.tracing,
        process_counters=app.process_counters,
    )


async def declare_schedules(app: Rota, client: Client) -> Mapping[str, RunFactory]:
    """Store the declared schedules, and return the run factories of this app."""
    declared = list(app.declared_schedules.values())
    for each in declared:
        check_schedule(app, each)  # raises now instead of at a tick
    factories = run_factories(app)
    await declare(client.database, declared, list(factories))
    return factories


async def work_until_stopped(app: Rota, **options: Unpack[WorkerOptions]) -> bool:
    """Work until a signal or a drain request. Return True if the request came before any signal."""
    readiness, loop = app.readiness, asyncio.get_running_loop()
    shutdown = ShutdownSignals(readiness.hurry)
    readiness.mark_starting()
    running: AbstractAsyncContextManager[Worker | ServiceGroup]
    services = options.get("services", True)
    if services and app.registry.services and not app.registry.tasks:
        running = run_services(app)
    else:
        running = run_worker(app, **options, on_drain_request=shutdown.request_drain)
    try:
        # The subscription outlasts the block, because a signal can hurry the drain at its end.
        with shutdown.handle_signals(), ExitStack() as subscription:
            async with running as worker:
                hurry = worker.hurry
                unsubscribe = readiness.on_drain(
                    shutdown.request_drain_threadsafe, lambda: loop.call_soon_threadsafe(hurry)
                )
                subscription.callback(unsubscribe)
                readiness.is_starting = False
                await shutdown.wait()
                readiness.drain()
                client = await app.open()
                resignation = asyncio.create_task(client.resign(), name="rota resign")
            await resignation
            return shutdown.drain_requested
    finally:
        readiness.mark_stopped()
