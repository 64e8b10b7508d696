"""Planner of claims: decides when to claim and how many jobs, and reads the answers.

Jobs that were lost with a worker are claimed separately, as many as can start at once. A job that must
run alone is claimed by itself, and the worker claims no other job until its exclusive run ends.

`Prefetch` decides how many jobs to hold beyond those that run. While one batch runs and another is
written, the next must be on its way, or short jobs leave slots empty for the length of a round trip.
Long jobs leave none empty, and a job that waits in a busy worker could have run in an idle one. So the
number follows two observations:

    slots were empty when an answer arrived    hold twice as many
    jobs waited longer than a few answers      hold half as many

A worker that has just started holds no more than it can run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from rota.engine.worker.queue_cursors import QueueCursors, ReadPlan
from rota.engine.worker.slots import JobSlots
from rota.model.settings import Settings
from rota.model.task import TaskDefinition
from rota.store import jobs, timers, workers
from rota.store.array_literals import text_array
from rota.store.jobs import ClaimedJob
from rota.store.query import Query

STALE_JOB_SECONDS = 1.0
"""Time that a claimed job may wait for a slot before it returns to the queue."""

MAX_WOKEN_JOBS = 1000
"""Sleeping jobs woken in one statement."""


@dataclass(slots=True)
class ClaimRequest:
    """A claim that is planned or in flight."""

    read_plan: ReadPlan
    limit: int
    with_timers: bool
    prefetch_only: bool
    suspect_limit: int
    """Largest number of suspects to claim; 0 claims none."""
    notification_count: int
    """Notifications received when the claim was planned. A higher count later calls for another claim."""
    suspect_notification_count: int
    """The same for notifications about suspects."""
    nonce: UUID = field(default_factory=uuid4)
    suspect_nonce: UUID = field(default_factory=uuid4)
    """Nonce of the suspects' claims."""


