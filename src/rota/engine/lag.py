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

SAMPLE = 0.5
WARN_AFTER = 1.0


class Lag:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._thread = threading.get_ident()
        self._asked: float | None = None  # when the loop was asked to answer and has not yet
        self._last = 0.0
        self._warned = False
        self._stopped = asyncio.Event()

    def now(self) -> float:
        """Seconds, as far as is known."""
        asked = self._asked
        return self._last if asked is None else max(self._last, time.monotonic() - asked)

    async def run(self) -> None:
        while not self._stopped.is_set():
            if self._asked is None:
                self._asked = time.monotonic()
                try:
                    self._loop.call_soon_threadsafe(self._answer, self._asked)
                except RuntimeError:
                    return  # the loop is gone
            elif not self._warned and self.now() >= WARN_AFTER:
                self._warned = True
                log.warning(
                    "the event loop has been blocked for %.1f s, in %s: nothing else runs meanwhile; "
                    "do what blocks in a task that is a plain def, or in asyncio.to_thread",
                    self.now(),
                    self._where(),
                )
            with suppress(TimeoutError):
                async with asyncio.timeout(SAMPLE):
                    await self._stopped.wait()

    def stop(self) -> None:
        self._stopped.set()

    def _answer(self, asked: float) -> None:
        """In the worker's loop."""
        self._last = time.monotonic() - asked
        if self._warned:
            log.warning("the event loop is free again after %.1f s", self._last)
        self._warned = False
        self._asked = None

    def _where(self) -> str:
        frame = sys._current_frames().get(self._thread)
        if frame is None:
            return "an unknown place"
        return f"{frame.f_code.co_qualname} ({frame.f_code.co_filename}:{frame.f_lineno})"
