"""Slots of a worker: the jobs it holds, from the claim to the outcome.

    add ──▶ backlog ──▶ running ──▶ OutcomeQueue

The claim loop adds claimed jobs and takes the outcomes of finished ones from the queue. In between,
executors run the jobs. `JobSlots` starts a job from the backlog whenever a slot is free.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from uuid import UUID

from rota.engine.execution.executor import StopReason, effective_policy, outcome_of_error
from rota.engine.execution.pool import ExecutorPool
from rota.engine.telemetry.tracing import Tracing
from rota.engine.worker.crash_policy import after_crash
from rota.engine.worker.exclusive_run import ExclusiveRun, MarkExclusive
from rota.engine.worker.outcomes import OutcomeQueue
from rota.model.context import ContextBackend
from rota.model.outcome import (
    AlreadyRecorded,
    Discarded,
    FinalOutcome,
    Outcome,
    Quarantined,
    Rejected,
    Returned,
    Succeeded,
    Suspended,
)
from rota.model.retry import Retry
from rota.model.task import TaskDefinition
from rota.store.jobs import RECORDED_CLAIM, ClaimedJob

OUTCOMES_PER_WAKE = 50
FREQUENT_OUTCOMES = (Succeeded, Suspended)
"""Recorded in batches. Rare outcomes are recorded at once."""
RETURNED = Returned()


async def _mark_nothing(job: ClaimedJob, exclusive: bool) -> bool:
    return True


class JobSlots:
    """Jobs of one worker session.

    `capacity` is the number of slots. `backend_for` returns the backend of a job's context.
    `mark_exclusive` stores whether a suspect (a job that was lost with its worker) runs alone. `started`
    counts the attempts that were started, by task.
    """

    def __init__(
        self,
        tasks: Mapping[str, TaskDefinition],
        capacity: int,
        payload_limit: int,
        outcomes: OutcomeQueue,
        backend_for: Callable[[ClaimedJob], ContextBackend] | None = None,
        max_processes: int = 0,
        mark_exclusive: MarkExclusive = _mark_nothing,
        worker: int | None = None,
        tracing: Tracing | None = None,
        started: defaultdict[str, int] | None = None,
    ) -> None:
        self._outcomes = outcomes
        self._wake_claim_loop = outcomes.wake_claim_loop.set
        self._tasks = tasks
        self.capacity = capacity
        self._backlog: deque[tuple[float, ClaimedJob]] = deque()
        self._running: dict[int, ClaimedJob] = {}
        # Running jobs that only wait and use no slot, with the number of branches that wait.
        self._parked: dict[ClaimedJob, int] = {}
        self._empty = asyncio.Event()
        self._empty.set()
        self.expected_nonces: set[UUID] = set()
        """Nonces of claims that `split_claim` has requested and the database has not confirmed yet."""
        self._exclusive_run = ExclusiveRun(
            # Parked jobs are harmless: the property does not count them.
            mark_exclusive,
            lambda: self.running - 1,
            self._on_exclusive_end,
        )
        self._starting_suspects: set[asyncio.Task[None]] = set()
        self._executors = ExecutorPool(
            self._finish, payload_limit, max_processes, backend_for, worker, tracing, started
        )

    # State

    @property
    def backlog(self) -> int:
        return len(self._backlog)

    @property
    def running(self) -> int:
        """Number of slots in use. Parked jobs use none."""
        return len(self._running) - len(self._parked)

    @property
    def idle_slots(self) -> int:
        return self.capacity - self.running

    @property
    def oldest_wait_seconds(self) -> float:
        """Seconds that the oldest job of the backlog has waited for a slot."""
        return time.monotonic() - self._backlog[0][0] if self._backlog else 0.0

    @property
    def is_reserved(self) -> bool:
        """True if a suspect has to run alone, so that no other job may start."""
        return self._exclusive_run.is_reserved

    def claims(self) -> set[int]:
        """Return the claims of all jobs in the backlog, running, or with an outcome to record."""
        return (
            {job.claim for job in self._running.values()}
            | {job.claim for _, job in self._backlog}
            | self._outcomes.claims()
        )

    def unfinished_claims(self) -> set[int]:
        """Return the claims of the jobs that run or are in the backlog."""
        running = {job.claim for job in self._running.values()}
        return (running | {job.claim for _, job in self._backlog}) - {RECORDED_CLAIM}

    # From the claim to the outcome

    def add(self, jobs: Sequence[ClaimedJob]) -> None:
        now = time.monotonic()
        self._executors.refresh_tracing()
        self._backlog.extend([(now, job) for job in jobs])
        if jobs and jobs[0].suspicion is not None:
            # Suspects start first: each was claimed for a free slot and must not wait behind other jobs.
            self._backlog.rotate(len(jobs))
        if self._backlog:
            self._empty.clear()
        self._start_jobs()

    def _start_jobs(self) -> None:
        running, backlog, parked = self._running, self._backlog, self._parked
        while backlog and len(running) - len(parked) < self.capacity:
            if self._exclusive_run.is_reserved:
                self.return_unstarted(older_than=0)
                self._wake_claim_loop()
                break
            _, job = backlog.popleft()
            # A job that already ran steps does not expire.
            if job.expired and not job.has_steps:
                self._outcomes.add(job, FinalOutcome("expired", None), 0.0)
                self._wake_claim_loop()
                continue
            task = self._tasks[job.task]
            if job.job in running:
                # This worker has claimed the job again: the claim of the previous attempt is lost.
                previous = running[job.job]
                self._parked.pop(previous, None)
                self._exclusive_run.end(previous)
                self._stop(previous, StopReason.CLAIM_LOST)
            running[job.job] = job
            try:
                retry, timeout = effective_policy(job, task)
                if job.suspicion is not None:
                    self._start_suspect(job, task, retry, timeout)
                else:
                    self._executors.start(job, task, retry, timeout)
            except Exception as error:
                # Options that are no longer valid fail this job, not the worker.
                self._finish(job, outcome_of_error(error, job, task.policy.retry), 0.0)
        if not running and not backlog:
            self._empty.set()

    def _on_exclusive_end(self) -> None:
        self._start_jobs()
        self._wake_claim_loop()

    def _start_suspect(
        self, job: ClaimedJob, task: TaskDefinition, retry: Retry, timeout: float | None
    ) -> None:
        """Decide whether a job that was lost with its worker runs again, and start it if so."""

        exclusive = job.suspicion == "grave" and task.runs_user_code
        if exclusive:
            self._exclusive_run.reserve(job)

        async def decide_and_start() -> None:
            try:
                outcome: Rejected | Quarantined | Discarded | None = await after_crash(
                    job, task, retry
                )
                if outcome is None and exclusive and not await self._exclusive_run.begin(job):
                    outcome = Discarded()
                if outcome is not None:
                    self._finish(job, outcome, 0.0)
                elif self._running.get(job.job) is job:
                    self._executors.start(job, task, retry, timeout)
            except Exception as error:
                self._finish(job, outcome_of_error(error, job, retry), 0.0)

        starting = asyncio.get_running_loop().create_task(decide_and_start())
        self._starting_suspects.add(starting)
        starting.add_done_callback(self._starting_suspects.discard)

    def _finish(self, job: ClaimedJob, outcome: Outcome, seconds: float) -> None:
        if job.span is not None:
            self._executors.end_span(
                job, AlreadyRecorded() if job.claim == RECORDED_CLAIM else outcome
            )
        if self._running.get(job.job) is not job:
            return  # the attempt was abandoned before it ended; a newer one may be running
        del self._running[job.job]
        if self._parked:
            self._parked.pop(job, None)
        if self._exclusive_run.is_reserved:
            self._exclusive_run.end(job)
            self._exclusive_run.check_alone()
        if job.claim == RECORDED_CLAIM:
            outcome = AlreadyRecorded()
        if job.span is not None:
            self._outcomes.add_trace_link(job, job.span, outcome)
        needs_wake = False
        if not isinstance(outcome, Discarded):
            # A returned attempt does not count, and neither does its duration.
            self._outcomes.add(job, outcome, 0.0 if isinstance(outcome, Returned) else seconds)
            # Wake the claim loop for the first outcome, then once per OUTCOMES_PER_WAKE: by then a second
            # round trip may be worth it.
            needs_wake = len(self._outcomes) % OUTCOMES_PER_WAKE == 1 or not isinstance(
                outcome, FREQUENT_OUTCOMES
            )
        self._start_jobs()
        if needs_wake:
            self._wake_claim_loop()

    def finish_detached(self, job: ClaimedJob, outcome: Outcome) -> None:
        """Record the outcome of a job whose code does not end. Later results of the code are ignored."""
        self._finish(job, outcome, 0.0)

    @contextmanager
    def parked(self, job: ClaimedJob) -> Iterator[None]:
        """Free the slot of a job while it only waits: for other jobs, a time or a signal."""
        if self._running.get(job.job) is job:
            self._parked[job] = self._parked.get(job, 0) + 1
            self._exclusive_run.allow_others(job)
            self._start_jobs()
            self._wake_claim_loop()
        try:
            yield
        finally:
            if self._parked.get(job, 0) > 1:
                self._parked[job] -= 1
            else:
                self._parked.pop(job, None)

    # Cancelling, stopping and returning jobs

    def return_unstarted(self, older_than: float) -> int:
        """Give jobs that have waited `older_than` seconds for a slot back to the queue: another worker may
        have a free slot. Return their number.
        """
        returned = 0
        oldest = time.monotonic() - older_than
        while self._backlog and self._backlog[0][0] <= oldest:
            self._outcomes.add(self._backlog.popleft()[1], RETURNED, 0.0)
            returned += 1
        if not self._running and not self._backlog:
            self._empty.set()
        return returned

    def cancel(self, jobs: Sequence[int]) -> None:
        """Cancel jobs: those in the backlog never start, running ones are asked to stop."""
        cancelled = set(jobs)
        for entry in [entry for entry in self._backlog if entry[1].job in cancelled]:
            self._backlog.remove(entry)
            self._outcomes.add(entry[1], FinalOutcome("cancelled", None), 0.0)
        for job in cancelled & self._running.keys():
            self._stop(self._running[job], StopReason.CANCELLED)
        if self._outcomes:
            self._wake_claim_loop()

    def stop_all(self) -> None:
        """Ask all running jobs to stop. A job that stops returns to the queue, its attempt uncounted."""
        self.return_unstarted(older_than=0)
        for job in list(self._running.values()):
            self._stop(job, StopReason.DRAINED)

    def stop_parked(self) -> None:
        """Ask parked jobs to stop: they can wait in another worker."""
        for job in list(self._parked):
            self._stop(job, StopReason.DRAINED)

    def drop_claims(self, claims: Collection[int] | None = None) -> int:
        """Stop the jobs of lost claims (None: of all claims) without an outcome; return their number."""
        remaining = [entry for entry in self._backlog if not _is_in_claims(entry[1], claims)]
        dropped = len(self._backlog) - len(remaining)
        self._backlog = deque(remaining)
        for job in list(self._running.values()):
            if _is_in_claims(job, claims):
                self._stop(job, StopReason.CLAIM_LOST)
                dropped += 1
        if not self._running and not self._backlog:
            self._empty.set()
        return dropped

    def abandon(self, *, return_jobs: bool = True) -> None:
        """Free the slots of jobs that do not stop. If one ends later, its outcome is ignored."""
        if return_jobs:
            for job in self._running.values():
                self._outcomes.add(job, RETURNED, 0.0)
        self._running.clear()
        self._parked.clear()
        self._empty.set()

    def _stop(self, job: ClaimedJob, reason: StopReason) -> None:
        self._executors.stop(job, self._tasks[job.task], reason)

    async def wait_empty(self) -> None:
        await self._empty.wait()

    def drain(self) -> None:
        """Set `ctx.draining` for running jobs, so that their code can end early."""
        self._executors.drain()

    async def close(self) -> None:
        self._executors.close()
        await self._executors.wait_closed()


def _is_in_claims(job: ClaimedJob, claims: Collection[int] | None) -> bool:
    return claims is None or job.claim in claims
