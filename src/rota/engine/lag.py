"""How late the worker's event loop is, measured from the heart's thread, where a blocked loop blocks
nothing.

A loop that is late runs everything late: it says so while it is stuck, and where.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from contextlib import suppress

log = logging.getLogger("rota")

LAG_SAMPLE_SECONDS = 0.5
LAG_WARNING_SECONDS = 1.0


class LoopLag:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._loop_thread = threading.get_ident()
        self._pending_since: float | None = (
            None  # when the loop was asked to answer and has not yet
        )
        self._last_seconds = 0.0
        self._warned = False
        self._stopped = asyncio.Event()

    def seconds(self) -> float:
        """Seconds, as far as is known."""
        pending = self._pending_since
        return (
            self._last_seconds
            if pending is None
            else max(self._last_seconds, time.monotonic() - pending)
        )

    async def run(self) -> None:
        while not self._stopped.is_set():
            if self._pending_since is None:
                self._pending_since = time.monotonic()
                try:
                    self._loop.call_soon_threadsafe(self._record, self._pending_since)
                except RuntimeError:
                    return  # the loop is gone
            elif not self._warned and self.seconds() >= LAG_WARNING_SECONDS:
                self._warned = True
                log.warning(
                    "the event loop has been blocked for %.1f s, in %s: nothing else runs meanwhile; "
                    "do what blocks in a task that is a plain def, or in asyncio.to_thread",
                    self.seconds(),
                    self._blocking_location(),
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(LAG_SAMPLE_SECONDS):
                    await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()

    def _record(self, sent_at: float) -> None:
        """In the worker's loop."""
        self._last_seconds = time.monotonic() - sent_at
        if self._warned:
            log.warning("the event loop is free again after %.1f s", self._last_seconds)
        self._warned = False
        self._pending_since = None

    def _blocking_location(self) -> str:
        frame = sys._current_frames().get(self._loop_thread)
        if frame is None:
            return "an unknown place"
        return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
