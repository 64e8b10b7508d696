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

from rota.engine.notify.notifier import Notifier
from rota.engine.worker.claim_loop import PENDING_RELEASE_ROWS, ClaimLoop
from rota.engine.worker.heartbeat import BeatResult, Heartbeat
from rota.engine.worker.outcomes import return_to_queue
from rota.engine.worker.slots import JobSlots
from rota.loop import Loop
from rota.store import claims, listeners, runs
from rota.store.database import Database, pipeline
from rota.store.workers import BeatAnswer

log = logging.getLogger("rota")


class ClaimReconciler(Loop):
    def __init__(
        self,
        database: Database,
        worker: int,
        slots: JobSlots,
        claim_loop: ClaimLoop,
        notifier: Notifier,
    ) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._slots = slots
        self._claim_loop = claim_loop
        self._notifier = notifier
        self._heartbeat: Heartbeat | None = None
        self._answer: BeatAnswer | None = None
        self._missing_since: dict[int, float] = {}  # claims, and when they were missed first

    def set_heartbeat(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat

    def on_beat(self, result: BeatResult) -> None:
        """What a beat brought."""
        answer = result.answer
        if answer is None:
            return
        if answer.jobs_to_cancel:
            self._slots.cancel(answer.jobs_to_cancel)
        self._drop_lost_claims(answer, result.sent_at)
        self._answer = answer
        self.wake()

    def _drop_lost_claims(self, answer: BeatAnswer, sent_at: float) -> None:
        missing = self._slots.unfinished_claims() - set(answer.claims)
        # A claim may have come after the beat was sent: one that is missed is asked for once more.
        lost = {claim for claim in missing if sent_at > self._missing_since.get(claim, sent_at)}
        now = time.monotonic()
        self._missing_since = {
            claim: self._missing_since.get(claim, now) for claim in missing - lost
        }
        if lost:
            dropped = self._slots.drop_claims(lost)
            log.warning("%s job(s) are no longer ours: their claims were taken away", dropped)
        if self._missing_since and self._heartbeat is not None:
            self._heartbeat.beat_now()

    async def tick(self) -> None:
        answer, self._answer = self._answer, None
        if answer is None:
            return
        unknown = {
            id
            for id, nonce in zip(answer.claims, answer.nonces, strict=True)
            if not self._claim_loop.tracks(id, UUID(nonce))
        }
        if unknown:
            await self._return_unknown(unknown)
        if answer.has_pending_releases:
            await self._release_pending()

    async def _return_unknown(self, unknown: set[int]) -> None:
        for held in await self._database.run(claims.by_worker(self._worker)):
            # Asked anew: what was unknown when the beat was sent may have arrived since.
            if held.id not in unknown or self._claim_loop.tracks(held.id, held.nonce):
                continue
            async with self._database.connection() as connection:
                transaction = return_to_queue(self._worker, [held.id], held.jobs)
                [answers] = await pipeline(connection, [transaction], self._database.schema)
            [move] = answers[1]
            if move.jobs:
                log.warning("gave back claim %s: its answer was lost", held.id)
                self._notifier.notify(move.queues)

    async def _release_pending(self) -> None:
        [released] = await self._database.run(runs.release_pending(PENDING_RELEASE_ROWS))
        self._notifier.notify(released.queues)
        if released.runs:
            await self._database.run(listeners.notify_waiters(released.runs))
