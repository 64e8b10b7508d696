"""How a web process leaves without failing a request: from the first signal until the server stops.

first signal ─▶ readiness says no ─▶ served on for drain_delay ─▶ the server is told ─▶ the last requests
                                              │                                               │
second signal ────────────────────────────────┴─▶ told now                                    └─▶ cut off
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rota.app.rota import Rota
    from rota.web.in_flight import InFlightRequests

log = logging.getLogger("rota")

MAX_MARGIN_SECONDS = 3.0
"""Seconds of the grace that are kept for what comes after the requests."""

HURRY_SECONDS = 1.0
"""Seconds that requests under way have when it is to be quick."""


class GracefulShutdown:
    """`stop` tells the server, with the number of the signal that began it."""

    def __init__(
        self,
        app: Rota,
        requests: InFlightRequests,
        stop_server: Callable[[int], None],
    ) -> None:
        self._app = app
        self._requests = requests
        self._stop_server = stop_server
        self._hurry = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @property
    def has_begun(self) -> bool:
        return self._task is not None

    def on_signal(self, number: int) -> None:
        """The first signal begins it, another hurries, and what comes then is the server's."""
        if self._task is None:
            self._task = asyncio.create_task(self._shut_down(number), name="rota departure")
        elif not self._hurry.is_set():
            log.info("hurrying: requests under way have %g s, jobs go back", HURRY_SECONDS)
            self._hurry.set()
            self._app.readiness.hurry()
        else:
            self._stop_server(
                number
            )  # whoever asks a third time may have the server's own way of it

    async def _shut_down(self, number: int) -> None:
        readiness, settings = self._app.readiness, self._app.settings
        delay, grace = settings.drain_delay, settings.drain_timeout
        readiness.drain(delay)
        # An operator may have begun it some time ago.
        assert readiness.draining_since is not None
        deadline = readiness.draining_since + delay
        remaining = deadline - time.monotonic()
        log.info(
            "leaving: unready now, %s; once more to hurry",
            f"serving for {remaining:.1f} s more"
            if remaining > 0
            else "and accepting nothing more",
        )
        await self._wait_until(deadline)
        if in_flight := len(self._requests):
            log.info("accepting nothing more; %s request(s) under way", in_flight)
        self._stop_server(number)
        # From now on, whenever it began to leave: requests came until here.
        await self._wait_until(time.monotonic() + grace - min(MAX_MARGIN_SECONDS, grace / 4))
        if self._requests and self._hurry.is_set():
            await asyncio.sleep(HURRY_SECONDS)
        if cancelled := self._requests.cancel_all():
            log.warning("%s request(s) did not end within the grace and were cut off", cancelled)

    async def _wait_until(self, deadline: float) -> None:
        """Until then, or until it is to be quick."""
        try:
            async with asyncio.timeout(max(deadline - time.monotonic(), 0)):
                await self._hurry.wait()
        except TimeoutError:
            pass

    def cancel(self) -> None:
        """The server has stopped."""
        if self._task is not None:
            self._task.cancel()