class ClaimPlanner:
    def __init__(
        self,
        settings: Settings,
        worker: int,
        slots: JobSlots,
        tasks: Mapping[str, TaskDefinition],
        queues: Sequence[str],
        on_next_schedule: Callable[[float | None], None],
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._slots = slots
        prefetchable = [name for name, task in tasks.items() if task.policy.prefetchable]
        # Array literals, since every claim sends them. A longer list is stored once, at registration.
        few = len(tasks) <= workers.MAX_INLINE_TASKS
        self._tasks = text_array(tasks if few else ())
        self._prefetchable = text_array(prefetchable if few else ())
        self._some_not_prefetchable = len(prefetchable) < len(tasks)
        self._none_prefetchable = not prefetchable
        self._queues = list(queues)
        self._cursors = QueueCursors(queues)
        self._prefetch = Prefetch(slots.capacity, settings.prefetch)
        self._on_next_schedule = on_next_schedule
        self._is_open = True
        self._more_expected = True  # a read from the cursors on may find jobs
        self._suspects_expected = True  # a claim may find suspects
        self._notification_count = 0
        self._suspect_notification_count = 0
        self._next_poll_at = 0.0
        self._next_timer_at = 0.0

    # Notifications

    def poll_now(self) -> None:
        """Plan a claim at once, also below the cursors."""
        self._notification_count += 1
        self._more_expected = True
        self._cursors.request_full_read()

    def expect_suspects(self) -> None:
        """Plan a claim of suspects: jobs were lost with a worker."""
        self._suspect_notification_count += 1
        self._suspects_expected = True

    def expect_more(self) -> None:
        """Plan a claim from the cursors on: new jobs are queued there."""
        self._more_expected = True

    def close(self) -> None:
        """Plan no further claim."""
        self._is_open = False

    def timer_due_in(self, seconds: float) -> None:
        """Check the timers in `seconds` at the latest: a sleeping job is due then."""
        self._next_timer_at = min(self._next_timer_at, time.monotonic() + seconds)

    # Claims

    def plan(self, now: float) -> ClaimRequest | None:
        """Return the next claim, or None if none is worth it. Only one claim is in flight at a time."""
        if not self._is_open or self._slots.is_reserved:
            return None
        timers_due = now >= self._next_timer_at
        full_read_at = self._cursors.full_read_at
        # There may be jobs below the cursors even if none are left above them.
        full_read_due = full_read_at is not None and now >= full_read_at
        poll_due = now >= self._next_poll_at
        free_slots = self._slots.capacity - self._slots.running - self._slots.backlog
        with_suspects = (self._suspects_expected or poll_due) and free_slots > 0
        limit, prefetch_only = 0, False
        # Claim suspects by themselves: if one has to run alone, no other job should come with it.
        if not (self._suspects_expected and with_suspects):
            if not (
                self._more_expected or full_read_due or timers_due or poll_due or with_suspects
            ):
                return None
            limit, prefetch_only = self._limit(free_slots)
            if limit < 1 or (prefetch_only and self._none_prefetchable):
                return None
        return ClaimRequest(
            self._cursors.plan(now),
            limit,
            # A poll checks the timers too, so an idle worker sends one query instead of two.
            timers_due or poll_due,
            prefetch_only,
            free_slots if with_suspects else 0,
            self._notification_count,
            self._suspect_notification_count,
        )

    def _limit(self, free_slots: int) -> tuple[int, bool]:
        """Return the number of jobs to claim, and True if only prefetchable ones may be claimed."""
        prefetch = self._prefetch.count
        if self._slots.backlog > prefetch // 2:
            return 0, False
        prefetch_only = False
        if self._some_not_prefetchable and prefetch:
            # A job that is not simply retried after a crash is claimed only when it can start. If the
            # worker died while such a job waited, it would be unknown whether the job had begun.
            if free_slots > 0:
                prefetch = 0
            else:
                prefetch_only = True
        return min(free_slots + prefetch, self._settings.batch), prefetch_only

    def statements(self, request: ClaimRequest) -> list[Query[Any]]:
        """Return the statements of a claim, for one transaction."""
        read_plan = request.read_plan
        # Timers first, in the claim's transaction: jobs that are due now are claimed with it.
        wake: list[Query[Any]] = [timers.wake(MAX_WOKEN_JOBS)] if request.with_timers else []
        if request.with_timers:
            self._next_timer_at = time.monotonic() + 2 * self._settings.poll_interval
        statements = wake
        if request.suspect_limit:
            statements.append(
                jobs.claim_suspects(
                    self._worker,
                    request.suspect_nonce,
                    self._tasks,
                    self._queues,
                    request.suspect_limit,
                    grave=True,
                )
            )
        if request.limit:
            statements.append(
                jobs.claim(
                    self._worker,
                    request.nonce,
                    self._prefetchable if request.prefetch_only else self._tasks,
                    read_plan.queues,
                    read_plan.priorities,
                    read_plan.cursors,
                    request.limit,
                    prefetch_only=request.prefetch_only,
                )
            )
        return statements

    # Answers

    def read_jobs(
        self, request: ClaimRequest, answers: list[list[Any]], seconds: float
    ) -> list[ClaimedJob]:
        """Return the claimed jobs, and update the plan for the next claim."""
        now = time.monotonic()
        suspects: list[ClaimedJob] = (
            answers[1 if request.with_timers else 0] if request.suspect_limit else []
        )
        if request.suspect_limit:
            # Notifications received while the claim was in flight may be newer than its snapshot.
            self._suspects_expected = (
                bool(suspects)
                or self._suspect_notification_count != request.suspect_notification_count
            )
        if not request.limit:
            return suspects
        claimed: list[ClaimedJob] = answers[-1]
        self._prefetch.on_claim(
            self._slots.idle_slots, seconds, is_full=len(claimed) == request.limit
        )
        self._more_expected = self._cursors.record(
            request.read_plan, claimed, request.limit, seconds, now
        )
        if self._notification_count != request.notification_count:
            self._more_expected = True
            self._cursors.request_full_read()
        self._next_poll_at = now + self._settings.poll_interval * random.uniform(0.8, 1.2)
        return [*suspects, *claimed]

    def read_woken_queues(self, request: ClaimRequest, answers: list[list[Any]]) -> list[str]:
        """Return the queues of the sleeping jobs that a claim has woken."""
        if not request.with_timers:
            return []
        [woken] = answers[0]
        # Jobs that other workers suspend meanwhile are found by polls, which are about as frequent.
        delay = (
            2 * self._settings.poll_interval if woken.next_seconds is None else woken.next_seconds
        )
        delay = min(delay, 2 * self._settings.poll_interval)
        self._next_timer_at = time.monotonic() + (0 if woken.count == MAX_WOKEN_JOBS else delay)
        self._on_next_schedule(woken.next_schedule_seconds)
        if woken.count:
            self._more_expected = True
        queues: list[str] = woken.queues
        return queues

    def return_stale_jobs(self) -> None:
        """Return jobs that have waited too long for a slot to the queue, and adapt the prefetch."""
        if self._slots.backlog:
            self._prefetch.on_wait(self._slots.oldest_wait_seconds)
            self._slots.return_unstarted(STALE_JOB_SECONDS)

    def pause_seconds(self, now: float) -> float | None:
        """Return the seconds until the next claim or check is due; None: only after a wake-up."""
        if not self._is_open:
            return None
        due_times = [self._next_poll_at, self._next_timer_at]
        if self._cursors.full_read_at is not None:
            due_times.append(self._cursors.full_read_at)
        if self._slots.backlog:
            due_times.append(now + STALE_JOB_SECONDS / 4)
        has_free_slot = self._slots.running + self._slots.backlog < self._slots.capacity
        if not has_free_slot:
            # No claim is due until a job ends, which wakes the loop. The backlog is still checked.
            return STALE_JOB_SECONDS / 4 if self._slots.backlog else None
        return max(min(due_times) - now, 0.001)


ALLOWED_WAIT_SECONDS = 0.03
"""Wait for a slot that never lowers the prefetch."""


class Prefetch:
    """Number of jobs to claim beyond the free slots, adapted to observed waits and idle slots."""

    def __init__(self, capacity: int, limit: int) -> None:
        self._capacity = capacity
        self._limit = limit
        self._round_trip_seconds = 0.0
        self._was_full = False  # the last claim returned as many jobs as requested
        self.count = 0

    def on_claim(self, idle_slots: int, seconds: float, *, is_full: bool) -> None:
        """Take note of an answered claim.

        `seconds` is the length of the round trip, `idle_slots` the number of free slots when the answer
        arrived. `is_full` is true if the claim returned as many jobs as requested.
        """
        self._round_trip_seconds = (
            seconds
            if not self._round_trip_seconds
            else 0.7 * self._round_trip_seconds + 0.3 * seconds
        )
        # Idle slots prove short jobs only if the claim before had filled them: at first all are idle.
        if is_full and self._was_full and idle_slots * 4 > self._capacity:
            self.count = min(max(self._capacity // 2, self.count * 2, 1), self._limit)
        self._was_full = is_full

    def on_wait(self, seconds: float) -> None:
        """Halve the prefetch if the longest wait for a slot, `seconds`, is too long."""
        if seconds > max(4 * self._round_trip_seconds, ALLOWED_WAIT_SECONDS):
            self.count //= 2
