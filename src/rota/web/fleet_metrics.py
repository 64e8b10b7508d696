"""Metrics of the whole fleet, cached for CACHE_SECONDS, however many clients read them.

A query has a timeout. While the database does not answer, the last values are kept, with their age.
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


@dataclass(frozen=True, slots=True)
class FleetMetrics:
    fleet: FleetTotals
    queues: list[DesiredWorkersRow]
    read_at: float
    """Monotonic time just before the query was sent."""

    @property
    def age(self) -> float:
        return time.monotonic() - self.read_at


class CachedFleetMetrics:
    """Cached fleet metrics of one app, in one event loop."""

    def __init__(self, app: Rota) -> None:
        self._app = app
        self._refreshing: asyncio.Task[bool] | None = None
        self._refresh_began = -CACHE_SECONDS
        self.last: FleetMetrics | None = None
        self.database_up = False
        """True if the database answered the last query."""

    async def latest(self) -> FleetMetrics | None:
        """Return metrics at most CACHE_SECONDS old if the database answers, otherwise the last known ones.

        None means that the database has never answered.
        """
        now = time.monotonic()
        if self._refreshing is None or (
            self._refreshing.done() and now - self._refresh_began >= CACHE_SECONDS
        ):
            self._refresh_began = now
            self._refreshing = asyncio.create_task(self._refresh(), name="rota figures")
        # Shielded: a client may disconnect while other clients wait for the same query.
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
    """Return the query for the desired number of workers. Arguments that are None default to settings."""
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
    """Return the cache of `app` that all clients of this event loop share."""
    by_loop = _caches.setdefault(app, WeakKeyDictionary())
    loop = asyncio.get_running_loop()
    if loop not in by_loop:
        by_loop[loop] = CachedFleetMetrics(app)
    return by_loop[loop]
