"""Says that the worker is there, and hears what is asked of it.

In one round trip every few seconds: the beat, wishes to cancel jobs it holds, the claims it holds by the
database's account, and ends that a worker which died did not pass on. A claim it does not know is one
whose answer was lost, perhaps long after the connection broke; its jobs go back.
"""

from __future__ import annotations

import logging
import time
from typing import Any

from rota.engine.desk import Desk
from rota.engine.exchange import SETTLE_AT_ONCE, Exchange
from rota.engine.news import News
from rota.engine.record import give_back
from rota.engine.service import Service
from rota.store import claims, jobs, runs, waiters, workers
from rota.store.claims import Held
from rota.store.database import Database, exchange
from rota.store.query import Query

log = logging.getLogger("rota")

BEAT = 5.0


class Presence(Service):
    def __init__(
        self, database: Database, worker: int, desk: Desk, trades: Exchange, news: News
    ) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._desk = desk
        self._exchange = trades
        self._news = news
        self._beat_at = time.monotonic() + BEAT

    async def tick(self) -> float:
        async with self._database.connection() as connection:
            queries: list[Query[Any]] = [jobs.unwanted(self._worker)]
            beating = time.monotonic() >= self._beat_at
            if beating:
                self._beat_at = time.monotonic() + BEAT
                queries = [workers.beat(self._worker), *queries, claims.mine(self._worker)]
            segments = [queries]
            if beating:
                segments.append([runs.settle(SETTLE_AT_ONCE)])
            answers, *late = await exchange(connection, segments, self._database.schema)
        unwanted = answers[1] if beating else answers[0]
        if unwanted:
            self._desk.cancel(unwanted)
        if beating:
            for held in answers[2]:
                await self._account_for(held)
            [[[settled]]] = late
            self._news.tell(settled.queues)
            if settled.runs:
                await self._database.run(waiters.tell(settled.runs))
        return max(self._beat_at - time.monotonic(), 0.001)

    async def _account_for(self, held: Held) -> None:
        if self._exchange.knows(held.id, held.nonce):
            return
        async with self._database.connection() as connection:
            segment = give_back(self._worker, [held.id], held.jobs)
            [answers] = await exchange(connection, [segment], self._database.schema)
        [moved] = answers[1]
        if moved.jobs:
            log.warning("gave back claim %s: its answer was lost", held.id)
            self._news.tell(moved.queues)
