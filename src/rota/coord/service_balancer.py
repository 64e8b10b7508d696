"""Renewal task that spreads services over the instances.

Each instance regularly reports the services it declares and the ones it runs, and reads all reports. An
instance that runs no more services than any other takes its share of the vacant ones at once. It waits a
moment for other instances to take the rest, then takes those that are still vacant. An instance that
runs at least two more services than another that could run one of them hands over those above its share.

Balancing is only advisory: leader election, not the reports, keeps a service on one instance.

An instance that was killed stays listed until its row expires. No service is handed over to it: the row
of a dead worker's process is not read. An instance counts as present only if it reported within the last
PRESENT_SECONDS and since the last change on this instance, and does not report a service that runs on
this instance.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING
from uuid import UUID

from rota.coord.lease import InstanceIdentity, LeaseClock
from rota.store import pg_errors, services
from rota.store.database import run
from rota.store.services import InstanceRow

if TYPE_CHECKING:
    from rota.store.connection import PgConnection

log = logging.getLogger("rota")

BEAT_SECONDS = 2.0
LEASE_SECONDS = 8.0
"""Seconds between reports, and seconds for which a report is valid."""

PRESENT_SECONDS = 3.0
"""Seconds since its last report for which an instance may be given a service."""

YIELD_SECONDS = 1.5
"""Seconds for which a vacant service is left to instances that run fewer."""

FIRST_YIELD_SECONDS = 0.05
"""Seconds for which a new instance waits for its first reading of the reports."""

HAND_OVER_PAUSE_SECONDS = 4.0
"""Seconds from a change on this instance to the next handover: the reports must first show that other
instances have taken the services handed over before.
"""


class ServiceBalancer:
    timeout = 5.0

    def __init__(
        self,
        identity: InstanceIdentity,
        schema: str,
        version: str,
        service_names: Iterable[str],
        list_running: Callable[[], list[str]],
        list_staying: Callable[[], list[str]],
        hand_over: Callable[[str], None],
        clock: LeaseClock,
    ) -> None:
        self._clock = clock
        self._identity = identity
        self._schema = schema
        self._version = version
        self._service_names = sorted(service_names)
        self._list_running = list_running
        self._list_staying = list_staying
        self._hand_over = hand_over
        self._other_instances: dict[UUID, InstanceRow] = {}
        self._has_observed = False
        self._due_at = 0.0
        self._changed_at = self._clock.now()
        self._hand_over_after = self._changed_at + HAND_OVER_PAUSE_SECONDS
        self._on_unregistered: Callable[[], None] | None = None

    # Methods of RenewalTask

    def due_at(self) -> float:
        return self._due_at

    def next_expiry(self) -> float:
        return float("inf")

    def expire(self) -> None: ...

    def connection_lost(self) -> None: ...

    async def renew(self, connection: PgConnection) -> None:
        identity = self._identity
        if self._on_unregistered is not None:
            self._due_at = float("inf")
            await run(connection, services.unregister(identity.instance), self._schema)
            self._on_unregistered()
            return
        self._due_at = self._clock.now() + BEAT_SECONDS * random.uniform(0.8, 1.2)
        query = services.beat(
            identity.as_params(""),
            self._version,
            LEASE_SECONDS,
            self._service_names,
            self._list_running(),
        )
        try:
            instances = await run(connection, query, self._schema)
        except Exception as error:
            if pg_errors.is_transient(error) or pg_errors.is_contended(error):
                raise
            # Balancing is advisory: its errors must not close the connection that holds the terms.
            log.warning("services are not spread: %s", pg_errors.first_line(error))
            return
        self._other_instances = {
            each.instance: each for each in instances if each.instance != identity.instance
        }
        self._has_observed = True
        self._rebalance()

    def on_change(self) -> None:
        """Report at once: the services that run on this instance have changed."""
        self._changed_at = self._clock.now()
        self._hand_over_after = self._changed_at + HAND_OVER_PAUSE_SECONDS
        if self._on_unregistered is None:
            self._due_at = 0.0

    def unregister(self, on_unregistered: Callable[[], None]) -> None:
        self._on_unregistered = on_unregistered
        self._due_at = 0.0

    # Advice for elections

    def yield_delay(self, service: str, vacant: Sequence[str]) -> float:
        """Return for how many seconds this instance leaves `service` to other instances.

        `vacant` are the leader names that are vacant now.
        """
        if not self._has_observed:
            return FIRST_YIELD_SECONDS
        own_load = len(self._list_running())
        # An instance that still reports running it has lost it or died.
        loads = [
            len(each.running)
            for each in self._other_instances.values()
            if service in each.services and service not in each.running
        ]
        if any(load < own_load for load in loads):
            return YIELD_SECONDS
        other_services = {name for each in self._other_instances.values() for name in each.services}
        share = -(
            -len(other_services.union(self._service_names)) // (1 + len(self._other_instances))
        )
        ordered = sorted(vacant, key=self._sort_key)
        position = ordered.index(services.leader_of(service))
        return 0.0 if position < max(share - own_load, 1) else YIELD_SECONDS

    def _sort_key(self, leader: str) -> bytes:
        """Order that differs between instances, so that each takes other services first."""
        return blake2b(leader.encode(), key=self._identity.instance.bytes).digest()

    def _rebalance(self) -> None:
        if self._clock.now() < self._hand_over_after:
            return
        staying = self._list_staying()
        handing_over = [name for name in self._list_running() if name not in staying]
        chosen = self.surplus(staying, handing_over, self._present_instances())
        if chosen:
            self._hand_over_after = self._clock.now() + HAND_OVER_PAUSE_SECONDS * random.uniform(
                0.8, 1.2
            )
            log.info("handing over %s: other instances run fewer services", ", ".join(chosen))
            for name in chosen:
                self._hand_over(name)

    def _present_instances(self) -> list[InstanceRow]:
        """Return the instances that may be given a service."""
        max_silence = min(PRESENT_SECONDS, self._clock.now() - self._changed_at)
        running = set(self._list_running())
        return [
            each
            for each in self._other_instances.values()
            if each.silent_seconds < max_silence and running.isdisjoint(each.running)
        ]

    @staticmethod
    def surplus(
        staying: list[str], handing_over: list[str], instances: Sequence[InstanceRow]
    ) -> list[str]:
        """Return the services of `staying` that other instances should run instead.

        `handing_over` are the services that the other instances are about to take anyway.
        """
        loads = [len(each.running) for each in instances]
        for name in handing_over:
            eligible = [at for at, each in enumerate(instances) if name in each.services]
            if eligible:
                loads[min(eligible, key=loads.__getitem__)] += 1
        share = -(-(sum(loads) + len(staying)) // (1 + len(instances)))
        remaining = random.sample(staying, len(staying))
        chosen: list[str] = []
        while len(chosen) < max(len(staying) - share, 1):
            moves = [
                (load, at, name)
                for at, (load, each) in enumerate(zip(loads, instances, strict=True))
                for name in remaining
                if load + 2 <= len(remaining) and name in each.services
            ]
            if not moves:
                break
            _, at, name = min(moves, key=lambda one: one[0])
            loads[at] += 1
            remaining.remove(name)
            chosen.append(name)
        return chosen
