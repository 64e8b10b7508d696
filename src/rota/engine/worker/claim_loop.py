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

from rota.engine.db_clock import DatabaseClock
from rota.engine.execution.job_transaction import split_claim
from rota.engine.telemetry.counters import Counters
from rota.engine.telemetry.event_bus import EventBus
from rota.engine.telemetry.tracing import Tracing
from rota.engine.worker import outcomes
from rota.engine.worker.claim_planner import ClaimPlanner, ClaimRequest
from rota.engine.worker.job_inputs import load_inputs, load_journal, load_trace_links
from rota.engine.worker.slots import JobSlots, OutcomeBatch
from rota.loop import Loop
from rota.model import codec, events
from rota.model.outcome import FinalOutcome
from rota.model.task import TaskDefinition
from rota.store import jobs, listeners, pg_errors, runs, trace_links
from rota.store.connection import ReconnectingConnection
from rota.store.database import Database
from rota.store.jobs import ClaimedJob

log = logging.getLogger("rota")

PENDING_RELEASE_ROWS = 1000
"""Ends passed on late in one transaction."""

CONTENDED_RETRY_SECONDS = 5.0
"""Seconds after which an outcome is sent again that could not be recorded by itself."""

SECOND_ROUND_TRIP_JOBS = 100
"""Jobs that make a second round trip at the same time worth it."""

SEPARATE_ROUND_TRIP_JOBS = 400
"""Jobs, out and in, from which on they travel apart."""


@dataclass(slots=True, eq=False)
class RoundTrip:
    """One round trip: outcomes out, jobs in."""

    batch: OutcomeBatch
    request: ClaimRequest | None


