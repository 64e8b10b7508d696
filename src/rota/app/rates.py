"""Rates as an app hands them out, and their form for code that does not await."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.coord.rate_limiter import RateLimiter as Awaited
from rota.model.settings import Duration

if TYPE_CHECKING:
    from rota.app.rota import Rota


class RateLimit(Awaited):
    """How often something may happen, over all instances: `await rate.take()` before each time."""

    def __init__(self, app: Any, name: str, limit: float, per: Duration, burst: int) -> None:
        super().__init__(app.coordinator, name, limit, per, burst)
        self._app: Rota = app

    @property
    def sync(self) -> SyncRateLimit:
        """The same for code that does not await: `rate.sync.take()`."""
        return SyncRateLimit(self._app, self)


class SyncRateLimit:
    """A rate for code that does not await."""

    def __init__(self, app: Rota, rate_limit: RateLimit) -> None:
        self._app = app
        self._rate_limit = rate_limit
        self.name = rate_limit.name

    def take(self, n: int = 1, wait: Duration | None = None) -> None:
        """As `await rate.take(…)`: sleep until it is our turn."""
        self._app.loop_thread.run(self._rate_limit.take(n, wait))

    def try_take(self, n: int = 1) -> bool:
        """Whether one may go now."""
        return self._app.loop_thread.run(self._rate_limit.try_take(n))
