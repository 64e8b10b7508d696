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

from rota.store import listeners
from rota.store.database import Database
from rota.store.query import in_schema

log = logging.getLogger("rota")

MIN_SILENCE_SECONDS = 0.02
"""Seconds without news after which the next may ride in its transaction."""

MIN_BATCH_SECONDS = 0.001
MAX_BATCH_SECONDS = 0.005
"""Seconds over which news is gathered: where it comes one at a time, as from somebody who waits for each
result, and where it comes in numbers."""


class Notifier:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._channel = in_schema(listeners.WAKE_CHANNEL, database.schema)
        self._queues: set[str] = set()
        self._notify_calls = 0  # times somebody had news since it last went out
        self._send_task: asyncio.Task[None] | None = None
        self._last_sent = 0.0
        self.sent = 0
        """How often news went out by itself."""

    def may_notify_in_transaction(self) -> bool:
        """Whether news may ride in a transaction that starts now."""
        now = time.monotonic()
        if not self._database.settings.notify or now - self._last_sent < MIN_SILENCE_SECONDS:
            return False
        self._last_sent = now
        return True

    def notify(self, queues: Iterable[str]) -> None:
        """Send news of what has been committed."""
        if not self._database.settings.notify:
            return
        self._queues.update(queues)
        self._notify_calls += 1
        if self._send_task is None:
            self._send_task = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._queues:
                queues, self._queues, self._notify_calls = sorted(self._queues), set(), 0
                self._last_sent = time.monotonic()
                try:
                    await self._database.run(listeners.notify(self._channel, queues))
                    self.sent += 1
                except Exception as error:
                    log.debug("news could not be sent, polling will find the work: %s", error)
                await asyncio.sleep(MIN_BATCH_SECONDS)
                if self._notify_calls > 1:
                    await asyncio.sleep(MAX_BATCH_SECONDS - MIN_BATCH_SECONDS)
        finally:
            self._send_task = None

    async def close(self) -> None:
        """Send what has not been sent."""
        if self._send_task is not None:
            await asyncio.wait([self._send_task], timeout=1.0)
