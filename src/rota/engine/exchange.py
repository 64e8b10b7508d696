"""Trades finished jobs for new ones, one round trip at a time.

What piles up during one round trip goes out in the next, so batches grow with the load and nobody
waits for one to fill. Outcomes, telling those who wait for them, and the claim of the next jobs travel
together, as separate transactions.

An answer that never came is not a failure: outcomes are sent again until they are recorded or the
fence refuses them, alone, so that nothing else can spoil it. A claim whose answer was lost is found by
`presence` and given back.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from rota.engine.desk import Batch, Desk
from rota.engine.service import Service
from rota.model import codec
from rota.model.floors import Floors, Look
from rota.model.outcome import Ended
from rota.model.pace import Pace
from rota.store import claims, failures, jobs, timers, waiters
from rota.store.database import Database, exchange
from rota.store.jobs import Claimed
from rota.store.query import Query

if TYPE_CHECKING:
    from psycopg import AsyncConnection

log = logging.getLogger("rota")

PUT_AWAY_AFTER = 1.0
"""Seconds a job may wait here for a place before it is given back."""

WAKE_AT_ONCE = 1000
"""Sleeping jobs woken in one statement."""


@dataclass(slots=True)
class _Claim:
    look: Look
    limit: int
    nonce: UUID
    timers: bool


class Exchange(Service):
    def __init__(
        self,
        database: Database,
        worker: int,
        desk: Desk,
        tasks: Sequence[str],
        queues: Sequence[str],
        news: Callable[[Sequence[str]], None],
        lost: Callable[[Sequence[int]], None],
    ) -> None:
        super().__init__()
        self._database = database
        self._settings = database.settings
        self._worker = worker
        self._desk = desk
        self._tasks = list(tasks)
        self._floors = Floors(queues)
        self._pace = Pace(self._settings.prefetch)
        self._news = news
        self._lost = lost
        self._connection: AsyncConnection[Any] | None = None
        self._claiming = True
        self._more = True  # whether a claim may find something
        self._poll_at = 0.0
        self._timers_at = 0.0
        self._unsure: Batch | None = None  # sent, and not known to be recorded
        self._sending = Batch()
        self.nonce: UUID | None = None  # of the claim under way
        desk.when_finished(self.wake)

    # What others say

    def look_again(self) -> None:
        """There is news: look for jobs, also below the floors."""
        self._more = True
        self._floors.suspect()
        self.wake()

    def stop_claiming(self) -> None:
        self._claiming = False
        self.wake()

    def knows(self, claim: int, nonce: UUID) -> bool:
        """Whether a claim is accounted for: on the desk, being written, or being answered."""
        return (
            nonce == self.nonce
            or claim in self._desk.claims()
            or claim in self._sending.claims
            or (self._unsure is not None and claim in self._unsure.claims)
        )

    @property
    def is_clear(self) -> bool:
        """Whether every outcome has been recorded."""
        return not (self._desk.has_finished or self._unsure or self._sending)

    # The loop

    async def tick(self) -> float | None:
        if self._unsure is not None:
            await self._send_again(self._unsure)
            self._unsure = None

        now = time.monotonic()
        if self._desk.backlog:
            self._desk.put_away(PUT_AWAY_AFTER)
        batch = self._desk.take()
        claim = self._plan_claim(now)
        if not batch and claim is None:
            return self._rest(now)

        self._sending = batch
        self.nonce = claim.nonce if claim else None
        if batch:
            self._pace.ended(len(batch.done) + len(batch.again) + len(batch.ended), now)
        try:
            await self._trade(batch, claim)
        except BaseException as error:
            if batch:
                self._unsure = batch
            self._more = True
            await self._disconnect(error)
            raise
        finally:
            self._sending = Batch()
            self.nonce = None
        return 0

    def _plan_claim(self, now: float) -> _Claim | None:
        if not self._claiming:
            return None
        timers_due = now >= self._timers_at
        if not (self._more or now >= self._poll_at or timers_due):
            return None
        if self._more and self._floors.full_at is not None and now < self._poll_at:
            # All that is known has been taken; only a full look can find more, once affordable.
            if now < self._floors.full_at and not timers_due:
                return None
        ahead = self._pace.ahead if self._desk.is_full else 0
        if self._desk.backlog > ahead // 2:
            return None
        limit = min(
            self._desk.capacity + ahead - self._desk.running - self._desk.backlog,
            self._settings.batch,
        )
        if limit < 1:
            return None
        return _Claim(self._floors.look(now), limit, uuid4(), timers_due)

    async def _trade(self, batch: Batch, claim: _Claim | None) -> None:
        segments = self._record(batch)
        recorded = len(segments)
        if batch:
            finished = [each[0].job for each in (*batch.done, *batch.ended)]
            if finished:
                segments.append([waiters.tell(finished)])
        if claim is not None:
            # Timers first, in the claim's transaction: what has just become due is claimed with it.
            wake = [timers.wake(WAKE_AT_ONCE)] if claim.timers else []
            segments.append([*wake, self._claim_query(claim)])

        began = time.perf_counter()
        answers = await self._send(segments)
        took = time.perf_counter() - began

        self._accept(batch, answers[:recorded])
        if claim is not None:
            self._pace.round_trip(took)
            if claim.timers:
                self._woken(answers[-1][0][0])
            self._receive(claim, answers[-1][-1], took)

    def _claim_query(self, claim: _Claim) -> Query[Claimed]:
        look = claim.look
        return jobs.claim(
            self._worker,
            claim.nonce,
            self._tasks,
            look.queues,
            look.lanes,
            look.floors,
            claim.limit,
        )

    def _record(self, batch: Batch) -> list[list[Query[Any]]]:
        """The transactions that record a batch: successes in one statement, the rest under a hold."""
        segments: list[list[Query[Any]]] = []
        worker = self._worker
        if batch.done:
            segments.append(
                [
                    jobs.complete(
                        worker,
                        list({job.claim for job, _, _ in batch.done}),
                        [job.job for job, _, _ in batch.done],
                        [result for _, result, _ in batch.done],
                        [took for _, _, took in batch.done],
                    )
                ]
            )
        if batch.ended or batch.again:
            held = sorted({job.claim for job, _, _ in (*batch.ended, *batch.again)})
            gone = [job.job for job, _, _ in (*batch.ended, *batch.again)]
            segments.append(
                [
                    claims.hold(worker, held),
                    jobs.finish(
                        worker,
                        [job.claim for job, _, _ in batch.ended],
                        [job.job for job, _, _ in batch.ended],
                        [end.state for _, end, _ in batch.ended],
                        [end.error for _, end, _ in batch.ended],
                        [took for _, _, took in batch.ended],
                    ),
                    jobs.retry(
                        worker,
                        [job.claim for job, _, _ in batch.again],
                        [job.job for job, _, _ in batch.again],
                        [again.delay for _, again, _ in batch.again],
                        [again.error for _, again, _ in batch.again],
                        [took for _, _, took in batch.again],
                    ),
                    claims.release(worker, held, gone),
                ]
            )
        if batch.unstarted:
            segments.append(
                give_back(
                    worker,
                    sorted({job.claim for job in batch.unstarted}),
                    [job.job for job in batch.unstarted],
                )
            )
        return segments

    def _accept(self, batch: Batch, answers: list[list[list[Any]]]) -> list[int]:
        """Read what became of a batch. Answers the jobs refused."""
        refused: list[int] = []
        answer = iter(answers)
        if batch.done:
            refused += next(answer)[0]
        if batch.ended or batch.again:
            _, ended, again, _ = next(answer)
            accepted = {*ended, *(each.job for each in again)}
            refused += [
                job.job for job, _, _ in (*batch.ended, *batch.again) if job.job not in accepted
            ]
            if batch.again:
                soonest = min(each.delay for _, each, _ in batch.again)
                self._timers_at = min(self._timers_at, time.monotonic() + soonest)
        if batch.unstarted:
            queues = next(answer)[1]
            if queues:
                self._news(queues)
        if refused and self._unsure is None:
            self._lost(refused)
        return refused

    def _woken(self, woken: timers.Woken) -> None:
        now = time.monotonic()
        rest = self._settings.poll if woken.next is None else min(woken.next, self._settings.poll)
        self._timers_at = now + (0 if woken.count == WAKE_AT_ONCE else rest)
        if woken.count:
            self._more = True
            self._news(woken.queues)

    def _receive(self, claim: _Claim, found: list[Claimed], took: float) -> None:
        now = time.monotonic()
        self._more = self._floors.learn(claim.look, found, claim.limit, took, now)
        if not claim.look.full and len(found) < claim.limit:
            self._more = True  # … but only to a full look
        self._poll_at = now + self._settings.poll * random.uniform(0.8, 1.2)
        if found:
            self._desk.put(found)

    def _rest(self, now: float) -> float | None:
        if not self._claiming:
            return None
        until = [self._poll_at, self._timers_at]
        if self._more and self._floors.full_at is not None:
            until.append(self._floors.full_at)
        if self._desk.backlog:
            until.append(now + PUT_AWAY_AFTER / 4)
        room = self._desk.running + self._desk.backlog < self._desk.capacity
        if not room:
            # Nothing to do until a job ends, which wakes us; the backlog is looked after meanwhile.
            return PUT_AWAY_AFTER / 4 if self._desk.backlog else None
        return max(min(until) - now, 0.001)

    # Sending

    async def _send(self, segments: list[list[Query[Any]]]) -> list[list[list[Any]]]:
        if self._connection is None or self._connection.closed:
            self._connection = await self._database.connect(engine=True)
        async with asyncio.timeout(self._settings.statement_timeout + 5):
            return await exchange(self._connection, segments, self._database.schema)

    async def _send_again(self, batch: Batch) -> None:
        """Record a batch whose answer never came: it may have been recorded, or not."""
        try:
            refused = self._accept(batch, await self._send(self._record(batch)))
        except Exception as error:
            await self._disconnect(error)
            if failures.is_passing(error):
                raise
            await self._send_singly(batch)
            return
        if refused:
            query = jobs.recorded(refused, sorted(batch.claims))
            known = set((await self._send([[query]]))[0][0])
            lost = [job for job in refused if job not in known]
            if lost:
                self._lost(lost)
        ended = [each[0].job for each in (*batch.done, *batch.ended)]
        await self._send([[waiters.tell(ended)]])

    async def _send_singly(self, batch: Batch) -> None:
        """One outcome in the batch cannot be stored: record each by itself, and that one as failed."""
        parts = [
            *(Batch(done=[each]) for each in batch.done),
            *(Batch(ended=[each]) for each in batch.ended),
            *(Batch(again=[each]) for each in batch.again),
            *([Batch(unstarted=batch.unstarted)] if batch.unstarted else []),
        ]
        for part in parts:
            try:
                await self._send(self._record(part))
            except Exception as error:
                await self._disconnect(error)
                if failures.is_passing(error):
                    raise
                for job, _, took in (*part.done, *part.ended, *part.again):
                    log.error("the outcome of job %s could not be stored: %s", job.job, error)
                    document = codec.error_document(error, job.attempt, "")
                    end = Batch(ended=[(job, Ended("failed", document), took)])
                    await self._send(self._record(end))

    async def _disconnect(self, error: BaseException) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()


def give_back(worker: int, held: Sequence[int], given: Sequence[int]) -> list[Query[Any]]:
    """The transaction that puts unfinished jobs back."""
    return [
        claims.seize(worker, held),
        jobs.give_back(worker, held, given),
        claims.release(worker, held, given),
    ]
