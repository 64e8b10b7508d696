"""Counters of one program's workers, updated once per batch where there are batches.

Each worker session has its own counters, because the database stores counts by worker. The program sums
them over ended and open sessions. There is no locking: a reader may be one batch behind.

Counts follow the database's answers: a job counts as finished when its outcome was accepted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from rota.model.histogram import SIZE_BOUNDS, Histogram

if TYPE_CHECKING:
    from rota.engine.worker.outcomes import FinishedAttempt
    from rota.store.jobs import ClaimedJob

QueueTask = tuple[str, str]
"""Queue and task."""

MAX_QUEUE_TASKS = 100
"""Queue and task pairs that are counted separately. Further ones are counted together as OTHER."""

OTHER: QueueTask = ("other", "other")

OUTCOMES = ("succeeded", "failed", "cancelled", "expired", "skipped", "quarantined")
COUNTS = ("claimed", "returned", *OUTCOMES, "retried", "suspended")


class TaskCounters:
    """Counters of the jobs of one queue and task."""

    __slots__ = (*COUNTS, "durations", "wait_times")

    def __init__(self) -> None:
        self.claimed = self.returned = 0
        self.succeeded = self.failed = self.cancelled = 0
        self.expired = self.skipped = self.quarantined = 0
        self.retried = self.suspended = 0
        self.durations = Histogram()
        """Durations of executions, including those that ended in a sleep or a retry."""
        self.wait_times = Histogram()
        """Seconds from start to claim, of jobs that were queued from the start."""

    def merge(self, other: TaskCounters) -> None:
        for name in COUNTS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.durations.merge(other.durations)
        self.wait_times.merge(other.wait_times)


class Counters:
    """Counters of one worker session, or the sum of several."""

    def __init__(self) -> None:
        self.by_task: dict[QueueTask, TaskCounters] = {}
        self.started: defaultdict[str, int] = defaultdict(int)
        """Attempts that started to run code, by task."""
        self.claims_with_jobs = self.empty_claims = 0
        """Claims that returned jobs, and claims that returned none."""
        self.claim_sizes = Histogram(SIZE_BOUNDS)
        self.round_trips = Histogram()
        self.reaped = self.declared_dead = self.refused = 0
        self.lateness = Histogram()
        """Lateness of the runs that schedules have started."""

    def task_counters(self, queue: str, task: str) -> TaskCounters:
        found = self.by_task.get((queue, task))
        if found is None:
            queue_task = (queue, task) if len(self.by_task) < MAX_QUEUE_TASKS else OTHER
            found = self.by_task.setdefault(queue_task, TaskCounters())
        return found

    def count_claim(self, jobs: Sequence[ClaimedJob]) -> None:
        """Count one answered claim."""
        if not jobs:
            self.empty_claims += 1
            return
        self.claims_with_jobs += 1
        self.claim_sizes.add(len(jobs))
        for (queue, task), waited in _by_queue_task(jobs, [job.queued_seconds for job in jobs]):
            counters = self.task_counters(queue, task)
            counters.claimed += len(waited)
            # Negative means that the time of queueing is unknown.
            if min(waited) < 0:
                waited = [each for each in waited if each >= 0]
            counters.wait_times.add_all(waited)

    def count_attempts(self, counter: str, attempts: Sequence[FinishedAttempt[Any]]) -> None:
        """Count recorded attempts, and their durations as far as their code was called."""
        jobs = [each.job for each in attempts]
        for (queue, task), seconds in _by_queue_task(jobs, [each.seconds for each in attempts]):
            counters = self.task_counters(queue, task)
            setattr(counters, counter, getattr(counters, counter) + len(seconds))
            if 0.0 in seconds:
                seconds = [each for each in seconds if each]
            counters.durations.add_all(seconds)

    def merge(self, other: Counters) -> None:
        for (queue, task), counters in other.by_task.items():
            self.task_counters(queue, task).merge(counters)
        for task, count in other.started.items():
            known = task in self.started or len(self.started) < MAX_QUEUE_TASKS
            self.started[task if known else OTHER[1]] += count
        for name in ("claims_with_jobs", "empty_claims", "reaped", "declared_dead", "refused"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("claim_sizes", "round_trips", "lateness"):
            getattr(self, name).merge(getattr(other, name))


def _by_queue_task(
    jobs: Sequence[ClaimedJob], values: list[float]
) -> Iterable[tuple[QueueTask, list[float]]]:
    """Group one value per job by queue and task.

    This runs for every job. Most batches have one queue and task, and checking that is cheaper than
    grouping.
    """
    tasks = [job.task for job in jobs]
    queues = [job.queue for job in jobs]
    if tasks.count(tasks[0]) == queues.count(queues[0]) == len(jobs):
        return [((queues[0], tasks[0]), values)]
    groups: defaultdict[QueueTask, list[float]] = defaultdict(list)
    for queue_task, value in zip(zip(queues, tasks, strict=True), values, strict=True):
        groups[queue_task].append(value)
    return groups.items()


class ProcessCounters:
    """Counters of the whole program since it started."""

    def __init__(self) -> None:
        self.enqueued: dict[QueueTask, int] = {}
        """Jobs started by this program."""
        self._ended_sessions = Counters()
        self._open_sessions: list[Counters] = []

    def begin_session(self) -> Counters:
        """Return counters for a new worker session."""
        counters = Counters()
        self._open_sessions.append(counters)
        return counters

    def end_session(self, counters: Counters) -> None:
        """Close the counters of a session and keep their counts."""
        if counters in self._open_sessions:
            self._open_sessions.remove(counters)
            self._ended_sessions.merge(counters)

    def sum(self) -> Counters:
        answer = Counters()
        for each in (self._ended_sessions, *self._open_sessions):
            answer.merge(each)
        return answer

    def count_enqueued(self, queue_task: QueueTask, count: int = 1) -> None:
        if queue_task not in self.enqueued and len(self.enqueued) >= MAX_QUEUE_TASKS:
            queue_task = OTHER
        self.enqueued[queue_task] = self.enqueued.get(queue_task, 0) + count
