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
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID, uuid4

from rota.engine import record
from rota.engine.announce import Announcer
from rota.engine.clock import Clock
from rota.engine.desk import Batch, Desk
from rota.engine.hand import Hand
from rota.engine.inputs import fill, recall, trace_back
from rota.engine.intake import Claim, Intake
from rota.engine.meters import Meters
from rota.engine.tracing import Tracing
from rota.engine.transaction import own_claim
from rota.loop import Loop
from rota.model import codec, events
from rota.model.outcome import Ended
from rota.model.task import Definition
from rota.store import failures, jobs, links, runs, waiters
from rota.store.database import Database
from rota.store.jobs import Claimed

log = logging.getLogger("rota")

SETTLE_AT_ONCE = 1000
"""Ends passed on late in one transaction."""

ASIDE_FOR = 5.0
"""Seconds after which an outcome is sent again that could not be recorded by itself."""

WORTH_A_SECOND = 100
"""Jobs that make a second round trip at the same time worth it."""

WORTH_TWO = 400
"""Jobs, out and in, from which on they travel apart."""


@dataclass(slots=True, eq=False)
class _Trade:
    """One round trip: outcomes out, jobs in."""

    batch: Batch
    claim: Claim | None


class Exchange(Loop):
    def __init__(
        self,
        database: Database,
        worker: int,
        desk: Desk,
        tasks: Mapping[str, Definition],
        queues: Sequence[str],
        news: Callable[[Sequence[str]], None],
        announcer: Announcer,
        clock: Clock,
        tracing: Tracing | None = None,
        meters: Meters | None = None,
    ) -> None:
        super().__init__()
        self._tracing = tracing or Tracing()
        self._clock = clock
        self._meters = meters or Meters()
        self._database = database
        self._worker = worker
        self._desk = desk
        self._intake = Intake(database.settings, worker, desk, tasks, queues)
        self._news = news
        self._announcer = announcer
        self._definitions = tasks
        self._some_hold = any(task.policy.hold for task in tasks.values())
        self._unsettled = False  # whether ends are left that could not be passed on
        self._free: list[Hand] = [Hand(database), Hand(database)]
        self._trades: dict[_Trade, asyncio.Task[None]] = {}
        self._unsure: list[Batch] = []  # sent, and not known to be recorded
        self._aside: list[tuple[float, Batch]] = []  # somebody is in their way; when to try again
        self._error: BaseException | None = None
        self._on_refused: Callable[[int], None] = lambda jobs: None
        desk.when_finished(self.wake)

    # What others say

    def look_again(self, *, suspects: bool = False) -> None:
        """There is news: look for jobs, also below the floors, perhaps also for those that were lost."""
        self._intake.look_again()
        if suspects:
            self._intake.look_for_suspects()
        # At once, without the detour through the loop: this is what an idle worker's latency is made of.
        if not self._trades and not self._unsure and self._error is None:
            self._launch(time.monotonic())
        self.wake()

    def when_scheduled(self, hear: Callable[[float | None], None]) -> None:
        """Whom to tell, with every poll, in how many seconds the next schedule is due."""
        self._intake.on_schedule = hear

    def when_refused(self, hear: Callable[[int], None]) -> None:
        """Whom to tell how many outcomes were refused, when some were."""
        self._on_refused = hear

    def stop_claiming(self) -> None:
        self._intake.close()
        self.wake()

    def knows(self, claim: int, nonce: UUID) -> bool:
        """Whether a claim is accounted for: on the desk, being written, or being answered."""
        if claim in self._desk.claims() or nonce in self._desk.expected:
            return True
        aside = (batch for _, batch in self._aside)
        if any(claim in batch.claims for batch in (*self._unsure, *aside)):
            return True
        return any(
            claim in trade.batch.claims
            or (trade.claim and nonce in (trade.claim.nonce, trade.claim.other))
            for trade in self._trades
        )

    @property
    def is_clear(self) -> bool:
        """Whether every outcome has been recorded and passed on."""
        busy = self._desk.has_finished or self._unsure or self._trades or self._aside
        return not (busy or self._unsettled)

    # The loop

    async def tick(self) -> float | None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._aside:
            self._take_up(time.monotonic())
        if self._unsure:
            if not self._trades:
                await self._send_again()
                return 0
            return None  # the trade under way wakes us when it ends

        if self._unsettled and self._free:
            await self._settle()
        now = time.monotonic()
        self._intake.tidy()
        if not self._free:
            return None
        if self._launch(now):
            return 0
        if self._trades:
            return None
        rest = self._intake.rest(now)
        if self._aside:
            again = max(self._aside[0][0] - now, 0.001)
            rest = again if rest is None else min(rest, again)
        return rest

    def _take_up(self, now: float) -> None:
        """Try once more what was put aside long enough ago."""
        self._unsure += [batch for at, batch in self._aside if at <= now]
        self._aside = [(at, batch) for at, batch in self._aside if at > now]

    def _launch(self, now: float) -> bool:
        """Send off a trade, if there is one worth it; under load one each way."""
        taking = self._desk.has_finished and not any(trade.batch for trade in self._trades)
        claim = None if any(trade.claim for trade in self._trades) else self._intake.plan(now)
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
            self._intake.more()
            self._error = error
            await hand.let_go()
        finally:
            self._free.append(hand)
            del self._trades[trade]
            self.wake()

    async def _exchange(self, trade: _Trade, hand: Hand) -> None:
        batch, claim = trade.batch, trade.claim
        segments = record.transactions(self._worker, batch)
        recorded = len(segments)
        # Before what they are read by is released.
        noted = [[links.write(batch.traced)]] if batch.traced else []
        if concerned := record.concerned(batch):
            segments.append([waiters.tell(concerned)])
        if claim is not None:
            segments.append(self._intake.transaction(claim))

        began = time.perf_counter()
        answers = (await hand.send([*noted, *segments]))[len(noted) :]
        took = time.perf_counter() - began

        answer = self._accept(batch, answers[:recorded])
        self._meters.exchanges.add(took)
        self._meters.ended(batch, set(answer.refused))
        record.announce(self._worker, batch, set(answer.refused), self._announcer)
        if answer.refused:
            self._on_refused(len(answer.refused))
        trade.batch = Batch()
        if late := set(answer.runs).difference(concerned):
            # Runs that ended because a run in them did. Nothing is lost with it: who waits also looks.
            await hand.send([[waiters.tell(sorted(late))]])
        if claim is not None:
            await self._receive(claim, answers[-1], took, hand)

    async def _receive(
        self, claim: Claim, answers: list[list[Any]], took: float, hand: Hand
    ) -> None:
        if woken := self._intake.woken(claim, answers):
            self._news(woken)
        found = self._intake.read(claim, answers, took)
        self._meters.claimed(found)
        if not found:
            return
        await fill(found, self._definitions, hand)
        await recall(found, hand, self._clock)
        if self._tracing.look() is not None:
            await trace_back(found, hand)
        nonces: list[UUID] = []
        try:
            if self._some_hold:
                found = await self._hold(found, hand, nonces)
            if self._announcer:
                for job in found:
                    event = events.JobClaimed(self._worker, job.job, job.task, job.attempt)
                    self._announcer.announce(event)
            self._desk.put(found)
        finally:
            self._desk.expected.difference_update(nonces)

    async def _hold(self, found: list[Claimed], hand: Hand, nonces: list[UUID]) -> list[Claimed]:
        """Give jobs of tasks that are held for a time a claim of their own, which runs out by then."""
        kept = []
        for job in found:
            seconds = self._definitions[job.task].policy.hold
            if seconds is not None:
                nonces.append(uuid4())
                self._desk.expected.add(nonces[-1])
                move = own_claim(self._worker, job, nonces[-1], seconds)
                [[_, _, own]] = await hand.send([move])
                if not own:
                    continue
                job.claim = own[0]
            kept.append(job)
        return kept

    def _accept(self, batch: Batch, answers: list[list[list[Any]]]) -> record.Answer:
        """Read what became of a batch."""
        answer = record.read(batch, answers)
        if batch.again:
            self._intake.due_in(min(each.delay for _, each, _ in batch.again))
        for _, asleep, _ in batch.asleep:
            for each in asleep.waits:
                if each.seconds is not None:
                    self._intake.due_in(each.seconds)
        self._hear_of(answer.queues, answer.runs, answer.rest)
        return answer

    def _hear_of(self, queues: Collection[str], ended: Collection[int], rest: bool) -> None:
        """Others were waiting for what ended."""
        self._unsettled |= rest
        if queues:
            self._intake.more()
            self._news(list(queues))
        if self._announcer:
            for run in ended:
                self._announcer.announce(events.RunFinished(self._worker, run))

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
                answers = await hand.send(record.transactions(self._worker, batch))
            except Exception as error:
                if failures.is_passing(error) and not failures.is_contended(error):
                    raise
                self._unsure[:1] = self._instead(batch, error)
                return
            refused = self._accept(batch, answers).refused
            known: set[int] = set()
            if refused:
                query = jobs.recorded(refused, sorted(batch.claims))
                known = set((await hand.send([[query]]))[0][0])
            self._unsure.pop(0)
            self._meters.ended(batch, set(refused) - known)
            record.announce(self._worker, batch, set(refused) - known, self._announcer)
            self._on_refused(len(set(refused) - known))
            # Of no consequence if it is lost: who waits also looks.
            await hand.send([[waiters.tell(record.concerned(batch))]])
        except BaseException:
            await hand.let_go()
            raise
        finally:
            self._free.append(hand)

    def _instead(self, batch: Batch, error: Exception) -> list[Batch]:
        """Return the batches to send in place of one that the database refused as a whole.

        Several outcomes are sent one by one, so that one of them cannot hold up the rest. A single outcome
        that can never be stored becomes a failure. Any other error is the server's fault: the outcome is
        kept and sent again later.
        """
        parts = list(batch.singly())
        if len(parts) > 1:
            return parts
        if failures.is_unstorable(error):
            rare = (*batch.asleep, *batch.restarted)
            for job, what, took in (*batch.done, *batch.ended, *batch.again, *rare):
                end = Ended("failed", codec.error_document(error, job.attempt, ""))
                if what != end:
                    log.error(
                        "job %s (%s) fails: its outcome cannot be stored: %s",
                        job.job,
                        job.task,
                        failures.first_line(error),
                    )
                    return [Batch(ended=[(job, end, took)])]
        if not failures.is_contended(error) and not self._aside:
            log.error(
                "outcomes could not be recorded: %s; they are sent again every %.0f s",
                failures.first_line(error),
                ASIDE_FOR,
            )
        self._aside.append((time.monotonic() + ASIDE_FOR, batch))
        return []

    async def close(self) -> None:
        if self._trades:
            await asyncio.wait(self._trades.values())
        for hand in self._free:
            await hand.let_go()
