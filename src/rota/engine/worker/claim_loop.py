"""Loop that records outcomes and claims new jobs.

One round trip sends these as separate transactions, in one pipeline:

    1. record the outcomes that have accumulated
    2. notify the clients that wait for these jobs and runs
    3. claim the next jobs

Outcomes that accumulate during one round trip are sent with the next. Batches therefore grow with the load,
and no outcome waits for a batch to fill.

Usually one round trip is in flight. Under load there are two, on two connections: one records outcomes, the
other claims jobs. The server works on one request while the worker reads the answer to the other. At most
one round trip carries outcomes, so completions never wait for each other's locks.

A lost answer is not a failure. Outcomes without an answer are sent again, in a round trip of their own,
until the database records them or the fence refuses them. `ClaimReconciler` finds claims with a lost answer
and returns their jobs to the queue.
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
from rota.engine.worker.outcomes import FinishedAttempt, OutcomeBatch, OutcomeQueue
from rota.engine.worker.slots import JobSlots
from rota.loop import Loop
from rota.model import codec, events
from rota.model.outcome import FinalOutcome, Restarted, Retried, Succeeded, Suspended
from rota.model.task import TaskDefinition
from rota.store import jobs, listeners, pg_errors, runs, trace_links
from rota.store.connection import ReconnectingConnection
from rota.store.database import Database
from rota.store.jobs import ClaimedJob

log = logging.getLogger("rota")

PENDING_RELEASE_ROWS = 1000
"""Rows of `pending_releases` handled in one transaction."""

CONTENDED_RETRY_SECONDS = 5.0
"""Pause before an outcome is sent again that could not be recorded, for example for a held lock."""

SECOND_ROUND_TRIP_JOBS = 100
"""Jobs to send or claim from which a second round trip in flight is worth its cost."""

SEPARATE_ROUND_TRIP_JOBS = 400
"""Jobs to send and claim from which outcomes and the claim use two connections."""


UNKNOWN_CLAIM_SECONDS = 1.0
"""Minimum time between two reports of claims whose answer was lost."""

UNSTORABLE_OUTCOMES = (Succeeded, FinalOutcome, Retried, Suspended, Restarted)
"""Outcomes with values of the user's code, which the database may refuse to store."""


@dataclass(slots=True, eq=False)
class RoundTrip:
    """Outcomes to record and jobs to claim in one pipeline."""

    batch: OutcomeBatch
    request: ClaimRequest | None


