"""Trades finished jobs for new ones.

What piles up during one round trip goes out in the next, so batches grow with the load and nobody
waits for one to fill. Outcomes, telling those who wait for them, and the claim of the next jobs travel
together, as separate transactions.

One round trip is under way at a time. Under load outcomes and claims travel apart, on two connections, one
of each at a time: while one answer is being read the server works on the other request, and completions
never wait for each other's locks.

An answer that never came is not a failure: outcomes are sent again until they are recorded or the
fence refuses them, alone, so that nothing else can spoil it. A claim whose answer was lost is found by
`presence` and given back.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from rota.engine import record
from rota.engine.announce import Announcer
from rota.engine.desk import Batch, Desk
from rota.engine.hand import Hand
from rota.engine.inputs import fill
from rota.engine.service import Service
from rota.model import codec, events
from rota.model.floors import Floors, Look
from rota.model.outcome import Ended
from rota.model.pace import Pace
from rota.model.task import Definition
from rota.store import failures, jobs, runs, timers, waiters, workers
from rota.store.arrays import of_texts
from rota.store.database import Database
from rota.store.jobs import Claimed
from rota.store.query import Query

log = logging.getLogger("rota")

PUT_AWAY_AFTER = 1.0
"""Seconds a job may wait here for a place before it is given back."""

WAKE_AT_ONCE = 1000
"""Sleeping jobs woken in one statement."""

SETTLE_AT_ONCE = 1000
"""Ends passed on late in one transaction."""

WORTH_A_SECOND = 100
"""Jobs that make a second round trip at the same time worth it."""

WORTH_TWO = 400
"""Jobs, out and in, from which on they travel apart."""


@dataclass(slots=True)
class _Claim:
    look: Look
    limit: int
    timers: bool
    patient: bool
    nonce: UUID = field(default_factory=uuid4)


@dataclass(slots=True, eq=False)
class _Trade:
    """One round trip: outcomes out, jobs in."""

    batch: Batch
    claim: _Claim | None


class Exchange(Service):
    def __init__(
        self,
        database: Database,
        worker: int,
        desk: Desk,
        tasks: Mapping[str, Definition],
        queues: Sequence[str],
        news: Callable[[Sequence[str]], None],
        announcer: Announcer,
    ) -> None:
        super().__init__()
        self._database = database
        self._settings = database.settings
        self._worker = worker
        self._desk = desk
        patient = [name for name, task in tasks.items() if task.policy.retry.attempts > 1]
        # As literals, since they go with every claim; many are not sent but listed, once.
        few = len(tasks) <= workers.FEW
        self._tasks = of_texts(tasks if few else ())
        self._patient = of_texts(patient if few else ())
        self._some_impatient = len(patient) < len(tasks)
        self._none_patient = not patient
        self._floors = Floors(queues)
        self._pace = Pace(desk.capacity, self._settings.prefetch)
        self._news = news
        self._announcer = announcer
        self._definitions = tasks
        self._claiming = True
        self._unsettled = False  # whether ends are left that could not be passed on
        self._more = True  # whether a look from the floors on may find something
        self._poll_at = 0.0
        self._timers_at = 0.0
        self._free: list[Hand] = [Hand(database), Hand(database)]
        self._trades: dict[_Trade, asyncio.Task[None]] = {}
        self._unsure: list[Batch] = []  # sent, and not known to be recorded
        self._error: BaseException | None = None
        desk.when_finished(self.wake)

    # What others say

    def look_again(self) -> None:
        """There is news: look for jobs, also below the floors."""
        self._more = True
        self._floors.suspect()
        # At once, without the detour through the loop: this is what an idle worker's latency is made of.
        if not self._trades and not self._unsure and self._error is None:
            self._launch(time.monotonic())
        self.wake()

    def stop_claiming(self) -> None:
        self._claiming = False
        self.wake()

    def knows(self, claim: int, nonce: UUID) -> bool:
        """Whether a claim is accounted for: on the desk, being written, or being answered."""
        if claim in self._desk.claims():
            return True
        if any(claim in batch.claims for batch in self._unsure):
            return True
        return any(
            claim in trade.batch.claims or (trade.claim and trade.claim.nonce == nonce)
            for trade in self._trades
        )

    @property
    def is_clear(self) -> bool:
        """Whether every outcome has been recorded and passed on."""
        busy = self._desk.has_finished or self._unsure or self._trades
        return not (busy or self._unsettled)

    # The loop

    async def tick(self) -> float | None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._unsure:
            if not self._trades:
                await self._send_again()
                return 0
            return None  # the trade under way wakes us when it ends

        if self._unsettled and self._free:
            await self._settle()
        now = time.monotonic()
        if self._desk.backlog:
            self._pace.waited(self._desk.waited)
            self._desk.put_away(PUT_AWAY_AFTER)
        if not self._free:
            return None
        if self._launch(now):
            return 0
        return None if self._trades else self._rest(now)

    def _launch(self, now: float) -> bool:
        """Send off a trade, if there is one worth it; under load one each way."""
        taking = self._desk.has_finished and not any(trade.batch for trade in self._trades)
        claim = None if any(trade.claim for trade in self._trades) else self._plan_claim(now)
        if not taking and claim is None:
            return False
        weight = (self._desk.finished if taking else 0) + (claim.limit if claim else 0)
        if self._trades and weight < WORTH_A_SECOND:
            return False
        batch = self._desk.take() if taking else Batch()
        if claim and batch and weight >= WORTH_TWO and len(self._free) == 2:
            self._send_off(_Trade(Batch(), claim))
            claim = None
        self._send_off(_Trade(batch, claim))
        return True

    def _send_off(self, trade: _Trade) -> None:
        self._trades[trade] = asyncio.create_task(self._trade(trade, self._free.pop()))

    async def _trade(self, trade: _Trade, hand: Hand) -> None:
        try:
            await self._exchange(trade, hand)
        except BaseException as error:
            if trade.batch:
                self._unsure.append(trade.batch)
            self._more = True
            self._error = error
            await hand.let_go()
        finally:
            self._free.append(hand)
            del self._trades[trade]
            self.wake()

    def _plan_claim(self, now: float) -> _Claim | None:
        if not self._claiming:
            return None
        timers_due = now >= self._timers_at
        full_at = self._floors.full_at
        # Below the floors there may be more even when above them there is nothing left.
        full_due = full_at is not None and now >= full_at
        poll_due = now >= self._poll_at
        if not (self._more or full_due or timers_due or poll_due):
            return None
        ahead = self._pace.ahead
        if self._desk.backlog > ahead // 2:
            return None
        coming = sum(trade.claim.limit for trade in self._trades if trade.claim)
        held = self._desk.running + self._desk.backlog + coming
        places = self._desk.capacity - held
        patient = False
        if self._some_impatient and ahead:
            # A job that is tried only once is claimed when it can start, not before: of one that waits
            # here when the worker dies nobody could say whether it had begun.
            if places > 0:
                ahead = 0
            else:
                patient = True
        limit = min(places + ahead, self._settings.batch)
        if limit < 1 or (patient and self._none_patient):
            return None
        # A poll looks at the timers too: an idle worker asks once, not twice.
        return _Claim(self._floors.look(now), limit, timers_due or poll_due, patient)

    async def _exchange(self, trade: _Trade, hand: Hand) -> None:
        batch, claim = trade.batch, trade.claim
        segments = record.transactions(self._worker, batch)
        recorded = len(segments)
        if concerned := record.concerned(batch):
            segments.append([waiters.tell(concerned)])
        if claim is not None:
            # Timers first, in the claim's transaction: what has just become due is claimed with it.
            wake = [timers.wake(WAKE_AT_ONCE)] if claim.timers else []
            segments.append([*wake, self._claim_query(claim)])
            if claim.timers:
                self._timers_at = time.monotonic() + 2 * self._settings.poll

        began = time.perf_counter()
        answers = await hand.send(segments)
        took = time.perf_counter() - began

        answer = self._accept(batch, answers[:recorded])
        record.announce(self._worker, batch, set(answer.refused), self._announcer)
        trade.batch = Batch()
        if late := set(answer.runs).difference(concerned):
            # Runs that ended because a run in them did. Nothing is lost with it: who waits also looks.
            await hand.send([[waiters.tell(sorted(late))]])
        if claim is not None:
            if claim.timers:
                self._woken(answers[-1][0][0])
            await fill(answers[-1][-1], self._definitions, hand)
            self._receive(claim, answers[-1][-1], took)

    def _claim_query(self, claim: _Claim) -> Query[Claimed]:
        look = claim.look
        return jobs.claim(
            self._worker,
            claim.nonce,
            self._patient if claim.patient else self._tasks,
            look.queues,
            look.lanes,
            look.floors,
            claim.limit,
            patient=claim.patient,
        )

    def _accept(self, batch: Batch, answers: list[list[list[Any]]]) -> record.Answer:
        """Read what became of a batch."""
        answer = record.read(batch, answers)
        if batch.again:
            soonest = min(each.delay for _, each, _ in batch.again)
            self._timers_at = min(self._timers_at, time.monotonic() + soonest)
        self._hear_of(answer.queues, answer.runs, answer.rest)
        return answer

    def _hear_of(self, queues: Collection[str], ended: Collection[int], rest: bool) -> None:
        """Others were waiting for what ended."""
        self._unsettled |= rest
        if queues:
            self._more = True
            self._news(list(queues))
        if self._announcer:
            for run in ended:
                self._announcer.announce(events.RunFinished(self._worker, run))

    def _woken(self, woken: timers.Woken) -> None:
        now = time.monotonic()
        # What others lay to sleep meanwhile is seen by the polls, which come about as often.
        rest = 2 * self._settings.poll if woken.next is None else woken.next
        rest = min(rest, 2 * self._settings.poll)
        self._timers_at = now + (0 if woken.count == WAKE_AT_ONCE else rest)
        if woken.count:
            self._more = True
            self._news(woken.queues)

    def _receive(self, claim: _Claim, found: list[Claimed], took: float) -> None:
        now = time.monotonic()
        self._pace.answered(self._desk.idle, took, full=len(found) == claim.limit)
        self._more = self._floors.learn(claim.look, found, claim.limit, took, now)
        self._poll_at = now + self._settings.poll * random.uniform(0.8, 1.2)
        if self._announcer:
            for job in found:
                event = events.JobClaimed(self._worker, job.job, job.task, job.attempt)
                self._announcer.announce(event)
        if found:
            self._desk.put(found)

    def _rest(self, now: float) -> float | None:
        if not self._claiming:
            return None
        until = [self._poll_at, self._timers_at]
        if self._floors.full_at is not None:
            until.append(self._floors.full_at)
        if self._desk.backlog:
            until.append(now + PUT_AWAY_AFTER / 4)
        room = self._desk.running + self._desk.backlog < self._desk.capacity
        if not room:
            # Nothing to do until a job ends, which wakes us; the backlog is looked after meanwhile.
            return PUT_AWAY_AFTER / 4 if self._desk.backlog else None
        return max(min(until) - now, 0.001)

    async def _settle(self) -> None:
        """Pass on ends that could not be passed on with the trade that recorded them."""
        hand = self._free.pop()
        try:
            [[[settled]]] = await hand.send([[runs.settle(SETTLE_AT_ONCE)]])
            self._unsettled = False
            self._hear_of(settled.queues, settled.runs, settled.rest)
            if settled.runs:
                await hand.send([[waiters.tell(settled.runs)]])
        except BaseException:
            await hand.let_go()
            raise
        finally:
            self._free.append(hand)

    # What an answer is missing for

    async def _send_again(self) -> None:
        """Record a batch whose answer never came: it may have been recorded, or not."""
        # Out of the pile: news that comes meanwhile may send off a trade, on the other hand only.
        batch, hand = self._unsure[0], self._free.pop()
        try:
            try:
                refused = await self._send_one(batch, hand)
            except Exception as error:
                if failures.is_passing(error):
                    raise
                refused = await self._send_singly(batch, hand)
            known: set[int] = set()
            if refused:
                query = jobs.recorded(refused, sorted(batch.claims))
                known = set((await hand.send([[query]]))[0][0])
            self._unsure.pop(0)
            record.announce(self._worker, batch, set(refused) - known, self._announcer)
            # Of no consequence if it is lost: who waits also looks.
            await hand.send([[waiters.tell(record.concerned(batch))]])
        except BaseException:
            await hand.let_go()
            raise
        finally:
            self._free.append(hand)

    async def _send_one(self, batch: Batch, hand: Hand) -> list[int]:
        answers = await hand.send(record.transactions(self._worker, batch))
        return self._accept(batch, answers).refused

    async def _send_singly(self, batch: Batch, hand: Hand) -> list[int]:
        """One outcome in the batch cannot be stored: record each by itself, and that one as failed."""
        refused: list[int] = []
        for part in batch.singly():
            try:
                refused += await self._send_one(part, hand)
            except Exception as error:
                if failures.is_passing(error):
                    raise
                for job, _, took in (*part.done, *part.ended, *part.again):
                    log.error("the outcome of job %s could not be stored: %s", job.job, error)
                    document = codec.error_document(error, job.attempt, "")
                    end = Batch(ended=[(job, Ended("failed", document), took)])
                    refused += await self._send_one(end, hand)
        return refused

    async def close(self) -> None:
        if self._trades:
            await asyncio.wait(self._trades.values())
        for hand in self._free:
            await hand.let_go()
