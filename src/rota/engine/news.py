"""News that a queue has work.

The first after a silence rides in the transaction that makes the work, so an idle worker hears of it with
the commit. What follows is sent after its commits, and not waited for: a NOTIFY in every transaction would
make all of them queue for one lock at commit. Where there is much of it, that of a few milliseconds goes
together.

Nothing depends on it: a worker that hears nothing looks by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from rota.store import waiters
from rota.store.database import Database
from rota.store.query import in_schema

log = logging.getLogger("rota")

SILENCE = 0.02
"""Seconds without news after which the next may ride in its transaction."""

SOON = 0.001
TOGETHER = 0.005
"""Seconds over which news is gathered: where it comes one at a time, as from somebody who waits for each
result, and where it comes in numbers."""


class News:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._channel = in_schema(waiters.NEWS, database.schema)
        self._words: set[str] = set()
        self._told = 0  # times somebody had news since it last went out
        self._sender: asyncio.Task[None] | None = None
        self._last = 0.0
        self.sent = 0
        """How often news went out by itself."""

    def ride(self) -> bool:
        """Whether news may ride in a transaction that starts now."""
        now = time.monotonic()
        if not self._database.settings.notify or now - self._last < SILENCE:
            return False
        self._last = now
        return True

    def tell(self, queues: Iterable[str]) -> None:
        """Send news of what has been committed."""
        if not self._database.settings.notify:
            return
        self._words.update(queues)
        self._told += 1
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._words:
                words, self._words, self._told = sorted(self._words), set(), 0
                self._last = time.monotonic()
                try:
                    await self._database.run(waiters.notify(self._channel, words))
                    self.sent += 1
                except Exception as error:
                    log.debug("news could not be sent, polling will find the work: %s", error)
                await asyncio.sleep(SOON)
                if self._told > 1:
                    await asyncio.sleep(TOGETHER - SOON)
        finally:
            self._sender = None

    async def close(self) -> None:
        """Send what has not been sent."""
        if self._sender is not None:
            await asyncio.wait([self._sender], timeout=1.0)
