"""Does what the heart hears: stops what is unwanted or lost, and accounts for every claim.

A claim the database has and we do not is one whose answer was lost, perhaps long after the connection
broke; its jobs go back. A claim we have and the database has not was taken away, or forgotten by a crash
of the server; what runs under it is stopped, since what it does counts for nothing. Ends that a worker
which died did not pass on are passed on.
"""

from __future__ import annotations

import logging
import time
from uuid import UUID

from rota.engine.desk import Desk
from rota.engine.exchange import SETTLE_AT_ONCE, Exchange
from rota.engine.heart import Heart, Pulse
from rota.engine.news import News
from rota.engine.record import give_back
from rota.loop import Loop
from rota.store import claims, runs, waiters
from rota.store.database import Database, exchange
from rota.store.workers import Told

log = logging.getLogger("rota")


class Presence(Loop):
    def __init__(
        self, database: Database, worker: int, desk: Desk, trades: Exchange, news: News
    ) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._desk = desk
        self._exchange = trades
        self._news = news
        self._heart: Heart | None = None
        self._told: Told | None = None
        self._missed: dict[int, float] = {}  # claims, and when they were missed first

    def listen_to(self, heart: Heart) -> None:
        self._heart = heart

    def hear(self, pulse: Pulse) -> None:
        """What a beat brought."""
        told = pulse.told
        if told is None:
            return
        if told.unwanted:
            self._desk.cancel(told.unwanted)
        self._look_for_lost(told, pulse.sent)
        self._told = told
        self.wake()

    def _look_for_lost(self, told: Told, sent: float) -> None:
        missing = self._desk.held() - set(told.claims)
        # A claim may have come after the beat was sent: one that is missed is asked for once more.
        lost = {claim for claim in missing if sent > self._missed.get(claim, sent)}
        now = time.monotonic()
        self._missed = {claim: self._missed.get(claim, now) for claim in missing - lost}
        if lost:
            many = self._desk.lose(lost)
            log.warning("%s job(s) are no longer ours: their claims were taken away", many)
        if self._missed and self._heart is not None:
            self._heart.ask()

    async def tick(self) -> None:
        told, self._told = self._told, None
        if told is None:
            return
        unknown = {
            id
            for id, nonce in zip(told.claims, told.nonces, strict=True)
            if not self._exchange.knows(id, UUID(nonce))
        }
        if unknown:
            await self._give_back(unknown)
        if told.echoes:
            await self._settle()

    async def _give_back(self, unknown: set[int]) -> None:
        for held in await self._database.run(claims.mine(self._worker)):
            # Asked anew: what was unknown when the beat was sent may have arrived since.
            if held.id not in unknown or self._exchange.knows(held.id, held.nonce):
                continue
            async with self._database.connection() as connection:
                segment = give_back(self._worker, [held.id], held.jobs)
                [answers] = await exchange(connection, [segment], self._database.schema)
            [moved] = answers[1]
            if moved.jobs:
                log.warning("gave back claim %s: its answer was lost", held.id)
                self._news.tell(moved.queues)

    async def _settle(self) -> None:
        [settled] = await self._database.run(runs.settle(SETTLE_AT_ONCE))
        self._news.tell(settled.queues)
        if settled.runs:
            await self._database.run(waiters.tell(settled.runs))