class ClaimLoop(Loop):
    """`on_next_schedule` receives the seconds until the next schedule is due, after every check of the
    timers; None: no schedule is active. `on_refused` receives the number of refused outcomes of a batch.
    `on_claim_unknown` is called after a failed round trip whose claim may have been stored, at most once in
    UNKNOWN_CLAIM_SECONDS.
    """

    name = "claim loop"

    def __init__(
        self,
        database: Database,
        worker: int,
        slots: JobSlots,
        outcomes: OutcomeQueue,
        tasks: Mapping[str, TaskDefinition],
        queues: Sequence[str],
        notify_queues: Callable[[Sequence[str]], None],
        event_bus: EventBus,
        clock: DatabaseClock,
        tracing: Tracing,
        counters: Counters,
        on_next_schedule: Callable[[float | None], None],
        on_refused: Callable[[int], None],
        on_claim_unknown: Callable[[], None],
    ) -> None:
        super().__init__(outcomes.wake_claim_loop)
        self._tracing = tracing
        self._clock = clock
        self._counters = counters
        self._outcomes = outcomes
        self._on_refused = on_refused
        self._on_claim_unknown = on_claim_unknown
        self._database = database
        self._worker = worker
        self._slots = slots
        self._planner = ClaimPlanner(
            database.settings, worker, slots, tasks, queues, on_next_schedule
        )
        self._notify_queues = notify_queues
        self._event_bus = event_bus
        self._tasks = tasks
        self._any_visibility_timeout = any(
            task.policy.visibility_timeout for task in tasks.values()
        )
        self._has_pending_releases = False  # successors are left that could not be released
        self._idle_connections: list[ReconnectingConnection] = [
            ReconnectingConnection(database),
            ReconnectingConnection(database),
        ]
        self._in_flight: dict[RoundTrip, asyncio.Task[None]] = {}
        self._unconfirmed: list[OutcomeBatch] = []  # sent, without an answer
        self._contended: list[tuple[float, OutcomeBatch]] = []  # when to send again, and the batch
        self._error: BaseException | None = None
        self._has_unknown_claim = False  # the answer to a claim was lost; not reported yet
        self._next_report_at = 0.0

    # Called by other parts of the worker

    def poll_now(self, *, suspects: bool = False) -> None:
        """Poll for jobs at once, also below the queue cursors; with `suspects`, claim suspects too."""
        self._planner.poll_now()
        if suspects:
            self._planner.expect_suspects()
        # Start here instead of in the loop: this is the latency of an idle worker.
        if not self._in_flight and not self._unconfirmed and self._error is None:
            self._start_round_trips(time.monotonic())
        self.wake()

    def stop_claiming(self) -> None:
        self._planner.close()
        self.wake()

    def tracks(self, claim: int, nonce: UUID) -> bool:
        """True if the claim's jobs are in a slot, or its outcomes or its answer are on the way."""
        if claim in self._slots.claims() or nonce in self._slots.expected_nonces:
            return True
        contended = (batch for _, batch in self._contended)
        if any(claim in batch.claims() for batch in (*self._unconfirmed, *contended)):
            return True
        return any(
            claim in trip.batch.claims()
            or (trip.request and nonce in (trip.request.nonce, trip.request.suspect_nonce))
            for trip in self._in_flight
        )

    @property
    def is_flushed(self) -> bool:
        """True if nothing is in flight, and every outcome is recorded and its successors released."""
        busy = self._outcomes or self._unconfirmed or self._in_flight or self._contended
        return not (busy or self._has_pending_releases)

    # Loop

    async def tick(self) -> float | None:
        if self._has_unknown_claim and time.monotonic() >= self._next_report_at:
            self._has_unknown_claim = False
            self._next_report_at = time.monotonic() + UNKNOWN_CLAIM_SECONDS
            self._on_claim_unknown()
        if self._error is not None:
            error, self._error = self._error, None
            raise error
        if self._contended:
            self._retry_contended(time.monotonic())
        if self._unconfirmed:
            if not self._in_flight:
                await self._resend()
                return 0
            return None  # the round trip in flight wakes the loop when it ends

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
        """Move contended batches to the unconfirmed ones once their pause has passed."""
        self._unconfirmed += [batch for at, batch in self._contended if at <= now]
        self._contended = [(at, batch) for at, batch in self._contended if at > now]

    def _start_round_trips(self, now: float) -> bool:
        """Start one round trip, or two under load, and return True; return False if none is worth it."""
        with_outcomes = bool(self._outcomes) and not any(trip.batch for trip in self._in_flight)
        request = None if any(trip.request for trip in self._in_flight) else self._planner.plan(now)
        if not with_outcomes and request is None:
            return False
        jobs_to_move = (len(self._outcomes) if with_outcomes else 0) + (
            request.limit if request else 0
        )
        if self._in_flight and jobs_to_move < SECOND_ROUND_TRIP_JOBS:
            return False
        batch = self._outcomes.take() if with_outcomes else OutcomeBatch()
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
        """Run a round trip. After an error, keep its outcomes to be sent again."""
        try:
            await self._round_trip(trip, connection)
        except BaseException as error:
            if trip.batch:
                self._unconfirmed.append(trip.batch)
            self._planner.expect_more()
            self._error = error
            self._has_unknown_claim |= trip.request is not None and not pg_errors.was_not_sent(
                error
            )
            await connection.close()
        finally:
            self._idle_connections.append(connection)
            del self._in_flight[trip]
            self.wake()

    async def _round_trip(self, trip: RoundTrip, connection: ReconnectingConnection) -> None:
        batch, request = trip.batch, trip.request
        transactions = outcomes.transactions_for(self._worker, batch)
        outcome_transactions = len(transactions)
        # Trace links go first: a released successor reads them.
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
        trip.batch = OutcomeBatch()  # recorded: a later error must not send it again
        self._counters.round_trips.add(seconds)
        self._publish(batch, set(result.refused))
        if result.refused:
            self._on_refused(len(result.refused))
        if other_runs := set(result.runs).difference(waiter_ids):
            # Runs that finished because a child run did.
            # Losing this notification is safe: waiters also poll.
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
        """Read the answer to a claim, load the inputs of its jobs, and put the jobs into slots."""
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
        """Give each job with a visibility timeout its own claim, which expires after that time.

        Return the jobs that this worker still holds. Append the nonces of the new claims to `nonces`.
        """
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
        """Read the answers to a batch and plan the polls that its retries and sleeps need."""
        result = outcomes.read_answers(batch, answers)
        for retried in batch.of(Retried):
            self._planner.timer_due_in(retried.outcome.delay)
        for suspended in batch.of(Suspended):
            for wait in suspended.outcome.waits:
                if wait.seconds is not None:
                    self._planner.timer_due_in(wait.seconds)
        self._after_release(result.queues, result.runs, result.pending)
        return result

    def _publish(self, batch: OutcomeBatch, refused: set[int]) -> None:
        outcomes.publish(self._worker, batch, refused, self._counters, self._event_bus)

    def _after_release(
        self, queues: Collection[str], finished_runs: Collection[int], pending: bool
    ) -> None:
        """Notify queues that received released jobs, and publish the runs that finished."""
        self._has_pending_releases |= pending
        if queues:
            self._planner.expect_more()
            self._notify_queues(list(queues))
        if self._event_bus:
            for run in finished_runs:
                self._event_bus.publish(events.RunFinished(self._worker, run))

    async def _release_pending(self) -> None:
        """Release successors that could not be released in the transaction of the outcome."""
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

    # Lost answers

    async def _resend(self) -> None:
        """Send a batch again after its answer was lost: it may have been recorded or not."""
        # Reserve a connection: a notification may start a round trip meanwhile, on the other one only.
        batch, connection = self._unconfirmed[0], self._idle_connections.pop()
        try:
            try:
                answers = await connection.send(outcomes.transactions_for(self._worker, batch))
            except Exception as error:
                if pg_errors.is_transient(error) and not pg_errors.is_contended(error):
                    raise
                self._unconfirmed[:1] = self._replace(batch, error)
                return
            refused = self._accept(batch, answers).refused
            recorded: set[int] = set()
            if refused:
                # A refused outcome may have been recorded by the round trip that lost its answer.
                query = jobs.recorded(refused, sorted(batch.claims()))
                recorded = set((await connection.send([[query]]))[0][0])
            self._unconfirmed.pop(0)
            lost = set(refused) - recorded
            self._publish(batch, lost)
            if lost:
                self._on_refused(len(lost))
            # Losing this notification is safe: waiters also poll.
            await connection.send([[listeners.notify_waiters(outcomes.waiter_ids(batch))]])
        except BaseException:
            await connection.close()
            raise
        finally:
            self._idle_connections.append(connection)

    def _replace(self, batch: OutcomeBatch, error: Exception) -> list[OutcomeBatch]:
        """Return the batches to send in place of one that failed as a whole.

        Several outcomes become one batch each, so that one of them cannot hold up the rest. A single
        outcome that can never be stored becomes a failure of its job. Any other error is the server's
        fault: the outcome is kept and sent again after CONTENDED_RETRY_SECONDS.
        """
        singles = batch.split()
        if len(singles) > 1:
            return singles
        if pg_errors.is_unstorable(error):
            [attempt] = singles[0].attempts
            job = attempt.job
            failure = FinalOutcome("failed", codec.encode_error(error, job.attempt, ""))
            if isinstance(attempt.outcome, UNSTORABLE_OUTCOMES) and attempt.outcome != failure:
                log.error(
                    "job %s (%s) fails: its outcome cannot be stored: %s",
                    job.job,
                    job.task,
                    pg_errors.first_line(error),
                )
                return [OutcomeBatch([FinishedAttempt(job, failure, attempt.seconds)])]
        if not pg_errors.is_contended(error) and not self._contended:
            log.error(
                "outcomes could not be recorded: %s; they are sent again every %.0f s",
                pg_errors.first_line(error),
                CONTENDED_RETRY_SECONDS,
            )
        self._contended.append((time.monotonic() + CONTENDED_RETRY_SECONDS, batch))
        return []

    async def close(self) -> None:
        """Wait for the round trips in flight and close both connections."""
        if self._in_flight:
            await asyncio.wait(self._in_flight.values())
        for connection in self._idle_connections:
            await connection.close()
