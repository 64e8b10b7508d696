"""Rates as an app hands them out, and their form for code that does not await."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rota.coord.rate import Rate as Awaited
from rota.model.settings import Duration

if TYPE_CHECKING:
    from rota.app.rota import Rota


class Rate(Awaited):
    """How often something may happen, over all instances: `await rate.take()` before each time."""

    def __init__(self, app: Any, name: str, limit: float, per: Duration, burst: int) -> None:
        super().__init__(app.company, name, limit, per, burst)
        self._app: Rota = app

    @property
    def blocking(self) -> BlockingRate:
        """The same for code that does not await: `rate.blocking.take()`."""
        return BlockingRate(self._app, self)


class BlockingRate:
    """A rate for code that does not await."""

    def __init__(self, app: Rota, rate: Rate) -> None:
        self._app = app
        self._rate = rate
        self.name = rate.name

    def take(self, n: int = 1, wait: Duration | None = None) -> None:
        """As `await rate.take(…)`: sleep until it is our turn."""
        self._app.portal.run(self._rate.take(n, wait))

    def try_take(self, n: int = 1) -> bool:
        """Whether one may go now."""
        return self._app.portal.run(self._rate.try_take(n))
