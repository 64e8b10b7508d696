"""Rate limits of an app, and their blocking version."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rota.coord.rate_limiter import RateLimiter as Awaited
from rota.model.settings import Duration

if TYPE_CHECKING:
    from rota.app.rota import Rota


class RateLimit(Awaited):
    """Rate limit over all instances: call `await rate.take()` before each use."""

    def __init__(self, app: Rota, name: str, limit: float, per: Duration, burst: int) -> None:
        super().__init__(app.coordinator, name, limit, per, burst)
        self._app = app

    @property
    def sync(self) -> SyncRateLimit:
        """Blocking version: `rate.sync.take()`."""
        return SyncRateLimit(self._app, self)


class SyncRateLimit:
    """Blocking version of a rate limit."""

    def __init__(self, app: Rota, rate_limit: RateLimit) -> None:
        self._app = app
        self._rate_limit = rate_limit
        self.name = rate_limit.name

    def take(self, n: int = 1, wait: Duration | None = None) -> None:
        """Blocking version of `rate.take(…)`: sleep until the rate limit allows it."""
        self._app.loop_thread.run(self._rate_limit.take(n, wait))

    def try_take(self, n: int = 1) -> bool:
        """Take `n` units if they are available, and return True if so."""
        return self._app.loop_thread.run(self._rate_limit.try_take(n))
