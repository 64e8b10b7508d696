"""The services of an app on one instance: a candidate for each, and a loop for each election won."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from rota.coord.coordinator import Coordinator
from rota.coord.service_balancer import ServiceBalancer
from rota.coord.service_runner import ServiceRunner
from rota.model import events
from rota.model.service import ServiceDefinition
from rota.store.raw_connections import RawConnections

log = logging.getLogger("rota")

UNREGISTER_TIMEOUT_SECONDS = 1.0
"""Seconds to unregister this instance. Without it, other instances notice when its row expires."""


class ServiceGroup:
    def __init__(
        self,
        coordinator: Coordinator,
        raw_connections: RawConnections,
        definitions: Sequence[ServiceDefinition],
    ) -> None:
        self._coordinator = coordinator
        self._balancer = ServiceBalancer(
            coordinator.identity,
            coordinator.database.schema,
            coordinator.database.settings.version,
            [each.name for each in definitions],
            self.list_running,
            lambda: [name for name, post in self._runners.items() if post.is_staying],
            lambda name: coordinator.call_in_loop(self._runners[name].hand_over),
            coordinator.clock,
        )
        self._runners = {
            each.name: ServiceRunner(
                coordinator, raw_connections, each, self._balancer.yield_delay, self._on_change
            )
            for each in definitions
        }
        self._started = False
        self._stopping: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._started = True
        names = sorted(self._runners)
        log.info("stands by for services %s", ", ".join(names))
        self._coordinator.election_thread.add(self._balancer)
        self._coordinator.election_thread.wake_threadsafe()
        for runner in self._runners.values():
            runner.start()
        self._coordinator.publish(events.ServicesStarted(tuple(names)))

    def list_running(self) -> list[str]:
        """Return the names of the services that run on this instance."""
        return [name for name, runner in self._runners.items() if runner.is_running]

    def request_stop(self, grace: float) -> asyncio.Task[None]:
        """Hand over every service. An iteration in progress has `grace` seconds to end."""
        if self._stopping is None:
            for runner in self._runners.values():
                runner.request_stop()
            self._stopping = asyncio.create_task(self._stop(grace), name="rota services stop")
        return self._stopping

    async def stop(self, grace: float) -> None:
        await asyncio.shield(self.request_stop(grace))

    def hurry(self) -> None:
        """Do not wait for iterations in progress, neither now nor when the services stop."""
        for runner in self._runners.values():
            runner.hurry()

    async def _stop(self, grace: float) -> None:
        if not self._started:
            return
        await asyncio.gather(*(runner.stop(grace) for runner in self._runners.values()))
        unregistered = asyncio.Event()
        self._balancer.unregister(lambda: self._coordinator.call_in_loop(unregistered.set))
        self._coordinator.election_thread.wake_threadsafe()
        try:
            async with asyncio.timeout(UNREGISTER_TIMEOUT_SECONDS):
                await unregistered.wait()
        except TimeoutError:
            log.debug("this instance could not be unregistered as a service runner in time")
        self._coordinator.election_thread.remove(self._balancer)

    def _on_change(self) -> None:
        self._balancer.on_change()
        self._coordinator.election_thread.wake_threadsafe()
