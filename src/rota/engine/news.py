"""News that a queue has work: sent after the commit, together, and not waited for.

The first goes out at once; what follows within a few milliseconds goes out as one. Nothing depends on
it: a worker that hears nothing looks by itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from rota.store import waiters
from rota.store.database import Database
from rota.store.query import in_schema

log = logging.getLogger("rota")

TOGETHER = 0.005


class News:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._channel = in_schema(waiters.NEWS, database.schema)
        self._words: set[str] = set()
        self._sender: asyncio.Task[None] | None = None

    def tell(self, queues: Iterable[str]) -> None:
        if not self._database.settings.notify:
            return
        self._words.update(queues)
        if self._sender is None:
            self._sender = asyncio.get_running_loop().create_task(self._send())

    async def _send(self) -> None:
        try:
            while self._words:
                words, self._words = sorted(self._words), set()
                try:
                    await self._database.run(waiters.notify(self._channel, words))
                except Exception as error:
                    log.debug("news could not be sent, polling will find the work: %s", error)
                await asyncio.sleep(TOGETHER)
        finally:
            self._sender = None

    async def close(self) -> None:
        """Send what has not been sent."""
        if self._sender is not None:
            await asyncio.wait([self._sender], timeout=1.0)
