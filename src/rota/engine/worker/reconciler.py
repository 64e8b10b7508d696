"""Reconciliation of a worker's jobs and claims with the database, after every beat.

The answer to a beat lists the claims of this worker and the jobs to cancel, and tells whether releases are
pending. It leads to these actions:

    cancel request                          stop the job
    claim only in the database (unknown)    return its jobs to the queue
    claim only in the worker (lost)         stop its jobs: their outcomes would be refused
    pending releases                        release successors that were locked when their predecessor ended

A claim exists only in the database if the answer to the claim statement was lost. Such a claim may appear
long after the connection broke. A claim exists only in the worker if it was taken back, or if a crash of
the server lost it.
"""

from __future__ import annotations

import logging
import time
from uuid import UUID

from rota.engine.notify.notifier import Notifier
from rota.engine.worker.claim_loop import PENDING_RELEASE_ROWS, ClaimLoop
from rota.engine.worker.heartbeat import BeatResult, Heartbeat
from rota.engine.worker.slots import JobSlots
from rota.loop import Loop
from rota.store import claims, jobs, listeners, runs
from rota.store.database import Database
from rota.store.workers import BeatAnswer

log = logging.getLogger("rota")


class ClaimReconciler(Loop):
    name = "claim reconciler"

    def __init__(
        self,
        database: Database,
        worker: int,
        slots: JobSlots,
        claim_loop: ClaimLoop,
        notifier: Notifier,
        heartbeat: Heartbeat,
    ) -> None:
        super().__init__()
        self._database = database
        self._worker = worker
        self._slots = slots
        self._claim_loop = claim_loop
        self._notifier = notifier
        self._heartbeat = heartbeat
        self._answer: BeatAnswer | None = None
        self._missing_since: dict[int, float] = {}  # claim → monotonic time when first missed

    def on_beat(self, result: BeatResult) -> None:
        """Cancel jobs, and stop jobs of lost claims. The next tick does the rest."""
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
        # A claim may be newer than the beat: it is lost only if the next answer lacks it, too.
        lost = {claim for claim in missing if sent_at > self._missing_since.get(claim, sent_at)}
        now = time.monotonic()
        self._missing_since = {
            claim: self._missing_since.get(claim, now) for claim in missing - lost
        }
        if lost:
            dropped = self._slots.drop_claims(lost)
            log.warning("stopping %s job(s): this worker no longer holds their claims", dropped)
        if self._missing_since:
            self._heartbeat.beat_now()

    async def tick(self) -> None:
        answer = self._answer
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
        if self._answer is answer:
            self._answer = (
                None  # after an error it is handled again, without waiting for the next beat
            )

    async def _return_unknown(self, unknown: set[int]) -> None:
        for held in await self._database.run(claims.by_worker(self._worker)):
            # Check again: the answer to the claim may have arrived since the beat was sent.
            if held.id not in unknown or self._claim_loop.tracks(held.id, held.nonce):
                continue
            [move] = await self._database.run(
                jobs.return_to_queue(self._worker, [held.id] * len(held.jobs), held.jobs)
            )
            if move.jobs:
                log.warning(
                    "returned the jobs of claim %s to the queue: the answer to the claim was lost",
                    held.id,
                )
                self._notifier.notify(move.queues)

    async def _release_pending(self) -> None:
        [released] = await self._database.run(runs.release_pending(PENDING_RELEASE_ROWS))
        self._notifier.notify(released.queues)
        if released.runs:
            await self._database.run(listeners.notify_waiters(released.runs))
