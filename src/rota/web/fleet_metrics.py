"""Figures of the whole fleet, asked for once in a few seconds however many want them, for a bounded price.

While the database does not answer, the last ones stand, and say how old they are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from rota.engine.worker.session import wait_at_most
from rota.store import metrics, pg_errors
from rota.store.metrics import DesiredWorkersRow, FleetTotals
from rota.store.query import Query

if TYPE_CHECKING:
    from rota.app import Rota

log = logging.getLogger("rota")

CACHE_SECONDS = 5.0
QUERY_TIMEOUT_SECONDS = 2.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class FleetMetrics:
    fleet: FleetTotals
    queues: list[DesiredWorkersRow]
    read_at: float
    """By the clock that only moves forward."""

    @property
    def age(self) -> float:
        return time.monotonic() - self.read_at


class CachedFleetMetrics:
    """Of one app, in one event loop."""

    def __init__(self, app: Rota) -> None:
        self._app = app
        self._refreshing: asyncio.Task[bool] | None = None
        self._refresh_began = -CACHE_SECONDS
        self.last: FleetMetrics | None = None
        self.database_up = False
        """Whether the last look was."""

    async def latest(self) -> FleetMetrics | None:
        """No older than a few seconds, if the database answers; None: it never has."""
        now = time.monotonic()
        if self._refreshing is None or (
            self._refreshing.done() and now - self._refresh_began >= CACHE_SECONDS
        ):
            self._refresh_began = now
            self._refreshing = asyncio.create_task(self._refresh(), name="rota figures")
        # Shielded: who asked may hang up, the others still want to know.
        self.database_up = await asyncio.shield(self._refreshing)
        return self.last

    async def _refresh(self) -> bool:
        try:
            if await wait_at_most(self._load(), QUERY_TIMEOUT_SECONDS):
                return True
            log.debug("no figures: no answer in %g s", QUERY_TIMEOUT_SECONDS)
        except Exception as error:
            log.debug("no figures: %s", pg_errors.first_line(error))
        return False

    async def _load(self) -> None:
        began = time.monotonic()
        database = (await self._app.open()).database
        settings = database.settings
        timeout = metrics.set_timeout(QUERY_TIMEOUT_SECONDS)
        [[_, [fleet]], [_, queues]] = await database.pipeline(
            [
                [timeout, metrics.fleet_totals(settings.dead_after)],
                [timeout, desired_workers(self._app)],
            ]
        )
        self.last = FleetMetrics(fleet, queues, began)


def desired_workers(
    app: Rota,
    *,
    target: float | None = None,
    min_workers: int | None = None,
    max_workers: int | None = None,
    concurrency: int | None = None,
    queue: str | None = None,
) -> Query[DesiredWorkersRow]:
    """What the settings say, unless it is said otherwise."""
    settings = app.settings
    return metrics.desired_workers(
        settings.autoscale_target if target is None else target,
        settings.autoscale_min if min_workers is None else min_workers,
        settings.autoscale_max if max_workers is None else max_workers,
        concurrency,
        queue,
    )


_caches: WeakKeyDictionary[
    Rota, WeakKeyDictionary[asyncio.AbstractEventLoop, CachedFleetMetrics]
] = WeakKeyDictionary()


def cached_fleet_metrics(app: Rota) -> CachedFleetMetrics:
    """Shared by all who ask in this event loop."""
    by_loop = _caches.setdefault(app, WeakKeyDictionary())
    loop = asyncio.get_running_loop()
    if loop not in by_loop:
        by_loop[loop] = CachedFleetMetrics(app)
    return by_loop[loop]
