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

from rota.engine.life import soon
from rota.store import failures, meters
from rota.store.meters import Fleet, Scaled
from rota.store.query import Query

if TYPE_CHECKING:
    from rota.app import Rota

log = logging.getLogger("rota")

FRESH_FOR = 5.0
ANSWER_WITHIN = 2.0
"""Seconds."""


@dataclass(frozen=True, slots=True)
class Figures:
    fleet: Fleet
    queues: list[Scaled]
    at: float
    """By the clock that only moves forward."""

    @property
    def age(self) -> float:
        return time.monotonic() - self.at


class Looks:
    """Of one app, in one event loop."""

    def __init__(self, app: Rota) -> None:
        self._app = app
        self._doing: asyncio.Task[bool] | None = None
        self._began = -FRESH_FOR
        self.last: Figures | None = None
        self.answered = False
        """Whether the last look was."""

    async def latest(self) -> Figures | None:
        """No older than a few seconds, if the database answers; None: it never has."""
        now = time.monotonic()
        if self._doing is None or (self._doing.done() and now - self._began >= FRESH_FOR):
            self._began = now
            self._doing = asyncio.create_task(self._look(), name="rota figures")
        # Shielded: who asked may hang up, the others still want to know.
        self.answered = await asyncio.shield(self._doing)
        return self.last

    async def _look(self) -> bool:
        try:
            if await soon(self._ask(), ANSWER_WITHIN):
                return True
            log.debug("no figures: no answer in %g s", ANSWER_WITHIN)
        except Exception as error:
            log.debug("no figures: %s", failures.first_line(error))
        return False

    async def _ask(self) -> None:
        began = time.monotonic()
        database = (await self._app.open()).database
        settings = database.settings
        bound = meters.bound(ANSWER_WITHIN)
        [[_, [fleet]], [_, queues]] = await database.exchange(
            [
                [bound, meters.fleet(settings.dead_after)],
                [bound, scaling(self._app)],
            ]
        )
        self.last = Figures(fleet, queues, began)


def scaling(
    app: Rota,
    *,
    target: float | None = None,
    fewest: int | None = None,
    most: int | None = None,
    concurrency: int | None = None,
    queue: str | None = None,
) -> Query[Scaled]:
    """What the settings say, unless it is said otherwise."""
    settings = app.settings
    return meters.autoscale(
        settings.autoscale_target if target is None else target,
        settings.autoscale_min if fewest is None else fewest,
        settings.autoscale_max if most is None else most,
        concurrency,
        queue,
    )


_looks: WeakKeyDictionary[Rota, WeakKeyDictionary[asyncio.AbstractEventLoop, Looks]] = (
    WeakKeyDictionary()
)


def looks(app: Rota) -> Looks:
    """Shared by all who ask in this event loop."""
    of_app = _looks.setdefault(app, WeakKeyDictionary())
    loop = asyncio.get_running_loop()
    if loop not in of_app:
        of_app[loop] = Looks(app)
    return of_app[loop]
