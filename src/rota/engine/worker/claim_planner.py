"""When to claim jobs and how many, and what each answer means for the next claim.

Jobs that were lost with a worker are claimed separately, as many as can start at once. A job that must
run alone is claimed by itself, and nothing else is claimed while it runs.

`Prefetch` decides how many jobs to hold beyond those that run. While one batch runs and another is
written, the next must be on its way, or short jobs leave slots empty for the length of a round trip.
Long jobs leave none empty, and a job that waits in a busy worker could have run in an idle one. So the
number follows what is observed:

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
"""Seconds a job may wait here for a place before it is given back."""

MAX_WOKEN_JOBS = 1000
"""Sleeping jobs woken in one statement."""


@dataclass(slots=True)
class ClaimRequest:
    """A claim about to be made, or under way."""

    read_plan: ReadPlan
    limit: int
    with_timers: bool
    prefetch_only: bool
    suspect_limit: int
    """So many may come."""
    notification_count: int
    suspect_notification_count: int
    """How often there had been news when it was planned."""
    nonce: UUID = field(default_factory=uuid4)
    suspect_nonce: UUID = field(default_factory=uuid4)
    """The nonce of the suspects' claims."""


class ClaimPlanner:
    def __init__(
        self,
        settings: Settings,
        worker: int,
        slots: JobSlots,
        tasks: Mapping[str, TaskDefinition],
        queues: Sequence[str],
    ) -> None:
        self._settings = settings
        self._worker = worker
        self._slots = slots
        prefetchable = [name for name, task in tasks.items() if task.policy.prefetchable]
        # As literals, since they go with every claim; many are not sent but listed, once.
        few = len(tasks) <= workers.MAX_INLINE_TASKS
        self._tasks = text_array(tasks if few else ())
        self._prefetchable = text_array(prefetchable if few else ())
        self._some_not_prefetchable = len(prefetchable) < len(tasks)
        self._none_prefetchable = not prefetchable
        self._queues = list(queues)
        self._cursors = QueueCursors(queues)
        self._prefetch = Prefetch(slots.capacity, settings.prefetch)
        self.on_next_schedule: Callable[[float | None], None] = lambda due: None
        self._is_open = True
        self._more_expected = True  # whether a look from the floors on may find something
        self._suspects_expected = True  # whether there may be a suspect
        self._notification_count = 0
        self._suspect_notification_count = 0
        self._next_poll_at = 0.0
        self._next_timer_at = 0.0

    # What others say

    def poll_now(self) -> None:
        """There is news: also below the floors."""
        self._notification_count += 1
        self._more_expected = True
        self._cursors.request_full_read()

    def expect_suspects(self) -> None:
        """There is news of jobs that were lost with a worker."""
        self._suspect_notification_count += 1
        self._suspects_expected = True

    def expect_more(self) -> None:
        """There is something new above the floors."""
        self._more_expected = True

    def close(self) -> None:
        """Take nothing more."""
        self._is_open = False

    def timer_due_in(self, seconds: float) -> None:
        """Something will be due in so many seconds."""
        self._next_timer_at = min(self._next_timer_at, time.monotonic() + seconds)

    # Asking

    def plan(self, now: float) -> ClaimRequest | None:
        """The next claim, if one is worth it. There is one under way at a time."""
        if not self._is_open or self._slots.is_reserved:
            return None
        timers_due = now >= self._next_timer_at
        full_read_at = self._cursors.full_read_at
        # Below the floors there may be more even when above them there is nothing left.
        full_read_due = full_read_at is not None and now >= full_read_at
        poll_due = now >= self._next_poll_at
        free_slots = self._slots.capacity - self._slots.running - self._slots.backlog
        with_suspects = (self._suspects_expected or poll_due) and free_slots > 0
        if self._suspects_expected and with_suspects:
            # By themselves: if one has to run alone, nothing else should have come with it.
            return self._request(
                self._cursors.plan(now), 0, timers_due or poll_due, False, free_slots
            )
        if not (self._more_expected or full_read_due or timers_due or poll_due or with_suspects):
            return None
        prefetch = self._prefetch.count
        if self._slots.backlog > prefetch // 2:
            return None
        prefetch_only = False
        if self._some_not_prefetchable and prefetch:
            # A job that is not simply tried again is claimed when it can start, not before: of one that
            # waits here when the worker dies nobody could say whether it had begun.
            if free_slots > 0:
                prefetch = 0
            else:
                prefetch_only = True
        limit = min(free_slots + prefetch, self._settings.batch)
        if limit < 1 or (prefetch_only and self._none_prefetchable):
            return None
        # A poll looks at the timers too: an idle worker asks once, not twice.
        return self._request(
            self._cursors.plan(now),
            limit,
            timers_due or poll_due,
            prefetch_only,
            free_slots if with_suspects else 0,
        )

    def _request(
        self,
        read_plan: ReadPlan,
        limit: int,
        with_timers: bool,
        prefetch_only: bool,
        suspect_limit: int,
    ) -> ClaimRequest:
        return ClaimRequest(
            read_plan,
            limit,
            with_timers,
            prefetch_only,
            suspect_limit,
            self._notification_count,
            self._suspect_notification_count,
        )

    def statements(self, request: ClaimRequest) -> list[Query[Any]]:
        """The statements that make a claim."""
        read_plan = request.read_plan
        # Timers first, in the claim's transaction: what has just become due is claimed with it.
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
        """The jobs a claim brought."""
        now = time.monotonic()
        suspects: list[ClaimedJob] = (
            answers[1 if request.with_timers else 0] if request.suspect_limit else []
        )
        if request.suspect_limit:
            # What was said while it was on its way may be newer than what it saw.
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
        """The queues that a claim has woken sleeping jobs of."""
        if not request.with_timers:
            return []
        [woken] = answers[0]
        # What others lay to sleep meanwhile is seen by the polls, which come about as often.
        delay = (
            2 * self._settings.poll_interval if woken.next_seconds is None else woken.next_seconds
        )
        delay = min(delay, 2 * self._settings.poll_interval)
        self._next_timer_at = time.monotonic() + (0 if woken.count == MAX_WOKEN_JOBS else delay)
        self.on_next_schedule(woken.next_schedule_seconds)
        if woken.count:
            self._more_expected = True
        queues: list[str] = woken.queues
        return queues

    def return_stale_jobs(self) -> None:
        """Give up what has waited here for too long."""
        if self._slots.backlog:
            self._prefetch.on_wait(self._slots.oldest_wait_seconds)
            self._slots.return_unstarted(STALE_JOB_SECONDS)

    def pause_seconds(self, now: float) -> float | None:
        """Seconds until there is something to do; None: not before somebody says so."""
        if not self._is_open:
            return None
        due_times = [self._next_poll_at, self._next_timer_at]
        if self._cursors.full_read_at is not None:
            due_times.append(self._cursors.full_read_at)
        if self._slots.backlog:
            due_times.append(now + STALE_JOB_SECONDS / 4)
        has_free_slot = self._slots.running + self._slots.backlog < self._slots.capacity
        if not has_free_slot:
            # Nothing to do until a job ends, which wakes us; the backlog is looked after meanwhile.
            return STALE_JOB_SECONDS / 4 if self._slots.backlog else None
        return max(min(due_times) - now, 0.001)


ALLOWED_WAIT_SECONDS = 0.03
"""Seconds that a job may always wait here for a place."""


class Prefetch:
    def __init__(self, capacity: int, limit: int) -> None:
        self._capacity = capacity
        self._limit = limit
        self._round_trip_seconds = 0.0
        self._was_full = False  # whether the last answer brought as many as were asked for
        self.count = 0

    def on_claim(self, idle_slots: int, seconds: float, *, is_full: bool) -> None:
        """A claim was answered, after so long, with as many as were asked for or fewer; so many places
        were empty by then."""
        self._round_trip_seconds = (
            seconds
            if not self._round_trip_seconds
            else 0.7 * self._round_trip_seconds + 0.3 * seconds
        )
        # Only places that an answer had filled say that jobs are short: at first they are all empty.
        if is_full and self._was_full and idle_slots * 4 > self._capacity:
            self.count = min(max(self._capacity // 2, self.count * 2, 1), self._limit)
        self._was_full = is_full

    def on_wait(self, seconds: float) -> None:
        """The job that has waited longest for a place has waited so long."""
        if seconds > max(4 * self._round_trip_seconds, ALLOWED_WAIT_SECONDS):
            self.count //= 2
