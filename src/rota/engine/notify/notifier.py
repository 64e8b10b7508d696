"""Notifications that a queue has jobs.

The first notification after a silence is part of the transaction that inserts the jobs, so an idle
worker receives it with the commit. Later ones are sent after their commits, without waiting: a NOTIFY in
every transaction would make all of them wait for one lock at commit. Under load, the notifications of a
few milliseconds are sent together.

Losing a notification is safe: workers also poll.
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
"""Seconds without a notification after which the next may be part of its transaction."""

MIN_BATCH_SECONDS = 0.001
MAX_BATCH_SECONDS = 0.005
"""Seconds over which notifications are collected: while they come one at a time, as from a client that
waits for each result, and while they come in numbers.
"""


class Notifier:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._channel = in_schema(listeners.WAKE_CHANNEL, database.schema)
        self._queues: set[str] = set()
        self._notify_calls = 0  # calls of `notify` since the last one was sent
        self._send_task: asyncio.Task[None] | None = None
        self._last_sent = 0.0
        self.sent = 0
        """Notifications sent outside of a transaction."""

    def may_notify_in_transaction(self) -> bool:
        """True if the notification may be part of a transaction that starts now."""
        now = time.monotonic()
        if not self._database.settings.notify or now - self._last_sent < MIN_SILENCE_SECONDS:
            return False
        self._last_sent = now
        return True

    def notify(self, queues: Iterable[str]) -> None:
        """Notify of jobs that have been committed, without waiting."""
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
                    log.debug("a notification could not be sent; workers poll: %s", error)
                await asyncio.sleep(MIN_BATCH_SECONDS)
                if self._notify_calls > 1:
                    await asyncio.sleep(MAX_BATCH_SECONDS - MIN_BATCH_SECONDS)
        finally:
            self._send_task = None

    async def close(self) -> None:
        """Wait until pending notifications are sent, a second at most."""
        if self._send_task is not None:
            await asyncio.wait([self._send_task], timeout=1.0)
