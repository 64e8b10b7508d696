"""How a web process leaves without failing a request: from the first signal until the server stops.

first signal ─▶ readiness says no ─▶ served on for lb_delay ─▶ the server is told ─▶ the last requests
                                              │                                            │
second signal ────────────────────────────────┴─▶ told now                                 └─▶ cut off
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.app.rota import Rota
    from rota.web.requests import Requests

log = logging.getLogger("rota")

LONGEST_MARGIN = 3.0
"""Seconds of the grace that are kept for what comes after the requests."""

HURRIED = 1.0
"""Seconds that requests under way have when it is to be quick."""


class Departure:
    """`stop` tells the server, with the number of the signal that began it."""

    def __init__(
        self,
        app: Rota,
        requests: Requests,
        stop: Callable[[int], None],
    ) -> None:
        self._app = app
        self._requests = requests
        self._stop = stop
        self._hurried = asyncio.Event()
        self._leaving: asyncio.Task[None] | None = None

    @property
    def begun(self) -> bool:
        return self._leaving is not None

    def hear(self, number: int) -> None:
        """The first signal begins it, another hurries, and what comes then is the server's."""
        if self._leaving is None:
            self._leaving = asyncio.create_task(self._leave(number), name="rota departure")
        elif not self._hurried.is_set():
            log.info("hurrying: requests under way have %g s, jobs go back", HURRIED)
            self._hurried.set()
            self._app.readiness.hurry()
        else:
            self._stop(number)  # whoever asks a third time may have the server's own way of it

    async def _leave(self, number: int) -> None:
        readiness, settings = self._app.readiness, self._app.settings
        delay, grace = settings.lb_delay, settings.drain_for
        readiness.drain(delay)
        # An operator may have begun it some time ago.
        assert readiness.draining_since is not None
        until = readiness.draining_since + delay
        left = until - time.monotonic()
        log.info(
            "leaving: unready now, %s; once more to hurry",
            f"serving for {left:.1f} s more" if left > 0 else "and accepting nothing more",
        )
        await self._until(until)
        if under_way := len(self._requests):
            log.info("accepting nothing more; %s request(s) under way", under_way)
        self._stop(number)
        # From now on, whenever it began to leave: requests came until here.
        await self._until(time.monotonic() + grace - min(LONGEST_MARGIN, grace / 4))
        if self._requests and self._hurried.is_set():
            await asyncio.sleep(HURRIED)
        if cut := self._requests.cut_off():
            log.warning("%s request(s) did not end within the grace and were cut off", cut)

    async def _until(self, when: float) -> None:
        """Until then, or until it is to be quick."""
        try:
            async with asyncio.timeout(max(when - time.monotonic(), 0)):
                await self._hurried.wait()
        except TimeoutError:
            pass

    def end(self) -> None:
        """The server has stopped."""
        if self._leaving is not None:
            self._leaving.cancel()