class ClaimLoop(Loop):
    def __init__(
        self,
        database: Database,
        worker: int,
        slots: JobSlots,
        tasks: Mapping[str, TaskDefinition],
        queues: Sequence[str],
        notify_queues: Callable[[Sequence[str]], None],
        event_bus: EventBus,
        clock: DatabaseClock,
        tracing: Tracing | None = None,
        counters: Counters | None = None,
    ) -> None:
        super().__init__()
        self._tracing = tracing or Tracing()
        self._clock = clock
        self._counters = counters or Counters()
        self._database = database
        self._worker = worker
        self._slots = slots
        self._planner = ClaimPlanner(database.settings, worker, slots, tasks, queues)
        self._notify_queues = notify_queues
        self._event_bus = event_bus
        self._tasks = tasks
        self._any_visibility_timeout = any(
            task.policy.visibility_timeout for task in tasks.values()
        )
        self._has_pending_releases = False  # whether ends are left that could not be passed on
        self._idle_connections: list[ReconnectingConnection] = [
            ReconnectingConnection(database),
            ReconnectingConnection(database),
        ]
        self._in_flight: dict[RoundTrip, asyncio.Task[None]] = {}
        self._unconfirmed: list[OutcomeBatch] = []  # sent, and not known to be recorded
        self._contended: list[
            tuple[float, OutcomeBatch]
        ] = []  # somebody is in their way; when to try again
        self._error: BaseException | None = None
        self._on_refused: Callable[[int], None] = lambda jobs: None
        slots.on_outcome(self.wake)

    # What others say

    def poll_now(self, *, suspects: bool = False) -> None:
        """There is news: look for jobs, also below the floors, perhaps also for those that were lost."""
        self._planner.poll_now()
        if suspects:
            self._planner.expect_suspects()
        # At once, without the detour through the loop: this is what an idle worker's latency is made of.
        if not self._in_flight and not self._unconfirmed and self._error is None:
            self._start_round_trips(time.monotonic())
        self.wake()

    def on_next_schedule(self, callback: Callable[[float | None], None]) -> None:
        """Whom to tell, with every poll, in how many seconds the next schedule is due."""
        self._planner.on_next_schedule = callback

    def on_refused(self, callback: Callable[[int], None]) -> None:
        """Whom to tell how many outcomes were refused, when some were."""
        self._on_refused = callback

    def stop_claiming(self) -> None:
        self._planner.close()
        self.wake()

    def tracks(self, claim: int, nonce: UUID) -> bool:
        """Whether a claim is accounted for: on the desk, being written, or being answered."""
        if claim in self._slots.claims() or nonce in self._slots.expected_nonces:
            return True
        contended = (batch for _, batch in self._contended)
        if any(claim in batch.claims for batch in (*self._unconfirmed, *contended)):
            return True
        return any(
            claim in trip.batch.claims
            or (trip.request and nonce in (trip.request.nonce, trip.request.suspect_nonce))
            for trip in self._in_flight
        )

    @property
    def is_flushed(self) -> bool:
        """Whether every outcome has been recorded and passed on."""
        busy = self._slots.has_outcomes or self._unconfirmed or self._in_flight or self._contended
        return not (busy or self._has_pending_releases)

    # The loop

    async def tick(self) -> float | None:
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._contended:
            self._retry_contended(time.monotonic())
        if self._unconfirmed:
            if not self._in_flight:
                await self._resend()
                return 0
            return None  # the trade under way wakes us when it ends

        if self._has_pending_releases and self._idle_connections:
            await self._release_pending()
        now = time.monotonic()
        self._planner.return_stale_jobs()
        if not self._idle_connections:
            return None
        if self._start_round_trips(now):
            return 0
        if self._in_flight:
            return None
        pause = self._planner.pause_seconds(now)
        if self._contended:
            retry_in = max(self._contended[0][0] - now, 0.001)
            pause = retry_in if pause is None else min(pause, retry_in)
        return pause

    def _retry_contended(self, now: float) -> None:
        """Try once more what was put aside long enough ago."""
        self._unconfirmed += [batch for at, batch in self._contended if at <= now]
        self._contended = [(at, batch) for at, batch in self._contended if at > now]

    def _start_round_trips(self, now: float) -> bool:
        """Send off a trade, if there is one worth it; under load one each way."""
        with_outcomes = self._slots.has_outcomes and not any(trip.batch for trip in self._in_flight)
        request = None if any(trip.request for trip in self._in_flight) else self._planner.plan(now)
        if not with_outcomes and request is None:
            return False
        jobs_to_move = (self._slots.outcome_count if with_outcomes else 0) + (
            request.limit if request else 0
        )
        if self._in_flight and jobs_to_move < SECOND_ROUND_TRIP_JOBS:
            return False
        batch = self._slots.take_outcomes() if with_outcomes else OutcomeBatch()
        if (
            request
            and batch
            and jobs_to_move >= SEPARATE_ROUND_TRIP_JOBS
            and len(self._idle_connections) == 2
        ):
            self._start(RoundTrip(OutcomeBatch(), request))
            request = None
        self._start(RoundTrip(batch, request))
        return True

    def _start(self, trip: RoundTrip) -> None:
        self._in_flight[trip] = asyncio.create_task(self._send(trip, self._idle_connections.pop()))

    async def _send(self, trip: RoundTrip, connection: ReconnectingConnection) -> None:
        try:
            await self._round_trip(trip, connection)
        except BaseException as error:
            if trip.batch:
                self._unconfirmed.append(trip.batch)
            self._planner.expect_more()
            self._error = error
            await connection.close()
        finally:
            self._idle_connections.append(connection)
            del self._in_flight[trip]
            self.wake()

    async def _round_trip(self, trip: RoundTrip, connection: ReconnectingConnection) -> None:
        batch, request = trip.batch, trip.request
        transactions = outcomes.statements_for(self._worker, batch)
        outcome_transactions = len(transactions)
        # Before what they are read by is released.
        link_transactions = [[trace_links.write(batch.trace_links)]] if batch.trace_links else []
        if waiter_ids := outcomes.waiter_ids(batch):
            transactions.append([listeners.notify_waiters(waiter_ids)])
        if request is not None:
            transactions.append(self._planner.statements(request))

        sent_at = time.perf_counter()
        answers = (await connection.send([*link_transactions, *transactions]))[
            len(link_transactions) :
        ]
        seconds = time.perf_counter() - sent_at

        result = self._accept(batch, answers[:outcome_transactions])
        self._counters.round_trips.add(seconds)
        self._counters.count_outcomes(batch, set(result.refused))
        outcomes.publish(self._worker, batch, set(result.refused), self._event_bus)
        if result.refused:
            self._on_refused(len(result.refused))
        trip.batch = OutcomeBatch()
        if other_runs := set(result.runs).difference(waiter_ids):
            # Runs that ended because a run in them did. Nothing is lost with it: who waits also looks.
            await connection.send([[listeners.notify_waiters(sorted(other_runs))]])
        if request is not None:
            await self._receive_jobs(request, answers[-1], seconds, connection)

    async def _receive_jobs(
        self,
        request: ClaimRequest,
        answers: list[list[Any]],
        seconds: float,
        connection: ReconnectingConnection,
    ) -> None:
        if woken_queues := self._planner.read_woken_queues(request, answers):
            self._notify_queues(woken_queues)
        claimed = self._planner.read_jobs(request, answers, seconds)
        self._counters.count_claim(claimed)
        if not claimed:
            return
        await load_inputs(claimed, self._tasks, connection)
        await load_journal(claimed, connection, self._clock)
        if self._tracing.active_spans() is not None:
            await load_trace_links(claimed, connection)
        nonces: list[UUID] = []
        try:
            if self._any_visibility_timeout:
                claimed = await self._apply_visibility_timeouts(claimed, connection, nonces)
            if self._event_bus:
                for job in claimed:
                    event = events.JobClaimed(self._worker, job.job, job.task, job.attempt)
                    self._event_bus.publish(event)
            self._slots.add(claimed)
        finally:
            self._slots.expected_nonces.difference_update(nonces)

    async def _apply_visibility_timeouts(
        self, claimed: list[ClaimedJob], connection: ReconnectingConnection, nonces: list[UUID]
    ) -> list[ClaimedJob]:
        """Give jobs of tasks that are held for a time a claim of their own, which runs out by then."""
        held = []
        for job in claimed:
            seconds = self._tasks[job.task].policy.visibility_timeout
            if seconds is not None:
                nonces.append(uuid4())
                self._slots.expected_nonces.add(nonces[-1])
                transaction = split_claim(self._worker, job, nonces[-1], seconds)
                [[_, _, new_claim]] = await connection.send([transaction])
                if not new_claim:
                    continue
                job.claim = new_claim[0]
            held.append(job)
        return held

    def _accept(self, batch: OutcomeBatch, answers: list[list[list[Any]]]) -> outcomes.BatchResult:
        """Read what became of a batch."""
        result = outcomes.read_answers(batch, answers)
        if batch.retried:
            self._planner.timer_due_in(min(each.delay for _, each, _ in batch.retried))
        for _, suspended, _ in batch.suspended:
            for each in suspended.waits:
                if each.seconds is not None:
                    self._planner.timer_due_in(each.seconds)
        self._after_release(result.queues, result.runs, result.pending)
        return result

    def _after_release(
        self, queues: Collection[str], finished_runs: Collection[int], pending: bool
    ) -> None:
        """Others were waiting for what ended."""
        self._has_pending_releases |= pending
        if queues:
            self._planner.expect_more()
            self._notify_queues(list(queues))
        if self._event_bus:
            for run in finished_runs:
                self._event_bus.publish(events.RunFinished(self._worker, run))

    async def _release_pending(self) -> None:
        """Pass on ends that could not be passed on with the trade that recorded them."""
        connection = self._idle_connections.pop()
        try:
            [[[released]]] = await connection.send([[runs.release_pending(PENDING_RELEASE_ROWS)]])
            self._has_pending_releases = False
            self._after_release(released.queues, released.runs, released.pending)
            if released.runs:
                await connection.send([[listeners.notify_waiters(released.runs)]])
        except BaseException:
            await connection.close()
            raise
        finally:
            self._idle_connections.append(connection)

    # What an answer is missing for

    async def _resend(self) -> None:
        """Record a batch whose answer never came: it may have been recorded, or not."""
        # Out of the pile: news that comes meanwhile may send off a trade, on the other hand only.
        batch, connection = self._unconfirmed[0], self._idle_connections.pop()
        try:
            try:
                answers = await connection.send(outcomes.statements_for(self._worker, batch))
            except Exception as error:
                if pg_errors.is_transient(error) and not pg_errors.is_contended(error):
                    raise
                self._unconfirmed[:1] = self._replace(batch, error)
                return
            refused = self._accept(batch, answers).refused
            recorded: set[int] = set()
            if refused:
                query = jobs.recorded(refused, sorted(batch.claims))
                recorded = set((await connection.send([[query]]))[0][0])
            self._unconfirmed.pop(0)
            self._counters.count_outcomes(batch, set(refused) - recorded)
            outcomes.publish(self._worker, batch, set(refused) - recorded, self._event_bus)
            self._on_refused(len(set(refused) - recorded))
            # Of no consequence if it is lost: who waits also looks.
            await connection.send([[listeners.notify_waiters(outcomes.waiter_ids(batch))]])
        except BaseException:
            await connection.close()
            raise
        finally:
            self._idle_connections.append(connection)

    def _replace(self, batch: OutcomeBatch, error: Exception) -> list[OutcomeBatch]:
        """Return the batches to send in place of one that the database refused as a whole.

        Several outcomes are sent one by one, so that one of them cannot hold up the rest. A single outcome
        that can never be stored becomes a failure. Any other error is the server's fault: the outcome is
        kept and sent again later.
        """
        singles = list(batch.split())
        if len(singles) > 1:
            return singles
        if pg_errors.is_unstorable(error):
            rare = (*batch.suspended, *batch.restarted)
            for job, outcome, seconds in (*batch.succeeded, *batch.finished, *batch.retried, *rare):
                failure = FinalOutcome("failed", codec.encode_error(error, job.attempt, ""))
                if outcome != failure:
                    log.error(
                        "job %s (%s) fails: its outcome cannot be stored: %s",
                        job.job,
                        job.task,
                        pg_errors.first_line(error),
                    )
                    return [OutcomeBatch(finished=[(job, failure, seconds)])]
        if not pg_errors.is_contended(error) and not self._contended:
            log.error(
                "outcomes could not be recorded: %s; they are sent again every %.0f s",
                pg_errors.first_line(error),
                CONTENDED_RETRY_SECONDS,
            )
        self._contended.append((time.monotonic() + CONTENDED_RETRY_SECONDS, batch))
        return []

    async def close(self) -> None:
        if self._in_flight:
            await asyncio.wait(self._in_flight.values())
        for connection in self._idle_connections:
            await connection.close()
